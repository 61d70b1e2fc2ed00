package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// timeout limits the start of a server, with the time that initdb takes, and its end. However busy the
// machine is, only what hangs takes as long.
const timeout = 5 * time.Minute

// watch runs a server ($4…) and writes its process ID to descriptor 4. When
// descriptor 3 comes to its end, which is when this process closes it or dies,
// however it dies, watch sends the server a signal ($3). It repeats the signal
// until the server has ended: a server may not listen to signals yet. Then it
// removes the server's directory ($1) if that is temporary ($2) and, by ending,
// closes descriptor 4.
const watch = `
dir=$1 temporary=$2 signal=$3; shift 3
"$@" 3<&- 4>&- </dev/null & server=$!
echo "$server" >&4
{ cat <&3 >/dev/null; while kill -s "$signal" "$server"; do sleep 0.1; done; } 4>&- 2>/dev/null &
wait "$server"; status=$?
[ -z "$temporary" ] || rm -rf "$dir"
exit "$status"`

// A Process is a running server.
type Process struct {
	name     string
	dir      directory
	pid      int // of the server
	cmd      *exec.Cmd
	lifeline *os.File // open while the server shall run
	ended    *os.File // at its end when the server has ended
	log      *os.File
	logStart int64 // where the server's output begins
}

// A command is how to run a server.
type command struct {
	name   string // for errors; "": argv[0]
	argv   []string
	dir    directory
	signal string              // ends the server
	as     *syscall.Credential // nil: our own account
	log    string              // a file to append to; "": one without a name, which leaves nothing behind
}

// start runs the server until Stop or Kill.
func (c command) start() (_ *Process, err error) {
	p := &Process{name: c.name, dir: c.dir}
	if p.name == "" {
		p.name = c.argv[0]
	}
	var ours, theirs []*os.File
	defer func() {
		if err != nil {
			closeAll(ours)
			c.dir.removeTemporary()
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
	if p.log, err = openLog(c.log); err != nil {
		return nil, err
	}
	ours = append(ours, p.log)
	info, err := p.log.Stat()
	if err != nil {
		return nil, err
	}
	p.logStart = info.Size()

	temporary := ""
	if c.dir.temporary {
		temporary = "temporary"
	}
	p.cmd = exec.Command("/bin/sh", append([]string{"-c", watch, "watch", c.dir.path, temporary, c.signal}, c.argv...)...)
	p.cmd.Dir = c.dir.path
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.ExtraFiles = theirs // descriptors 3 and 4
	// Its own group: Ctrl-C at the terminal is for this process, which then stops it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.as}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	// The shell has its own: without them the pipe ends when the shell does.
	closeAll(theirs)
	theirs = nil
	line, err := bufio.NewReader(p.ended).ReadString('\n')
	if err == nil {
		p.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err != nil {
		err = fmt.Errorf("start %s: %w; it says: %s", p.name, err, p.Output())
		lifeline.Close()
		_ = p.cmd.Wait()
		return nil, err
	}
	return p, nil
}

// openLog opens the file for what a server prints.
func openLog(path string) (*os.File, error) {
	if path != "" {
		return os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
	}
	f, err := os.CreateTemp("", "testserver-*.log")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// Stop ends the server and waits for its end. The error says that the server
// did not end by itself.
func (p *Process) Stop() (err error) {
	p.lifeline.Close()
	if !p.endsWithin(timeout) {
		err = fmt.Errorf("%s doesn't stop; its process group %d is killed", p.name, p.cmd.Process.Pid)
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	p.release()
	return err
}

// release waits for the shell and removes what is left. The server's account
// may not remove the directory itself.
func (p *Process) release() {
	_ = p.cmd.Wait() // how the server ended is its log's matter
	p.dir.removeTemporary()
	closeAll([]*os.File{p.lifeline, p.ended, p.log})
}

// endsWithin reports whether the server has ended, or ends within d.
func (p *Process) endsWithin(d time.Duration) bool {
	_ = p.ended.SetReadDeadline(time.Now().Add(d))
	_, err := p.ended.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// until calls ready, again and again, until it returns nil. It fails if the
// server ends before that, or takes too long.
func (p *Process) until(ctx context.Context, ready func(context.Context) error) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := ready(ctx)
		switch {
		case err == nil:
			return nil
		case p.endsWithin(20 * time.Millisecond):
			return fmt.Errorf("%s ended at once; it says: %s", p.name, p.Output())
		case ctx.Err() != nil:
			return fmt.Errorf("%s isn't ready after %s: %w; it says: %s", p.name, time.Since(begin).Round(time.Second), err, p.Output())
		}
	}
}

// Output returns what the server printed.
func (p *Process) Output() string { return p.OutputFrom(0) }

// Printed returns how much the server has printed, in bytes.
func (p *Process) Printed() int64 {
	info, err := p.log.Stat()
	if err != nil {
		return 0
	}
	return max(0, info.Size()-p.logStart)
}

// OutputFrom returns what the server printed after its first bytes, of which there are at.
func (p *Process) OutputFrom(at int64) string {
	text := make([]byte, max(0, p.Printed()-at))
	n, _ := p.log.ReadAt(text, p.logStart+at)
	return strings.TrimSpace(string(text[:n]))
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
