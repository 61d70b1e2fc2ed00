package pusher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Agent returns the git process that runs the hook. Said is what the hook knew when it
// started; nil if the hook speaks version 1.
//
// If git was killed, its hook has another parent: process 1, or whichever process adopts
// orphans. That may be a front end in the process group of git and its hooks. The front end
// lives on: taken for the pusher, it would keep the refs locked.
func (p Hook) Agent(gitPrograms []string, said *wire.Process, boot string) (Agent, error) {
	if p.pid <= 0 {
		return Agent{}, errors.New(wire.AnotherPIDNamespace)
	}
	hook, err := statOf(p.pid)
	if err != nil || hook.parent <= 1 {
		return Agent{}, goneUnless(err)
	}
	parent, err := statOf(hook.parent)
	if err != nil || parent.group != hook.group {
		return Agent{}, goneUnless(err)
	}
	if said != nil {
		if err := p.startedBy(hook.parent, parent.start, *said); err != nil {
			return Agent{}, err
		}
	}
	program, err := programOf(hook.parent)
	if err != nil {
		return Agent{}, err
	}
	if !movesRefs(program, gitPrograms) {
		return Agent{}, errors.New(wire.NotGit(program))
	}
	return Agent{boot, hook.parent, parent.start}, nil
}

// startedBy returns an error unless the process with that ID and start is the parent that the hook had when it started.
// A hook in a PID namespace below this one says the IDs that processes have there.
func (p Hook) startedBy(parent int, start string, said wire.Process) error {
	own, parents := p.pid, parent
	if said.PID != own || said.Parent != parents {
		var err error
		if own, err = innermostID(p.pid); err == nil {
			parents, err = innermostID(parent)
		}
		if err != nil {
			return goneUnless(err)
		}
	}
	switch {
	case said.PID != own:
		return errors.New(wire.AnotherPIDNamespace)
	case said.Parent != parents:
		return ErrGone
	case said.ParentStart == start:
		return nil
	case own != p.pid:
		return errors.New(wire.ProcOfAnotherNamespace)
	}
	return ErrGone
}

// goneUnless returns ErrGone, unless err says that a process could not be looked at.
func goneUnless(err error) error {
	if err == nil || isGone(err) {
		return ErrGone
	}
	return fmt.Errorf("%s: %w", wire.PusherUnreadable, err)
}

// programOf returns the name of the program that a process runs. Only root may read those of
// root's processes: for others their short name has to do.
func programOf(pid int) (string, error) {
	proc := "/proc/" + strconv.Itoa(pid)
	path, err := os.Readlink(proc + "/exe")
	if err == nil {
		return filepath.Base(path), nil
	}
	if errors.Is(err, fs.ErrPermission) {
		short, err := os.ReadFile(proc + "/comm")
		if err == nil {
			return strings.TrimSpace(string(short)), nil
		}
		return "", goneUnless(err)
	}
	return "", goneUnless(err)
}
