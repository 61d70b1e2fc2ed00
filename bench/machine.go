package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// A machine is where the figures were measured.
type machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPU  string `json:"cpu"` // the model, if known
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
}

func thisMachine() machine {
	return machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), CPUs: runtime.NumCPU(), Go: runtime.Version()}
}

func (m machine) String() string {
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

// inMemory reports whether dir is in a file system without a disk.
func inMemory(dir string) bool {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return false
	}
	return fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
}

// A usage is what a server has consumed so far.
type usage struct {
	cpu time.Duration // of its running processes
	wal int64         // bytes written
}

// usageOf asks the server that c is connected to, and the operating system.
func usageOf(ctx context.Context, c *pgx.Conn) (u usage, err error) {
	if err := c.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`).Scan(&u.wal); err != nil {
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

// runWatched runs a command and returns its peak of resident memory, in bytes.
// The kernel keeps the peak (VmHWM) until the process ends, so it is read every few
// milliseconds. The resource usage at the process's end is of no use: it includes
// the memory of the process that started it.
func runWatched(cmd *exec.Cmd) (peak int64, err error) {
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	looks := time.NewTicker(5 * time.Millisecond)
	defer looks.Stop()
	for {
		select {
		case err := <-ended:
			if err == nil && peak == 0 {
				err = errors.New("its memory could not be watched")
			}
			return peak, err
		case <-looks.C:
			if now, err := highWater(cmd.Process.Pid); err == nil {
				peak = max(peak, now)
			}
		}
	}
}

// highWater returns a process's peak memory. It fails if the process has ended.
func highWater(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the process has no memory any more")
}
