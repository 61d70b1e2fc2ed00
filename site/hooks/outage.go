package hooks

import (
	"context"
	"net"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// maxWaiting bounds the pushes that wait for a database that is away. Each keeps a connection, and hooks that report
	// what git did need one, too.
	maxWaiting = 256
	minLimit   = 2 * time.Second // of a hook, which is told to keep waiting once a second
	retryPause = 200 * time.Millisecond
	sayEvery   = 10 * time.Second
)

// preReceiveInOutage is [Hooks.preReceive], repeated while the database is away or not admitted, until all its requests have
// failed for site.databaseWait: git holds no lock yet, and the hook shows its client what it waits for.
func (h *Hooks) preReceiveInOutage(ctx context.Context, hook pusher.Hook, conn *net.UnixConn, q wire.Request) error {
	c := h.State.Config()
	defer h.waiting.Add(-1)
	if h.waiting.Add(1) > maxWaiting || !q.Patient() || q.Limit < minLimit || c.DatabaseWait <= c.Timeout || h.logs(c, q.Dir) {
		return h.preReceive(ctx, hook, q)
	}
	client := h.Waiting(conn)
	ctx, stop := client.KeepWaiting(h.State.Work)
	defer stop()
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(c.DatabaseWait))
	defer cancel()
	var said time.Time
	for {
		err := h.preReceive(ctx, hook, q)
		if !refusal.Passes(err) || h.State.Stopping() || h.State.FailingFor() >= c.DatabaseWait {
			return err
		}
		if time.Since(said) >= sayEvery {
			said = time.Now()
			client.Say(wire.WaitingForDatabase(c.DatabaseWait - said.Sub(began)))
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return err
		}
		if a, err := hook.Agent(c.GitPrograms, q.Process, h.State.Boot); err == nil {
			if p := h.pushes.get(a); p != nil {
				p.forget()
			}
		}
	}
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
