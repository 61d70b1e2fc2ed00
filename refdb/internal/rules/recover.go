package rules

import (
	"cmp"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// DecideLost decides about the undecided lost changes of one ref, which holds a value. Intent is the operation
// that recorded the intent on it, "" if none is pending.
//
// If one of them can be written again, Again is its index, and only its fate and that of others of the same
// operation is decided: the next step goes on from there. Else Again is -1, and all are decided.
func DecideLost(lost []refdb.LostChange, value refdb.Value, intent string) LostVerdict {
	again, fates := -1, make([]refdb.Fate, len(lost))
	for i, l := range lost {
		if l.Token != 0 && l.Move != refdb.MoveMade || !l.Old.Equivalent(value) || intent != "" && intent != refdb.IntentOp(l.Op) {
			continue
		}
		if again < 0 || cmp.Or(l.At.Compare(lost[again].At), cmp.Compare(l.Op, lost[again].Op)) < 0 {
			again = i
		}
	}
	over := again >= 0 && intent != ""
	for i, l := range lost {
		// It had ended: its repository may have moved on, and must not be asked.
		over = over || again < 0 && l.Token == 0 && intent != "" && refdb.IntentOp(l.Op) == intent
		switch {
		case again >= 0 && refdb.IntentOp(l.Op) == refdb.IntentOp(lost[again].Op):
			fates[i] = refdb.Rewritten
		case again >= 0: // later
		case l.Token != 0 && l.Move == refdb.MoveUnmade:
			fates[i] = refdb.Dropped
		default:
			fates[i] = refdb.Opposed
		}
	}
	return LostVerdict{again, fates, over}
}

// A LostVerdict is what becomes of lost changes of one ref.
type LostVerdict struct {
	Again     int          // the one to write again, or -1
	Fates     []refdb.Fate // of each; still Undecided if it is for the next step
	EndIntent bool         // the intent on the ref is one of an operation that had ended
}

const (
	halted  = ""  // admitted is no server, until a recovery ends
	awaited = "-" // admitted is no server, until all witnesses have reported
)

// DecideAdmission returns which server is admitted after a report to server a.Server, if admitted was before.
func DecideAdmission(admitted string, a refdb.Admission) string {
	switch {
	case a.Lost > 0, admitted == halted:
		return halted
	case len(a.Waiting()) > 0:
		return awaited
	}
	return a.Server
}

// Rewound reports whether the database's row of a witness, nil for none, is older than a mark of it.
func Rewound(row *refdb.Witness, mark refdb.WitnessMark) bool {
	return row == nil || row.Since.Before(mark.Since)
}

// Reported returns the row of a witness after a report. Was is the row before, nil for none. Its Since grows
// whenever it changes what it is.
func Reported(was *refdb.Witness, r refdb.Report, now time.Time) refdb.Witness {
	w := refdb.Witness{Name: r.Witness, Server: r.Server, Seen: now, Away: r.Away, Since: now}
	if was != nil {
		w.Since = was.Since
		if was.Away != w.Away || was.Without {
			w.Since = Later(was.Since, now)
		}
	}
	return w
}

// Returned returns the row of a witness that a rewind has left away, left out or unregistered.
func Returned(was *refdb.Witness, mark refdb.WitnessMark, now time.Time) refdb.Witness {
	w := refdb.Witness{Name: mark.Name, Since: Later(mark.Since, now)}
	if was != nil {
		w.Seen = was.Seen
	}
	return w
}

// Later returns now or, if that is not later than t, the next microsecond.
func Later(t, now time.Time) time.Time {
	if now.After(t) {
		return now
	}
	return t.Add(time.Microsecond)
}
