package presence

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// MostChanges is how many unread changes of a site are counted.
const MostChanges = 1000

// mostPassed is how many changes that are not counted are read to find those that are.
const mostPassed = 10 * MostChanges

// Lag is what a site has not read of the changes.
type Lag struct {
	Changes    int           // those of what sites say about themselves are not counted; -1 if Unreadable
	More       bool          // there are more, or there may be
	Unreadable bool          // it must begin anew: the changes are not in the history any more
	Age        time.Duration // of the first unread change
}

// LagOf returns what a follower has not read of what is complete now, as far as it has recorded that.
func LagOf(ctx context.Context, db *refdb.DB, f driver.Follower, now time.Time) (*Lag, error) {
	state, err := db.HistoryState(ctx)
	if err != nil {
		return nil, err
	}
	return LagBehind(ctx, db, f, state, now)
}

// LagBehind is [LagOf] for a state of the history that was read before.
func LagBehind(ctx context.Context, db *refdb.DB, f driver.Follower, state refdb.HistoryState, now time.Time) (*Lag, error) {
	lag := &Lag{}
	if f.Read >= state.Upto {
		return lag, nil
	}
	cursor, err := refdb.ParseCursor(f.Cursor)
	if err != nil {
		return nil, err
	}
	passed := 0
	for page, err := range db.Changes(ctx, refdb.ChangeQuery{After: cursor}) {
		if errors.Is(err, refdb.ErrPruned) || errors.Is(err, refdb.ErrRewound) {
			return &Lag{Changes: -1, Unreadable: true, Age: now.Sub(f.Seen)}, nil
		}
		if err != nil {
			return nil, err
		}
		for _, c := range page.Changes {
			switch {
			case c.Position > state.Upto:
				continue
			case lag.Changes == MostChanges || passed == mostPassed:
				lag.More = true
				return lag, nil
			case c.Project == Project:
				passed++
				continue
			case lag.Changes == 0:
				lag.Age = max(0, now.Sub(c.Time))
			}
			lag.Changes++
		}
		if page.Cursor.Position() >= state.Upto {
			return lag, nil
		}
	}
	return lag, ctx.Err()
}
