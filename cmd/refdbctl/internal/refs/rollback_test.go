package refs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/audit"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// rollBackTo rolls the project back to a position, without asking.
func (f *fixture) rollBackTo(tb testing.TB, ctx context.Context, p refdb.Position) error {
	tb.Helper()
	f.out.Reset()
	r := rollback{app: f.app, project: "p", ask: cli.Confirmation{Yes: true}}
	if err := r.at.Set(fmt.Sprint(p)); err != nil {
		tb.Fatal(err)
	}
	return r.run(ctx, f.db)
}

// atMost is a driver that takes few refs at once.
type atMost struct {
	refdb.Driver
	most int
}

func (a atMost) Update(ctx context.Context, r driver.UpdateRequest) error {
	if n := len(r.Updates); n > a.most {
		return fmt.Errorf("%w: %d refs", refdb.ErrTooMany, n)
	}
	return a.Driver.Update(ctx, r)
}

func TestChunksAreAsLargeAsTheDatabaseTakes(t *testing.T) {
	t.Parallel()
	for most, code := range map[int]int{0: exit.Misuse, 1: exit.OK, 2: exit.OK, 3: exit.OK, 100: exit.OK} {
		f := newFixture(t, func(_ *fixture, d refdb.Driver) refdb.Driver { return atMost{d, most} })
		f.put(t, branch(0), id("a"))
		past := f.position(t)
		for i := range 7 {
			f.put(t, branch(i+1), id("b"))
		}
		if err := f.rollBackTo(t, t.Context(), past); exit.Code(err) != code {
			t.Errorf("%d at once: %v", most, err)
		}
		if holds := f.holds(t); (holds == "b0000 a") != (code == exit.OK) {
			t.Errorf("%d at once: then there are %s", most, holds)
		}
	}
}

// Chunks are moved one after the other: the first one that is refused ends the rollback, which can
// be repeated.
func TestTheFirstChunkThatIsRefusedEndsARollback(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(_ *fixture, d refdb.Driver) refdb.Driver { return atMost{d, 4} })
	f.put(t, "refs/heads/main", id("a"))
	past := f.position(t)
	for i := range 6 {
		f.put(t, branch(i), id("a"))
	}
	lock := f.lock(t, branch(5))
	err := f.rollBackTo(t, t.Context(), past)
	if exit.Code(err) != exit.Locked || !strings.Contains(err.Error(), "p: moved 3 of 6 refs; run the command again to see what is left: ") {
		t.Errorf("%v", err)
	}
	if rows := f.printed(t); !slices.Equal(rows, []string{"deleted b0000", "deleted b0001", "deleted b0002", "locked b0005"}) {
		t.Errorf("printed %q", rows)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.rollBackTo(t, t.Context(), past); err != nil || f.holds(t) != "main a" {
		t.Errorf("the second time: %v; then there are %s", err, f.holds(t))
	}
	if rows := f.printed(t); len(rows) != 3 {
		t.Errorf("the second time it printed %q", rows)
	}
}

func TestARefThatMovedMeanwhileIsNamedAndNoneOfItsChunkMoves(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(f *fixture, d refdb.Driver) refdb.Driver {
		u := newUpdating(d)
		u.before = func(int, driver.UpdateRequest) error {
			f.put(t, branch(0), id("c"))
			return nil
		}
		return u
	})
	f.put(t, branch(0), id("a"))
	f.put(t, branch(1), id("a"))
	past := f.position(t)
	f.put(t, branch(0), id("b"))
	f.put(t, branch(1), id("b"))
	err := f.rollBackTo(t, t.Context(), past)
	if exit.Code(err) != exit.Mismatch || !strings.Contains(err.Error(), "p: moved 0 of 2 refs") || !strings.Contains(err.Error(), branch(0)+": expected") {
		t.Errorf("%v", err)
	}
	if rows := f.printed(t); !slices.Equal(rows, []string{"changed b0000"}) {
		t.Errorf("printed %q", rows)
	}
	if holds := f.holds(t); holds != "b0000 c, b0001 b" {
		t.Errorf("then there are %s", holds)
	}
	for e, err := range f.other.Audit().All(t.Context(), audit.Filter{}) {
		if err != nil || !strings.HasPrefix(e.Outcome, "moved 0 of 2; ") {
			t.Errorf("the audit has %+v, %v", e, err)
		}
	}
}

func TestAnInterruptedRollbackFinishesItsChunk(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	f := newFixture(t, func(_ *fixture, d refdb.Driver) refdb.Driver {
		u := newUpdating(d)
		u.before = func(int, driver.UpdateRequest) error {
			cancel(&exit.Interrupted{Signal: syscall.SIGINT})
			return nil
		}
		return atMost{u, 2}
	})
	f.put(t, branch(9), id("a"))
	past := f.position(t)
	for i := range 4 {
		f.put(t, branch(i), id("a"))
	}
	err := f.rollBackTo(t, ctx, past)
	var interrupted *exit.Interrupted
	if !errors.As(err, &interrupted) || f.holds(t) != "b0002 a, b0003 a, b0009 a" {
		t.Errorf("%v; then there are %s", err, f.holds(t))
	}
}
