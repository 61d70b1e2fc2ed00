package moves

import (
	"crypto/rand"
	"fmt"
	"sync"
)

// Marks counts, for each repository, the transactions of git that have ended there. Who keeps what a repository's refs held
// goes by that: files that git has changed can't tell it, because two changes may come within one tick of a file's time.
//
// A hook tells the daemon before its git tells the client. So what was acknowledged has been counted.
type Marks struct {
	daemonID string // random: counts of another daemon are others

	mu sync.Mutex
	in map[string]uint64 // by path
}

// NewMarks returns marks that no other daemon has.
func NewMarks() Marks { return Marks{daemonID: rand.Text(), in: map[string]uint64{}} }

// Raise counts a transaction in the repository at path.
func (m *Marks) Raise(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.in[path]++
}

// Mark returns a text that is another one after each transaction, and in each daemon.
func (m *Marks) Mark(path string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%s %d", m.daemonID, m.in[path])
}
