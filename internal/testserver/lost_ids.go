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
// use n IDs, and meanwhile is called while these are not on the disk. Then the server crashes as in [Postgres.KillOneProcess].
// meanwhile must not write.
func (s *Postgres) ReuseIDs(ctx context.Context, n int, meanwhile func()) error {
	writer, err := s.walWriter(ctx)
	if err != nil {
		return err
	}
	// It alone would write these IDs to the disk.
	if err := syscall.Kill(writer, syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(writer, syscall.SIGCONT) }() // unless it was killed
	before, err := s.NextID(ctx)
	if err != nil {
		return err
	}
	if err := s.Exec(ctx, "postgres", slices.Repeat([]string{"SELECT pg_current_xact_id()"}, n)...); err != nil {
		return err
	}
	meanwhile()
	if err := s.KillOneProcess(ctx); err != nil {
		return err
	}
	after, err := s.NextID(ctx)
	if err == nil && after >= before+int64(n) {
		err = fmt.Errorf("the next ID was %d, %d were used, and after the crash it is %d: they were on the disk", before, n, after)
	}
	return err
}

// KillOneProcess kills a process of the server with SIGKILL, and waits until the same server has recovered: it ends all transactions, and
// nothing that was committed durably is lost.
func (s *Postgres) KillOneProcess(ctx context.Context) error {
	writer, err := s.walWriter(ctx)
	if err != nil {
		return err
	}
	if err := syscall.Kill(writer, syscall.SIGKILL); err != nil {
		return err
	}
	for deadline := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		again, err := s.walWriter(ctx)
		if err == nil && again != writer {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("the server has not recovered %s after a process of it was killed", timeout), err)
		}
	}
}

// walWriter returns the ID of the process that writes to the disk what nobody waits for.
func (s *Postgres) walWriter(ctx context.Context) (pid int, err error) {
	err = s.Connect(ctx, "postgres", func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&pid)
	})
	return pid, err
}

// NextID returns the ID of the next transaction.
func (s *Postgres) NextID(ctx context.Context) (id int64, err error) {
	err = s.Connect(ctx, "postgres", func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").Scan(&id)
	})
	return id, err
}
