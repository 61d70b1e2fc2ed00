package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// PostgreSQL decides about queues in SQL, this package in Go, with package queue. The same random
// requests must leave the same rows in both, and get the same answers.
func TestPostgreSQLDecidesAboutQueuesLikePackageQueue(t *testing.T) {
	const first, steps = 1, 150
	sequences := 30
	if testing.Short() {
		sequences = 6
	}
	both := [2]*side{memorySide(t), postgresSide(t)}
	for seed := range uint64(sequences) {
		steps := randomSteps(rand.New(rand.NewPCG(first, seed)), steps)
		if n := differ(t, both, steps, nil); n > 0 && again(t, both, steps[:n]) {
			var log strings.Builder
			differ(t, both, shortest(t, both, steps[:n]), &log)
			t.Fatalf("sequence %d:\n%s", seed, log.String())
		}
	}
}

// again reports whether a difference comes again. On a slow machine the time may end a turn on one
// side and not yet on the other.
func again(t *testing.T, both [2]*side, steps []step) bool {
	for range 5 {
		if differ(t, both, steps, nil) == 0 {
			return false
		}
	}
	return true
}

// differ makes steps on a new project, and returns the number of steps until the sides differed, or
// 0.
func differ(t *testing.T, both [2]*side, steps []step, log *strings.Builder) int {
	for _, s := range both {
		s.start()
	}
	for i, step := range steps {
		var seen [2]string
		for n, s := range both {
			answer := s.do(t.Context(), step)
			seen[n] = answer + "\n" + s.rows()
		}
		if log != nil {
			fmt.Fprintf(log, "%+v: %s", step, seen[0])
		}
		if seen[0] != seen[1] {
			if log != nil {
				fmt.Fprintf(log, "But on PostgreSQL: %s", seen[1])
			}
			return i + 1
		}
	}
	return 0
}

// shortest leaves out the steps that are not needed for a difference.
func shortest(t *testing.T, both [2]*side, steps []step) []step {
	for size := len(steps) / 2; size > 0; size /= 2 {
		for at := 0; at+size < len(steps); {
			less := slices.Delete(slices.Clone(steps), at, at+size)
			if n := differ(t, both, less, nil); n > 0 {
				steps = less[:n]
			} else {
				at += size
			}
		}
	}
	return steps
}

func memorySide(t *testing.T) *side {
	db := memory.New()
	s := &side{Driver: database{db}.Open(t)}
	s.age = func(ref string, d time.Duration) { db.Age(t, s.project, ref, d) }
	s.row = func(ref string) (row, bool) {
		l, ok := db.RowLock(t, s.project, ref)
		nonce, waiting := db.Waiting(s.project, ref)
		return row{l, nonce, waiting}, ok
	}
	return s
}

func postgresSide(t *testing.T) *side {
	db := local.Postgres(t)
	c, err := pgx.Connect(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	s := &side{Driver: db.Open(t)}
	s.age = func(ref string, d time.Duration) { db.Age(t, s.project, ref, d) }
	s.row = func(ref string) (r row, ok bool) {
		l, ok := db.RowLock(t, s.project, ref)
		err := c.QueryRow(t.Context(), `SELECT coalesce(nonce, ''), waiting FROM locks WHERE project = $1 AND ref = $2`, s.project, ref).Scan(&r.nonce, &r.waiting)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		r.LockInfo = l
		return r, ok
	}
	return s
}
