package moves

import (
	"crypto/rand"
	"fmt"
	"sync"
)

// Marks counts the ended transactions of git in each repository. A cache of a repository's refs is
// validated by the count, as two changes may fall within one tick of a file's modification time.
//
// A hook reports to the daemon before its git answers the client, so every acknowledged transaction
// has been counted.
type Marks struct {
	daemonID string // random, as every daemon counts from 0

	mu sync.Mutex
	in map[string]uint64 // by path
}

// NewMarks returns marks that differ from those of all other daemons.
func NewMarks() Marks { return Marks{daemonID: rand.Text(), in: map[string]uint64{}} }

// Raise counts a transaction in the repository at path.
func (m *Marks) Raise(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.in[path]++
}

// Mark returns a string that changes with every transaction and differs between daemons.
func (m *Marks) Mark(path string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%s %d", m.daemonID, m.in[path])
}
