package projects

import "sync"

// Names is a set of projects' names.
type Names struct {
	mu    sync.Mutex
	names map[string]bool
}

// Add adds a name.
func (n *Names) Add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.names == nil {
		n.names = map[string]bool{}
	}
	n.names[name] = true
}

// Remove removes a name.
func (n *Names) Remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.names, name)
}

// Has reports whether a name is in the set.
func (n *Names) Has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[name]
}
