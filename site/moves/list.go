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

// About records moves that are about to be made in the repository at path. They are listed when the function is called that it
// returns: nobody can make them any more then.
func (l *List) About(path string, refs ...string) (ended func()) {
	b, err := l.Begin(entriesOf("", path, refs)...)
	l.note(err)
	return func() { l.note(b.End()) }
}

// Inherit records, in a new list, that a git may still move refs in the repository at path that an earlier daemon has let through. It is called
// before [List.Keep], which lists the repository when that git has ended.
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

// listLeft lists what earlier daemons have let their followers move, once no such git runs any more.
func (l *List) listLeft(ctx context.Context, left *Begun, followed func(ctx context.Context, path string) error) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 20*time.Millisecond, time.Second
	for _, path := range slices.Compact(left.Dirs()) {
		for followed(ctx, path) != nil {
			if !pause.For(ctx, retry.NextBackOff()) {
				return
			}
		}
	}
	l.note(left.End())
}

// Keep lets a new list begin when the last one could not be written, until ctx ends. It lists what earlier daemons have let followers move in
// a repository once followed returns no error: no such git runs there any more. Again and again it calls every.
func (l *List) Keep(ctx context.Context, followed func(ctx context.Context, path string) error, every func()) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for _, left := range l.left {
		tasks.Go(func() { l.listLeft(ctx, left, followed) })
	}
	for pause.For(ctx, restoreEvery) {
		every()
		if l.Writable() != nil && l.Restore() == nil {
			l.failed.Store(false)
			l.log.WarnContext(ctx, "moves can be listed again: the moves in between are missing, so readers compare everything")
		}
	}
}
