package test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

const (
	before refdb.Value = "1111111111111111111111111111111111111111"
	after  refdb.Value = "2222222222222222222222222222222222222222"
)

func TestP2P4AProcessFrozenPastStaleAfterCanDoNothingAnyMore(t *testing.T) {
	onEach(t, func(t *testing.T, d *dbtest.Database) {
		db := site(t, d, nil)
		if err := db.Update(t.Context(), project, []refdb.Update{{Ref: mainRef, New: before}}); err != nil {
			t.Fatal(err)
		}
		frozen := start(t, d, "holder")
		token := heldToken(t, frozen.receive(t))
		if got := frozen.ask(t, "err"); got != "ok" {
			t.Fatalf("the holder says %s", got)
		}
		if err := frozen.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		lock, _ := mustLock(t, db)
		if lock.Token() <= token {
			t.Errorf("token %d follows %d", lock.Token(), token)
		}
		if err := frozen.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for _, request := range []string{
			"update-by-token", // asks the database: the fence refuses it
			"err", "update", "update-and-release", "cause", "release", "release",
		} {
			if got := frozen.ask(t, request); !strings.HasPrefix(got, "stale-owner: ") || !strings.Contains(got, refdb.ErrLockLost.Error()) {
				t.Errorf("%s: %s", request, got)
			}
		}
		// None of that changed the successor's lock or the ref.
		if err := lock.UpdateAndRelease(t.Context(), []refdb.Update{{Ref: mainRef, Old: before, New: after}}); err != nil {
			t.Error(err)
		}
	})
}

func TestALockWhoseHolderWasKilledIsTakenOverWithinStaleAfterAndASecond(t *testing.T) {
	onEach(t, func(t *testing.T, d *dbtest.Database) {
		db := site(t, d, nil)
		for range 5 {
			if !takeOver(t, d, db) {
				return
			}
		}
		t.Error("each of five grants came too late to be kept")
	})
}

// takeOver kills a holder and checks how long its lock stays. If a grant came too late, which is the machine's, it says so, and does not check the longest time.
func takeOver(t *testing.T, d *dbtest.Database, db *refdb.DB) (late bool) {
	t.Helper()
	holder := start(t, d, "holder")
	token := heldToken(t, holder.receive(t))
	// A holder that lives renews its lock, which does not go stale.
	ctx, cancel := context.WithTimeout(t.Context(), staleAfter+beatEvery)
	defer cancel()
	if lock, err := db.Lock(ctx, project, mainRef); err == nil {
		t.Fatalf("the lock of a living holder was taken, with token %d", lock.Token())
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	slowest := slowestAnswer(t, db)
	lock, late := mustLock(t, db)
	took := time.Since(killed)
	// A waiter asks once when it begins, and once when the lock is stale. What the database takes to answer is the machine's.
	if answer := slowest(); !late && took > staleAfter+time.Second+2*answer {
		t.Errorf("taken over after %s, and the database answers within %s", took, answer)
	}
	if soonest := staleAfter - beatEvery - 500*time.Millisecond; took < soonest {
		t.Errorf("taken over after %s: too early, the last beat was at most %s before", took, beatEvery)
	}
	if lock.Token() <= token {
		t.Errorf("token %d follows %d", lock.Token(), token)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
	return late
}

// mustLock asks again if the answer of a busy machine came too late for the lock to be kept. Late says that one did.
func mustLock(t *testing.T, db *refdb.DB) (lock *refdb.Lock, late bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lock, err := db.Lock(ctx, project, mainRef)
	for err != nil && strings.Contains(err.Error(), "granted too late") && ctx.Err() == nil {
		late = true
		lock, err = db.Lock(ctx, project, mainRef)
	}
	if err != nil {
		t.Fatal(err)
	}
	return lock, late
}

// slowestAnswer reads a ref again and again until the function is called that it returns, which says how long the
// slowest answer took.
func slowestAnswer(t *testing.T, db *refdb.DB) func() time.Duration {
	ctx, cancel := context.WithCancel(t.Context())
	slowest := make(chan time.Duration)
	go func() {
		var most time.Duration
		for {
			start := time.Now()
			db.Get(t.Context(), project, mainRef)
			most = max(most, time.Since(start))
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				slowest <- most
				return
			}
		}
	}()
	return func() time.Duration { cancel(); return <-slowest }
}

func heldToken(t *testing.T, line string) refdb.Token {
	t.Helper()
	token, err := strconv.ParseInt(strings.TrimPrefix(line, "held "), 10, 64)
	if err != nil {
		t.Fatalf("the holder says %q", line)
	}
	return refdb.Token(token)
}

// hold holds the lock and executes commands.
func hold(db *refdb.DB) error {
	ctx := context.Background()
	lock, err := db.Lock(ctx, project, mainRef)
	if err != nil {
		return err
	}
	guarded := lock.Context()
	fmt.Println("held", int64(lock.Token()))
	move := []refdb.Update{{Ref: mainRef, Old: before, New: after}}
	for requests := bufio.NewScanner(os.Stdin); requests.Scan(); {
		switch requests.Text() {
		case "err":
			err = lock.Err()
		case "cause":
			<-guarded.Done()
			err = context.Cause(guarded)
		case "update":
			err = lock.Update(ctx, move)
		case "update-by-token":
			err = db.Update(ctx, project, move, refdb.Under(lock.Owner(), lock.Token(), mainRef))
		case "update-and-release":
			err = lock.UpdateAndRelease(ctx, move)
		case "release":
			err = lock.Release(ctx)
		default:
			err = fmt.Errorf("no such request: %s", requests.Text())
		}
		fmt.Println(answer(err))
	}
	return nil
}
