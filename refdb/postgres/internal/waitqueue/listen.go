package waitqueue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

const (
	// probeLimit is how long the notification of probe may take to arrive.
	probeLimit = 5 * time.Second
	// probeLimitPooled is probeLimit behind a pooler, where the notification probably never
	// arrives.
	probeLimitPooled = time.Second
	// listenPing is how often a silent connection is checked.
	listenPing = 20 * time.Second
)

// add registers wake as the listener of a channel. The listener stays until it is removed.
func (n *Notifier) add(channel string, wake func(driver.Wakeup)) (remove func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[channel] = wake
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.listeners, channel)
	}
}

// Listen passes the wake-ups that are sent to a channel to wake, on a connection of its own, until
// ctx or the connection ends. It calls started once notifications arrive, and fails with
// errors.ErrUnsupported if they don't.
func (n *Notifier) Listen(ctx context.Context, name string, started func(), wake func(driver.Wakeup)) error {
	channel := channelPrefix + name
	config, err := n.pools.Single(ctx)
	if err != nil {
		return err
	}
	config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		// No request is ever cancelled; only a wait ends.
		return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	if err := n.probe(ctx, conn, channel); err != nil {
		return err
	}
	defer n.add(name, wake)()
	started()
	for {
		got, err := next(ctx, conn)
		if err != nil {
			return err
		}
		if w, ok := parsePayload(got.Payload); ok {
			wake(w)
		}
	}
}

// probe sends a notification to this process, and waits for it. Behind a transaction pooler, LISTEN
// succeeds but no notification ever arrives. The notification is sent through another connection,
// because on this connection it would arrive with its statement's answer, whatever the pooler does.
// Other listeners of the channel ignore its payload.
func (n *Notifier) probe(ctx context.Context, conn *pgx.Conn, channel string) error {
	limit := probeLimit
	if n.pools.Path() == roundtrip.Pooled {
		limit = probeLimitPooled
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	text := rand.Text()
	if err := n.pools.Do(ctx, roundtrip.Read("notify").Exec(notifySQL, []string{channel}, []string{text})); err != nil {
		return err
	}
	for {
		got, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil && got.Payload == text:
			return nil
		case err != nil && ctx.Err() != nil && n.pools.Path() == roundtrip.Pooled:
			return fmt.Errorf("%w: notifications don't arrive through this pooler", errors.ErrUnsupported)
		case err != nil:
			return err
		}
	}
}

// next waits for a notification, and meanwhile checks regularly whether the connection is alive.
func next(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, listenPing)
		n, err := conn.WaitForNotification(wait)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return n, err
		}
		ping, cancel := context.WithTimeout(ctx, probeLimit)
		err = conn.Ping(ping)
		cancel()
		if err != nil {
			return nil, err
		}
	}
}
