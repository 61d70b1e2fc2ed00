package roundtrip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// The meaning of a failure depends on its code, on the stage that the round trip reached, and on
// whether it writes.
func TestAFailureIsJudgedByItsCodeAndByHowFarTheRoundTripCame(t *testing.T) {
	server := func(code string) error {
		return fmt.Errorf("wrapped: %w", &pgconn.PgError{Severity: "FATAL", Code: code, Message: "two\nlines"})
	}
	lost := fmt.Errorf("receive: %w", io.ErrUnexpectedEOF)
	var other error // not an error of this package
	type row struct {
		came  Stage
		err   error
		write error // the error that a failed write wraps
		read  error
		again bool
	}
	rows := []row{
		// The connection broke, or a pooler lost its connection to the server.
		{Connecting, lost, driver.ErrUnavailable, driver.ErrUnavailable, false},
		{Preparing, lost, driver.ErrUnavailable, driver.ErrUnavailable, true},
		{Executing, lost, driver.ErrOutcomeUnknown, driver.ErrUnavailable, true},
		{Committing, lost, driver.ErrOutcomeUnknown, driver.ErrUnavailable, true},
		{Connecting, server("08P01"), driver.ErrUnavailable, driver.ErrUnavailable, false},
		{Executing, server("08P01"), driver.ErrOutcomeUnknown, driver.ErrUnavailable, true},
		// The server refused to commit, or failed otherwise after the last answer.
		{Committing, server("40001"), driver.ErrUnavailable, driver.ErrUnavailable, true},
		{Committing, server("40P01"), driver.ErrUnavailable, driver.ErrUnavailable, true},
		{Committing, server("57P01"), driver.ErrOutcomeUnknown, driver.ErrUnavailable, true},
		{Committing, server("57014"), driver.ErrOutcomeUnknown, driver.ErrUnavailable, false},
		{Committing, server("XX000"), driver.ErrOutcomeUnknown, other, false},
		{Committing, errNotConfirmed, driver.ErrOutcomeUnknown, driver.ErrUnavailable, true},
		{Connecting, puddle.ErrClosedPool, driver.ErrClosed, driver.ErrClosed, false},
	}
	// Each of these codes, instead of an answer, means that nothing was changed.
	for code, want := range map[string]error{
		"40001": driver.ErrUnavailable, "40P01": driver.ErrUnavailable,
		"57P01": driver.ErrUnavailable, "57P02": driver.ErrUnavailable, "57P05": driver.ErrUnavailable,
		"53200": driver.ErrUnavailable, "25006": driver.ErrUnavailable, "25P03": driver.ErrUnavailable, "25P04": driver.ErrUnavailable,
		"0A000": other, "26000": errPooler, "42P05": errPooler,
	} {
		rows = append(rows, row{Executing, server(code), want, want, true})
	}
	for code, want := range map[string]error{
		"57P03": driver.ErrUnavailable, "57014": driver.ErrUnavailable, "55P03": driver.ErrUnavailable,
		"53300": driver.ErrUnavailable, "53000": driver.ErrUnavailable,
		"42P01": driver.ErrSchema, "42703": driver.ErrSchema, "3F000": driver.ErrSchema,
		"53100": errDiskFull, "42501": errPrivilege, "28P01": errPassword, "28000": errAuthorization,
		"3D000": errDatabase, "57P04": errDatabase,
		"22021": other, "23505": other, "XX000": other,
	} {
		rows = append(rows, row{Executing, server(code), want, want, false})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	closing, end := context.WithCancelCause(t.Context())
	end(errEnded)
	for _, r := range rows {
		for _, writes := range []bool{true, false} {
			want := r.read
			if writes {
				want = r.write
			}
			again := r.again && !errors.Is(want, driver.ErrOutcomeUnknown)
			name := fmt.Sprintf("stage %d, %q, writes: %v", r.came, Code(r.err), writes)
			t.Run(name, func(t *testing.T) {
				task := Pipeline{What: "do it", writes: writes}
				v := judge(t.Context(), task, r.came, r.err)
				if v.again != again {
					t.Errorf("again is %v", v.again)
				}
				for _, kind := range []error{driver.ErrUnavailable, driver.ErrOutcomeUnknown, driver.ErrSchema, driver.ErrClosed,
					errPooler, errDiskFull, errPrivilege, errPassword, errAuthorization, errDatabase} {
					if errors.Is(v.err, kind) != (kind == want) {
						t.Errorf("%q is %q: %v", v.err, kind, !(kind == want))
					}
				}
				if !errors.Is(v.err, r.err) || !strings.HasPrefix(v.err.Error(), "do it: ") || strings.Contains(v.err.Error(), "\n") {
					t.Errorf("%q does not tell what happened on one line", v.err)
				}
				if v.waited != (Code(r.err) == LockNotAvailable) {
					t.Errorf("waited is %v", v.waited)
				}
				closed := judge(closing, task, r.came, context.Canceled)
				if !errors.Is(closed.err, driver.ErrClosed) || errors.Is(closed.err, context.Canceled) ||
					errors.Is(closed.err, driver.ErrOutcomeUnknown) != (writes && r.came >= Executing) {
					t.Errorf("ended by closing the driver it is %q", closed.err)
				}
				late := judge(ended, task, r.came, r.err)
				if !errors.Is(late.err, context.Canceled) || errors.Is(late.err, driver.ErrOutcomeUnknown) != errors.Is(v.err, driver.ErrOutcomeUnknown) {
					t.Errorf("after the context ended it is %q", late.err)
				}
			})
		}
	}
}

func TestAMessageSaysAThingOnceAndBeginsWithWhatMatters(t *testing.T) {
	judged := func(err error) string {
		return judge(t.Context(), Write("update refs"), Committing, err).err.Error()
	}
	if got := judged(errors.Join(driver.ErrUnconfirmed, errNotConfirmed)); strings.Count(got, "outcome unknown") != 1 {
		t.Errorf("%q", got)
	}
	tried := errors.New("failed to connect to `user=u database=d`:\n\tdb:5432 (db): tls error: server refused TLS connection\n\tdb:5432 (db): server error: no")
	if got, want := (oneLine{tried}).Error(), "failed to connect to `user=u database=d`: db:5432 (db): server error: no"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	alone := errors.New("failed to connect to `user=u database=d`: db:5432 (db): tls error: server refused TLS connection")
	if got := (oneLine{alone}).Error(); got != alone.Error() {
		t.Errorf("got %q, want %q", got, alone)
	}
}
