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

	"github.com/globalrefdb/globalrefdb/refdb"
)

// What a failure means depends on its code, on how far the round trip came, and on
// whether it writes.
func TestAFailureIsJudgedByItsCodeAndByHowFarTheRoundTripCame(t *testing.T) {
	server := func(code string) error {
		return fmt.Errorf("wrapped: %w", &pgconn.PgError{Severity: "FATAL", Code: code, Message: "two\nlines"})
	}
	lost := fmt.Errorf("receive: %w", io.ErrUnexpectedEOF)
	var other error // none of ours
	type row struct {
		came  Stage
		err   error
		write error // what the error of one that writes wraps
		read  error
		again bool
	}
	rows := []row{
		// The connection broke, or a pooler lost its own.
		{Connecting, lost, refdb.ErrUnavailable, refdb.ErrUnavailable, false},
		{Preparing, lost, refdb.ErrUnavailable, refdb.ErrUnavailable, true},
		{Executing, lost, refdb.ErrOutcomeUnknown, refdb.ErrUnavailable, true},
		{Committing, lost, refdb.ErrOutcomeUnknown, refdb.ErrUnavailable, true},
		{Connecting, server("08P01"), refdb.ErrUnavailable, refdb.ErrUnavailable, false},
		{Executing, server("08P01"), refdb.ErrOutcomeUnknown, refdb.ErrUnavailable, true},
		// The server refused to commit, or anything else after the last answer.
		{Committing, server("40001"), refdb.ErrUnavailable, refdb.ErrUnavailable, true},
		{Committing, server("40P01"), refdb.ErrUnavailable, refdb.ErrUnavailable, true},
		{Committing, server("57P01"), refdb.ErrOutcomeUnknown, refdb.ErrUnavailable, true},
		{Committing, server("57014"), refdb.ErrOutcomeUnknown, refdb.ErrUnavailable, false},
		{Committing, server("XX000"), refdb.ErrOutcomeUnknown, other, false},
		{Committing, errNotConfirmed, refdb.ErrOutcomeUnknown, refdb.ErrUnavailable, true},
		{Connecting, puddle.ErrClosedPool, refdb.ErrClosed, refdb.ErrClosed, false},
	}
	// In place of an answer, all of these did nothing.
	for code, want := range map[string]error{
		"40001": refdb.ErrUnavailable, "40P01": refdb.ErrUnavailable,
		"57P01": refdb.ErrUnavailable, "57P02": refdb.ErrUnavailable, "57P05": refdb.ErrUnavailable,
		"53200": refdb.ErrUnavailable, "25006": refdb.ErrUnavailable, "25P03": refdb.ErrUnavailable, "25P04": refdb.ErrUnavailable,
		"0A000": other, "26000": errPooler, "42P05": errPooler,
	} {
		rows = append(rows, row{Executing, server(code), want, want, true})
	}
	for code, want := range map[string]error{
		"57P03": refdb.ErrUnavailable, "57014": refdb.ErrUnavailable, "55P03": refdb.ErrUnavailable,
		"53300": refdb.ErrUnavailable, "53000": refdb.ErrUnavailable,
		"42P01": refdb.ErrSchema, "42703": refdb.ErrSchema, "3F000": refdb.ErrSchema,
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
			again := r.again && !errors.Is(want, refdb.ErrOutcomeUnknown)
			name := fmt.Sprintf("stage %d, %q, writes: %v", r.came, Code(r.err), writes)
			t.Run(name, func(t *testing.T) {
				task := Pipeline{What: "do it", writes: writes}
				v := judge(t.Context(), task, r.came, r.err)
				if v.again != again {
					t.Errorf("again is %v", v.again)
				}
				for _, kind := range []error{refdb.ErrUnavailable, refdb.ErrOutcomeUnknown, refdb.ErrSchema, refdb.ErrClosed,
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
				if !errors.Is(closed.err, refdb.ErrClosed) || errors.Is(closed.err, context.Canceled) ||
					errors.Is(closed.err, refdb.ErrOutcomeUnknown) != (writes && r.came >= Executing) {
					t.Errorf("ended by closing the driver it is %q", closed.err)
				}
				late := judge(ended, task, r.came, r.err)
				if !errors.Is(late.err, context.Canceled) || errors.Is(late.err, refdb.ErrOutcomeUnknown) != errors.Is(v.err, refdb.ErrOutcomeUnknown) {
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
	if got := judged(errors.Join(refdb.ErrUnconfirmed, errNotConfirmed)); strings.Count(got, "outcome unknown") != 1 {
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
