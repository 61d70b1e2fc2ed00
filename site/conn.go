package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	maxConnections = 512
	// readLimit is how long a hook may take to say what it wants, writeLimit to
	// take the answer.
	readLimit  = 5 * time.Second
	writeLimit = 2 * time.Second
	// reserve is kept of a hook's limit, so that the answer still arrives.
	reserve = 200 * time.Millisecond
)

// connections are slots; those beyond wait in the listener's queue.
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
			// Too many open files: others will be closed.
			d.o.Logger.ErrorContext(ctx, "a hook could not connect", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		slots <- struct{}{}
		d.tasks.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			d.serve(ctx, conn)
		})
	}
}

func (d *Daemon) serve(ctx context.Context, conn *net.UnixConn) {
	conn.SetReadDeadline(time.Now().Add(readLimit))
	defer context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })()
	response := d.respond(ctx, conn)
	conn.SetWriteDeadline(time.Now().Add(writeLimit))
	if err := response.Write(conn); err != nil {
		// Whoever asked has gone. A hook that got no answer vetoes.
		d.o.Logger.DebugContext(ctx, "an answer was not taken", "error", err)
	}
}

func (d *Daemon) respond(ctx context.Context, conn *net.UnixConn) wire.Response {
	hook, err := peerOf(conn)
	if err != nil {
		return d.refusal(ctx, err)
	}
	if uid := os.Getuid(); int(hook.uid) != uid && hook.uid != 0 {
		return d.refusal(ctx, fmt.Errorf("the site daemon runs as user %d and serves only that one, not user %d: let git run as the same user", uid, hook.uid))
	}
	start := time.Now()
	q, err := wire.ReadRequest(conn)
	if err != nil {
		return d.refusal(ctx, err)
	}
	limit := hookLimit
	if q.Limit > 0 {
		limit = q.Limit
	}
	ctx, cancel := context.WithDeadline(ctx, start.Add(limit-min(reserve, limit/4)))
	defer cancel()
	switch q.State {
	case wire.StatePrepared:
		if err := d.prepared(ctx, hook, q); err != nil {
			d.counters.refused.Add(1)
			return d.refusal(ctx, err)
		}
		d.counters.prepared.Add(1)
	case wire.StateCommitted, wire.StateAborted:
		// Git doesn't heed the answer: it only waits for it.
		if err := d.over(ctx, hook, q); err != nil {
			return d.refusal(ctx, err)
		}
	case wire.StatePreReceive:
		if err := d.preReceive(ctx, hook, q); err != nil {
			return d.refusal(ctx, err)
		}
	case wire.StateUpdate:
		if err := d.update(ctx, hook, q); err != nil {
			return d.refusal(ctx, err)
		}
	case wire.StateStatus:
		s := d.status()
		if all, err := d.config.Load().Repositories(); err == nil {
			s.Repositories = len(all)
		}
		text, err := json.Marshal(s)
		if err != nil {
			return d.refusal(ctx, err)
		}
		return wire.Response{OK: true, Lines: []string{string(text)}}
	default:
		return d.refusal(ctx, fmt.Errorf("the site daemon does not know the state %q: install the hook that came with it (refdbctl site enable)", q.State))
	}
	return wire.Response{OK: true}
}
