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

// restoreEvery is how often the daemon tries to write the list of moves again, after it could not.
const restoreEvery = time.Second

// List is a [Log] that reports its failures to the daemon's log. The rules are in PROTOCOL.md, M15 to M18.
type List struct {
	*Log
	log    *slog.Logger
	left   []*Begun    // of earlier daemons
	failed atomic.Bool // it could not be written, and that was logged
}

// Open opens the list of the daemon with that state directory. Boot names the boot of the machine; note is as in the function [Open]. It is
// called before anything can move.
func (l *List) Open(ctx context.Context, state, boot, note string, log *slog.Logger) {
	var err error
	l.log = log
	l.Log, l.left, err = Open(Dir(state), boot, note)
	if l.IsNew() {
		l.log.InfoContext(ctx, "a new list of moves begins: its readers compare everything")
	}
	l.note(err)
}

// note logs that the list can't be written, once.
func (l *List) note(err error) {
	if err != nil && !l.failed.Swap(true) {
		l.log.Error("moves can't be listed: guards' indexes are not updated until this is repaired; check the disk of site.state", "error", err)
	}
}

// Moved puts refs on the list that may have moved in the repository at path. Nobody can make these moves any more. Who is the guard
// that made and reported them; "" if that was somebody else.
func (l *List) Moved(who, path string, refs ...string) {
	l.note(l.Append(entriesOf(who, path, refs)...))
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
	l.note(err)
	return Attempt{l, b}
}

// End lists the moves: some may have been made.
func (a Attempt) End() { a.list.note(a.begun.End()) }

// Drop ends an attempt that made none of the moves.
func (a Attempt) Drop() { a.list.note(a.begun.Drop()) }

// Inherit records, in a new list, that a git of an earlier daemon may still move refs in the
// repository at path. It is called before [List.Keep], which lists the repository when that git has
// ended.
func (l *List) Inherit(path string) {
	b, err := l.Begin(entriesOf("", path, []string{""})...)
	l.note(err)
	l.left = append(l.left, b)
}

// Repository says that the repository at path is new here, has gone, or took the place of another.
func (l *List) Repository(path string) { l.Moved("", path, "") }

func entriesOf(who, path string, refs []string) []Entry {
	entries := make([]Entry, len(refs))
	for i, ref := range refs {
		entries[i] = Entry{Who: who, Ref: ref, Dir: path}
	}
	return entries
}

// Earlier says what became of the gits of earlier daemons.
type Earlier struct {
	// Await returns an error while such a git may run in the repository at path. It does not wait
	// long.
	Await func(ctx context.Context, path string) error
	// Ended is called once none runs there any more that may have moved refs: if it was killed, it
	// has left lock files.
	Ended func(path string, refs []string)
}

// listLeft lists the moves that an earlier daemon has begun, once none of its gits runs any more.
func (l *List) listLeft(ctx context.Context, left *Begun, earlier Earlier) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 20*time.Millisecond, time.Second
	refs := left.Refs()
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
	l.note(left.End())
}

// Keep begins a new list when the last one could not be written, until ctx ends. It lists the moves
// that earlier daemons have begun in a repository once none of their gits runs there any more. Every
// is called again and again.
func (l *List) Keep(ctx context.Context, earlier Earlier, every func()) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for _, left := range l.left {
		tasks.Go(func() { l.listLeft(ctx, left, earlier) })
	}
	for pause.For(ctx, restoreEvery) {
		every()
		if l.Writable() != nil && l.Restore() == nil {
			l.failed.Store(false)
			l.log.WarnContext(ctx, "moves can be listed again: the moves in between are missing, so readers compare everything")
		}
	}
}
