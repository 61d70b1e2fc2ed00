package packs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// The daemon and refdbctl may find at the same time that a repository has no mark.
func TestManyWritersMayWriteAMarkAtTheSameTime(t *testing.T) {
	dir := t.TempDir()
	var writers sync.WaitGroup
	for range 50 {
		writers.Go(func() {
			for range 20 {
				if err := (&Mark{ID: "mark"}).Write(dir); err != nil {
					t.Error(err)
				}
				if _, err := ReadMark(dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
}

// A recreated directory would be in the way of a clone.
func TestWritingAMarkDoesNotRecreateADeletedRepository(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone.git")
	if err := (&Mark{ID: "mark"}).Write(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("written: %v", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the repository is there: %v", err)
	}
}
