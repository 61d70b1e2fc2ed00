package refdb

// entries is how many there are in all of the maps.
func (q *queues) entries() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lines) + len(q.stopped) + len(q.held)
}
