package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// Exit statuses.
const (
	exitOK       = 0
	exitError    = 1
	exitUsage    = 2
	exitLocked   = 3
	exitLost     = 4
	exitMismatch = 5
	exitUnknown  = 6
	exitSignal   = 128 // and the signal's number
)

// emulatorVariable is what Google's client libraries obey.
const emulatorVariable = "SPANNER_EMULATOR_HOST"

const exitCodesHelp = `Exit status:
  0    done
  1    error: the message says what to do; also a difference that verify found, a ref that get
       did not find, something wrong that doctor found
  2    usage: the command line, a name or a value is wrong; the database was not asked
  3    locked: somebody holds a fresh lock; nothing was changed
  4    lock lost: it is another's or gone; what needed it was not done
  5    value mismatch: a ref holds another value than was expected; it was left alone
  6    outcome unknown: the reply was lost, and it may have been done; look, then decide
  128+N  ended by signal N, such as 130 for Ctrl-C: so a shell has it, refdbctl dies of the signal
"lock" returns the status of the command that it ran (see refdbctl lock --help).`

// usageError is a mistake in the command line.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usage(message string) error { return &usageError{message} }

// interrupted says that a signal ended the run.
type interrupted struct{ signal os.Signal }

func (e *interrupted) Error() string { return fmt.Sprintf("interrupted (%s)", e.signal) }

// interruption returns the signal in place of an error that it caused, unless that
// error says more.
func interruption(ctx context.Context, err error) error {
	var i *interrupted
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &i) &&
		!errors.As(err, new(*interrupted)) && !errors.Is(err, refdb.ErrOutcomeUnknown) {
		return i
	}
	return err
}

// status ends the run with a command's own exit status. Its message, unless
// empty, is printed.
type status struct {
	code    int
	message string
}

func (e *status) Error() string { return e.message }

// killed says that a signal ended the command that was run.
type killed struct{ signal syscall.Signal }

func (e *killed) Error() string { return "" }

// exitCode is the one place where errors become exit statuses.
func exitCode(err error) int {
	var own *status
	var wrong *usageError
	var signal *interrupted
	var dead *killed
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &dead):
		return exitSignal + int(dead.signal)
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &wrong):
		return exitUsage
	case refdb.ClassOf(err) == refdb.OutcomeUnknown:
		return exitUnknown
	case errors.As(err, &signal):
		if s, ok := signal.signal.(syscall.Signal); ok {
			return exitSignal + int(s)
		}
		return exitError
	case errors.Is(err, refdb.ErrLockLost):
		return exitLost
	case errors.Is(err, refdb.ErrMismatch):
		return exitMismatch
	case errors.Is(err, refdb.ErrLocked):
		return exitLocked
	case errors.Is(err, refdb.ErrInvalid), errors.Is(err, refdb.ErrTooMany):
		return exitUsage
	default:
		return exitError
	}
}

// deathOf returns the signal that the program is to die of after err, 0 for
// none: a shell ends its script only if it sees that.
func deathOf(err error) syscall.Signal {
	var dead *killed
	var i *interrupted
	switch {
	case errors.As(err, &dead):
		return dead.signal
	case errors.As(err, &i):
		if s, ok := i.signal.(syscall.Signal); ok && exitCode(err) == exitSignal+int(s) {
			return s
		}
	}
	return 0
}

// report prints err in one line, and returns the exit status.
func (a *app) report(err error) int {
	if err != nil && err.Error() != "" {
		message := oneLine(err.Error())
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, refdb.ErrLocked) {
			message += fmt.Sprintf(" (no answer from the database within --timeout %s: %s)", a.timeout, a.address())
		}
		fmt.Fprintf(a.messages, "refdbctl: %s\n", message)
	}
	return exitCode(err)
}

// address is where the database is asked; no password gets through.
func (a *app) address() string {
	address := redact(a.url, a.url)
	if emulator := a.env(emulatorVariable); emulator != "" && strings.HasPrefix(a.url, "spanner:") {
		address += fmt.Sprintf(", the emulator at %s that %s names", emulator, emulatorVariable)
	}
	return address
}

// note prints a line beside the results.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.messages, "refdbctl: %s\n", oneLine(fmt.Sprintf(format, args...)))
}

// oneLine joins the lines of a message and makes it safe for a terminal.
func oneLine(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return output.Escape(strings.Join(lines, "; "))
}
