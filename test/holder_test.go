package test

import (
	"bufio"
	"context"
	"errors"
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
		db := site(t, d)
		if err := db.Update(t.Context(), project, []refdb.Update{{Ref: mainRef, New: before}}); err != nil {
			t.Fatal(err)
		}
		frozen, token := holdBriefly(t, d)
		lock := whileFrozen(t, db, frozen)
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

// whileFrozen stops the process that holds the lock, and takes the lock over.
func whileFrozen(t *testing.T, db *refdb.DB, holder *process) *refdb.Lock {
	t.Helper()
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := holder.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(patience); ; {
		signal(syscall.SIGSTOP)
		// A process that is stopped within a transaction may keep all others from writing, as on SQLite: then it goes on, and is stopped again.
		ctx, cancel := context.WithTimeout(t.Context(), 10*shortStaleAfter)
		lock, err := lockInTime(ctx, db)
		cancel()
		if err == nil {
			return lock
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		signal(syscall.SIGCONT)
		time.Sleep(beatEvery)
	}
}

func TestALockIsRenewedWhileItsHolderLivesAndTakenOverOnceItIsStale(t *testing.T) {
	onEach(t, func(t *testing.T, d *dbtest.Database) {
		db := site(t, d)
		living := start(t, d, "holder")
		heldToken(t, living.receive(t))
		const old = staleAfter / 2
		d.Age(t, project, mainRef, old)
		for row(t, d).Age >= old {
			time.Sleep(beatEvery)
		}
		if lock, err := db.TryLock(t.Context(), project, mainRef); !errors.Is(err, refdb.ErrLocked) {
			t.Fatalf("the lock of a living holder was taken: %v, %v", lock, err)
		}
		if got := living.ask(t, "release"); got != "ok" {
			t.Fatalf("the holder says %s", got)
		}

		killed, token := holdBriefly(t, d)
		if err := killed.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		read := time.Now()
		left := shortStaleAfter - row(t, d).Age
		lock := mustLock(t, db)
		if took := time.Since(read); took < left {
			t.Errorf("taken over after %s: the lock was not stale before %s", took, left)
		}
		if lock.Token() <= token {
			t.Errorf("token %d follows %d", lock.Token(), token)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// holdBriefly starts a process that holds the lock, which is stale soon after the process stops.
func holdBriefly(t *testing.T, d *dbtest.Database) (holder *process, token refdb.Token) {
	t.Helper()
	holder = start(t, d, "short holder")
	token = heldToken(t, holder.receive(t))
	for holder.ask(t, "err") != "ok" { // it lost the lock on a busy machine
		token = heldToken(t, holder.ask(t, "lock"))
	}
	return holder, token
}

// row returns the row of the lock, which is there.
func row(t *testing.T, d *dbtest.Database) refdb.LockInfo {
	t.Helper()
	l, ok := d.RowLock(t, project, mainRef)
	if !ok {
		t.Fatal("there is no lock")
	}
	return l
}

// mustLock requests the lock again if it was granted so late, on a busy machine, that it could not be kept.
func mustLock(t *testing.T, db *refdb.DB) *refdb.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lock, err := lockInTime(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func lockInTime(ctx context.Context, db *refdb.DB) (*refdb.Lock, error) {
	for {
		lock, err := db.Lock(ctx, project, mainRef)
		if err == nil || !strings.Contains(err.Error(), "granted too late") {
			return lock, err
		}
	}
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
	var lock *refdb.Lock
	var guarded context.Context
	take := func() (err error) {
		if lock, err = lockInTime(ctx, db); err == nil {
			guarded = lock.Context()
			fmt.Println("held", int64(lock.Token()))
		}
		return err
	}
	err := take()
	if err != nil {
		return err
	}
	move := []refdb.Update{{Ref: mainRef, Old: before, New: after}}
	for requests := bufio.NewScanner(os.Stdin); requests.Scan(); {
		switch requests.Text() {
		case "lock":
			if err = take(); err != nil {
				return err
			}
			continue
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
