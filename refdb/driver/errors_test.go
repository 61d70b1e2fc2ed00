package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestClasses(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Class
	}{
		{nil, ClassNone},
		{&LockedError{}, Retryable},
		{fmt.Errorf("x: %w", ErrUnavailable), Retryable},
		{context.DeadlineExceeded, Retryable},
		{&MismatchError{}, Permanent},
		{ErrInvalid, Permanent},
		{ErrSchema, Permanent},
		{ErrClosed, Permanent},
		{errors.New("something else"), Permanent},
		{&LostError{}, StaleOwner},
		{ErrReleased, StaleOwner},
		{ErrOutcomeUnknown, OutcomeUnknown},
		{errors.Join(ErrOutcomeUnknown, &LostError{}), OutcomeUnknown},
		{errors.Join(context.Canceled, ErrOutcomeUnknown), OutcomeUnknown},
	} {
		if got := ClassOf(c.err); got != c.want {
			t.Errorf("ClassOf(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}

func TestErrorsNameTheReasonsForARefusal(t *testing.T) {
	locked := &LockedError{Holders: []LockInfo{
		{Project: "p", Ref: "refs/heads/a", Owner: "eu/1", Age: time.Second, StaleAfter: time.Minute},
		{Project: "p", Ref: "refs/heads/b", Owner: "us/1", Age: time.Hour, StaleAfter: time.Minute},
	}}
	if msg := locked.Error(); !strings.Contains(msg, "refs/heads/a by eu/1 (last beat 1s ago)") || strings.Contains(msg, "us/1") {
		t.Errorf("fresh holders are named, stale ones are not in the way: %s", msg)
	}
	mismatch := &MismatchError{Project: "p"}
	for i := range 10_000 {
		mismatch.Mismatches = append(mismatch.Mismatches, Mismatch{Ref: fmt.Sprint("refs/heads/", i), Want: "a", Have: Deleted})
	}
	if msg := mismatch.Error(); len(msg) > 1000 || !strings.Contains(msg, `refs/heads/0: expected "a", holds nothing (deleted)`) || !strings.Contains(msg, "and 9995 more") {
		t.Errorf("a long list is cut: %s", msg)
	}
}

func TestDigestsHideNamesAndDiffer(t *testing.T) {
	key := []byte("k")
	d := Digest(key, "project", "refs/heads/main")
	if len(d) != 16 || strings.Contains(d, "main") {
		t.Errorf("digest %q", d)
	}
	if Digest(key, "a", "bc") == Digest(key, "ab", "c") || Digest([]byte("other"), "project", "refs/heads/main") == d {
		t.Error("different names or keys, same digest")
	}
	if Digest(key, "project", "refs/heads/main") != d {
		t.Error("same names and key, another digest")
	}
}

func TestARefusalByAReservationNamesTheWaiter(t *testing.T) {
	err := &LockedError{Holders: []LockInfo{{Project: "p", Ref: "refs/heads/m", Owner: ReservedFor("eu/x:1:A"), Age: 29 * time.Second, StaleAfter: 30 * time.Second}}}
	if got, want := err.Error(), "p refs/heads/m kept for eu/x:1:A, which waits"; !strings.Contains(got, want) || strings.Contains(got, "beat") {
		t.Errorf("got %q, want %q", got, want)
	}
}
