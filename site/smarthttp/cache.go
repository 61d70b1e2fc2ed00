package smarthttp

import (
	"container/list"
	"sync"
)

// A slot is what a cache keeps one answer for: a request about a project, up to what has no effect on the answer.
type slot struct{ project, request string }

// A cache keeps answers of git, each with the state that it was made from. It is bounded in bytes, and drops what was not asked
// for the longest. An answer of an older state makes room for the one of a newer state.
type cache struct {
	limit int64

	mu    sync.Mutex
	bytes int64
	used  *list.List // of *entry, the latest first
	at    map[slot]*list.Element
}

type entry struct {
	slot   slot
	state  state
	answer *answer
}

// overhead is about what an entry takes beside its texts.
const overhead = 1 << 10

func (e *entry) size() int64 {
	return int64(len(e.answer.body)+len(e.slot.project)+len(e.slot.request)) + overhead
}

func newCache(limit int64) *cache {
	return &cache{limit: limit, used: list.New(), at: map[slot]*list.Element{}}
}

// get returns the answer that was made from that very state, or nil.
func (c *cache) get(s slot, from state) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.at[s]
	if found == nil || found.Value.(*entry).state != from {
		return nil
	}
	c.used.MoveToFront(found)
	return found.Value.(*entry).answer
}

// put keeps an answer, which nobody may change any more.
func (c *cache) put(s slot, from state, a *answer) {
	e := &entry{s, from, a}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.at[s]; old != nil {
		c.drop(old)
	}
	if e.size() > c.limit {
		return
	}
	c.at[s] = c.used.PushFront(e)
	c.bytes += e.size()
	for c.bytes > c.limit {
		c.drop(c.used.Back())
	}
}

func (c *cache) drop(at *list.Element) {
	e := c.used.Remove(at).(*entry)
	delete(c.at, e.slot)
	c.bytes -= e.size()
}

// size returns how many bytes and answers there are.
func (c *cache) size() (bytes int64, answers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes, len(c.at)
}
