// Package refusal makes an answer to the pusher of an error: the lines to print, and the reason that
// metrics count. No answer holds an address or another secret of the error.
package refusal

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// maxRefusals is how many lines a pusher reads.
const maxRefusals = 20

// Lines is an error whose lines say to the pusher why a push is refused.
type Lines []string

func (r Lines) Error() string { return strings.Join(r, "\n") }

// OrNil returns nil if there are no lines, and otherwise at most maxRefusals of them.
func (r Lines) OrNil() error {
	if len(r) == 0 {
		return nil
	}
	if n := len(r); n > maxRefusals {
		r = append(r[:maxRefusals:maxRefusals], wire.AndMore(n-maxRefusals))
	}
	return r
}

// LinesOf returns what a pusher reads of err.
func LinesOf(err error) Lines {
	var lines Lines
	switch {
	case errors.As(err, &lines):
		return lines
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		err = errors.New(wire.TooManyFiles)
	}
	return Lines{wire.OneLine(err.Error())}
}

// DatabaseFailed returns what an error of the database, or of the journal of what it holds, means for
// a push.
func DatabaseFailed(err error) error {
	switch failed := (*journal.Error)(nil); {
	case errors.Is(err, refdb.ErrLostChanges):
		return Outage{wire.DatabaseLost}
	case errors.Is(err, refdb.ErrNotAdmitted):
		var awaited []wire.AwaitedSite
		if known := (*driver.NotAdmittedError)(nil); errors.As(err, &known) {
			for _, w := range known.Awaited {
				awaited = append(awaited, wire.AwaitedSite{Name: w.Name, Seen: w.Seen})
			}
		}
		return Outage{wire.NotCompared(awaited)}
	case errors.As(err, &failed) && errors.Is(failed, syscall.ENOSPC):
		return Because(State, errors.New(wire.StateFull))
	case errors.As(err, &failed):
		return Because(State, errors.New(wire.StateFailed))
	case errors.Is(err, context.DeadlineExceeded):
		return Outage{wire.DatabaseSlow}
	case errors.Is(err, refdb.ErrInvalid), errors.Is(err, refdb.ErrSchema):
		return err
	case errors.Is(err, refdb.ErrTooMany):
		return Because(TooMany, errors.New(wire.TooManyInTransaction(refdb.MaxLockRefs)))
	}
	// No more of err: it names the database's address, and whoever pushes reads this.
	return Outage{wire.DatabaseDown}
}

// NotServed returns what an error of the daemon's presence means for a push. The daemon's
// status has the error itself.
func NotServed(err error) error {
	file := (*fs.PathError)(nil)
	if errors.Is(err, presence.ErrTaken) || errors.Is(err, presence.ErrAwaited) || errors.Is(err, presence.ErrGeneration) || errors.As(err, &file) {
		return Because(NotServing, errors.New(wire.DaemonNotServing))
	}
	return DatabaseFailed(err)
}

// Mismatch says that a ref has the value local here, and global in the database.
func Mismatch(ref string, local, global refdb.Value) string {
	if global == refdb.Unknown {
		return wire.NotInDatabase(ref)
	}
	return wire.Behind(ref, local.Abbrev(), global.Abbrev())
}

// LockedBy says who has the lock l. Site is this site's name.
func LockedBy(l refdb.LockInfo, site string) string {
	who := l.Site()
	how := wire.LockedBy(l.Owner)
	switch {
	case l.Intended() && who == site:
		how = wire.PushUnderWay("")
	case l.Intended():
		how = wire.PushUnderWay(who)
	}
	return wire.Locked(l.Ref, how, l.Heartbeat.Add(l.Age-l.HeldFor()), l.HeldFor())
}

// Log logs an error that has refused something, unless it is one for the pusher alone.
func Log(ctx context.Context, log *slog.Logger, err error) {
	if !errors.As(err, new(Lines)) {
		log.InfoContext(ctx, "refused", "class", refdb.ClassOf(err).String())
	}
}
