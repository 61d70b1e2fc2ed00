package smarthttp

import (
	"container/list"
	"sync"
)

// A cacheKey identifies a request about a project, without the parts of the request that have no
// effect on the answer.
type cacheKey struct{ project, request string }

// A cache holds answers of git, each with the state from which it was made. The cache is bounded in
// bytes, and evicts the answers that were least recently used. It holds one answer for a key: that
// of the latest state.
type cache struct {
	limit int64

	mu      sync.Mutex
	bytes   int64
	used    *list.List // of *entry, the most recently used first
	entries map[cacheKey]*list.Element
}

type entry struct {
	key    cacheKey
	state  state
	answer *answer
}

// overhead is roughly the memory that an entry takes besides its strings and its body.
const overhead = 1 << 10

func (e *entry) size() int64 {
	return int64(len(e.answer.body)+len(e.key.project)+len(e.key.request)) + overhead
}

func newCache(limit int64) *cache {
	return &cache{limit: limit, used: list.New(), entries: map[cacheKey]*list.Element{}}
}

// get returns the answer for the key if it was made from the given state, and nil otherwise.
func (c *cache) get(key cacheKey, from state) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.entries[key]
	if found == nil || found.Value.(*entry).state != from {
		return nil
	}
	c.used.MoveToFront(found)
	return found.Value.(*entry).answer
}

// put caches an answer, which must not be changed any more.
func (c *cache) put(key cacheKey, from state, a *answer) {
	e := &entry{key, from, a}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.entries[key]; old != nil {
		c.drop(old)
	}
	if e.size() > c.limit {
		return
	}
	c.entries[key] = c.used.PushFront(e)
	c.bytes += e.size()
	for c.bytes > c.limit {
		c.drop(c.used.Back())
	}
}

func (c *cache) drop(at *list.Element) {
	e := c.used.Remove(at).(*entry)
	delete(c.entries, e.key)
	c.bytes -= e.size()
}

// size returns how many bytes and answers the cache holds.
func (c *cache) size() (bytes int64, answers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes, len(c.entries)
}
