package refdb

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// beat renews locks for the keeper, all in one request to the driver.
func (db *DB) beat(ctx context.Context, locks []*Lock) ([]heartbeat.Result, error) {
	var ids []driver.LockID
	beaten := make([][]string, len(locks)) // refs, by lock
	for i, l := range locks {
		beaten[i] = l.held()
		for _, ref := range beaten[i] {
			ids = append(ids, driver.LockID{Project: l.project, Ref: ref, Owner: db.engine.Owner, Token: l.token})
		}
	}
	start := time.Now()
	var rows []driver.BeatResult
	d, err := db.engine.Driver()
	if err == nil {
		rows, err = d.Beat(ctx, ids)
	}
	if errors.Is(err, ErrNotAdmitted) {
		if a, compareErr := db.engine.Compare(ctx); compareErr == nil && a.Admitted {
			rows, err = d.Beat(ctx, ids)
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err() // Close canceled it: the beat did not fail, and no locks are left to keep
	}
	if db.engine.Observe != nil {
		db.engine.Observed(Event{Op: driver.OpBeat, Refs: len(ids), Late: db.keeper.Stats().Late}, start, err)
	}
	results := make([]heartbeat.Result, len(locks))
	if err != nil {
		rows = make([]driver.BeatResult, len(ids)) // all Unknown
	}
	unknown := 0
	for i, l := range locks {
		results[i] = l.combineBeats(beaten[i], rows[:len(beaten[i])])
		rows = rows[len(beaten[i]):]
		// A row may be unknown because the request that ends the lock keeps it locked.
		if results[i] == heartbeat.Unknown && !l.isEnding() {
			unknown++
		}
	}
	if unknown > 0 {
		db.engine.Logger.WarnContext(ctx, "heartbeat failed: locks are kept, and the heartbeat is retried",
			"locks", unknown, "of", len(locks), "class", ClassOf(err).String())
	}
	return results, nil
}

// combineBeats returns what the beats of the rows of refs mean for the lock: losing one
// row loses it, and only renewing all rows renews it. A ref that the lock let go while the
// beat was under way means nothing any more.
func (l *Lock) combineBeats(refs []string, rows []driver.BeatResult) heartbeat.Result {
	result := heartbeat.Renewed
	var gone []string
	held := l.held()
	for i, row := range rows {
		if _, still := slices.BinarySearch(held, refs[i]); !still {
			continue
		}
		switch row {
		case driver.BeatLost:
			gone = append(gone, refs[i])
		case driver.BeatUnknown:
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

// reportLost logs and counts the loss of a lock.
func (db *DB) reportLost(l *Lock) {
	standing, _ := l.standing()
	db.queues.removeHeld(l, standing)
	refs := l.held()
	db.engine.Logger.Error("lock lost", "lock", db.engine.Digest(l.project, refs), "refs", len(refs), "held", l.age())
	db.engine.Observed(Event{Op: driver.OpLost, Refs: len(refs), Held: l.age()}, time.Now(), ErrLockLost)
}
