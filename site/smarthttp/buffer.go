package smarthttp

import (
	"errors"
	"io"
	"sync/atomic"
)

const (
	// maxBuffered is how much of a reader's body is held in memory before a process is started for it, and maxMemory how much of all bodies.
	maxBuffered = 1 << 20
	maxMemory   = 256 << 20
	firstBuffer = 4 << 10
)

// A bodyMemory limits what the bodies of requests take together.
type bodyMemory struct {
	limit int64
	used  atomic.Int64
}

func (m *bodyMemory) take(n int64) bool {
	if m.used.Add(n) > m.limit {
		m.used.Add(-n)
		return false
	}
	return true
}

// A buffered body has come, or its beginning has. It gives its memory back once it was read.
type buffered struct {
	*bodyMemory
	head  []byte // until it is read to its end
	read  int
	whole bool
	rest  io.Reader
	size  atomic.Int64 // of the memory
}

// buffer waits until a body is there, or maxBuffered of it. The caller releases it.
func (m *bodyMemory) buffer(b io.Reader) (*buffered, error) {
	held := &buffered{bodyMemory: m, rest: b}
	for len(held.head) < maxBuffered {
		if len(held.head) == cap(held.head) && !held.grow() {
			held.release()
			return nil, errBusy
		}
		n, err := b.Read(held.head[len(held.head):cap(held.head)])
		held.head = held.head[:len(held.head)+n]
		switch {
		case errors.Is(err, io.EOF):
			held.whole = true
			return held, nil
		case err != nil:
			held.release()
			return nil, err
		}
	}
	return held, nil
}

func (h *buffered) grow() bool {
	size := max(firstBuffer, 2*cap(h.head))
	if !h.take(int64(size - cap(h.head))) {
		return false
	}
	h.size.Store(int64(size))
	h.head = append(make([]byte, 0, size), h.head...)
	return true
}

// Read reads the body, from its beginning.
func (h *buffered) Read(p []byte) (int, error) {
	if h.read < len(h.head) {
		n := copy(p, h.head[h.read:])
		h.read += n
		return n, nil
	}
	h.release()
	h.head, h.read = nil, 0
	if h.whole {
		return 0, io.EOF
	}
	return h.rest.Read(p)
}

// release gives the memory back, also if nothing was read.
func (h *buffered) release() { h.used.Add(-h.size.Swap(0)) }
