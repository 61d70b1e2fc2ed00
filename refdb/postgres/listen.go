package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// probeLimit is how long a notification to ourselves may take to arrive.
	probeLimit = 5 * time.Second
	// probeLimitPooled is the same where it probably never will.
	probeLimitPooled = time.Second
	// listenPing is how often a silent connection is checked.
	listenPing = 20 * time.Second
)

// Listen receives the notifications to a channel, on a connection of its own.
func (d *Driver) Listen(ctx context.Context, channel string, started func(), wake func(refdb.Wakeup)) error {
	if !d.begin() {
		return fmt.Errorf("listen: %w", refdb.ErrClosed)
	}
	defer d.running.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.closing, func() { cancel(refdb.ErrClosed) })()

	err := d.listen(ctx, channelPrefix+channel, started, wake)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("listen: %w", err)
	case ctx.Err() != nil:
		return fmt.Errorf("listen: %w", context.Cause(ctx))
	default:
		return judge(ctx, roundTrip{what: "listen"}, connecting, err).err
	}
}

func (d *Driver) listen(ctx context.Context, channel string, started func(), wake func(refdb.Wakeup)) error {
	config := d.pool.Config().ConnConfig
	config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		// There is never anything to cancel, only a wait to end.
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
	if err := d.probe(ctx, conn, channel); err != nil {
		return err
	}
	started()
	for {
		n, err := next(ctx, conn)
		if err != nil {
			return err
		}
		if w, ok := parsePayload(n.Payload); ok {
			wake(w)
		}
	}
}

// probe sends a notification to ourselves. Behind a transaction pooler LISTEN
// succeeds and nothing ever arrives. It has to come through another connection:
// the pooler would pass on what its server connection says in an answer to this
// one. Whoever else listens to the channel finds no wake-up in it.
func (d *Driver) probe(ctx context.Context, conn *pgx.Conn, channel string) error {
	limit := probeLimit
	if d.pooled {
		limit = probeLimitPooled
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	text := rand.Text()
	if err := d.do(ctx, roundTrip{what: "notify"}.then(notifySQL, nil, []string{channel}, []string{text})); err != nil {
		return err
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil && n.Payload == text:
			return nil
		case err != nil && ctx.Err() != nil && d.pooled:
			return fmt.Errorf("%w: notifications don't arrive through this pooler", errors.ErrUnsupported)
		case err != nil:
			return err
		}
	}
}

// next waits for a notification, and finds out in between if the connection is dead.
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
