package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// The failure of one request of a group does not affect the others.
func TestEachRequestOfAGroupGetsItsOwnResult(t *testing.T) {
	const other = "refs/heads/other"
	gone := &driver.Fence{Refs: []string{refB}, Owner: owner, Token: 1}
	write := func(x driver.UpdateRequest) func(context.Context, *sqlite.Driver) error {
		return func(ctx context.Context, d *sqlite.Driver) error { return change(ctx, d, x) }
	}
	remove := func(ctx context.Context, d *sqlite.Driver) error {
		_, err := d.Remove(ctx, driver.RemoveRequest{Project: "another", Limit: 10, Locks: driver.AdvisoryLocks})
		return err
	}
	failing := func(code error) func(string) error {
		return func(query string) error {
			if strings.Contains(query, "LIMIT ?2") { // only remove contains it
				return code
			}
			return nil
		}
	}
	for _, e := range []struct {
		name string
		call func(context.Context, *sqlite.Driver) error
		hook func(query string) error
		want error
	}{
		{"success", write(driver.UpdateRequest{Updates: []driver.Update{{Ref: refB, New: v2}}}), nothing, nil},
		{"mismatch", write(driver.UpdateRequest{Updates: []driver.Update{{Ref: refB, Old: v1, New: v2}}}), nothing, driver.ErrMismatch},
		{"locked", write(driver.UpdateRequest{Updates: []driver.Update{{Ref: other, New: v2}}}), nothing, driver.ErrLocked},
		{"lost", write(driver.UpdateRequest{Updates: []driver.Update{{Ref: refB, New: v2}}, Fence: gone}), nothing, driver.ErrLockLost},
		{"acquisition refused", func(ctx context.Context, d *sqlite.Driver) error {
			_, err := d.Acquire(ctx, request("owner/2", refB, other))
			return err
		}, nothing, driver.ErrLocked},
		{"preparation refused", func(ctx context.Context, d *sqlite.Driver) error {
			_, err := d.Prepare(ctx, preparation(driver.Update{Ref: refB, Old: v1, New: v2}))
			return err
		}, nothing, driver.ErrMismatch},
		{"constraint", func(ctx context.Context, d *sqlite.Driver) error {
			return d.Write(ctx, func(exec func(string, ...any) error) error {
				if err := exec(`DELETE FROM refs`); err != nil {
					return err
				}
				return exec(`UPDATE token_mark SET id = 1`)
			})
		}, nothing, constraint},
		{"full", remove, failing(full), full},
		{"write error", remove, failing(ioWrite), ioWrite},
		{"read error", remove, failing(ioRead), ioRead},
		{"corrupt", remove, failing(corrupt), corrupt},
		{"no memory", remove, failing(noMemory), noMemory},
	} {
		t.Run(e.name, func(t *testing.T) {
			d, url := open(t)
			update(t, d, "refs/heads/first", "", v1)
			acquire(t, d, other)
			d.Hook(e.hook)
			errs := together(t, d,
				func() error { return put(t.Context(), d, "refs/heads/first", v1, v2) },
				func() error { _, err := d.Acquire(t.Context(), request(owner, refA)); return err },
				func() error { return e.call(t.Context(), d) },
				func() error { return put(t.Context(), d, "refs/heads/last", "", v1) },
			)
			if culprit := errs[2]; (culprit == nil) != (e.want == nil) || !is(culprit, e.want) {
				t.Errorf("the failing request got %v, want %v", culprit, e.want)
			}
			if err := errors.Join(errs[0], errs[1], errs[3]); err != nil {
				t.Errorf("the other requests got %v", err)
			}
			observer := openAgain(t, url)
			wantB := driver.Unknown
			if e.want == nil {
				wantB = v2
			}
			for ref, want := range map[string]driver.Value{"refs/heads/first": v2, "refs/heads/last": v1, refB: wantB, other: driver.Unknown} {
				if got := value(t, observer, ref); got != want {
					t.Errorf("%s holds %q, want %q", ref, got, want)
				}
			}
			if got := locks(t, observer); len(got) != 2 {
				t.Errorf("the locks are %v", got)
			}
		})
	}
}

// is is errors.Is, but compares errors of SQLite by their codes.
func is(err, target error) bool {
	var have, want interface{ Code() int }
	if errors.As(target, &want) {
		return errors.As(err, &have) && have.Code()&0xff == want.Code()&0xff
	}
	return errors.Is(err, target)
}

