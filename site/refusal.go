package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// maxRefusals is how many lines a pusher gets to read.
const maxRefusals = 20

// A refused push has lines for the pusher that say why.
type refused []string

func (r refused) Error() string { return strings.Join(r, "\n") }

// or is nil if there is no reason.
func (r refused) or() error {
	if len(r) == 0 {
		return nil
	}
	if n := len(r); n > maxRefusals {
		r = append(r[:maxRefusals:maxRefusals], fmt.Sprintf("and %d more", n-maxRefusals))
	}
	return r
}

// refusal is the answer for err.
func (d *Daemon) refusal(ctx context.Context, err error) wire.Response {
	var lines refused
	if !errors.As(err, &lines) {
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			err = errors.New("the site daemon has too many files open: nothing was changed, try again later; the administrator raises LimitNOFILE of refdb-site")
		}
		lines = refused{oneLine(err.Error())}
		d.o.Logger.InfoContext(ctx, "refused", "class", refdb.ClassOf(err).String())
	}
	return wire.Response{Lines: lines}
}

// databaseFailed says of an error of the database what it means for a push.
func databaseFailed(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return outage{"the global ref database did not answer in time: nothing was changed, try again later"}
	case errors.Is(err, refdb.ErrInvalid), errors.Is(err, refdb.ErrSchema):
		return err
	case errors.Is(err, refdb.ErrTooMany):
		return fmt.Errorf("more than %d refs in one transaction: nothing was changed, push fewer at a time", refdb.MaxLockRefs)
	}
	// No more of err: it names the database's address, and whoever pushes reads this.
	return outage{"the global ref database does not answer: nothing was changed, try again later; the administrator looks at `refdbctl site status`"}
}

// unserved says of an error of the daemon's presence what it means for a push.
// The status has the error itself.
func unserved(err error) error {
	if file := (*fs.PathError)(nil); errors.Is(err, errTaken) || errors.As(err, &file) {
		return errors.New("this site does not serve pushes now: nothing was changed; the administrator looks at `refdbctl site status`")
	}
	return databaseFailed(err)
}

// mismatched says why a ref that is local here can't be moved.
func mismatched(ref string, local, global refdb.Value) string {
	if global == refdb.Unknown {
		return fmt.Sprintf("%s is not in the global database, but here: the administrator runs `refdbctl site check`", name(ref))
	}
	return fmt.Sprintf("%s: this site is behind (global %s, here %s): fetch and retry in a few seconds", name(ref), short(global), short(local))
}

// locked says who has a lock.
func locked(l refdb.LockInfo, site string) string {
	who, _, _ := strings.Cut(l.Owner, "/")
	what := "locked by " + l.Owner
	switch {
	case l.Intended() && who == site:
		what = "another push to it is under way here"
	case l.Intended():
		what = "another push to it is under way at " + who
	}
	return fmt.Sprintf("%s: %s since %s (%s): retry; if it stays, the administrator runs `refdbctl locks list`",
		name(l.Ref), what, l.Heartbeat.Add(l.Age-held(l)).UTC().Format("15:04:05 MST"), held(l).Round(100*time.Millisecond))
}

// held is how long the lock has stood. Both times are the database's.
func held(l refdb.LockInfo) time.Duration {
	return l.Heartbeat.Add(l.Age).Sub(l.Token.Time())
}

// short is enough of a value for a reader.
func short(v refdb.Value) string {
	switch {
	case v == refdb.Unknown:
		return "nothing"
	case v.IsDeleted():
		return "deleted"
	case v.IsObjectID():
		return string(v[:7])
	default:
		return strconv.Quote(string(v))
	}
}

// name is a ref's name, safe to print.
func name(ref string) string {
	if !utf8.ValidString(ref) || strings.ContainsFunc(ref, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(ref)
	}
	return ref
}

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
