package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// usage is what a server has consumed so far.
type usage struct {
	cpu time.Duration // of its processes that live
	wal int64         // bytes written
}

// usageOf asks the server that c is connected to, and the operating system.
func usageOf(ctx context.Context, c *pgx.Conn) (u usage, err error) {
	if err := c.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`).Scan(&u.wal); err != nil {
		return u, err
	}
	// The server's processes at work are all in there; its parent process only waits.
	rows, err := c.Query(ctx, `SELECT pid FROM pg_stat_activity`)
	if err != nil {
		return u, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return u, err
	}
	for _, pid := range pids {
		cpu, err := cpuTimeOf(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return u, err
		}
		u.cpu += cpu
	}
	return u, nil
}

// cpuTimeOf returns the time that a process with one thread, as PostgreSQL's
// are, spent on a CPU: the sum of its user and system time, to the nanosecond.
func cpuTimeOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	ns, err := strconv.ParseInt(first, 10, 64)
	return time.Duration(ns), err
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }
