package moves

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/site/internal/pause"
)

// restoreEvery is the interval at which the daemon tries to begin a new list after the list could
// not be written.
const restoreEvery = time.Second

// A List is a [Log] that reports its failures to the daemon's log. The rules are in PROTOCOL.md,
// M15 to M18.
type List struct {
	*Log
	log       *slog.Logger
	inherited []*Begun    // moves that earlier daemons have begun and not ended
	failed    atomic.Bool // the list could not be written, and that was logged
}

// Open opens the list of the daemon with the given state directory. boot identifies the boot of the
// machine; note is as in the function [Open]. Open must be called before any ref can move.
func (l *List) Open(ctx context.Context, state, boot, note string, log *slog.Logger) {
	var err error
	l.log = log
	l.Log, l.inherited, err = Open(Dir(state), boot, note)
	if l.IsNew() {
		l.log.InfoContext(ctx, "a new list of moves begins: its readers compare everything")
	}
	l.report(err)
}

// report logs that the list can't be written, once until the list is restored.
func (l *List) report(err error) {
	if err != nil && !l.failed.Swap(true) {
		l.log.Error("moves can't be listed: guards' indexes are not updated until this is repaired; check the disk of site.state", "error", err)
	}
}

// Moved puts refs on the list that may have moved in the repository at path. No process may be able
// to make these moves any more. who is the guard that made and reported the moves, or "" for any
// other process.
func (l *List) Moved(who, path string, refs ...string) {
	l.report(l.Append(entriesOf(who, path, refs)...))
}

// An Attempt holds moves that are about to be made, from [List.About].
type Attempt struct {
	list  *List
	begun *Begun
}

// About records moves that are about to be made in the repository at path. The caller ends the
// attempt when no process can make them any more.
func (l *List) About(path string, refs ...string) Attempt {
	b, err := l.Begin(entriesOf("", path, refs)...)
	l.report(err)
	return Attempt{l, b}
}

// End puts the moves on the list, because some may have been made.
func (a Attempt) End() { a.list.report(a.begun.End()) }

// Drop ends an attempt that made none of the moves.
func (a Attempt) Drop() { a.list.report(a.begun.Drop()) }

// Inherit records, in a new list, that a git of an earlier daemon may still move refs in the
// repository at path. It is called before [List.Keep], which lists the repository when that git has
// ended.
func (l *List) Inherit(path string) {
	b, err := l.Begin(entriesOf("", path, []string{""})...)
	l.report(err)
	l.inherited = append(l.inherited, b)
}

// Repository puts on the list that the repository at path is new, has been removed, or has replaced
// another one.
func (l *List) Repository(path string) { l.Moved("", path, "") }

func entriesOf(who, path string, refs []string) []Entry {
	entries := make([]Entry, len(refs))
	for i, ref := range refs {
		entries[i] = Entry{Who: who, Ref: ref, Dir: path}
	}
	return entries
}

// Earlier has the callbacks of [List.Keep] for the gits of earlier daemons.
type Earlier struct {
	// Await returns an error while such a git may run in the repository at path. It waits only
	// briefly.
	Await func(ctx context.Context, path string) error
	// Ended is called once no such git that may have moved these refs runs there any more. A git
	// that was killed has left lock files.
	Ended func(path string, refs []string)
}

// listInherited puts moves that an earlier daemon has begun on the list, once none of its gits runs
// any more.
func (l *List) listInherited(ctx context.Context, begun *Begun, earlier Earlier) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 20*time.Millisecond, time.Second
	refs := begun.Refs()
	for path := range refs {
		for earlier.Await(ctx, path) != nil {
			if !pause.For(ctx, retry.NextBackOff()) {
				return
			}
		}
	}
	for path, names := range refs {
		earlier.Ended(path, slices.DeleteFunc(names, func(ref string) bool { return ref == "" }))
	}
	l.report(begun.End())
}

// Keep begins a new list whenever the last one could not be written, until ctx ends. It lists the
// moves that earlier daemons have begun in a repository once none of their gits runs there any
// more. It also calls every once per restoreEvery.
func (l *List) Keep(ctx context.Context, earlier Earlier, every func()) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for _, b := range l.inherited {
		tasks.Go(func() { l.listInherited(ctx, b, earlier) })
	}
	for pause.For(ctx, restoreEvery) {
		every()
		if l.Writable() != nil && l.Restore() == nil {
			l.failed.Store(false)
			l.log.WarnContext(ctx, "moves can be listed again: the moves in between are missing, so readers compare everything")
		}
	}
}
