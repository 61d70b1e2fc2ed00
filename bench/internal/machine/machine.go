// Package machine says what is measured on, and what a server consumes there.
package machine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// A Machine is where the figures were measured.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPU  string `json:"cpu"` // the model, if known
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
}

func This() Machine {
	return Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), CPUs: runtime.NumCPU(), Go: runtime.Version()}
}

func (m Machine) String() string {
	return fmt.Sprintf("%s/%s, %d CPUs (%s), %s", m.OS, m.Arch, m.CPUs, m.CPU, m.Go)
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// InMemory reports whether dir is in a file system without a disk.
func InMemory(dir string) bool {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return false
	}
	return fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
}

// A usage is what a server has consumed so far.
type usage struct {
	CPU time.Duration // of its running processes
	WAL int64         // bytes written
}

// UsageOf asks the server that c is connected to, and the operating system.
func UsageOf(ctx context.Context, c *pgx.Conn) (u usage, err error) {
	if err := c.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`).Scan(&u.WAL); err != nil {
		return u, err
	}
	// These are all of the server's processes but its parent process, which only waits.
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
		u.CPU += cpu
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

func Megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }
