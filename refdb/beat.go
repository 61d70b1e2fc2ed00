package refdb

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
)

// beatRows is how many rows one beat's statement renews at most, but for a
// single lock on more refs. 5,000 rows of three columns stay far below
// Spanner's 80,000 mutations.
const beatRows = 5000

// beat renews locks for the keeper, in as few statements as beatRows allows.
func (db *DB) beat(ctx context.Context, locks []*Lock) ([]heartbeat.Result, error) {
	results := make([]heartbeat.Result, len(locks))
	var failure error
	for first := 0; first < len(locks); {
		var held []Held
		next := first
		for next < len(locks) && (next == first || len(held)+len(locks[next].refs) <= beatRows) {
			held = append(held, locks[next].held()...)
			next++
		}
		if err := db.beatChunk(ctx, locks[first:next], held, results[first:next]); err != nil {
			failure = err // those stay Unknown; the other chunks have their own luck
		}
		first = next
	}
	if failure != nil {
		db.opts.Logger.WarnContext(ctx, "heartbeat failed: locks are kept, and tried again", "locks", len(locks), "class", ClassOf(failure).String())
	}
	return results, nil
}

func (db *DB) beatChunk(ctx context.Context, locks []*Lock, held []Held, results []heartbeat.Result) error {
	start := time.Now()
	rows, err := db.driver.Beat(ctx, db.owner, held)
	db.observe(Event{Op: OpBeat, Refs: len(held)}, start, err)
	if err != nil {
		return err
	}
	for i, l := range locks {
		results[i] = l.beaten(rows[:len(l.refs)])
		rows = rows[len(l.refs):]
	}
	return nil
}

// beaten says what the beats of its rows mean for the lock: losing one ref
// loses it, and only renewing all renews it.
func (l *Lock) beaten(rows []BeatResult) heartbeat.Result {
	result := heartbeat.Beaten
	var gone []string
	for i, row := range rows {
		switch row {
		case BeatLost:
			gone = append(gone, l.refs[i])
		case BeatUnknown:
			result = heartbeat.Unknown
		}
	}
	if len(gone) == 0 {
		return result
	}
	l.mu.Lock()
	l.gone = gone
	l.mu.Unlock()
	return heartbeat.Lost
}

// tellLost tells the operator of a lock that its holder lost.
func (db *DB) tellLost(l *Lock) {
	db.opts.Logger.Error("lock lost", "lock", db.digest(l.project, l.refs), "refs", len(l.refs), "held", l.age())
	db.observe(Event{Op: OpLost, Refs: len(l.refs), Held: l.age()}, time.Now(), ErrLockLost)
}
