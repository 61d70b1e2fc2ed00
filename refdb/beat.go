package refdb

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
)

// beat renews locks for the keeper, all in one request to the driver.
func (db *DB) beat(ctx context.Context, locks []*Lock) ([]heartbeat.Result, error) {
	var ids []LockID
	for _, l := range locks {
		for _, ref := range l.refs {
			ids = append(ids, LockID{l.project, ref, db.owner, l.token})
		}
	}
	start := time.Now()
	rows, err := db.driver.Beat(ctx, ids)
	db.observe(Event{Op: OpBeat, Refs: len(ids)}, start, err)
	results := make([]heartbeat.Result, len(locks))
	if err != nil {
		rows = make([]BeatResult, len(ids)) // all Unknown
	}
	unknown := 0
	for i, l := range locks {
		results[i] = l.beaten(rows[:len(l.refs)])
		rows = rows[len(l.refs):]
		if results[i] == heartbeat.Unknown {
			unknown++
		}
	}
	if unknown > 0 {
		db.opts.Logger.WarnContext(ctx, "heartbeat failed: locks are kept, and tried again",
			"locks", unknown, "of", len(locks), "class", ClassOf(err).String())
	}
	return results, nil
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
	db.queues.ended(l)
	db.opts.Logger.Error("lock lost", "lock", db.digest(l.project, l.refs), "refs", len(l.refs), "held", l.age())
	db.observe(Event{Op: OpLost, Refs: len(l.refs), Held: l.age()}, time.Now(), ErrLockLost)
}
