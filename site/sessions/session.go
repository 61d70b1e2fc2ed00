package sessions

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// maxSessions bounds the sessions at a time, maxTransactions the open transactions of a guard,
	// and maxAnnounced the bytes of their refs.
	maxSessions     = 64
	maxTransactions = 2000
	maxAnnounced    = 4 * wire.MaxMessage
	// maxQueued is how many bytes may wait for a guard to read them. Beyond that the session ends.
	maxQueued = 2 * wire.MaxMessage
	// sessionSilence is how long a guard may send nothing, sessionWrite how long it may read
	// nothing while messages wait.
	sessionSilence = 30 * time.Second
	sessionWrite   = 20 * time.Second
)

// A session is a guard's connection. Nothing that it says blocks.
type session struct {
	guard  *guard
	conn   *net.UnixConn
	limits Limits

	mu     sync.Mutex
	queue  []byte
	more   chan struct{} // has an item if the queue has something, or the session ends
	ending bool          // nothing is queued any more
}

func newSession(conn *net.UnixConn, limits Limits) *session {
	return &session{conn: conn, limits: limits, more: make(chan struct{}, 1)}
}

// send queues a message. It reports whether the guard may get it. A nil session takes nothing.
func (s *session) send(m wire.DaemonMessage) bool {
	if s == nil {
		return false
	}
	b, err := wire.AppendMessage(nil, m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return false
	}
	if err != nil || len(s.queue)+len(b) > maxQueued {
		s.end()
		s.conn.SetDeadline(time.Unix(1, 0))
		return false
	}
	s.queue = append(s.queue, b...)
	s.wake()
	return true
}

func (s *session) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// end lets nothing more be queued. s.mu is held.
func (s *session) end() {
	s.ending = true
	s.wake()
}

// close ends the session after what was queued is sent.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	s.conn.SetReadDeadline(time.Unix(1, 0))
}

// listen lets the next message come within a time. It reports whether the session goes on.
func (s *session) listen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		s.conn.SetReadDeadline(time.Now().Add(s.limits.Silence))
	}
	return !s.ending
}

// write sends what is queued until the session ends, or the guard reads too slowly.
func (s *session) write() {
	for range s.more {
		s.mu.Lock()
		b, ending := s.queue, s.ending
		s.queue = nil
		s.mu.Unlock()
		if len(b) > 0 {
			s.conn.SetWriteDeadline(time.Now().Add(s.limits.Write))
			if _, err := s.conn.Write(b); err != nil {
				s.close()
				return
			}
		}
		if ending {
			return
		}
	}
}

// Serve serves a guard from its first message on. It calls begun when the session has begun.
func (gs *Guards) Serve(ctx context.Context, conn *net.UnixConn, r *bufio.Reader, peer pusher.Hook, begun func()) {
	s := newSession(conn, gs.limits())
	done := make(chan struct{})
	go func() { defer close(done); s.write() }()
	defer func() { s.close(); <-done }()
	b, err := wire.ReadBegin(r)
	if err == nil {
		err = gs.begin(ctx, s, peer, b)
	}
	if err != nil {
		s.send(refusal.Rejection(err))
		return
	}
	begun()
	defer context.AfterFunc(ctx, func() { s.close(); conn.SetDeadline(time.Unix(1, 0)) })()
	defer gs.sessionEnded(s)
	for s.listen() {
		m, err := wire.ReadFromGuard(r)
		if errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrTooLarge) {
			gs.Logger.WarnContext(ctx, "a guard has sent a malformed message: its session ends")
			s.send(wire.Fault{Text: wire.OneLine(err.Error())})
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				gs.Logger.DebugContext(ctx, "a session has broken")
			}
			return
		}
		if !gs.handle(s, m) {
			return
		}
	}
}

// handle takes a message of a guard. It reports whether the session goes on.
func (gs *Guards) handle(s *session, m wire.Message) bool {
	gs.lock()
	defer gs.unlock()
	g := s.guard
	if g.session != s || g.dead {
		return false // there is a later one
	}
	switch m := m.(type) {
	case wire.Ping:
		s.send(wire.Pong{})
	case wire.Announce:
		return gs.announced(s, m)
	case wire.Report:
		gs.reported(s, m)
	case wire.Create:
		return gs.createAsked(s, m)
	case wire.Deleted:
		gs.deletedAsked(s, m)
	}
	return true
}

// announced takes an announcement. The guards are locked.
func (gs *Guards) announced(s *session, m wire.Announce) bool {
	g := s.guard
	if g.transactions[m.TX] != nil || gs.creations[pusher.Transaction{Guard: g.id, TX: m.TX}] != nil {
		s.send(wire.Fault{Text: "transaction " + m.TX + " was announced before"})
		return false
	}
	size := 0
	for _, l := range m.Lines {
		size += len(l.Old) + len(l.New) + len(l.Ref)
	}
	if len(g.transactions) >= maxTransactions || g.announced+size > maxAnnounced {
		s.send(wire.Refused{TX: m.TX, Kind: wire.Final, Reason: "too_many", Lines: []string{wire.TooManyTransactions}})
		return true
	}
	ctx, cancel := context.WithCancelCause(gs.State.Work)
	t := &transaction{
		request: request{id: pusher.Transaction{Guard: g.id, TX: m.TX}, session: s, cancel: cancel},
		guard:   g, dir: m.Dir, lines: m.Lines, by: pusher.CleanName(m.By), began: time.Now(), size: size,
	}
	g.announced += size
	g.transactions[m.TX] = t
	gs.State.Tasks.Go(func() {
		defer cancel(nil)
		gs.decide(ctx, t, s, m.Limit)
	})
	return true
}

// reported takes a report. The guards are locked.
func (gs *Guards) reported(s *session, m wire.Report) {
	t := s.guard.transactions[m.TX]
	if t == nil {
		if !gs.creationReported(s, m) {
			s.send(wire.Settled{TX: m.TX})
		}
		return
	}
	t.session, t.reported, t.ownWord = s, true, true
	gs.endTransaction(t)
}

// endTransaction settles a transaction that does not move any more. The guards are locked.
func (gs *Guards) endTransaction(t *transaction) {
	if t.end() {
		gs.wake()
		gs.State.Tasks.Go(func() { gs.settle(gs.State.Work, t) })
	}
}

// sessionEnded is called when a session is over. Transactions that were granted wait for the
// guard's next session.
func (gs *Guards) sessionEnded(s *session) {
	gs.lock()
	defer gs.unlock()
	g := s.guard
	if g.session != s {
		return
	}
	g.session, g.since = nil, gs.now()
	gs.leaveCreations(g)
	if g.noted && len(g.transactions) == 0 {
		gs.State.Tasks.Go(func() { gs.logFailure(gs.State.Work, "the guards could not be noted", gs.saveGuards()) })
	}
	for _, t := range g.transactions {
		t.leave()
	}
	gs.wake()
}

// deletedAsked handles a guard's message that it has deleted a repository. The guards are locked.
func (gs *Guards) deletedAsked(s *session, m wire.Deleted) {
	gs.State.Tasks.Go(func() {
		if err := gs.NoteDeletion(m); err != nil {
			gs.State.Counts.RefusedFor(err)
			s.send(wire.Refused{TX: m.TX, Kind: refusal.KindOf(err), Reason: string(refusal.ReasonOf(err)), Lines: refusal.TextOf(err)})
			refusal.Log(gs.State.Work, gs.Logger, err)
			return
		}
		s.send(wire.Granted{TX: m.TX})
		gs.RemoveDeleted(gs.State.Work)
	})
}
