// Refdb-hook lets the site daemon decide about every change of a guarded
// repository's refs. It is the repository's hooks/reference-transaction, hooks/update
// and hooks/pre-receive. Git starts it several times per push, so it is small and
// does next to nothing itself.
//
// A hook of the repository's own goes on working as NAME.chained beside it.
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

const usage = `refdb-hook is no command: git runs it, as hooks/reference-transaction STATE or hooks/pre-receive, with lines OLD NEW REF
on standard input, or as hooks/update REF OLD NEW; "refdbctl site enable REPOSITORY" installs it`

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
	switch name := hookName(args); {
	case name == "update" && len(args) == 4:
		c.state = wire.StateUpdate
		c.body = []byte(args[2] + " " + args[3] + " " + args[1] + "\n")
	case name == "pre-receive" && len(args) == 1:
		c.state = wire.StatePreReceive
	case name == "reference-transaction" && len(args) == 2:
		c.state = args[1]
	default:
		say(usage)
		return 1
	}
	chained := chainedHook(args[0])
	outlast(chained != "")
	if !c.known() && chained == "" {
		return 0
	}
	if c.state != wire.StateUpdate {
		var err error
		if c.body, err = io.ReadAll(io.LimitReader(os.Stdin, wire.MaxBody+1)); err != nil {
			return c.failed("standard input can't be read: " + err.Error())
		}
		if len(c.body) > wire.MaxBody {
			return c.failed("refs of more than 64 MB in one transaction: push fewer at a time")
		}
	}
	if chained != "" {
		if status := c.runChained(chained); status != 0 && c.decides() {
			return status
		}
		c.began = time.Now() // it may take its time
	}
	if !c.known() || len(c.body) == 0 {
		return 0
	}
	if _, err := wire.ParseLines(c.body); err != nil && c.state == wire.StatePreReceive {
		return 0 // git refuses invalid names after this hook, one by one
	} else if err != nil {
		return c.failed(err.Error() + ": " + usage)
	}
	return c.ask()
}

// outlast makes the hook go on when git is interrupted, and the hook with it: the
// daemon is to learn all the same what git decides, and that takes no longer than
// the limit. What the hook runs itself is to be interrupted: it would inherit
// ignored signals, but not handlers, which take a thread to start.
func outlast(runs bool) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	if runs {
		signal.Notify(make(chan os.Signal, 1), signals...)
	} else {
		signal.Ignore(signals...)
	}
}

// hookName tells by the name of the program, or else by the number of arguments.
func hookName(args []string) string {
	if len(args) == 0 {
		return ""
	}
	name := args[0][strings.LastIndexByte(args[0], '/')+1:]
	if name == "update" || name == "pre-receive" || name == "reference-transaction" {
		return name
	}
	return map[int]string{2: "reference-transaction", 4: "update"}[len(args)]
}

// known reports whether the daemon is asked at all: git has other states, before
// anything is locked.
func (c call) known() bool {
	switch c.state {
	case wire.StatePrepared, wire.StateCommitted, wire.StateAborted, wire.StatePreReceive, wire.StateUpdate:
		return true
	}
	return false
}

// decides reports whether git heeds the status.
func (c call) decides() bool { return c.state != wire.StateCommitted && c.state != wire.StateAborted }

// failed says why the daemon has not decided, and returns the status.
func (c call) failed(reason string) int {
	if c.decides() {
		say("refdb: " + reason + "; nothing was changed")
		return 1
	}
	say("refdb: the site daemon was not told that git has " + c.state + " (" + reason + "): it will look for itself")
	return 0
}

// say writes to standard error. Package os would end the program if nobody
// reads that any more.
func say(text string) {
	for b := []byte(text + "\n"); len(b) > 0; {
		n, err := syscall.Write(2, b)
		if err != nil && err != syscall.EINTR {
			return
		}
		b = b[max(n, 0):]
	}
}
