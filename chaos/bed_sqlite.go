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

// newSQLiteBed makes a SQLite file on a small disk of its own. The database's
// clock is that of the machine, and so that of all sites.
func newSQLiteBed(ctx context.Context, b *bed, _ string) error {
	clock, err := newWallClock(filepath.Join(b.dir, "machine.clock"))
	if err != nil {
		return err
	}
	b.clock = func(string) wallClock { return clock }
	disk := filepath.Join(b.dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)); err != nil {
		return fmt.Errorf("mount a small disk: %w", err)
	}
	b.closers = append(b.closers, func() error { return syscall.Unmount(disk, 0) })
	file := filepath.Join(disk, "refdb.db")
	url := "sqlite:" + file
	if err := schema.Up(ctx, url); err != nil {
		return err
	}
	raw, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	b.closers = append(b.closers, raw.Close)
	b.configure = func(c *siteConfig) error {
		c.URL = url
		return nil
	}
	b.open = func(ctx context.Context) (*refdb.DB, error) { return openForNemesis(ctx, url, "") }
	b.lockRows = func(ctx context.Context) (n int, err error) {
		err = raw.QueryRowContext(ctx, "SELECT count(*) FROM locks").Scan(&n)
		return n, err
	}
	b.faults = []fault{
		killSites(b), freezeSites(b), fillDisk(b, disk, raw),
		stepMachine(b, clock, databaseStep), stepMachine(b, clock, -databaseStep),
	}
	return nil
}

// stepMachine steps the wall clock of all sites, and with it the database's, and after a while back.
func stepMachine(b *bed, clock wallClock, by time.Duration) fault {
	step := func(ctx context.Context, to time.Duration, forward bool) error {
		if err := b.stepped(clock, to, forward); err != nil {
			return err
		}
		for _, s := range b.sites {
			if err := s.tells(ctx, to); err != nil {
				return err
			}
		}
		return nil
	}
	return fault{fmt.Sprintf("machine's clock stepped by %+.0f s and back", by.Seconds()), func(ctx context.Context, random *rand.Rand) (string, error) {
		if err := step(ctx, by, by > 0); err != nil {
			return "", err
		}
		length := within(random, shortest, longest)
		rest(ctx, length)
		return "for " + length.Round(time.Millisecond).String(), step(ctx, 0, by < 0)
	}}
}

// fillDisk leaves no byte free on the database's disk, and after a while frees it.
func fillDisk(b *bed, disk string, raw *sql.DB) fault {
	filler := filepath.Join(disk, "filler")
	return fault{"disk full", func(ctx context.Context, random *rand.Rand) (detail string, err error) {
		// Whatever happens, a full disk would spoil what comes next.
		defer func() { err = errors.Join(err, os.Remove(filler)) }()
		f, err := os.Create(filler)
		if err != nil {
			return "", err
		}
		defer f.Close()
		length := within(random, shortest, longest)
		refusals := 0
		for end := now().add(length); now() < end && ctx.Err() == nil; {
			// The log's file keeps its size, and room for more: cut it, and take its room.
			_, _ = raw.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)") // may well fail
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
			rest(ctx, 200*time.Millisecond)
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
