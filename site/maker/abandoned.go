package maker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// RemoveAbandoned removes what makers that were killed have left in the reserved directory of the root. What a maker that lives has there
// stays. Removed is the number of paths whose makers have left something.
func RemoveAbandoned(ctx context.Context, c *config.Config) (removed int, err error) {
	home := filepath.Join(c.Root, config.UnfinishedDir)
	entries, err := os.ReadDir(home)
	if c.Root == "" || errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	once, cancel := context.WithCancel(ctx)
	cancel() // the lock of a maker that lives is not waited for
	seen := map[string]bool{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), probe) {
			err = errors.Join(err, removeProbe(filepath.Join(home, e.Name())))
			continue
		}
		m := &Maker{home: home, key: keyOf(e.Name())}
		if m.key == "" || seen[m.key] {
			continue
		}
		seen[m.key] = true
		if taken := m.take(once); taken != nil {
			if !errors.Is(taken, context.Canceled) {
				err = errors.Join(err, taken)
			}
			continue
		}
		removed++
		err = errors.Join(err, m.removeUnfinished(), m.Close())
	}
	// It may hold nothing at all.
	return removed, errors.Join(err, (&Maker{home: home}).Close())
}

// keyOf returns the key of the maker that made a file or directory of that name; "" if none did.
func keyOf(name string) string {
	const length = len(config.Unfinished) + 64 // of a SHA-256 in hex
	if len(name) < length || !strings.HasPrefix(name, config.Unfinished) {
		return ""
	}
	return name[:length]
}

// removeProbe removes a file by which a maker looked whether it can rename, unless that may still be under way.
func removeProbe(path string) error {
	info, err := os.Lstat(path)
	if err == nil && time.Since(info.ModTime()) > time.Minute {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
