package dbtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// watch runs a server ($3…) and sends it a signal ($2) once descriptor 3 comes
// to its end: when this process closes it, and when it dies, however it does.
// It sends it until it works: a server may not listen to signals yet. Then it
// removes the server's directory ($1) and, by ending, closes descriptor 4.
const watch = `
dir=$1 signal=$2; shift 2
"$@" 3<&- 4>&- </dev/null & server=$!
{ cat <&3 >/dev/null; while kill -s "$signal" "$server"; do sleep 0.1; done; } 4>&- 2>/dev/null &
wait "$server"; status=$?
rm -rf "$dir"
exit "$status"`

// A process is a server with a directory of its own, which goes with it.
type process struct {
	name     string
	cmd      *exec.Cmd
	lifeline *os.File // open while the server shall run
	ended    *os.File // at its end when the server has ended
	log      *os.File // what it printed; has no name, so it leaves nothing behind
}

// start runs argv as that account (nil: as we are) until stop, which sends it
// signal. The directory is the process's from then on.
func start(dir, signal string, as *syscall.Credential, argv ...string) (_ *process, err error) {
	p := &process{name: argv[0]}
	var ours, theirs []*os.File
	defer func() {
		if err != nil {
			closeAll(ours)
			os.RemoveAll(dir)
		}
		closeAll(theirs)
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	wait, lifeline := pipe()
	ended, alive := pipe()
	if err != nil {
		return nil, err
	}
	ours, theirs = []*os.File{lifeline, ended}, []*os.File{wait, alive}
	p.lifeline, p.ended = lifeline, ended

	p.log, err = os.CreateTemp("", "dbtest-*.log")
	if err != nil {
		return nil, err
	}
	ours = append(ours, p.log)
	if err := os.Remove(p.log.Name()); err != nil {
		return nil, err
	}

	p.cmd = exec.Command("/bin/sh", append([]string{"-c", watch, "dbtest", dir, signal}, argv...)...)
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.ExtraFiles = theirs // descriptors 3 and 4
	// Its own group: Ctrl-C at the terminal is for the tests, which then stop it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return p, nil
}

// stop ends the server and waits for it.
func (p *process) stop() {
	defer closeAll([]*os.File{p.ended, p.log})
	p.lifeline.Close()
	if !p.wait(10 * time.Second) {
		served("%s doesn't stop; its process group %d is killed", p.name, p.cmd.Process.Pid)
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	_ = p.cmd.Wait()
}

// wait reports whether the server ended within d.
func (p *process) wait(d time.Duration) bool {
	_ = p.ended.SetReadDeadline(time.Now().Add(d))
	_, err := p.ended.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// until calls ready, again and again, until it returns nil, and fails if the
// server ends before that or takes too long.
func (p *process) until(ready func() error) error {
	for deadline := time.Now().Add(timeout); ; {
		err := ready()
		switch {
		case err == nil:
			return nil
		case p.wait(20 * time.Millisecond):
			return fmt.Errorf("%s ended at once; it says: %s", p.name, p.output())
		case time.Now().After(deadline):
			return fmt.Errorf("%s isn't ready after %s: %w; it says: %s", p.name, timeout, err, p.output())
		}
	}
}

// output returns what the server printed.
func (p *process) output() string {
	info, err := p.log.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, info.Size())
	n, _ := p.log.ReadAt(text, 0)
	return strings.TrimSpace(string(text[:n]))
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// serverDir returns a new directory that belongs to that account. It is not in
// TMPDIR: the path of a socket ends at about 100 bytes, and another user must get there.
func serverDir(as *syscall.Credential) (string, error) {
	dir, err := os.MkdirTemp("/tmp", "dbtest-")
	if err != nil {
		return "", err
	}
	if as != nil {
		err = os.Chown(dir, int(as.Uid), int(as.Gid))
	}
	return dir, err
}

// unprivileged returns the account for servers that refuse to run as root: nil,
// which is our own, unless that is root.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}
