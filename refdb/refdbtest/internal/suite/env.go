package suite

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	RefA = "refs/heads/a"
	RefB = "refs/heads/b"
	RefC = "refs/heads/c"

	V1 driver.Value = "1111111111111111111111111111111111111111"
	V2 driver.Value = "2222222222222222222222222222222222222222"
	V3 driver.Value = "3333333333333333333333333333333333333333"

	Gerrit = "gerrit" // the owner of what its plugin wrote

	// The suite's locks have this StaleAfter, unless a row says otherwise: nothing becomes stale
	// by itself.
	StaleAfter = time.Hour
	Stale      = StaleAfter + time.Minute // an age to give a lock
)

// Env is what a row works with: two processes on the topic's database, and a project of its own,
// whose name needs no quoting in SQL.
type Env struct {
	*testing.T
	create  func(testing.TB) Database
	DB      Database
	A, B    Process
	Project string
}

// newEnv makes the environment of a topic, or of a test.
func newEnv(t *testing.T, create func(testing.TB) Database) *Env {
	db := create(t)
	return &Env{T: t, create: create, DB: db, A: Process{db.Open(t), "site-a/1"}, B: Process{db.Open(t), "site-b/2"}}
}

// Alone makes a row run on a database of its own. Spanner's emulator has one transaction per
// database at a time, and a long one loses its turn to every short one.
func Alone(run func(*Env)) func(*Env) {
	return func(e *Env) {
		own := newEnv(e.T, e.create)
		own.Project = e.Project
		run(own)
	}
}

// Long leaves a row out with -short on a database that asks for few rounds.
func Long(run func(*Env)) func(*Env) {
	return func(e *Env) {
		if testing.Short() && roundsOf(e.DB) < fewRounds {
			e.Skip("left out by -short: this row, which takes long on this database; make test-all runs it")
		}
		run(e)
	}
}

// AllLong applies [Long] to each row.
func AllLong(rows []Row) []Row {
	for i := range rows {
		rows[i].Run = Long(rows[i].Run)
	}
	return rows
}

// A Process is a driver and the owner of the locks that are taken through it.
type Process struct {
	driver.Driver
	Owner string
}

// Spawn opens a driver for one more process.
func (e *Env) Spawn(owner string) Process {
	e.Helper()
	return Process{e.DB.Open(e), owner}
}

// Rounds returns how often to repeat a race.
func (e *Env) Rounds() int {
	n := roundsOf(e.DB)
	if _, ok := e.DB.(alternating); ok {
		n = (n + 3) / 4
	}
	return n
}

func roundsOf(db Database) int {
	if r, ok := db.(rounder); ok {
		return r.Rounds()
	}
	return defaultRounds
}

// Scale returns limit, or a tenth of it for a slow database.
func (e *Env) Scale(limit int) int {
	if e.Slow() {
		return limit / 10
	}
	return limit
}

// Slow reports whether the database asks for fewer rounds than the default.
func (e *Env) Slow() bool { return roundsOf(e.DB) < defaultRounds }

// FutureTimes reports whether a row may hold a time in the future.
func (e *Env) FutureTimes() bool { return futureTimesOf(e.DB) }

func futureTimesOf(db Database) bool {
	if k, ok := db.(futureTimer); ok {
		return k.FutureTimes()
	}
	return true
}

// Must ends the row if err is not nil.
func (e *Env) Must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// Retry repeats a request that was certainly not carried out: any method may return
// ErrUnavailable after a deadlock or a serialization failure.
//
// The pauses grow: on a busy machine a request may meet many others before it is carried out.
func Retry(do func() error) error {
	for n := 0; ; n++ {
		err := do()
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotAdmitted) || n == 300 {
			return err
		}
		time.Sleep(time.Duration(n) * time.Millisecond) // 45 s altogether
	}
}

// ReadPages returns everything that read lists after a place, page after page. It ends the row of
// the suite if a page is too long, or if a listed row or a cursor isn't after the one before.
func ReadPages[T any, C comparable](e *Env, after C, limit int, read func(after C) (page []T, next C, err error), place func(T) C, compare func(a, b C) int) iter.Seq[T] {
	return func(yield func(T) bool) {
		e.Helper()
		var end C
		for last := after; ; {
			page, next, err := read(after)
			e.Must(err)
			if len(page) > limit {
				e.Fatalf("a page of at most %d has %d rows", limit, len(page))
			}
			for _, r := range page {
				if compare(place(r), after) <= 0 || compare(place(r), last) <= 0 {
					e.Fatalf("the page after %+v has %+v", after, r)
				}
				if last = place(r); !yield(r) {
					return
				}
			}
			if next == end {
				return
			}
			if compare(next, after) <= 0 {
				e.Fatalf("the cursor goes from %+v to %+v", after, next)
			}
			after = next
		}
	}
}

// Pass waits until the database's clock has moved on.
func (e *Env) Pass(d time.Duration) {
	e.Helper()
	begin, err := e.A.Now(e.Context())
	e.Must(err)
	e.Eventually("the time passes", func() bool {
		now, err := e.A.Now(e.Context())
		e.Must(err)
		return now.Sub(begin) >= d
	})
}

// Race starts functions at about the same moment, and waits for them. On a busy machine the first
// of them often wins, so the order is shuffled.
func Race(fs ...func()) {
	rand.Shuffle(len(fs), func(i, j int) { fs[i], fs[j] = fs[j], fs[i] })
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for _, f := range fs {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			f()
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

func ManyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("refs/heads/%05d", i)
	}
	return names
}

// Incompressible returns n bytes that a database can't compress, so that a key is as long in
// its index. It returns the same in every run.
func Incompressible(n int) string {
	var s []byte
	for block := uint64(0); len(s) < n; block++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %d", n, block))
		s = base64.RawURLEncoding.AppendEncode(s, sum[:])
	}
	return string(s[:n])
}

const Years = 365 * 24 * time.Hour
