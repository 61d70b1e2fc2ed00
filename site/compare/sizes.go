package compare

import (
	"sync"
)

// compactAbove is the smallest size at which a file of settled values is compacted.
const compactAbove = 1 << 20

// SettledSizes are the sizes at which the files of settled values will be compacted next.
type SettledSizes struct {
	mu    sync.Mutex
	above map[string]int64
}

// Exceeded reports whether a file that has grown to size is to be compacted, once.
func (s *SettledSizes) Exceeded(dir string, size int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size < max(compactAbove, s.above[dir]) {
		return false
	}
	s.put(dir, 4*size)
	return true
}

func (s *SettledSizes) put(dir string, above int64) {
	if s.above == nil {
		s.above = map[string]int64{}
	}
	s.above[dir] = above
}

// Compacted records the size of a file that was compacted.
func (s *SettledSizes) Compacted(dir string, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(dir, 4*size)
}
