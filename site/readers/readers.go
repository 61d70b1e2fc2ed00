// Package readers serves the readers of the list of moves: guards that keep indexes. The rules are
// in PROTOCOL.md, M15 to M18.
package readers

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// maxReaders bounds the connections of readers at a time.
	maxReaders = 64
	// movesWait is how long a reader waits for an answer while there are no moves.
	movesWait = 10 * time.Second
	// readerSilence is how long a reader may take to process an answer.
	readerSilence = 10 * time.Minute
	// readerWrite is how long a reader may stop reading an answer.
	readerWrite = 20 * time.Second
	// NeverReadFor is the time after which a server should have begun to read.
	NeverReadFor = 5 * time.Minute
)

// Readers serves the readers of the list of moves, and remembers them by their guards.
type Readers struct {
	List *moves.List
	// Started is closed when the daemon knows what its predecessors have left.
	Started <-chan struct{}
	Logger  *slog.Logger
	// Reset is called when a reader has to compare everything.
	Reset func()
	// Wait is how long a reader waits for an answer while there are no moves; 0: 10 s.
	Wait time.Duration

	mu  sync.Mutex
	all map[string]*reader
}

// A reader is the state of a reader, which is kept as long as its guard lives. Readers.mu protects
// the fields that change.
type reader struct {
	guard string
	conn  net.Conn    // nil if the reader is not connected
	since time.Time   // when the reader connected or lost its connection
	place moves.Place // the reader has processed everything before this place
}

// Serve serves a reader of the list of moves from its first message on. It calls begun after it has
// accepted the first message.
func (rs *Readers) Serve(ctx context.Context, conn *net.UnixConn, r *bufio.Reader, peer pusher.Hook, begun func()) {
	first, err := wire.ReadBeginMoves(r)
	var reading *reader
	if err == nil {
		reading, err = rs.beginReading(conn, peer, first)
	}
	if err != nil {
		sayTo(conn, refusal.Rejection(err))
		return
	}
	begun()
	defer rs.ended(reading, conn)
	place := moves.Place(first.After)
	for {
		rs.reached(reading, place)
		answer := rs.movesAfter(ctx, place)
		if ctx.Err() != nil || sayTo(conn, answer) != nil {
			return
		}
		if _, failed := answer.(wire.Fault); failed {
			return
		}
		conn.SetReadDeadline(time.Now().Add(readerSilence))
		if ctx.Err() != nil {
			return // ctx has ended, and the new deadline may have replaced the one that interrupts reads
		}
		next, err := wire.ReadFromReader(r)
		if errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrTooLarge) {
			rs.Logger.WarnContext(ctx, "a reader of moves has sent a malformed message: its connection ends")
			sayTo(conn, wire.Fault{Text: wire.OneLine(err.Error())})
		}
		if err != nil {
			return
		}
		place = moves.Place(next.Place)
	}
}

func sayTo(conn net.Conn, m wire.DaemonMessage) error {
	conn.SetWriteDeadline(time.Now().Add(readerWrite))
	return wire.WriteMessage(conn, m)
}

// beginReading starts a reader, or returns the reason of its rejection. An earlier connection of
// the same guard ends.
func (rs *Readers) beginReading(conn net.Conn, peer pusher.Hook, first wire.BeginMoves) (*reader, error) {
	select {
	case <-rs.Started:
	default:
		return nil, refusal.Rejected{Reason: wire.RejectStarting, Err: errors.New(wire.DaemonStarting)}
	}
	if uid := os.Getuid(); int(peer.UID) != uid && peer.UID != 0 {
		return nil, refusal.Rejected{Reason: wire.RejectGuard, Err: errors.New(wire.AnotherUser(uid, int(peer.UID)))}
	}
	if err := rs.List.Writable(); err != nil {
		return nil, refusal.Rejected{Reason: wire.RejectUnwritable, Err: err}
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	before := rs.all[first.Guard]
	if before == nil && len(rs.all) >= maxReaders {
		return nil, refusal.Rejected{Reason: wire.RejectStarting, Err: fmt.Errorf("there are %d readers of moves already", len(rs.all))}
	}
	if before != nil && before.conn != nil {
		before.conn.Close()
	}
	if rs.all == nil {
		rs.all = map[string]*reader{}
	}
	now := &reader{guard: first.Guard, conn: conn, since: time.Now()}
	rs.all[first.Guard] = now
	return now, nil
}

// reached records that a reader has processed everything before a place.
func (rs *Readers) reached(r *reader, place moves.Place) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.place = place
}

// ended records that a reader has lost its connection.
func (rs *Readers) ended(r *reader, conn net.Conn) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.conn == conn {
		r.conn, r.since = nil, time.Now()
	}
}

// movesAfter returns the answer to a reader that has processed everything before a place. It waits
// a while for moves.
func (rs *Readers) movesAfter(ctx context.Context, place moves.Place) wire.DaemonMessage {
	if place == "" {
		end, err := rs.List.End()
		if err != nil {
			return fault(err)
		}
		return wire.Moves{Place: string(end)}
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(rs.Wait, movesWait))
	defer cancel()
	for {
		page, err := rs.List.Read(place)
		switch {
		case errors.Is(err, moves.ErrUnwritable):
			return fault(err)
		case errors.Is(err, moves.ErrReset):
			end, err := rs.List.End()
			if err != nil {
				return fault(err)
			}
			rs.Reset()
			rs.Logger.InfoContext(ctx, "a reader of moves starts over: it compares everything")
			return wire.Reset{Place: string(end)}
		case err != nil:
			rs.Logger.WarnContext(ctx, "the list of moves can't be read now", "class", refdb.ClassOf(err).String())
			return fault(err)
		case len(page.Entries) > 0 || ctx.Err() != nil:
			return answerOf(page)
		}
		place = page.Next
		rs.List.Wait(ctx, place)
	}
}

func fault(err error) wire.Fault { return wire.Fault{Text: wire.OneLine(err.Error())} }

func answerOf(p moves.Page) wire.Moves {
	answer := wire.Moves{Place: string(p.Next)}
	for _, e := range p.Entries {
		answer.Entries = append(answer.Entries, wire.Move{Who: e.Who, Ref: e.Ref, Dir: e.Dir})
	}
	return answer
}

// Forget removes the readers without a connection whose guard is no longer alive.
func (rs *Readers) Forget(lives func(guard string) bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for id, r := range rs.all {
		if r.conn == nil && !lives(id) {
			delete(rs.all, id)
		}
	}
}

// Reads reports whether a guard has ever read for itself.
func (rs *Readers) Reads(guard string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.all[guard] != nil
}

// Status returns the status of all readers; it is not nil.
func (rs *Readers) Status() []client.Reader {
	rs.mu.Lock()
	var all []reader
	for _, r := range rs.all {
		all = append(all, *r)
	}
	rs.mu.Unlock()
	slices.SortFunc(all, func(a, b reader) int { return cmp.Compare(a.guard, b.guard) })
	statuses := []client.Reader{}
	for _, r := range all {
		status := client.Reader{Guard: r.guard, Connected: r.conn != nil, Age: time.Since(r.since).Seconds()}
		if r.place != "" {
			size, oldest, known := rs.List.Unread(r.place)
			status.Unread = size
			if size > 0 {
				status.Oldest = time.Since(oldest).Seconds()
			}
			status.Comparing = !known
		}
		statuses = append(statuses, status)
	}
	return statuses
}
