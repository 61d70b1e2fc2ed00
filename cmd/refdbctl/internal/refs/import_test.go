package refs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// importReport is what an import prints.
type importReport struct {
	Imported, Overwritten, Equal, Different, Locked, Refused int
	Complete                                                 bool
	Problems                                                 []resultRow
}

func (r importReport) counts() string {
	return fmt.Sprint(r.Imported, r.Overwritten, r.Equal, r.Different, r.Locked, r.Refused)
}

// importRefs imports n branches in batches of 100.
func (f *fixture) importRefs(tb testing.TB, ctx context.Context, n int, overwrite bool) (importReport, error) {
	tb.Helper()
	f.out.Reset()
	im := NewImporter(f.Run, f.db, "p")
	im.batch, im.Overwrite = 100, overwrite
	im.report = output.NewReport(f.Out, f.Format, output.Palette{}, "problems", differenceColumns)
	err := im.conclude(ctx, im.Send(ctx, localBranches(n)))
	var got importReport
	if err := json.Unmarshal(f.out.Bytes(), &got); err != nil {
		tb.Fatalf("%v in %q", err, f.out.String())
	}
	return got, err
}

// localBranches are the refs of a repository.
func localBranches(n int) iter.Seq2[gitrepo.Ref, error] {
	return func(yield func(gitrepo.Ref, error) bool) {
		for i := range n {
			if !yield(gitrepo.Ref{Name: branch(i), Value: string(id("c"))}, nil) {
				return
			}
		}
	}
}

func TestAnInterruptedImportFinishesItsBatchesAndGoesOnLater(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	f := newFixture(t, func(_ *fixture, d refdb.Driver) refdb.Driver {
		u := newUpdating(d)
		u.before = func(n int, _ driver.UpdateRequest) error {
			if n == 3 {
				cancel(&exit.Interrupted{Signal: syscall.SIGINT})
			}
			<-ctx.Done()
			return nil
		}
		return u
	})
	got, err := f.importRefs(t, ctx, 1000, false)
	// Four batches are in progress at a time. The fourth may not have begun when the third one's
	// update interrupts.
	if got.Imported < 300 || got.Imported > 400 || got.Imported%100 != 0 || got.Complete {
		t.Errorf("%+v", got)
	}
	if exit.Code(err) != exit.BySignal+int(syscall.SIGINT) {
		t.Errorf("status %d: %v", exit.Code(err), err)
	}
	if says := f.messages.String(); !strings.Contains(says, fmt.Sprintf("%d imported", got.Imported)) || !strings.Contains(says, "run the command again") {
		t.Errorf("messages: %s", says)
	}
	if n := strings.Count(f.holds(t), " c"); n != got.Imported {
		t.Errorf("%d refs are there, %d were reported", n, got.Imported)
	}
	rest, err := f.importRefs(t, t.Context(), 1000, false)
	if err != nil || rest.counts() != fmt.Sprintf("%d 0 %d 0 0 0", 1000-got.Imported, got.Imported) || !rest.Complete {
		t.Errorf("%+v, %v", rest, err)
	}
}

func TestBatchesOfAnImportAreWrittenTogetherAndReportedInOrder(t *testing.T) {
	t.Parallel()
	all := make(chan struct{})
	f := newFixture(t, func(_ *fixture, d refdb.Driver) refdb.Driver {
		u := newUpdating(d)
		u.before = func(n int, _ driver.UpdateRequest) error {
			if n == batchesInProgress {
				close(all)
			}
			select {
			case <-all:
			case <-time.After(5 * time.Minute):
				return errors.New("the other batches wait for this one")
			}
			return nil
		}
		return u
	})
	for _, i := range []int{50, 150, 250, 350} {
		f.put(t, branch(i), id("a"))
	}
	got, err := f.importRefs(t, t.Context(), 100*batchesInProgress, false)
	if got.counts() != "396 0 0 4 0 0" || exit.Code(err) != exit.Mismatch {
		t.Errorf("%+v, %v", got, err)
	}
	if !slices.IsSortedFunc(got.Problems, func(a, b resultRow) int { return strings.Compare(a.Ref, b.Ref) }) {
		t.Errorf("not in the order of the refs: %+v", got.Problems)
	}
}

func TestAnImportBesideOtherWriters(t *testing.T) {
	t.Parallel()
	interfering := func(f *fixture, d refdb.Driver) refdb.Driver {
		u := newUpdating(d)
		u.before = func(n int, r driver.UpdateRequest) error {
			if n == 2 {
				f.put(t, r.Updates[3].Ref, id("a"))
				f.put(t, r.Updates[4].Ref, r.Updates[4].New)
			}
			return nil
		}
		return u
	}
	for _, c := range []struct {
		name      string
		wrap      func(*fixture, refdb.Driver) refdb.Driver
		overwrite bool
		counts    string
		code      int
	}{
		{"a ref that another site created meanwhile is left alone", interfering, false, "298 0 1 1 0 0", exit.Mismatch},
		{"and overwritten if requested", interfering, true, "298 1 1 0 0 0", exit.OK},
		{"the database is read after a lost reply", func(f *fixture, d refdb.Driver) refdb.Driver {
			u := newUpdating(d)
			u.after = func(n int, r driver.UpdateRequest) error {
				if n != 2 {
					return nil
				}
				for _, up := range r.Updates { // so that the library can't tell whose update it was
					f.put(t, up.Ref, up.New)
				}
				return fmt.Errorf("reply lost: %w", refdb.ErrOutcomeUnknown)
			}
			return u
		}, false, "200 0 100 0 0 0", exit.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := newFixture(t, c.wrap).importRefs(t, t.Context(), 300, c.overwrite)
			if got.counts() != c.counts || exit.Code(err) != c.code {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestAnImportIsContinuedAfterAnError(t *testing.T) {
	t.Parallel()
	full := true
	f := newFixture(t, func(_ *fixture, d refdb.Driver) refdb.Driver {
		u := newUpdating(d)
		u.before = func(n int, _ driver.UpdateRequest) error {
			if full && n > 1 {
				return errors.New("disk full")
			}
			return nil
		}
		return u
	})
	got, err := f.importRefs(t, t.Context(), 300, false)
	if got.counts() != "100 0 0 0 0 0" || exit.Code(err) != exit.Failed || !strings.Contains(f.messages.String(), "run the command again") {
		t.Errorf("%+v, %v, %s", got, err, f.messages.String())
	}
	full = false
	if got, err := f.importRefs(t, t.Context(), 300, false); got.counts() != "200 0 100 0 0 0" || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestALockedOrConflictingRefDoesNotStopItsBatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.lock(t, branch(3))
	f.put(t, branch(5)+"/x", id("a"))
	got, err := f.importRefs(t, t.Context(), 20, false)
	want := []resultRow{{"locked", branch(3)}, {"refused", branch(5)}}
	slices.SortFunc(got.Problems, func(a, b resultRow) int { return strings.Compare(a.Ref, b.Ref) })
	if got.counts() != "18 0 0 0 1 1" || exit.Code(err) != exit.Locked || !slices.Equal(got.Problems, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
