package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A pair is a PostgreSQL primary and its synchronous standby.
type pair struct {
	primary, standby *postgresServer
	network          *network // between the two
}

// replica is the standby's name in the network.
const replica = "standby"

// url is the pair's address: of whichever of the two takes writes.
func (p *pair) url(application string) string {
	return postgresURL(p.primary.hostPort()+","+p.standby.hostPort(), postgresDatabase,
		"target_session_attrs", "read-write", "application_name", application, "connect_timeout", "2")
}

// newFailoverBed makes a pair.
func newFailoverBed(ctx context.Context, b *bed, _ string) error {
	p := &pair{network: newNetwork()}
	var err1, err2 error
	p.primary, err1 = newPostgres(filepath.Join(b.dir, "postgres-a"))
	p.standby, err2 = newPostgres(filepath.Join(b.dir, "postgres-b"))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	// Who is which changes.
	b.closers = append(b.closers, p.primary.crash, p.standby.crash, func() error { p.network.close(); return nil })
	if err := p.primary.create(ctx); err != nil {
		return err
	}
	if err := p.replicate(ctx); err != nil {
		return err
	}
	b.configure = func(c *siteConfig) error {
		c.URL = p.url("refdb")
		return nil
	}
	b.open = func(ctx context.Context) (*refdb.DB, error) { return openForNemesis(ctx, p.url("nemesis"), "") }
	b.lockRows = func(ctx context.Context) (int, error) { return p.primary.count(ctx, "SELECT count(*) FROM locks") }
	b.connections = func(ctx context.Context) (int, error) { return p.primary.count(ctx, siteConnections) }
	b.faults = []fault{failOver(p), failOverUnconfirmed(p), freezeStandby(p), killSites(b), freezeSites(b)}
	return nil
}

// replicate makes a new standby out of the server that is down, and lets the
// primary wait for it with each commit from then on.
func (p *pair) replicate(ctx context.Context) error {
	if err := p.standby.clear(); err != nil {
		return err
	}
	p.network.close() // the way to the primary before this one
	address, err := p.network.connect(replica, p.primary.hostPort())
	if err != nil {
		return err
	}
	source := "postgres://postgres@" + address + "?application_name=standby"
	if err := p.standby.do(ctx, "pg_basebackup", "-d", source, "-D", p.standby.dir, "-R", "-X", "stream", "-c", "fast", "--no-sync"); err != nil {
		return err
	}
	// Once promoted it has no standby to wait for, until the next is made.
	settings, err := os.OpenFile(filepath.Join(p.standby.dir, "postgresql.auto.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(settings, "synchronous_standby_names = ''")
	if err := errors.Join(err, settings.Close()); err != nil {
		return err
	}
	if err := p.standby.start(ctx); err != nil {
		return err
	}
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		if err := p.primary.query(ctx, "postgres", sql); err != nil {
			return err
		}
	}
	return await(ctx, "a synchronous standby", func() error {
		n, err := p.primary.count(ctx, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
		if err == nil && n == 0 {
			err = errors.New("none is connected")
		}
		return err
	})
}

// failOver kills the primary, for good, and promotes the standby. The server
// that died is made the new standby.
func (p *pair) failOver(ctx context.Context) error {
	if err := p.primary.crash(); err != nil {
		return err
	}
	if err := p.standby.query(ctx, "postgres", "SELECT pg_promote()"); err != nil {
		return err
	}
	p.primary, p.standby = p.standby, p.primary
	return p.replicate(ctx)
}

func failOver(p *pair) fault {
	return fault{"primary killed, standby promoted", func(ctx context.Context, _ *rand.Rand) (string, error) {
		return "", p.failOver(ctx)
	}}
}

// failOverUnconfirmed cuts the standby off first: commits wait for it, clients
// give up on them, and none of them may count when the primary dies.
func failOverUnconfirmed(p *pair) fault {
	return fault{"standby cut off, then primary killed, standby promoted", func(ctx context.Context, random *rand.Rand) (string, error) {
		p.network.cut([]string{replica})
		length := opLimit + within(random, 0, staleAfter)
		rest(ctx, length)
		return "after " + length.Round(time.Millisecond).String(), p.failOver(ctx)
	}}
}

func freezeStandby(p *pair) fault {
	return fault{"synchronous standby frozen", func(ctx context.Context, random *rand.Rand) (string, error) {
		thaw, err := p.standby.freeze()
		if err != nil {
			return "", err
		}
		length := within(random, shortest, longest)
		rest(ctx, length)
		thaw()
		return "for " + length.Round(time.Millisecond).String(), nil
	}}
}
