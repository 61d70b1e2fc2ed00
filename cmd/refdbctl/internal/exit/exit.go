// Package exit has the exit statuses of refdbctl and the errors that set them.
package exit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Exit statuses.
const (
	OK       = 0
	Failed   = 1
	Misuse   = 2
	Locked   = 3
	Lost     = 4
	Mismatch = 5
	Unknown  = 6
	BySignal = 128 // plus the signal's number
)

// Help explains the statuses.
const Help = `Exit status:
  0    success
  1    error: the message says what to do; also if verify finds a difference, get does not find the ref,
       or doctor finds a problem
  2    usage error: the command line, a name or a value is invalid; no request was sent to the database
  3    locked: another process holds a fresh lock; nothing was changed
  4    lock lost: another process holds it, or it no longer exists; the operation that needed it was not done
  5    value mismatch: a ref has another value than expected; it was not changed
  6    outcome unknown: the reply was lost, and the operation may have been done; check, then decide
  128+N  ended by signal N, as shells report it, such as 130 for Ctrl-C: refdbctl dies of the signal
"lock" returns the exit status of the command that it ran (see refdbctl lock --help).`

// UsageError is a mistake in the command line.
type UsageError struct{ message string }

func (e *UsageError) Error() string { return e.message }

// Usage returns an error about the command line.
func Usage(message string) error { return &UsageError{message} }

// Interrupted is the error of a run that was ended by a signal.
type Interrupted struct{ Signal os.Signal }

func (e *Interrupted) Error() string { return fmt.Sprintf("interrupted (%s)", e.Signal) }

// Interruption replaces an error that was caused by a signal by the signal's *Interrupted. It keeps
// refdb.ErrOutcomeUnknown, which is more specific.
func Interruption(ctx context.Context, err error) error {
	var i *Interrupted
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &i) &&
		!errors.As(err, new(*Interrupted)) && !errors.Is(err, refdb.ErrOutcomeUnknown) {
		return i
	}
	return err
}

// Error is an error that sets the exit status. Its message, unless empty, is printed.
type Error struct {
	Code    int
	Message string
}

func (e *Error) Error() string { return e.Message }

// With returns an error that sets the exit status.
func With(code int, message string) *Error { return &Error{code, message} }

// Killed is the error of "lock" if a signal ended its command.
type Killed struct{ Signal syscall.Signal }

func (e *Killed) Error() string { return "" }

// Code returns the exit status for an error of any command.
func Code(err error) int {
	var explicit *Error
	var misuse *UsageError
	var stopped *Interrupted
	var child *Killed
	switch {
	case err == nil:
		return OK
	case errors.As(err, &child):
		return BySignal + int(child.Signal)
	case errors.As(err, &explicit):
		return explicit.Code
	case errors.As(err, &misuse):
		return Misuse
	case refdb.ClassOf(err) == refdb.OutcomeUnknown:
		return Unknown
	case errors.As(err, &stopped):
		if s, ok := stopped.Signal.(syscall.Signal); ok {
			return BySignal + int(s)
		}
		return Failed
	case errors.Is(err, refdb.ErrLockLost):
		return Lost
	case errors.Is(err, refdb.ErrMismatch):
		return Mismatch
	case errors.Is(err, refdb.ErrLocked):
		return Locked
	case errors.Is(err, refdb.ErrInvalid), errors.Is(err, refdb.ErrTooMany):
		return Misuse
	default:
		return Failed
	}
}

// DeathSignal returns the signal by which the program has to end after err, 0 for none. A shell
// ends its script only if a signal ended the program.
func DeathSignal(err error) syscall.Signal {
	var child *Killed
	var stopped *Interrupted
	switch {
	case errors.As(err, &child):
		return child.Signal
	case errors.As(err, &stopped):
		if s, ok := stopped.Signal.(syscall.Signal); ok && Code(err) == BySignal+int(s) {
			return s
		}
	}
	return 0
}
