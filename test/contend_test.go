package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

const (
	processes  = 4
	goroutines = 64
	keys       = 8
)

// The file system says who is in a critical section, independently of the locks.
// Only one process can make a directory, and only that process appends to a log.
func TestP1CriticalSectionsOf256GoroutinesIn4ProcessesNeverOverlap(t *testing.T) {
	onEach(t, func(t *testing.T, d *dbtest.Database) {
		sections := 6 // of each goroutine
		switch emulator := d.Kind().Dialect == migrations.Spanner; {
		case emulator && testing.Short():
			t.Skip("left out by -short: 256 goroutines on an emulator that runs one transaction at a time; make test-all runs it")
		case emulator:
			sections = 1
		case testing.Short():
			sections = 2
		}
		dir := t.TempDir()
		var all []*process
		for range processes {
			all = append(all, start(t, d, "contender", dir, strconv.Itoa(sections)))
		}
		for _, p := range all {
			if line := p.receive(t); line != "ok" {
				t.Error(line)
			}
			p.in.Close()
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		}
		total := 0
		for k := range keys {
			total += checkTokens(t, filepath.Join(dir, fmt.Sprint(k, ".log")))
		}
		if want := processes * goroutines * sections; total != want {
			t.Errorf("%d critical sections, want %d", total, want)
		}
		for lock, err := range site(t, d).Locks(t.Context(), refdb.LockFilter{}) {
			t.Errorf("left over: %v, %v", lock, err)
		}
	})
}

// checkTokens checks that the tokens in a log only grow, and counts them.
func checkTokens(t *testing.T, name string) (n int) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer f.Close()
	var last int64
	for lines := bufio.NewScanner(f); lines.Scan(); n++ {
		token, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil || token <= last {
			t.Errorf("%s: token %q after %d", filepath.Base(name), lines.Text(), last)
		}
		last = token
	}
	return n
}

// contend enters critical sections from many goroutines.
func contend(db *refdb.DB) error {
	dir := os.Args[1]
	sections, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, goroutines)
	for g := range goroutines {
		wg.Go(func() {
			for range sections {
				if errs[g] = enter(ctx, db, dir); errs[g] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	fmt.Println(answer(errors.Join(errs...)))
	return nil
}

// enter enters and leaves one critical section, of one key or of two.
func enter(ctx context.Context, db *refdb.DB, dir string) error {
	set := rand.Perm(keys)[:1+rand.IntN(8)/7]
	refs := make([]string, len(set))
	for i, k := range set {
		refs[i] = fmt.Sprint("refs/heads/", k)
	}
	lock, err := db.Lock(ctx, project, refs...)
	if err != nil {
		return err
	}
	// One of the keys is what the section is about.
	inside := filepath.Join(dir, strconv.Itoa(set[0]))
	if err := os.Mkdir(inside, 0o700); err != nil {
		return fmt.Errorf("two in one critical section: %w", err)
	}
	log, err := os.OpenFile(inside+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(log, int64(lock.Token()))
	return errors.Join(err, log.Close(), os.Remove(inside), lock.Release(ctx))
}
