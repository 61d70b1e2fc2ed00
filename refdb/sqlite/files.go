package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
)

// files are those that a driver has open: the database, its log, and the index of
// that in shared memory. The path of each may lead to another one day: then
// processes started since have other locks.
type files struct {
	paths []string
	seen  []fs.FileInfo
	gone  atomic.Pointer[error] // what was found to be another; stays so, whatever is put back
}

// errGone is wrapped by all errors that say so.
var errGone = errors.New("removed or replaced while in use")

// openFiles returns the files of a database whose log is open.
func openFiles(path string, p place) (*files, error) {
	f := &files{paths: []string{path, p.file + "-wal", p.file + "-shm"}}
	for _, path := range f.paths {
		seen, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		f.seen = append(f.seen, seen)
	}
	return f, nil
}

// standing returns the size of the log, or an error if a path leads to another
// file. It must not open any: to close it again would drop the locks that SQLite
// holds on it in this process.
func (f *files) standing() (size int64, err error) {
	if gone := f.gone.Load(); gone != nil {
		return 0, *gone
	}
	for i, path := range f.paths {
		now, err := os.Stat(path)
		switch {
		case err == nil && os.SameFile(now, f.seen[i]):
			if i == 1 {
				size = now.Size()
			}
			continue
		case err == nil:
			err = errors.New("another file has its name")
		case !errors.Is(err, fs.ErrNotExist):
			return 0, err
		}
		if i == 0 {
			err = fmt.Errorf("the file was %w: restart this process: %w", errGone, err)
		} else {
			err = fmt.Errorf("the file's log was %w: what was locked and written before may be lost: "+
				"stop all processes that use the file, then start them again: %s: %w", errGone, path, err)
		}
		f.gone.CompareAndSwap(nil, &err)
		return 0, *f.gone.Load()
	}
	return size, nil
}
