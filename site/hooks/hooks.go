// Package hooks answers the hooks that git runs before and after it moves refs, and knows the git
// processes that run them until they end.
package hooks

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/follow"
	"github.com/globalrefdb/globalrefdb/site/internal/keepalive"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/modes"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/policy"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/sessions"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Limits are the limits of hooks that no configuration changes. Tests set others.
type Limits struct {
	Answer   time.Duration // for a hook to read its answer
	Snapshot time.Duration // for which a push relies on what was read when it began
	Fresh    time.Duration // for which update answers from what was read when the push began
	Reread   time.Duration // between two further reads
	Waiting  int           // pushes that wait for the database; each keeps a connection
}

// DefaultLimits are the limits in production.
func DefaultLimits() Limits {
	return Limits{Answer: 2 * time.Second, Snapshot: time.Minute, Fresh: 100 * time.Millisecond, Reread: time.Second, Waiting: 128}
}

// Deps holds the dependencies of [Hooks].
type Deps struct {
	State    *serving.State
	DB       *refdb.DB
	Projects *projects.Cache
	Policy   *policy.Policy
	Moving   *moving.Coordinator
	Claims   *claims.Claims
	Follower *follow.Follower
	Guards   *sessions.Guards
	Pruning  *maintenance.Pruning
	Storage  *objects.Storage
	List     *moves.List
	Marks    *moves.Marks
	Logged   *modes.Logged
	Logger   *slog.Logger
	Limits   Limits
}

// Hooks answers the hooks of git processes, and knows these processes until they end.
type Hooks struct {
	Deps
	pushes  pushes
	waiting atomic.Int64 // pushes that wait for the database
}

// Respond answers the request q of a hook.
func (h *Hooks) Respond(ctx context.Context, conn *net.UnixConn, hook pusher.Hook, q wire.Request) wire.Response {
	switch q.State {
	case wire.StatePrepared, wire.StateUpdate:
		// In mode log, too.
		if err := h.protect(ctx, hook, q); err != nil {
			return h.Refuse(ctx, q, err)
		}
	}
	switch q.State {
	case wire.StatePrepared:
		q, err := h.withNewName(ctx, hook, q)
		if err == nil {
			err = h.prepared(ctx, hook, q)
		}
		if err != nil && !h.letThrough(hook, q, err) {
			return h.Refuse(ctx, q, err)
		}
		h.State.Counts.Prepared.Add(1)
	case wire.StateCommitted, wire.StateAborted:
		// Git ignores the answer, but waits for it.
		if err := h.transactionEnded(ctx, hook, q); err != nil {
			refusal.Log(ctx, h.Logger, err)
			return wire.Response{Lines: refusal.LinesOf(err)}
		}
	case wire.StatePreReceive:
		renewed, free, err := h.preReceiveInOutage(ctx, hook, conn, q)
		if renewed {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(h.State.Work, min(q.Limit, wire.DefaultLimit)*3/4)
			defer cancel()
		}
		if err != nil && !free && !h.letThrough(hook, q, err) {
			return h.Refuse(ctx, q, err)
		}
		if err := h.protect(ctx, hook, q); err != nil {
			return h.Refuse(ctx, q, err)
		}
		switch {
		case free && refusal.ReasonOf(err) == refusal.Frozen: // update refuses the refs that are frozen
			err = nil
		case err == nil || free:
			err = h.storeHandled(ctx, hook, conn, q)
		}
		if err != nil && !h.letThrough(hook, q, err) {
			return h.Refuse(ctx, q, err)
		}
	case wire.StateUpdate:
		if err := h.update(ctx, hook, conn, q); err != nil && !h.letThrough(hook, q, err) {
			return h.Refuse(ctx, q, err)
		}
	default:
		return h.Refuse(ctx, q, errors.New(wire.UnknownState(q.State)))
	}
	return wire.Response{OK: true}
}

// Refuse returns the answer that refuses q because of err, and counts it. What is left to the next
// daemon is not refused.
func (h *Hooks) Refuse(ctx context.Context, q wire.Request, err error) wire.Response {
	if refusal.ReasonOf(err) == refusal.Stopping {
		return wire.Response{Lines: refusal.LinesOf(err)}
	}
	if q.State == wire.StatePrepared {
		h.State.Counts.Refused.Add(1)
	}
	h.State.Counts.RefusedFor(err)
	if lines, err := wire.ParseLines(q.Body); err == nil {
		h.State.Counts.RefusedRefs.Add(uint64(len(lines)))
	}
	refusal.Log(ctx, h.Logger, err)
	return wire.Response{Lines: refusal.LinesOf(err)}
}

// letThrough reports whether a request goes on in spite of err, because the project is in mode log.
func (h *Hooks) letThrough(hook pusher.Hook, q wire.Request, err error) bool {
	if refusal.InAllModes(err) {
		return false
	}
	c := h.State.Config()
	r, known := c.Find(q.Dir)
	lines, parsed := wire.ParseLines(q.Body)
	if errors.Join(known, parsed) != nil {
		return false
	}
	if q.State != wire.StatePrepared {
		_, logs := h.Projects.Logs(r.Project)
		return logs // only the transaction that follows is counted
	}
	return h.Policy.LetThrough(r.Project, lines, err, func() string { return h.pushedBy(c, hook, q.Process) })
}

// pushedBy returns the name of who pushes, or "" if nobody says or the push has ended.
func (h *Hooks) pushedBy(c *config.Config, hook pusher.Hook, said *wire.Process) string {
	a, err := hook.Agent(c.GitPrograms, said, h.State.Boot)
	if err != nil {
		return ""
	}
	by := a.PushedBy(c.PusherEnv)
	if hook.RunBy(a) != nil {
		return ""
	}
	return by
}

// Waiting returns a client that waits for its answer on a connection.
func (h *Hooks) Waiting(conn *net.UnixConn) *keepalive.Client {
	return keepalive.New(func(text string) error {
		conn.SetWriteDeadline(time.Now().Add(h.Limits.Answer))
		return wire.Wait(conn, text)
	})
}
