package site

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	maxConnections = 512
	// reserve is the part of a client's limit that is left for sending the answer.
	reserve = 200 * time.Millisecond
)

// connections are slots for connections. More connections wait in the listener's queue.
type connections chan struct{}

func newConnections() connections { return make(connections, maxConnections) }

func (c connections) idle() bool { return len(c) == 0 }

// accept serves connections until the listener is closed.
func (d *Daemon) accept(ctx context.Context, l *net.UnixListener, slots connections, failed func(error)) {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Too many open files: some will be closed soon.
			failed(err)
			d.o.Logger.ErrorContext(ctx, "a hook could not connect", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		failed(nil)
		slots <- struct{}{}
		d.state.Tasks.Go(func() {
			free := sync.OnceFunc(func() { <-slots })
			defer free()
			defer conn.Close()
			d.serve(ctx, conn, free)
		})
	}
}

// serve answers a hook or a command, or serves a guard or a reader of moves for as long as the
// connection lasts. It calls free when a guard or a reader has begun.
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
	conn.SetWriteDeadline(time.Now().Add(d.hooks.Limits.Answer))
	if err := response.Write(conn); err != nil {
		// The hook is gone. A hook without an answer vetoes.
		d.o.Logger.DebugContext(ctx, "a hook did not read its answer", "error", err)
	}
}

// respond answers the request that r has, of a hook or a command; unknown is why its process can't
// be identified.
func (d *Daemon) respond(ctx context.Context, conn *net.UnixConn, r *bufio.Reader, peer pusher.Hook, unknown error) wire.Response {
	if err := unknown; err != nil {
		return d.hooks.Refuse(ctx, wire.Request{}, err)
	}
	if uid := os.Getuid(); int(peer.UID) != uid && peer.UID != 0 {
		return d.hooks.Refuse(ctx, wire.Request{}, refusal.Because(refusal.Pusher,
			errors.New(wire.AnotherUser(uid, int(peer.UID)))))
	}
	start := time.Now()
	q, err := wire.ReadRequest(r)
	if err != nil {
		return d.hooks.Refuse(ctx, wire.Request{}, err)
	}
	defer func() { d.state.Counts.HookAnswered(q.State, time.Since(start)) }()
	limit := wire.DefaultLimit
	if q.Limit > 0 {
		limit = q.Limit
	}
	running := ctx
	ctx, cancel := context.WithDeadline(ctx, start.Add(limit-min(reserve, limit/4)))
	defer cancel()
	switch q.State {
	case wire.StateStatus:
		return d.statusAsked(ctx)
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
		response := d.hooks.Respond(ctx, conn, peer, q)
		if running.Err() != nil && d.state.Stopping() && !response.OK { // perhaps for this reason alone: the next daemon answers
			return wire.Response{Lines: refusal.LinesOf(refusal.Stops())}
		}
		return response
	}
}

// statusAsked returns the status of the daemon.
func (d *Daemon) statusAsked(ctx context.Context) wire.Response {
	s := d.status()
	if all, err := d.state.Config().Repositories(); err == nil {
		s.Repositories = len(all)
	}
	text, err := json.Marshal(s)
	if err != nil {
		refusal.Log(ctx, d.o.Logger, err)
		return wire.Response{Lines: refusal.LinesOf(err)}
	}
	return wire.Response{OK: true, Lines: []string{string(text)}}
}

// guardsAsked answers whether a guard may have lock files in the repository that q names.
func (d *Daemon) guardsAsked(q wire.Request) wire.Response {
	r, err := d.state.Config().Find(q.Dir)
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	if d.guards.MayWorkIn(r.Path) {
		return wire.Response{OK: true, Lines: []string{wire.GuardsMayWork}}
	}
	return wire.Response{OK: true, Lines: []string{wire.NoGuardsWork}}
}

// readAsked returns the mark of the repository that q names.
func (d *Daemon) readAsked(q wire.Request) wire.Response {
	r, err := d.state.Config().Find(q.Dir)
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	return wire.Response{OK: true, Lines: []string{d.moved.Mark(r.Path)}}
}

// maintainAsked maintains the repository that q names, and tells the client its progress.
func (d *Daemon) maintainAsked(conn *net.UnixConn, q wire.Request) wire.Response {
	r, err := d.state.Config().Find(q.Dir)
	if err == nil && !install.IsGuardedBy(d.state.Config(), r) {
		err = fmt.Errorf("%s is not guarded by this daemon", q.Dir)
	}
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	hook := d.hooks.Waiting(conn)
	ctx, stop := hook.KeepWaiting(d.state.Upkeep)
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
