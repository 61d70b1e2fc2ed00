package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// ownHook returns the path of the repository's own hook of that name; empty if there is none that can be run.
func ownHook(name string) (path string, err error) {
	common, err := commonDir()
	if err != nil {
		return "", err
	}
	dir := ownHooks(common)
	chained := join(common, wire.ChainedHooks) + "/" + name
	for looks := 1; ; looks++ {
		path := dir + "/" + name
		if !isExecutable(path) {
			return "", nil
		}
		if !isThisProgram(path) {
			return path, nil
		}
		if isExecutable(chained) {
			return chained, nil
		}
		// What was at the one place may be at the other by now.
		if looks == 2 {
			break
		}
	}
	if isExecutable(dir + "/" + name + wire.Chained) {
		if common == "." {
			common, _ = os.Getwd()
		}
		return "", errors.New(wire.HookNotInPlace(dir+"/"+name+wire.Chained, common))
	}
	return "", nil
}

// ownHooks returns the directory of the repository's own hooks.
func ownHooks(common string) string {
	target, err := os.Readlink(join(common, wire.OwnHooks))
	switch {
	case err != nil:
		return join(common, "hooks")
	case strings.HasPrefix(target, "/"):
		return target
	}
	// It is relative to the link's directory, one below the common one. Without that a hook sees the path that git gives it.
	if inside, ok := strings.CutPrefix(target, "../"); ok {
		return join(common, inside)
	}
	return join(common, "refdb/"+target)
}

func isExecutable(path string) bool {
	const executable = 1 // X_OK
	return syscall.Access(path, executable) == nil
}

// programPath is in the build information of this program, of any version. It is put together here so that no other program that
// names it has it.
var programPath = []byte("path\t" + strings.Join([]string{"github.com", "globalrefdb", "globalrefdb", "cmd", "refdb-hook"}, "/") + "\n")

// isThisProgram reports whether the file at path is refdb-hook, of any version, or the script that starts it.
func isThisProgram(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	chunk := make([]byte, 64<<10)
	n, err := io.ReadAtLeast(f, chunk, len(wire.Relay))
	if bytes.HasPrefix(chunk[:n], []byte(wire.Relay)) {
		return true
	}
	if !bytes.HasPrefix(chunk[:n], []byte("\x7fELF")) {
		return false
	}
	for err == nil {
		if bytes.Contains(chunk[:n], programPath) {
			return true
		}
		kept := copy(chunk, chunk[max(0, n-len(programPath)):n]) // it may begin in one chunk and end in the next
		var more int
		more, err = f.Read(chunk[kept:])
		n = kept + more
	}
	return false
}

// handOver runs the repository's own hook in the place of this program.
func (c call) handOver(name string) int {
	path, err := ownHook(name)
	switch {
	case err != nil:
		return c.failed(err.Error())
	case path == "" && name == "proc-receive": // git takes it that there is one
		return c.failed(wire.NoOwnHook(name))
	case path == "":
		return 0
	}
	args := append([]string{path}, c.args[1:]...)
	err = syscall.Exec(path, args, os.Environ())
	if errors.Is(err, syscall.ENOEXEC) {
		err = syscall.Exec("/bin/sh", append([]string{"sh"}, args...), os.Environ())
	}
	return c.failed(wire.NotRun(path, err))
}

// runOwn runs the repository's own hook, if it has one, and returns its status.
func (c call) runOwn(name, path string) int {
	p, feed, err := c.start(path)
	if errors.Is(err, syscall.ENOENT) {
		// It was put back into its place meanwhile, or what runs it is missing.
		if now, again := ownHook(name); again == nil && now != "" && now != path {
			path = now
			p, feed, err = c.start(path)
		}
	}
	if err != nil {
		return c.failed(wire.NotRun(path, err))
	}
	if feed != nil {
		feed.Write(c.body) // a hook need not read it
		feed.Close()
	}
	state, err := p.Wait()
	if err != nil {
		return c.failed(path + ": " + err.Error())
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		say(wire.EndedBySignal(path, status.Signal().String()))
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// start starts the hook at path. Feed is the other end of its standard input; nil if that is this program's.
func (c call) start(path string) (p *os.Process, feed *os.File, err error) {
	stdin := os.Stdin
	if c.state != wire.StateUpdate {
		if stdin, feed, err = os.Pipe(); err != nil {
			return nil, nil, err
		}
		defer stdin.Close()
	}
	args := append([]string{path}, c.args[1:]...)
	attr := &os.ProcAttr{Files: []*os.File{stdin, os.Stdout, os.Stderr}}
	p, err = os.StartProcess(path, args, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		// A script that doesn't say what runs it. Git takes the shell for it.
		p, err = os.StartProcess("/bin/sh", append([]string{"sh"}, args...), attr)
	}
	if err != nil && feed != nil {
		feed.Close()
	}
	return p, feed, err
}
