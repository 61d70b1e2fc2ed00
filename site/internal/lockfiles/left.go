package lockfiles

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// Reasons for which [RemoveLeft] leaves lock files alone.
var (
	ErrBusy   = errors.New("a git works on the repository")
	ErrUnsure = errors.New("git can't be told to have ended")
	ErrStays  = errors.New("a lock file can't be removed")
)

// RemoveLeft removes lock files that processes have left in the repository dir, once no git runs that
// may have made them, and returns how many it removed. The caller makes sure that no guard has made them.
//
// It calls find for the lock files while no other process removes any there. Then it waits for the gits
// that work on the repository, until a time at most. The error wraps [ErrBusy] if some of them still run
// then, [ErrUnsure] if it could not look at some processes, or [ErrStays]. GitPrograms are names of
// programs that are git under another name.
func RemoveLeft(ctx context.Context, gitPrograms []string, dir string, until time.Time, find func() ([]gitrepo.LockFile, error)) (removed int, err error) {
	release, err := Exclusive(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer release()
	files, err := find()
	if err != nil || len(files) == 0 {
		return 0, err
	}
	ended, unsure, err := pusher.AwaitGits(ctx, gitPrograms, dir, until)
	switch {
	case err != nil:
		return 0, err
	case unsure:
		return 0, ErrUnsure
	case !ended:
		return 0, ErrBusy
	}
	var failures []error
	for _, f := range There(files) {
		if err := f.Remove(); err == nil {
			removed++
		} else if f.Exists() {
			failures = append(failures, fmt.Errorf("%w: %w", ErrStays, err))
		}
	}
	return removed, errors.Join(failures...)
}
