package exit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func TestEachErrorHasItsStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		code  int
		death syscall.Signal
	}{
		{nil, OK, 0},
		{errors.New("disk full"), Failed, 0},
		{Usage("no such flag"), Misuse, 0},
		{refdb.ErrInvalid, Misuse, 0},
		{refdb.ErrTooMany, Misuse, 0},
		{&refdb.LockedError{}, Locked, 0},
		{refdb.ErrLockLost, Lost, 0},
		{refdb.ErrMismatch, Mismatch, 0},
		{refdb.ErrOutcomeUnknown, Unknown, 0},
		{With(75, "locked"), 75, 0},
		{fmt.Errorf("%w: %w", With(75, "x"), refdb.ErrLocked), 75, 0}, // a chosen status comes first
		{&Interrupted{syscall.SIGINT}, 128 + 2, syscall.SIGINT},
		{&Interrupted{syscall.SIGTERM}, 128 + 15, syscall.SIGTERM},
		{errors.Join(&Interrupted{syscall.SIGINT}, refdb.ErrLockLost), 128 + 2, syscall.SIGINT},
		// Whether something was done says more than what ended it.
		{errors.Join(&Interrupted{syscall.SIGINT}, refdb.ErrOutcomeUnknown), Unknown, 0},
		{&Killed{syscall.SIGKILL}, 128 + 9, syscall.SIGKILL},
		{errors.Join(&Killed{syscall.SIGSEGV}, With(Failed, "x")), 128 + 11, syscall.SIGSEGV},
	} {
		if code, death := Code(c.err), DeathSignal(c.err); code != c.code || death != c.death {
			t.Errorf("%v: status %d and signal %d, want %d and %d", c.err, code, death, c.code, c.death)
		}
	}
}

func TestAnInterruptionReplacesWhatItCaused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&Interrupted{syscall.SIGINT})
	caused := fmt.Errorf("listing: %w", context.Canceled)
	if err := Interruption(ctx, caused); err != context.Cause(ctx) {
		t.Errorf("%v", err)
	}
	for _, err := range []error{nil, errors.New("disk full"), fmt.Errorf("%w: %w", refdb.ErrOutcomeUnknown, context.Canceled)} {
		if got := Interruption(ctx, err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	if err := Interruption(t.Context(), caused); err != caused {
		t.Errorf("without a signal: %v", err)
	}
}

// Not parallel: it changes what this process does with signals.
func TestSignalsThatTheCallerIgnoresStayIgnored(t *testing.T) {
	signal.Ignore(os.Interrupt)
	defer signal.Reset(os.Interrupt)
	ctx := WithSignals(t.Context())
	if !signal.Ignored(os.Interrupt) {
		t.Error("SIGINT is not ignored any more")
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	var i *Interrupted
	if !errors.As(context.Cause(ctx), &i) || i.Signal != syscall.SIGTERM {
		t.Errorf("%v", context.Cause(ctx))
	}
}
