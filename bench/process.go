package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// watch runs a server ($3…) and sends it a signal ($2) once descriptor 3 comes
// to its end: when this process closes it, and when it dies, however it does.
// Then it removes the server's directory ($1).
const watch = `
dir=$1 signal=$2; shift 2
"$@" 3<&- </dev/null & server=$!
{ cat <&3 >/dev/null; while kill -s "$signal" "$server"; do sleep 0.1; done; } 2>/dev/null &
wait "$server"; status=$?
rm -rf "$dir"
exit "$status"`

// A process is a server with a directory of its own, which goes with it.
type process struct {
	lifeline *os.File // open while the server shall run
	ended    chan struct{}
	log      string // a file, outside of the directory
	pid      int    // of the shell that watches
}

// startProcess runs argv as that account (nil: as we are) until stop.
func startProcess(dir, log, signal string, as *syscall.Credential, argv ...string) (*process, error) {
	theirs, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	output, err := os.Create(log)
	if err != nil {
		lifeline.Close()
		return nil, err
	}
	defer output.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", watch, "watch", dir, signal}, argv...)...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{theirs}
	// Its own group: Ctrl-C at the terminal is for us, and we stop it then.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
	if err := cmd.Start(); err != nil {
		lifeline.Close()
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	p := &process{lifeline: lifeline, ended: make(chan struct{}), log: log, pid: cmd.Process.Pid}
	go func() { // ends with the server, which stop waits for
		_ = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends the server and waits for it.
func (p *process) stop() {
	p.lifeline.Close()
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		<-p.ended
	}
}

// until calls ready, again and again, until it returns nil, and fails if the
// server ends before that or takes too long.
func (p *process) until(ready func() error) error {
	const patience = 30 * time.Second
	for deadline := time.Now().Add(patience); ; {
		err := ready()
		if err == nil {
			return nil
		}
		said, _ := os.ReadFile(p.log)
		select {
		case <-p.ended:
			return fmt.Errorf("the server ended at once; it says: %s", said)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server isn't ready after %s: %w; it says: %s", patience, err, said)
		}
	}
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
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}
