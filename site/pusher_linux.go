package site

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

// pusher returns the process of git that runs the hook p. said is what the hook
// knew when it started; nil if it is of the version before.
//
// A hook whose git was killed has another parent: the first process, or
// whichever else adopts orphans. That may be a front end, in whose process group git and
// its hooks are; it lives on, and as a pusher would keep the refs locked for as long.
func (p peer) pusher(c *Config, said *wire.Process, boot string) (agent, error) {
	if p.pid <= 0 || said != nil && said.PID != p.pid {
		return agent{}, errors.New("the hook runs in another PID namespace than the site daemon: nothing was changed; let both have the same one")
	}
	hook, err := statOf(p.pid)
	if err != nil || hook.parent <= 1 {
		return agent{}, orphanUnless(err)
	}
	parent, err := statOf(hook.parent)
	if err != nil || parent.group != hook.group {
		return agent{}, orphanUnless(err)
	}
	if said != nil && (said.Parent != hook.parent || said.ParentStart != parent.start) {
		return agent{}, errOrphan
	}
	program, err := programOf(hook.parent)
	if err != nil {
		return agent{}, err
	}
	if !c.pushes(program) {
		return agent{}, fmt.Errorf("the hook was started by %s, which is not git: nothing was changed; if it is, name it as site.gitExe in the site's configuration",
			name(program))
	}
	return agent{boot, hook.parent, parent.start}, nil
}

// orphanUnless is errOrphan, unless a process could not be looked at.
func orphanUnless(err error) error {
	if err == nil || isGone(err) {
		return errOrphan
	}
	return fmt.Errorf("the process that pushes can't be looked at: %w", err)
}

// programOf is the name of the program that a process runs. Those of root are seen by
// root alone; their short name has to do.
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
		return "", orphanUnless(err)
	}
	return "", orphanUnless(err)
}
