package sessions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// begin lets a session begin, or returns why it is rejected.
func (gs *Guards) begin(ctx context.Context, s *session, peer pusher.Hook, b wire.Begin) error {
	select {
	case <-gs.State.Started():
	default:
		return refusal.Rejected{Reason: wire.RejectStarting, Err: errors.New(wire.DaemonStarting)}
	}
	if uid := os.Getuid(); int(peer.UID) != uid && peer.UID != 0 {
		return refusal.Rejected{Reason: wire.RejectGuard, Err: errors.New(wire.AnotherUser(uid, int(peer.UID)))}
	}
	c := gs.State.Config()
	root, err := rootOf(c)
	if err == nil && b.Root != root {
		err = fmt.Errorf("the guard's repositories are in %s, the site's in %s (site.root): both must be the same", b.Root, root)
	}
	if err != nil {
		return refusal.Rejected{Reason: wire.RejectRoot, Err: err}
	}
	id, err := peer.Guard(b.Guard, gs.State.Boot)
	if err != nil {
		return refusal.Rejected{Reason: wire.RejectGuard, Err: err}
	}
	welcome := wire.Welcome{Site: c.Site, Root: root, LockWait: c.LockWait, Timeout: gs.answerWithin(c), Projects: wire.ProjectsVersion}
	if err := gs.ready(ctx); err != nil {
		welcome.Database = refusal.LinesOf(err)[0]
	} else if err := gs.recordServer(ctx, c, b); err != nil {
		return err
	}
	if err := gs.know(id); err != nil {
		return err
	}
	if err := gs.openSession(ctx, s, id, b, welcome); err != nil {
		return err
	}
	if len(b.Open) > 0 {
		gs.logFailure(ctx, "the guards could not be noted", gs.note(s.guard))
	}
	return nil
}

// recordServer records a server for the other sites, or rejects a server that does not go with
// theirs. If the database does not answer in time, recordServer accepts the server.
func (gs *Guards) recordServer(ctx context.Context, c *config.Config, b wire.Begin) error {
	if b.Instance == "" && b.Server == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err := presence.RecordServer(ctx, gs.DB, c.Site, presence.Server{Instance: b.Instance, Server: b.Server})
	switch {
	case errors.Is(err, presence.ErrInstance):
		return refusal.Rejected{Reason: wire.RejectInstance, Err: err}
	case errors.Is(err, presence.ErrServer):
		return refusal.Rejected{Reason: wire.RejectServer, Err: err}
	}
	gs.logFailure(ctx, "the server of this site could not be recorded", err)
	return nil
}

// rootOf returns the real path of the site's root.
func rootOf(c *config.Config) (string, error) {
	if c.Root == "" {
		return "", errors.New("the site has no root: set site.root to the directory of the guard's repositories")
	}
	return filepath.EvalSymlinks(c.Root)
}

// ready returns why pushes can't be decided about now; nil if they can. The daemon has started.
func (gs *Guards) ready(ctx context.Context) error {
	if err := gs.State.AwaitServing(ctx); err != nil {
		return err
	}
	if err := gs.State.Health(); err != nil {
		return refusal.DatabaseFailed(err)
	}
	return nil
}

// know records a guard, which is watched from now on.
func (gs *Guards) know(id pusher.Guard) error {
	gs.lock()
	sessions := 0
	for other, g := range gs.all {
		if other.ID == id.ID && other != id {
			gs.unlock()
			return refusal.Rejected{Reason: wire.RejectGuard, Err: errors.New(wire.GuardChanged)}
		}
		if g.session != nil && other != id {
			sessions++
		}
	}
	if sessions >= maxSessions {
		gs.unlock()
		return refusal.Rejected{Reason: wire.RejectStarting, Err: fmt.Errorf("there are %d sessions already", sessions)}
	}
	g := gs.get(id)
	gs.unlock()
	gs.watchGuard(g)
	return nil
}

// openSession makes the session the guard's only one, and takes its list. Listed transactions go
// on, and the guard will report them; all other transactions of the guard are settled.
func (gs *Guards) openSession(ctx context.Context, s *session, id pusher.Guard, b wire.Begin, welcome wire.Welcome) error {
	c := gs.State.Config()
	gs.lock()
	defer gs.unlock()
	g := gs.all[id]
	switch {
	case g == nil || g.dead: // it has ended just now
		return refusal.Rejected{Reason: wire.RejectGuard, Err: pusher.ErrGone}
	case b.Number <= g.number:
		return refusal.Rejected{Reason: wire.RejectNumber, Err: fmt.Errorf("session %d of this guard: the guard has already begun session %d", b.Number, g.number)}
	}
	if g.session != nil {
		g.session.close()
	}
	gs.leaveCreations(g)
	s.guard = g
	g.server = b.Instance != "" || b.Server != ""
	if !g.begun {
		g.first = gs.now()
	}
	g.session, g.number, g.name, g.since, g.begun, g.alarmed = s, b.Number, b.Name, gs.now(), true, false
	listed := make(map[string]wire.Open, len(b.Open))
	for _, o := range b.Open {
		listed[o.TX] = o
	}
	for tx, t := range g.transactions {
		o, is := listed[tx]
		delete(listed, tx)
		t.session, t.reported = nil, false
		if is && t.phase != deciding {
			if t.lines == nil {
				t.dir, t.lines = o.Dir, o.Lines
			}
			continue
		}
		gs.endTransaction(t)
	}
	for _, o := range listed {
		// It had its OK of an earlier daemon. If it has intents, reconcile finds them.
		t := &transaction{
			request: request{id: pusher.Transaction{Guard: id, TX: o.TX}, phase: granted, mayHaveMoved: true},
			guard:   g, dir: o.Dir, lines: o.Lines, began: time.Now(), mayHaveLocks: true, listed: true,
		}
		if r, err := c.Find(o.Dir); err == nil {
			t.repo = r
		}
		g.transactions[o.TX] = t
	}
	gs.wake()
	s.send(welcome)
	gs.Logger.InfoContext(ctx, "a guard has begun a session", "process", id.PID, "number", b.Number, "open", len(b.Open))
	return nil
}
