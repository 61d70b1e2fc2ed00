package projects

import "sync"

// Names counts how many times each project's name was added.
type Names struct {
	mu    sync.Mutex
	count map[string]int
}

// Add adds a name.
func (n *Names) Add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count == nil {
		n.count = map[string]int{}
	}
	n.count[name]++
}

// Remove undoes one [Names.Add] of a name.
func (n *Names) Remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.count[name]--; n.count[name] <= 0 {
		delete(n.count, name)
	}
}

// Has reports whether a name was added more often than removed.
func (n *Names) Has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count[name] > 0
}
