package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
)

const (
	// beginCursor stands for the oldest change that the history has, in the place of a cursor.
	beginCursor = "begin"
	// messageChanges bounds what a stream holds in memory while its client is slow.
	messageChanges = 100

	heartbeatEvery = 5 * time.Second
	recheckEvery   = time.Second // of the caller's right
)

var (
	errStopping = errors.New("the server stops: go on at another one, from the last cursor")
	errSlow     = errors.New("the client did not read in time: go on from the last cursor")
	errGone     = errors.New("the client has closed the stream")
)

// Watch implements the API.
func (s *Service) Watch(ctx context.Context, call *connect.Request[refdbv1.WatchRequest], stream *connect.ServerStream[refdbv1.WatchResponse]) error {
	return s.Stream(ctx, call.Msg, stream.Send)
}

// Stream is Watch for whatever protocol: it calls send with each response, until send fails or the
// stream ends. The error is a [*connect.Error].
func (s *Service) Stream(ctx context.Context, r *refdbv1.WatchRequest, send func(*refdbv1.WatchResponse) error) error {
	err := s.stream(ctx, r, send)
	if err == nil {
		return nil
	}
	return s.failure(ctx, err)
}

func (s *Service) stream(ctx context.Context, r *refdbv1.WatchRequest, send func(*refdbv1.WatchResponse) error) error {
	caller, err := authorize(ctx, access.Read, r.Project)
	if err != nil {
		return err
	}
	after, err := s.after(ctx, caller, r)
	if err != nil {
		return err
	}
	w := &watch{caller: caller, project: r.Project, after: after, send: send}
	if after.Epoch != "" {
		if err := w.write(nil); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	pages := make(chan page)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	reader.Go(func() {
		for changes, err := range s.db.Changes(ctx, refdb.ChangeQuery{Project: r.Project, Prefix: r.Prefix, After: after, Limit: messageChanges, Group: caller.Subject}) {
			select {
			case pages <- page{changes, err}:
			case <-ctx.Done():
				return
			}
		}
	})
	return w.run(ctx, pages, s.stopping)
}

// after returns where a stream begins.
func (s *Service) after(ctx context.Context, caller access.Identity, r *refdbv1.WatchRequest) (refdb.Cursor, error) {
	switch r.Cursor {
	case beginCursor:
		return refdb.Cursor{}, nil
	case "":
		end, err := s.turn(ctx, caller, false, func() error { return caller.May(access.Read, r.Project) })
		if err != nil {
			return refdb.Cursor{}, err
		}
		defer end()
		limited, cancel := reading(ctx)
		defer cancel()
		after, err := s.db.HistoryEnd(limited)
		return shownTo(caller, r.Project, after), err
	}
	after, err := refdb.ParseCursor(r.Cursor)
	if err == nil && !after.Durable {
		err = fmt.Errorf("%w cursor: it is not one of this API", refdb.ErrInvalid)
	}
	for _, k := range []driver.ChangeKey{after.Mark, after.Last} {
		if err == nil && k != (driver.ChangeKey{Position: k.Position}) {
			err = driver.CheckKey(k.Project, k.Ref)
		}
	}
	return shownTo(caller, r.Project, after), err
}

// shownTo returns a cursor without its last change if the caller must not know that change: the reader would
// look for the change, and its answer would tell the caller whether it exists.
func shownTo(caller access.Identity, project string, c refdb.Cursor) refdb.Cursor {
	if c.Last.Project != project || caller.May(access.Read, project, c.Last.Ref) != nil {
		c.Last, c.LastOp = driver.ChangeKey{}, ""
	}
	return c
}

// A page is what a reader of changes has read.
type page struct {
	changes refdb.Changes
	err     error
}

// A watch is one stream. It has a goroutine that reads, and holds a page at a time.
type watch struct {
	caller  access.Identity
	project string
	after   refdb.Cursor // behind what was sent; it names only changes that were sent
	send    func(*refdbv1.WatchResponse) error
	sent    time.Time // when send returned last
}

// run sends what is read until the stream ends, and returns the reason. While the database is down
// there is nothing to read: heartbeats go on.
func (w *watch) run(ctx context.Context, pages <-chan page, stopping <-chan struct{}) error {
	recheck := time.NewTicker(recheckEvery)
	defer recheck.Stop()
	for {
		select {
		case p := <-pages:
			if p.err != nil {
				return p.err
			}
			if err := w.show(p.changes); err != nil {
				return err
			}
		case <-recheck.C:
			if err := w.caller.May(access.Read, w.project); err != nil {
				return err
			}
			if time.Since(w.sent) >= heartbeatEvery {
				if err := w.write(nil); err != nil {
					return err
				}
			}
		case <-stopping:
			return errStopping
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// show sends those of the changes that the caller may read now, if there are any, and moves the cursor.
func (w *watch) show(c refdb.Changes) error {
	if err := w.caller.May(access.Read, w.project); err != nil {
		return err // rather than leave all changes out
	}
	var shown []*refdbv1.Change
	for _, change := range c.Changes {
		if err := w.caller.May(access.Read, w.project, change.Ref); errors.Is(err, access.ErrDenied) {
			continue
		} else if err != nil {
			return err
		}
		shown = append(shown, changeOf(change))
		w.after.Last, w.after.LastOp = change.Key(), change.Op
	}
	mark := c.Cursor.Mark
	if mark.Project != "" {
		// It may name a change that the caller can't read. What was shown last is as far, or all changes
		// of earlier positions are.
		mark = driver.ChangeKey{Position: mark.Position}
	}
	if w.after.Last.Compare(mark) > 0 {
		mark = w.after.Last
	}
	if mark.Compare(w.after.Mark) > 0 || w.after.Epoch == "" {
		w.after.Mark, w.after.Durable, w.after.Epoch = mark, c.Cursor.Durable, c.Cursor.Epoch
	}
	if len(shown) == 0 {
		return nil
	}
	return w.write(shown)
}

func (w *watch) write(changes []*refdbv1.Change) error {
	err := w.send(&refdbv1.WatchResponse{Changes: changes, Cursor: w.after.String()})
	w.sent = time.Now()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errSlow
	case err != nil:
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}
