package testserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// ReuseIDs makes the server use IDs of transactions twice, as a crash does to those that nobody waited for. Clients of another database
// use n IDs, and meanwhile is called while these are not on the disk. Then a process of the server is killed, all of its transactions
// end, and the same server recovers, without anything that was committed durably being lost. meanwhile must not write.
func (s *Postgres) ReuseIDs(ctx context.Context, n int, meanwhile func()) error {
	writer, err := s.walWriter(ctx)
	if err != nil {
		return err
	}
	// It alone would write these IDs to the disk.
	if err := syscall.Kill(writer, syscall.SIGSTOP); err != nil {
		return err
	}
	killed := false
	defer func() {
		if !killed {
			_ = syscall.Kill(writer, syscall.SIGCONT)
		}
	}()
	before, err := s.nextID(ctx)
	if err != nil {
		return err
	}
	if err := s.Exec(ctx, "postgres", slices.Repeat([]string{"SELECT pg_current_xact_id()"}, n)...); err != nil {
		return err
	}
	meanwhile()
	killed = true
	if err := syscall.Kill(writer, syscall.SIGKILL); err != nil {
		return err
	}
	for deadline := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		again, err := s.walWriter(ctx)
		if err == nil && again != writer {
			break
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("the server has not recovered %s after a process of it was killed", timeout), err)
		}
	}
	after, err := s.nextID(ctx)
	if err == nil && after >= before+int64(n) {
		err = fmt.Errorf("the next ID was %d, %d were used, and after the crash it is %d: they were on the disk", before, n, after)
	}
	return err
}

// walWriter returns the ID of the process that writes to the disk what nobody waits for.
func (s *Postgres) walWriter(ctx context.Context) (pid int, err error) {
	err = s.Connect(ctx, "postgres", func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&pid)
	})
	return pid, err
}

// nextID returns the ID of the next transaction.
func (s *Postgres) nextID(ctx context.Context) (id int64, err error) {
	err = s.Connect(ctx, "postgres", func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").Scan(&id)
	})
	return id, err
}
