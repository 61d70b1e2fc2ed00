package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteState replaces a file of the daemon's state, which only the daemon's user may read.
func WriteState(path string, data []byte) error {
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err == nil {
		err = SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("writing the daemon's state: %w", err)
	}
	return nil
}
