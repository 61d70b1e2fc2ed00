// Package filelock locks files among processes. The kernel ends a lock when all processes that have inherited it
// have closed the file or ended.
package filelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// pollEvery is how often a lock that another process has is tried again.
const pollEvery = 100 * time.Millisecond

// Shared locks the file for this process and all others that share it. It waits, until ctx ends, while another process has the
// file exclusively. Closing the file ends the lock.
func Shared(ctx context.Context, path string) (*os.File, error) {
	return lock(ctx, path, syscall.LOCK_SH)
}

// Exclusive is [Shared] without others.
func Exclusive(ctx context.Context, path string) (*os.File, error) {
	return lock(ctx, path, syscall.LOCK_EX)
}

// IsHeld reports whether any process has locked the file. A file that does not exist is not locked.
func IsHeld(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0) // NFS grants exclusive locks to writers only
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, syscall.EINTR):
		return true, nil
	default:
		return false, err
	}
}

func lock(ctx context.Context, path string, how int) (*os.File, error) {
	// Not its parents: a repository that is gone must not seem to be there again.
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(pollEvery):
		}
	}
}
