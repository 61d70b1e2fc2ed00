package site

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

// rejected is why a session does not begin. Its text is for people.
type rejected struct {
	reason string
	error
}

func (r rejected) Unwrap() error { return r.error }

// rejection returns the answer to a first message that err forbids.
func rejection(err error) wire.Rejected {
	reason := wire.RejectMalformed
	var why rejected
	switch {
	case errors.As(err, &why):
		reason = why.reason
	case errors.Is(err, wire.ErrVersion):
		reason = wire.RejectVersion
	}
	return wire.Rejected{Reason: reason, Lines: textOf(err)}
}

// begin lets a session begin, or returns why it is rejected.
func (d *Daemon) begin(ctx context.Context, s *session, peer pusher.Hook, b wire.Begin) error {
	select {
	case <-d.started:
	default:
		return rejected{wire.RejectStarting, errors.New(wire.DaemonStarting)}
	}
	if uid := os.Getuid(); int(peer.UID) != uid && peer.UID != 0 {
		return rejected{wire.RejectGuard, errors.New(wire.AnotherUser(uid, int(peer.UID)))}
	}
	c := d.config.Load()
	root, err := rootOf(c)
	if err == nil && b.Root != root {
		err = fmt.Errorf("the guard's repositories are in %s, those of the site in %s (site.root): let both be the same", b.Root, root)
	}
	if err != nil {
		return rejected{wire.RejectRoot, err}
	}
	id, err := peer.Guard(b.Guard, d.boot)
	if err != nil {
		return rejected{wire.RejectGuard, err}
	}
	welcome := wire.Welcome{Site: c.Site, Root: root, LockWait: c.LockWait, Timeout: answerWithin(c), Projects: wire.ProjectsVersion}
	if err := d.ready(ctx); err != nil {
		welcome.Database = refusal.LinesOf(err)[0]
	} else if err := d.recordServer(ctx, c, b); err != nil {
		return err
	}
	if err := d.know(id); err != nil {
		return err
	}
	if err := d.openSession(ctx, s, id, b, welcome); err != nil {
		return err
	}
	if len(b.Open) > 0 {
		d.logFailure(ctx, "the guards could not be noted", d.note(s.guard))
	}
	return nil
}

// recordServer lets the other sites know of a server, or rejects one that does not go with theirs. If the database does not answer
// meanwhile, it can't be told.
func (d *Daemon) recordServer(ctx context.Context, c *config.Config, b wire.Begin) error {
	if b.Instance == "" && b.Server == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err := presence.RecordServer(ctx, d.db, c.Site, presence.Server{Instance: b.Instance, Server: b.Server})
	switch {
	case errors.Is(err, presence.ErrInstance):
		return rejected{wire.RejectInstance, err}
	case errors.Is(err, presence.ErrServer):
		return rejected{wire.RejectServer, err}
	}
	d.logFailure(ctx, "the server of this site could not be recorded", err)
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
func (d *Daemon) ready(ctx context.Context) error {
	if err := d.awaitServing(ctx); err != nil {
		return err
	}
	if err := d.health.last(); err != nil {
		return refusal.DatabaseFailed(err)
	}
	return nil
}

// know gets to know a guard, which is watched from now on.
func (d *Daemon) know(id pusher.Guard) error {
	gs := &d.guards
	gs.lock()
	sessions := 0
	for other, g := range gs.all {
		if other.ID == id.ID && other != id {
			gs.unlock()
			return rejected{wire.RejectGuard, errors.New(wire.GuardChanged)}
		}
		if g.session != nil && other != id {
			sessions++
		}
	}
	if sessions >= maxSessions {
		gs.unlock()
		return rejected{wire.RejectStarting, fmt.Errorf("there are %d sessions already", sessions)}
	}
	g := gs.get(id)
	gs.unlock()
	d.watchGuard(g)
	return nil
}

// openSession lets the session be the guard's only one, and takes its list: what is listed goes on, and is to be reported; all else of the guard is
// settled.
func (d *Daemon) openSession(ctx context.Context, s *session, id pusher.Guard, b wire.Begin, welcome wire.Welcome) error {
	c := d.config.Load()
	gs := &d.guards
	gs.lock()
	defer gs.unlock()
	g := gs.all[id]
	switch {
	case g == nil || g.dead: // it has ended just now
		return rejected{wire.RejectGuard, pusher.ErrGone}
	case b.Number <= g.number:
		return rejected{wire.RejectNumber, fmt.Errorf("session %d of this guard: it has begun its session %d", b.Number, g.number)}
	}
	if g.session != nil {
		g.session.close()
	}
	gs.leaveCreations(g)
	s.guard = g
	g.server = b.Instance != "" || b.Server != ""
	g.session, g.number, g.name, g.since, g.begun, g.alarmed = s, b.Number, b.Name, time.Now(), true, false
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
		d.endTransaction(t)
	}
	for _, o := range listed {
		// It had its OK of an earlier daemon. If it has intents, reconcile finds them.
		t := &transaction{id: pusher.Transaction{Guard: id, TX: o.TX}, guard: g, dir: o.Dir, lines: o.Lines, began: time.Now(), phase: granted, mayHaveLocks: true, mayHaveMoved: true, listed: true}
		if r, err := c.Find(o.Dir); err == nil {
			t.repo = r
		}
		g.transactions[o.TX] = t
	}
	gs.wake()
	s.send(welcome)
	d.o.Logger.InfoContext(ctx, "a guard has begun a session", "process", id.PID, "number", b.Number, "open", len(b.Open))
	return nil
}
