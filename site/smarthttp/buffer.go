package smarthttp

import (
	"errors"
	"io"
	"sync/atomic"
)

const (
	// maxBuffered is the maximum number of bytes of a reader's body that are held in memory before
	// git is started for it, and maxMemory is the maximum for all bodies.
	maxBuffered = 1 << 20
	maxMemory   = 256 << 20
	firstBuffer = 4 << 10
)

// A bodyMemory bounds the memory that the bodies of all requests take.
type bodyMemory struct {
	limit int64
	used  atomic.Int64
}

func (m *bodyMemory) reserve(n int64) bool {
	if m.used.Add(n) > m.limit {
		m.used.Add(-n)
		return false
	}
	return true
}

// A buffered is a body of which everything, or the beginning, is in memory. It releases its memory
// once it has been read.
type buffered struct {
	*bodyMemory
	head  []byte // the bytes in memory; nil once they have been read
	read  int    // how many bytes of head have been read
	whole bool   // head is the whole body
	rest  io.Reader
	size  atomic.Int64 // bytes that were reserved for head
}

// buffer reads a body to its end, or its first maxBuffered bytes. The caller releases it. If there
// is not enough memory, the error is errBusy.
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
	if !h.reserve(int64(size - cap(h.head))) {
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

// release releases the memory. It may be called more than once.
func (h *buffered) release() { h.used.Add(-h.size.Swap(0)) }
