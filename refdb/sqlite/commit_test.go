package sqlite_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// fault is an error of SQLite with a given code.
type fault int

func (f fault) Error() string { return fmt.Sprintf("fault %d", int(f)) }
func (f fault) Code() int     { return int(f) }

const (
	full       fault = 13
	ioSync     fault = 1034
	ioWrite    fault = 778
	ioRead     fault = 266
	isBusy     fault = 5
	corrupt    fault = 11
	noMemory   fault = 7
	constraint fault = 19
)

func TestATransactionThatFailsAtAnyPointDoesNothing(t *testing.T) {
	d, url := open(t)
	observer := openAgain(t, url)
	var where string
	var what error
	d.Hook(func(query string) error {
		if where != "" && strings.Contains(query, where) {
			return what
		}
		return nil
	})
	for _, e := range []struct {
		where string
		what  error
		want  driver.Class
	}{
		{"BEGIN", full, driver.Permanent},
		{"SELECT", corrupt, driver.Permanent},
		{"INSERT", full, driver.Permanent},
		{"INSERT", ioWrite, driver.Permanent},
		{"INSERT", ioRead, driver.Permanent},
		{"INSERT", noMemory, driver.Permanent},
		{"COMMIT", isBusy, driver.Retryable},
		{"COMMIT", full, driver.Permanent},
		{"COMMIT", ioWrite, driver.Permanent},
		{"COMMIT", ioSync, driver.OutcomeUnknown},
		{"COMMIT", corrupt, driver.OutcomeUnknown},
		{"COMMIT", noMemory, driver.OutcomeUnknown},
	} {
		t.Run(fmt.Sprintf("%s %v", e.where, e.what), func(t *testing.T) {
			where, what = e.where, e.what
			err := put(t.Context(), d, refA, "", v1)
			if driver.ClassOf(err) != e.want || !errors.Is(err, e.what) {
				t.Errorf("the update is %v: %v", driver.ClassOf(err), err)
			}
			_, err = d.Acquire(t.Context(), request(owner, refA))
			if driver.ClassOf(err) != e.want || !errors.Is(err, e.what) {
				t.Errorf("the acquisition is %v: %v", driver.ClassOf(err), err)
			}
			where = ""
			if got := value(t, observer, refA); got != driver.Unknown {
				t.Errorf("the ref holds %q", got)
			}
			if got := locks(t, observer); len(got) != 0 {
				t.Errorf("locks exist: %v", got)
			}
			// The driver continues to work, as do all others.
			for _, d := range []*sqlite.Driver{d, observer} {
				update(t, d, refA, "", v1)
				if n, err := d.Remove(t.Context(), driver.RemoveRequest{Project: project, Limit: 10}); err != nil || n != 1 {
					t.Errorf("removed %d, %v", n, err)
				}
			}
		})
	}
}

func TestAFullDiskIsAClearErrorAndLeavesNoPartialWrites(t *testing.T) {
	d, _ := open(t)
	update(t, d, refA, "", v1)
	write(t, d, `PRAGMA max_page_count = 1`) // SQLite raises the limit to the present number of pages
	updates := []driver.Update{{Ref: refA, Old: v1, New: v2}}
	for i := range driver.MaxUpdateRefs - 1 {
		updates = append(updates, driver.Update{Ref: fmt.Sprintf("refs/heads/x/%05d", i), New: v1})
	}
	x := driver.UpdateRequest{Updates: updates}
	err := change(t.Context(), d, x)
	if err == nil || !strings.HasSuffix(err.Error(), "update refs: database or disk is full (13): nothing was written; free some space on the file's disk") ||
		driver.ClassOf(err) != driver.Permanent {
		t.Errorf("got %v", err)
	}
	if got, err := d.List(t.Context(), driver.RefQuery{Project: project, Limit: 10}); err != nil || len(got.Refs) != 1 || got.Refs[0].Value != v1 {
		t.Errorf("the refs are %v, %v", got, err)
	}
	if err := put(t.Context(), d, refA, v1, v1); err != nil {
		t.Errorf("a request that needs no space: %v", err)
	}
	write(t, d, `PRAGMA max_page_count = 1000000`)
	if err := change(t.Context(), d, x); err != nil {
		t.Errorf("with free space again: %v", err)
	}
}

func TestTombstonesThatAFailedTransactionRemovedDoNotCount(t *testing.T) {
	d, _ := open(t)
	update(t, d, refA, "", v1)
	update(t, d, refA, v1, driver.Deleted)
	var failure error
	d.Hook(func(query string) error {
		if query == "COMMIT" {
			return failure
		}
		return nil
	})
	r := driver.TombstoneRequest{Project: project, Limit: 10}
	failure = full
	if n, err := d.PurgeTombstones(t.Context(), r); n != 0 || err == nil {
		t.Errorf("removed %d, %v", n, err)
	}
	failure = nil
	if n, err := d.PurgeTombstones(t.Context(), r); n != 1 || err != nil {
		t.Errorf("then removed %d, %v", n, err)
	}
}
