package presence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/filelock"
)

// heldFor is how long the lock of a daemon may be held after its end: a process that it was about to start has it until that executes its program.
const heldFor = time.Second

// LockState takes the lock that only one daemon with this state directory can
// have. It ends with the process, whatever ends that.
func LockState(dir string) (*os.File, error) { return lockState(dir, heldFor) }

func lockState(dir string, patience time.Duration) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making site.state: %w", err)
	}
	path := filepath.Join(dir, "lock")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f, err := filelock.Exclusive(ctx, path)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("a site daemon runs already: it holds %s", path)
	case err != nil:
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}
