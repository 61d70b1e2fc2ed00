package site

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/keepalive"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	maxConnections = 512
	// reserve is the part of a hook's limit that is left for sending the answer.
	reserve = 200 * time.Millisecond
)

// connections are slots for connections. More connections wait in the listener's queue.
type connections chan struct{}

func newConnections() connections { return make(connections, maxConnections) }

func (c connections) idle() bool { return len(c) == 0 }

// accept serves connections until the listener is closed.
func (d *Daemon) accept(ctx context.Context, l *net.UnixListener, slots connections) {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Too many open files: some will be closed soon.
			d.o.Logger.ErrorContext(ctx, "a hook could not connect", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		slots <- struct{}{}
		d.tasks.Go(func() {
			free := sync.OnceFunc(func() { <-slots })
			defer free()
			defer conn.Close()
			d.serve(ctx, conn, free)
		})
	}
}

// serve answers a hook, or serves a guard as long as its session lasts, or a reader of moves. Free is called when the connection is no hook's.
func (d *Daemon) serve(ctx context.Context, conn *net.UnixConn, free func()) {
	conn.SetReadDeadline(time.Now().Add(d.limits.request))
	defer context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })()
	peer, err := pusher.HookOf(conn)
	r := bufio.NewReader(conn)
	if first, _ := r.Peek(len(wire.MovesMagic)); err == nil && string(first) == wire.MovesMagic {
		d.readers.Serve(ctx, conn, r, peer, free)
		return
	}
	if first, _ := r.Peek(len(wire.SessionMagic)); err == nil && string(first) == wire.SessionMagic {
		d.guards.Serve(ctx, conn, r, peer, free)
		return
	}
	response := d.respond(ctx, conn, r, peer, err)
	conn.SetWriteDeadline(time.Now().Add(d.limits.answer))
	if err := response.Write(conn); err != nil {
		// The hook is gone. A hook without an answer vetoes.
		d.o.Logger.DebugContext(ctx, "an answer was not taken", "error", err)
	}
}

// respond answers the request that r has, of a hook; unknown is why its process can't be told.
func (d *Daemon) respond(ctx context.Context, conn *net.UnixConn, r *bufio.Reader, hook pusher.Hook, unknown error) wire.Response {
	if err := unknown; err != nil {
		return d.refuse(ctx, wire.Request{}, err)
	}
	if uid := os.Getuid(); int(hook.UID) != uid && hook.UID != 0 {
		return d.refuse(ctx, wire.Request{}, refusal.Because(refusal.Pusher,
			errors.New(wire.AnotherUser(uid, int(hook.UID)))))
	}
	start := time.Now()
	q, err := wire.ReadRequest(r)
	if err != nil {
		return d.refuse(ctx, wire.Request{}, err)
	}
	defer func() { d.metrics.answered(q.State, time.Since(start)) }()
	limit := wire.DefaultLimit
	if q.Limit > 0 {
		limit = q.Limit
	}
	ctx, cancel := context.WithDeadline(ctx, start.Add(limit-min(reserve, limit/4)))
	defer cancel()
	switch q.State {
	case wire.StatePrepared, wire.StatePreReceive, wire.StateUpdate:
		// In mode log, too.
		if err := d.protect(ctx, hook, q); err != nil {
			if q.State == wire.StatePrepared {
				d.counters.refused.Add(1)
			}
			return d.refuse(ctx, q, err)
		}
	}
	switch q.State {
	case wire.StatePrepared:
		q, err := d.withNewName(ctx, hook, q)
		if err == nil {
			err = d.prepared(ctx, hook, q)
		}
		if err != nil && !d.letThrough(hook, q, err) {
			d.counters.refused.Add(1)
			return d.refuse(ctx, q, err)
		}
		d.counters.prepared.Add(1)
	case wire.StateCommitted, wire.StateAborted:
		// Git ignores the answer, but waits for it.
		if err := d.transactionEnded(ctx, hook, q); err != nil {
			d.logRefusal(ctx, err)
			return refusalResponse(err)
		}
	case wire.StatePreReceive:
		err := d.preReceive(ctx, hook, q)
		if err == nil {
			err = d.storeHandled(ctx, hook, conn, q)
		}
		if err != nil && !d.letThrough(hook, q, err) {
			return d.refuse(ctx, q, err)
		}
	case wire.StateUpdate:
		if err := d.update(ctx, hook, conn, q); err != nil && !d.letThrough(hook, q, err) {
			return d.refuse(ctx, q, err)
		}
	case wire.StateStatus:
		s := d.status()
		if all, err := d.config.Load().Repositories(); err == nil {
			s.Repositories = len(all)
		}
		text, err := json.Marshal(s)
		if err != nil {
			d.logRefusal(ctx, err)
			return refusalResponse(err)
		}
		return wire.Response{OK: true, Lines: []string{string(text)}}
	case wire.StateMaintain:
		return d.maintainAsked(conn, q)
	case wire.StateFollow:
		return d.followAsked(ctx, q)
	case wire.StateCatchUp:
		return d.catchUpAsked(conn, q)
	case wire.StateGuards:
		return d.guardsAsked(q)
	case wire.StateRead:
		return d.readAsked(q)
	default:
		return d.refuse(ctx, q, errors.New(wire.UnknownState(q.State)))
	}
	return wire.Response{OK: true}
}

