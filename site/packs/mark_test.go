package packs

import (
	"sync"
	"testing"
)

// The daemon and refdbctl may both find that a repository has no mark.
func TestAMarkIsWrittenByManyAtTheSameTime(t *testing.T) {
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
