package hooks

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	minLimit   = 2 * time.Second // of a hook, which is told to keep waiting once a second
	retryPause = 200 * time.Millisecond
	sayEvery   = 10 * time.Second
)

// preReceiveInOutage is [Hooks.preReceive], repeated while the database is away or not admitted, until it has been for
// site.databaseWait: git holds no lock yet, the repository may be pruned, and the hook shows its client what it waits for.
// renewed says that the limit with which the hook began may be over, were it by one attempt; it has begun anew.
func (h *Hooks) preReceiveInOutage(ctx context.Context, hook pusher.Hook, conn *net.UnixConn, q wire.Request) (renewed, free bool, err error) {
	c := h.State.Config()
	defer h.waiting.Add(-1)
	if h.waiting.Add(1) > int64(h.Limits.Waiting) || !q.Patient() || q.Limit < minLimit || c.DatabaseWait <= c.Timeout || h.logs(c, q.Dir) {
		free, err = h.preReceive(ctx, hook, q)
		return false, free, err
	}
	client := h.Waiting(conn)
	ctx, stop := client.KeepWaiting(h.State.Work)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.DatabaseWait)
	defer cancel()
	var said time.Time
	for {
		free, err = h.preReceive(ctx, hook, q)
		if !refusal.Passes(err) {
			break
		}
		if h.State.Stopping() {
			err = refusal.Stops()
			break
		}
		left := c.DatabaseWait - h.State.BeginOutage()
		if left <= 0 {
			break
		}
		if time.Since(said) >= sayEvery {
			said = time.Now()
			client.Say(wire.WaitingForDatabase(left))
		}
		if !pause.For(ctx, min(retryPause, left)) {
			break
		}
		if a, err := hook.Agent(c.GitPrograms, q.Process, h.State.Boot); err == nil {
			if p := h.pushes.get(a); p != nil {
				p.forget()
			}
		}
	}
	if gone := client.Tell(); gone != nil {
		err = errors.Join(err, gone)
	}
	return true, free, err
}

// logs reports whether the project of a repository is in mode log, in which no push waits for the database for long.
func (h *Hooks) logs(c *config.Config, dir string) bool {
	r, err := c.Find(dir)
	if err != nil {
		return false
	}
	_, logs := h.Projects.Logs(r.Project)
	return logs
}