// refuse returns the answer that refuses q because of err, and counts it.
func (d *Daemon) refuse(ctx context.Context, q wire.Request, err error) wire.Response {
	d.metrics.refusals.WithLabelValues(string(refusal.ReasonOf(err))).Inc()
	if lines, err := wire.ParseLines(q.Body); err == nil {
		d.counters.refusedRefs.Add(uint64(len(lines)))
	}
	d.logRefusal(ctx, err)
	return refusalResponse(err)
}

// logRefusal logs an error that has refused something, unless its sentences say all.
func (d *Daemon) logRefusal(ctx context.Context, err error) {
	if !errors.As(err, new(refusal.Lines)) {
		d.o.Logger.InfoContext(ctx, "refused", "class", refdb.ClassOf(err).String())
	}
}

// refusalResponse returns the answer that says err.
func refusalResponse(err error) wire.Response { return wire.Response{Lines: refusal.LinesOf(err)} }

// letThrough reports whether a request goes on in spite of err, because the project is in mode log. It records the refusal,
// and does not ask the database.
func (d *Daemon) letThrough(hook pusher.Hook, q wire.Request, err error) bool {
	if refusal.IsReserved(err) {
		return false // a name that is refused whatever the database says
	}
	r, known := d.config.Load().Find(q.Dir)
	lines, parsed := wire.ParseLines(q.Body)
	rules, logs := d.projects.Logs(r.Project)
	if errors.Join(known, parsed) != nil || !logs {
		return false
	}
	if q.State != wire.StatePrepared {
		return true // only the transaction that follows is counted
	}
	c := d.config.Load().Under(rules)
	guarded := slices.DeleteFunc(lines, func(l wire.Line) bool { return !c.Guards(r.Project, l.Ref) })
	d.noteLetThrough(r.Project, d.pushedBy(c, hook, q.Process), guarded, err)
	return true
}

// noteLetThrough records lines of a transaction that err would have refused.
func (d *Daemon) noteLetThrough(project, by string, guarded []wire.Line, err error) {
	d.logged.Add(project, by, guarded, err)
	d.o.Logger.Info("let through what would have been refused: the project's mode is log", "reason", string(refusal.ReasonOf(err)),
		"project", refdb.Digest(d.o.DigestKey, project, ""), "refs", len(guarded))
}

// pushedBy returns the name of who pushes, or "" if nobody says or the push has ended.
func (d *Daemon) pushedBy(c *config.Config, hook pusher.Hook, said *wire.Process) string {
	a, err := hook.Agent(c.GitPrograms, said, d.boot)
	if err != nil {
		return ""
	}
	by := a.PushedBy(c.PusherEnv)
	if hook.RunBy(a) != nil {
		return ""
	}
	return by
}

// guardsAsked says whether a guard may have lock files in the repository that q names.
func (d *Daemon) guardsAsked(q wire.Request) wire.Response {
	r, err := d.config.Load().Find(q.Dir)
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	if d.guards.MayWorkIn(r.Path) {
		return wire.Response{OK: true, Lines: []string{wire.GuardsMayWork}}
	}
	return wire.Response{OK: true, Lines: []string{wire.NoGuardsWork}}
}

// readAsked says what the mark of the repository is that q names.
func (d *Daemon) readAsked(q wire.Request) wire.Response {
	r, err := d.config.Load().Find(q.Dir)
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	return wire.Response{OK: true, Lines: []string{d.moved.Mark(r.Path)}}
}

// maintainAsked maintains the repository that q names, and tells the client meanwhile what it does.
func (d *Daemon) maintainAsked(conn *net.UnixConn, q wire.Request) wire.Response {
	r, err := d.config.Load().Find(q.Dir)
	if err == nil && !install.IsGuardedBy(d.config.Load(), r) {
		err = fmt.Errorf("%s is not guarded by this daemon", q.Dir)
	}
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	hook := d.waitingHook(conn)
	ctx, stop := hook.KeepWaiting(d.upkeep)
	m, err := d.maintainer.Maintain(ctx, r, hook.Say)
	stop()
	var text []byte
	if err == nil {
		text, err = json.Marshal(m)
	}
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	return wire.Response{OK: true, Lines: []string{string(text)}}
}

// waitingHook is a hook that waits for its answer.
func (d *Daemon) waitingHook(conn *net.UnixConn) *keepalive.Client {
	return keepalive.New(func(text string) error {
		conn.SetWriteDeadline(time.Now().Add(d.limits.answer))
		return wire.Wait(conn, text)
	})
}
