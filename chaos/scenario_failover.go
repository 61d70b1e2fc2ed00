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
	network          network // between the two
}

// replica is the standby's name in the network.
const replica = "standby"

// url returns the pair's address, which leads to the server that takes writes.
func (p *pair) url(application string) string {
	return postgresURL(p.primary.Address()+","+p.standby.Address(), postgresDatabase,
		"target_session_attrs", "read-write", "application_name", application, "connect_timeout", "2")
}

// newFailoverScenario makes a primary and its standby.
func newFailoverScenario(ctx context.Context, sc *scenario, _ string) error {
	p := &pair{network: make(network)}
	var err1, err2 error
	p.primary, err1 = newPostgres(filepath.Join(sc.dir, "postgres-a"))
	p.standby, err2 = newPostgres(filepath.Join(sc.dir, "postgres-b"))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	// Bound to the two servers, whose roles change.
	sc.closers = append(sc.closers, p.primary.Kill, p.standby.Kill, func() error { p.network.close(); return nil })
	if err := p.primary.create(ctx); err != nil {
		return err
	}
	if err := p.replicate(ctx); err != nil {
		return err
	}
	sc.configure = func(c *siteConfig) error {
		c.URL = p.url("refdb")
		return nil
	}
	sc.open = func(ctx context.Context) (*refdb.DB, error) { return openForNemesis(ctx, p.url("nemesis"), "") }
	sc.lockRows = func(ctx context.Context) (int, error) { return p.primary.count(ctx, "SELECT count(*) FROM locks") }
	sc.connections = func(ctx context.Context) (int, error) { return p.primary.count(ctx, siteConnections) }
	sc.losesUnconfirmed = true
	sc.faults = []fault{failOver(p), failOverUnconfirmed(p),
		freezeServer("synchronous standby", func() (func(), error) { return p.standby.Freeze() }),
		killSites(sc), freezeSites(sc)}
	return nil
}

// replicate makes a new standby out of the server that is down. From then on the
// primary waits for it with each commit.
func (p *pair) replicate(ctx context.Context) error {
	if err := os.RemoveAll(p.standby.DataDir()); err != nil {
		return err
	}
	p.network.close() // to the previous primary
	address, err := p.network.connect(replica, p.primary.Address())
	if err != nil {
		return err
	}
	source := "postgres://postgres@" + address + "?application_name=standby"
	if err := p.standby.Run(ctx, "pg_basebackup", "-d", source, "-D", p.standby.DataDir(), "-R", "-X", "stream", "-c", "fast", "--no-sync"); err != nil {
		return err
	}
	// Once promoted it has no standby to wait for until the next one is made.
	settings, err := os.OpenFile(filepath.Join(p.standby.DataDir(), "postgresql.auto.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(settings, "synchronous_standby_names = ''")
	if err := errors.Join(err, settings.Close()); err != nil {
		return err
	}
	if err := p.standby.Start(ctx); err != nil {
		return err
	}
	if err := p.primary.Exec(ctx, "postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'", reloadSettings); err != nil {
		return err
	}
	return await(ctx, "a synchronous standby", func() error {
		n, err := p.primary.count(ctx, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
		if err == nil && n == 0 {
			err = errors.New("none is connected")
		}
		return err
	})
}

// failOver kills the primary and promotes the standby. It makes the killed server
// the new standby.
func (p *pair) failOver(ctx context.Context) error {
	if err := p.primary.Kill(); err != nil {
		return err
	}
	if err := p.standby.Exec(ctx, "postgres", "SELECT pg_promote()"); err != nil {
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

// failOverUnconfirmed cuts the standby off first. Commits wait for it, clients give
// up on them, and none of them may count once the primary is dead.
func failOverUnconfirmed(p *pair) fault {
	return fault{"standby cut off, then primary killed, standby promoted", func(ctx context.Context, random *rand.Rand) (string, error) {
		p.network.cut([]string{replica})
		length := opLimit + randomDuration(random, 0, staleAfter)
		sleep(ctx, length)
		return "after " + length.Round(time.Millisecond).String(), p.failOver(ctx)
	}}
}
