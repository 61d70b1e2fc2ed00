package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"slices"
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
	exitSignal   = 128 // plus the signal's number
)

// emulatorVariable makes Google's client libraries use an emulator.
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

// interruption replaces an error that a signal caused by the signal's *interrupted. It keeps
// refdb.ErrOutcomeUnknown, which says more.
func interruption(ctx context.Context, err error) error {
	var i *interrupted
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &i) &&
		!errors.As(err, new(*interrupted)) && !errors.Is(err, refdb.ErrOutcomeUnknown) {
		return i
	}
	return err
}

// status is an error that sets the exit status. Its message, unless empty, is printed.
type status struct {
	code    int
	message string
}

func (e *status) Error() string { return e.message }

// killed says that a signal ended the command that "lock" ran.
type killed struct{ signal syscall.Signal }

func (e *killed) Error() string { return "" }

// exitCode returns the exit status for an error of any command.
func exitCode(err error) int {
	var explicit *status
	var misuse *usageError
	var stopped *interrupted
	var child *killed
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &child):
		return exitSignal + int(child.signal)
	case errors.As(err, &explicit):
		return explicit.code
	case errors.As(err, &misuse):
		return exitUsage
	case refdb.ClassOf(err) == refdb.OutcomeUnknown:
		return exitUnknown
	case errors.As(err, &stopped):
		if s, ok := stopped.signal.(syscall.Signal); ok {
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

// deathSignal returns the signal by which the program is to end after err, 0 for none. A
// shell ends its script only if a signal ended the program.
func deathSignal(err error) syscall.Signal {
	var child *killed
	var stopped *interrupted
	switch {
	case errors.As(err, &child):
		return child.signal
	case errors.As(err, &stopped):
		if s, ok := stopped.signal.(syscall.Signal); ok && exitCode(err) == exitSignal+int(s) {
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

// address returns where the database is, without passwords.
func (a *app) address() string {
	address := redact(a.url, a.url)
	if emulator := a.env(emulatorVariable); emulator != "" && strings.HasPrefix(a.url, "spanner:") {
		address += fmt.Sprintf(", the emulator at %s that %s names", emulator, emulatorVariable)
	}
	return address
}

// note prints a line on standard error.
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

const redacted = "xxxxx"

// redactor is a writer that removes the passwords of database URLs. Each Write is a
// whole message.
type redactor struct {
	to  io.Writer
	url func() string // the URL in use
}

func (r *redactor) Write(p []byte) (int, error) {
	if _, err := io.WriteString(r.to, redact(string(p), r.url())); err != nil {
		return 0, err
	}
	return len(p), nil
}

var (
	// userinfo extends to the last @ before a space: passwords often hold an
	// unescaped @.
	userinfo = regexp.MustCompile(`(//[^\s/?#:@]*:)[^\s"'` + "`" + `]*@`)
	setting  = regexp.MustCompile(`((?i:password|passwd|pwd)=)(?:'[^']*'|[^\s&;"'` + "`" + `]+)`)
)

// redact returns text without the passwords of url, and without anything else that
// looks like a password in a URL or a connection string.
func redact(text, url string) string {
	for _, secret := range secrets(url) {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	text = userinfo.ReplaceAllString(text, "${1}"+redacted+"@")
	return setting.ReplaceAllString(text, "${1}"+redacted)
}

// secrets returns the passwords in a URL, both as they are written and unescaped, longest first.
// The URL may be malformed, so it is not parsed but cut at its delimiters.
func secrets(raw string) []string {
	var all []string
	add := func(s string) {
		all = append(all, s)
		if plain, err := url.PathUnescape(s); err == nil {
			all = append(all, plain)
		}
		if plain, err := url.QueryUnescape(s); err == nil {
			all = append(all, plain)
		}
	}
	if _, rest, ok := strings.Cut(raw, "//"); ok {
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			if _, password, ok := strings.Cut(rest[:at], ":"); ok {
				add(password)
				// A parser that rejects the URL may quote a part of the password.
				all = append(all, strings.FieldsFunc(password, func(r rune) bool { return strings.ContainsRune("/?#@:[]%", r) })...)
			}
		}
	}
	for _, match := range setting.FindAllStringSubmatchIndex(raw, -1) {
		add(strings.Trim(raw[match[3]:match[1]], "'"))
	}
	// A very short password would match half of every message. The patterns of redact
	// still catch it where it stands as a password.
	all = slices.DeleteFunc(all, func(s string) bool { return len(s) < 3 })
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(all)
}

// withSignals returns a context that the first SIGINT or SIGTERM ends, with an *interrupted
// as its cause. The second signal has its default effect.
func withSignals(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		cancel(&interrupted{signal: s})
	}()
	return ctx
}

// notify is signal.Notify without the signals that our caller made us ignore, as nohup
// does. They stay ignored, also by the commands that we start.
func notify(to chan<- os.Signal, signals ...os.Signal) {
	heeded := slices.DeleteFunc(slices.Clone(signals), signal.Ignored)
	if len(heeded) > 0 { // with none, Notify would relay all signals
		signal.Notify(to, heeded...)
	}
}