func TestAFailedCommitIsRetriedForEachRequestUnlessItMayHaveHappened(t *testing.T) {
	for _, e := range []struct {
		what    error
		again   bool
		commits int // of the request that was waited for, of the group, and of each request alone
	}{
		{full, true, 5},
		{ioWrite, true, 5},
		{isBusy, true, 5},
		{ioSync, false, 2},
		{corrupt, false, 2},
	} {
		t.Run(fmt.Sprint(e.what), func(t *testing.T) {
			d, _ := open(t)
			commits := 0
			d.Hook(func(query string) error {
				if query != "COMMIT" {
					return nil
				}
				if commits++; commits == 2 {
					return e.what
				}
				return nil
			})
			var calls []func() error
			for i := range 3 {
				calls = append(calls, func() error { return put(t.Context(), d, fmt.Sprintf("refs/heads/%d", i), "", v1) })
			}
			for i, err := range together(t, d, calls...) {
				got := value(t, d, fmt.Sprintf("refs/heads/%d", i))
				switch {
				case e.again && (err != nil || got != v1):
					t.Errorf("request %d: %v, and the ref holds %q", i, err, got)
				case !e.again && (!errors.Is(err, driver.ErrOutcomeUnknown) || got != driver.Unknown):
					t.Errorf("request %d: %v, and the ref holds %q", i, err, got)
				}
			}
			if commits != e.commits {
				t.Errorf("%d commits, want %d", commits, e.commits)
			}
		})
	}
}

func TestAFullDiskFailsOnlyRequestsThatNeedSpace(t *testing.T) {
	d, _ := open(t)
	update(t, d, refA, "", v1)
	write(t, d, `PRAGMA max_page_count = 1`) // SQLite raises the limit to the present number of pages
	x := driver.UpdateRequest{}
	for i := range 200 {
		x.Updates = append(x.Updates, driver.Update{Ref: fmt.Sprintf("refs/heads/x/%05d/%s", i, strings.Repeat("y", 100)), New: v1})
	}
	errs := together(t, d,
		func() error { return put(t.Context(), d, refA, v1, v2) },
		func() error { return change(t.Context(), d, x) },
		func() error { return put(t.Context(), d, refA, v2, v1) },
	)
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("the requests that need no space got %v and %v", errs[0], errs[2])
	}
	if err := errs[1]; !is(err, full) || driver.ClassOf(err) != driver.Permanent {
		t.Errorf("the request that needs space got %v", err)
	}
	if got, err := d.List(t.Context(), driver.RefQuery{Project: project, Limit: 10}); err != nil || len(got.Refs) != 1 || got.Refs[0].Value != v1 {
		t.Errorf("the refs are %v, %v", got, err)
	}
}

func TestRequestsOfAFailedGroupWithEndedContextsDoNothing(t *testing.T) {
	d, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	commits := 0
	d.Hook(func(query string) error {
		if query != "COMMIT" {
			return nil
		}
		if commits++; commits == 2 {
			cancel()
			return full
		}
		return nil
	})
	errs := together(t, d,
		func() error { return put(ctx, d, "refs/heads/1", "", v1) },
		func() error { return put(t.Context(), d, "refs/heads/2", "", v1) },
		func() error { return put(ctx, d, "refs/heads/3", "", v1) },
		func() error { return put(t.Context(), d, "refs/heads/4", "", v1) },
	)
	for i, err := range errs {
		want := driver.Unknown
		if i%2 == 1 {
			want = v1
		}
		if got := value(t, d, fmt.Sprintf("refs/heads/%d", i+1)); got != want || errors.Is(err, context.Canceled) != (i%2 == 0) {
			t.Errorf("request %d: %v, and the ref holds %q", i+1, err, got)
		}
	}
}

func TestRequestsOfAFailedGroupWithEndedContextsDoNotWait(t *testing.T) {
	d, url := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	other := openAgain(t, url)
	left := make(chan func(), 1)
	begun, commits := 0, 0
	d.Hook(func(query string) error {
		switch query {
		case "BEGIN IMMEDIATE":
			if begun++; begun == 3 { // the first request of those that are retried
				left <- occupy(t, other)
			}
		case "COMMIT":
			if commits++; commits == 2 {
				cancel()
				// The pause gives the request time to notice during its work. The promise holds
				// even if it does not.
				time.Sleep(10 * time.Millisecond)
				return full
			}
		}
		return nil
	})
	ended := make(chan error, 1)
	first := make(chan error, 1)
	leaveFirst := occupy(t, d)
	wait := queue(t, d,
		func() error { err := put(t.Context(), d, refA, "", v1); first <- err; return err },
		func() error { err := put(ctx, d, refB, "", v1); ended <- err; return err },
	)
	leaveFirst()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	select {
	case err := <-first:
		t.Errorf("the first request did not wait for the other process: %v", err)
	default:
	}
	(<-left)()
	if errs := wait(); errs[0] != nil {
		t.Errorf("the first request got %v", errs[0])
	}
}

func TestRequestsThatArriveWhileAGroupFailsFollowIt(t *testing.T) {
	d, _ := open(t)
	late := make(chan error, 1)
	commits := 0
	d.Hook(func(query string) error {
		if query != "COMMIT" {
			return nil
		}
		if commits++; commits != 2 {
			return nil
		}
		go func() { late <- put(context.WithoutCancel(t.Context()), d, refA, "3", "4") }()
		eventually(t, func() bool { return d.Waiting() == 1 })
		return full
	})
	errs := together(t, d,
		func() error { return put(t.Context(), d, refA, "", "1") },
		func() error { return put(t.Context(), d, refA, "1", "2") },
		func() error { return put(t.Context(), d, refA, "2", "3") },
	)
	if err := errors.Join(append(errs, <-late)...); err != nil {
		t.Error(err)
	}
}
