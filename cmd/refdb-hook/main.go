// Refdb-hook asks the site daemon about every change of a guarded repository's refs. Its links, under the names of
// git's hooks, are in the site's hook directory, to which all guarded repositories lead git. Git starts it several times per
// push, so it is small, and the daemon does the work.
//
// Hooks of the repository's own stay where they are. Refdb-hook runs them from there, before it asks.
package main

import (
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

func main() {
	os.Exit(run(os.Args))
}

// A call is what git runs the hook for.
type call struct {
	began   time.Time
	process wire.Process
	args    []string
	state   string
	body    []byte
}

func run(args []string) int {
	c := call{began: time.Now(), process: self(), args: args}
	name := hookName(args)
	switch {
	case name == "update" && len(args) == 4:
		c.state = wire.StateUpdate
		c.body = []byte(args[2] + " " + args[3] + " " + args[1] + "\n")
	case name == "pre-receive" && len(args) == 1:
		c.state = wire.StatePreReceive
	case name == "reference-transaction" && len(args) == 2:
		c.state = args[1]
	case name == "proc-receive", name == "post-receive", name == "post-update":
		return c.handOver(name)
	default:
		say(wire.Usage)
		return 1
	}
	if name == "reference-transaction" && !c.asksDaemon() {
		return c.handOver(name)
	}
	own, err := ownHook(name)
	outlast(own != "")
	if err != nil {
		return c.failed(err.Error())
	}
	if c.state != wire.StateUpdate {
		if c.body, err = io.ReadAll(io.LimitReader(os.Stdin, wire.MaxBody+1)); err != nil {
			return c.failed(wire.StdinUnreadable(err))
		}
		if len(c.body) > wire.MaxBody {
			return c.failed(wire.TransactionTooLarge)
		}
	}
	if own != "" {
		if status := c.runOwn(name, own); status != 0 && c.decides() {
			return status
		}
		c.began = time.Now() // it may take its time
	}
	if len(c.body) == 0 {
		return 0
	}
	c.body = inNamespace(c.state, c.body)
	if len(c.body) > wire.MaxBody {
		return c.failed(wire.TransactionTooLarge)
	}
	if _, err := wire.ParseLines(c.body); err != nil && c.state == wire.StatePreReceive {
		return 0 // git refuses invalid names after this hook, one by one
	} else if err != nil {
		return c.failed(err.Error() + ": " + wire.Usage)
	}
	return c.ask()
}

// outlast makes the hook go on when git and the hook are interrupted: the daemon must still learn
// what git decides, which takes no longer than the limit. If runs is set, the hook runs a program
// that must be interrupted. That program inherits ignored signals, but not handlers: it is to ignore those that the
// hook's own parent ignores, as under nohup, and no others. Starting a handler takes a thread.
func outlast(runs bool) {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		switch {
		case signal.Ignored(s):
		case runs:
			signal.Notify(make(chan os.Signal, 1), s)
		default:
			signal.Ignore(s)
		}
	}
}

// hookName returns the hook's name: by the name of the program, or else by the number of arguments.
func hookName(args []string) string {
	if len(args) == 0 {
		return ""
	}
	switch name := args[0][strings.LastIndexByte(args[0], '/')+1:]; name {
	case "update", "pre-receive", "reference-transaction", "proc-receive", "post-receive", "post-update":
		return name
	}
	return map[int]string{2: "reference-transaction", 4: "update"}[len(args)]
}

// asksDaemon reports whether the daemon is asked at all. Git has other states, from before it locks
// refs.
func (c call) asksDaemon() bool {
	switch c.state {
	case wire.StatePrepared, wire.StateCommitted, wire.StateAborted, wire.StatePreReceive, wire.StateUpdate:
		return true
	}
	return false
}

// decides reports whether the exit status matters to git.
func (c call) decides() bool { return c.state != wire.StateCommitted && c.state != wire.StateAborted }

// failed says why the daemon has not decided, and returns the status.
func (c call) failed(reason string) int {
	if c.decides() {
		say(wire.Undecided(reason))
		return 1
	}
	say(wire.Untold(c.state, reason))
	return 0
}

// say writes to standard error. Package os would end the program if standard error is closed.
func say(text string) {
	for b := []byte(text + "\n"); len(b) > 0; {
		n, err := syscall.Write(2, b)
		if err != nil && err != syscall.EINTR {
			return
		}
		b = b[max(n, 0):]
	}
}
