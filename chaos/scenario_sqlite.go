package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the driver's name for sql.Open

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

// diskSize is enough for the database, its log and what a checkpoint needs.
const diskSize = 32 << 20

// newSQLiteScenario makes a SQLite file on a small disk of its own. The database
// and all sites share the machine's clock.
func newSQLiteScenario(ctx context.Context, sc *scenario, _ string) error {
	clock, err := newWallClock(filepath.Join(sc.dir, "machine.clock"))
	if err != nil {
		return err
	}
	sc.clock = func(string) wallClock { return clock }
	disk := filepath.Join(sc.dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)); err != nil {
		return fmt.Errorf("mount a small disk: %w", err)
	}
	sc.closers = append(sc.closers, func() error { return syscall.Unmount(disk, 0) })
	file := filepath.Join(disk, "refdb.db")
	url := "sqlite:" + file
	if err := schema.Up(ctx, url); err != nil {
		return err
	}
	raw, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	sc.closers = append(sc.closers, raw.Close)
	sc.configure = func(c *siteConfig) error {
		c.URL = url
		return nil
	}
	sc.open = func(ctx context.Context) (*refdb.DB, error) { return openForNemesis(ctx, url, "") }
	sc.lockRows = func(ctx context.Context) (n int, err error) {
		err = raw.QueryRowContext(ctx, "SELECT count(*) FROM locks").Scan(&n)
		return n, err
	}
	sc.faults = []fault{
		killSites(sc), freezeSites(sc), fillDisk(sc, disk, raw),
		stepMachine(sc, clock, databaseStep), stepMachine(sc, clock, -databaseStep),
	}
	return nil
}

// stepMachine steps the wall clock of all sites and of the database, and after a while back.
func stepMachine(sc *scenario, clock wallClock, by time.Duration) fault {
	step := func(ctx context.Context, to time.Duration, forward bool) error {
		if err := sc.stepped(clock, to, forward); err != nil {
			return err
		}
		for _, s := range sc.sites {
			if err := s.waitForClock(ctx, to); err != nil {
				return err
			}
		}
		return nil
	}
	return fault{fmt.Sprintf("machine's clock stepped by %+.0f s and back", by.Seconds()), func(ctx context.Context, random *rand.Rand) (string, error) {
		if err := step(ctx, by, by > 0); err != nil {
			return "", err
		}
		length := randomDuration(random, shortest, longest)
		sleep(ctx, length)
		return "for " + length.Round(time.Millisecond).String(), step(ctx, 0, by < 0)
	}}
}

// fillDisk leaves no byte free on the database's disk, and after a while frees it.
func fillDisk(sc *scenario, disk string, raw *sql.DB) fault {
	filler := filepath.Join(disk, "filler")
	return fault{"disk full", func(ctx context.Context, random *rand.Rand) (detail string, err error) {
		// In any case: a full disk would spoil what comes next.
		defer func() { err = errors.Join(err, os.Remove(filler)) }()
		f, err := os.Create(filler)
		if err != nil {
			return "", err
		}
		defer f.Close()
		length := randomDuration(random, shortest, longest)
		refusals := 0
		for end := now().add(length); now() < end && ctx.Err() == nil; {
			// SQLite reuses the space of its log file: truncate it, and take the space.
			_, _ = raw.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)") // may fail
			block := make([]byte, 4096)
			for err == nil {
				_, err = f.Write(block)
			}
			if !errors.Is(err, syscall.ENOSPC) {
				return "", err
			}
			err = nil
			if refusesWrites(ctx, raw) {
				refusals++
			}
			sleep(ctx, 200*time.Millisecond)
		}
		if refusals == 0 {
			return "", fmt.Errorf("the disk was full for %s, and SQLite did not mind", length)
		}
		return fmt.Sprintf("for %s; %d writes of our own were refused", length.Round(time.Millisecond), refusals), nil
	}}
}

// refusesWrites tries a write that needs new pages of the log.
func refusesWrites(ctx context.Context, raw *sql.DB) bool {
	_, err := raw.ExecContext(ctx, "CREATE TABLE filler AS SELECT zeroblob(100000)")
	if err == nil {
		_, _ = raw.ExecContext(ctx, "DROP TABLE filler")
	}
	return err != nil
}
