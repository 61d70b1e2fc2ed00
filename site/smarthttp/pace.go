package smarthttp

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	// A client has chunkLimit to send each chunk of its request's body, and to take each chunk of the answer. The last chunk may be smaller.
	chunkLimit = time.Minute
	chunkBytes = 64 << 10
	// lingerLimit is how long net/http reads the rest of a body that was not needed, up to 256 KiB, so that the client is not cut off while
	// it reads the answer.
	lingerLimit = time.Second
)

// A body is the body of a request. Reading fails if the client is too slow, and if it breaks off.
type body struct {
	from  io.Reader
	conn  *http.ResponseController
	limit time.Duration

	missing int           // bytes of the current chunk that have not come
	left    time.Duration // how long the client has for them

	mu        sync.Mutex
	err       error // why nothing more can be read, or nil
	abandoned bool
}

func newBody(w http.ResponseWriter, r *http.Request, limit time.Duration) *body {
	b := &body{from: r.Body, conn: http.NewResponseController(w), limit: limit}
	if r.ContentLength == 0 {
		b.err = io.EOF // there is no body, and net/http reads from the connection already
	}
	return b
}

// Read counts only the time for which it waits for the client: git may be slower than that. A body that was abandoned has ended.
func (b *body) Read(p []byte) (int, error) {
	if b.missing == 0 {
		b.missing, b.left = chunkBytes, b.limit
	}
	began := time.Now()
	if err := b.setDeadline(began.Add(b.left)); err != nil {
		return 0, err
	}
	n, err := b.from.Read(p[:min(len(p), b.missing)])
	b.left -= time.Since(began)
	b.missing -= n
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.abandoned {
			err = io.EOF
		}
		b.err = err
	}
	return n, err
}

// setDeadline leaves the connection alone once the body has ended: from then on net/http reads from it to learn when the client goes away.
func (b *body) setDeadline(until time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err != nil:
		return b.err
	case b.abandoned:
		return io.EOF
	}
	b.conn.SetReadDeadline(until) // a connection without deadlines is a test's
	return nil
}

// abandon interrupts a Read, and lets none begin: nobody needs the rest.
func (b *body) abandon() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && !b.abandoned {
		b.abandoned = true
		b.conn.SetReadDeadline(time.Now())
	}
}

// ended reports whether the whole body was read. Only then may another request follow on the connection.
func (b *body) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == io.EOF && !b.abandoned
}

// linger limits the time in which net/http reads the rest of the body.
func (b *body) linger() {
	if !b.ended() {
		b.conn.SetReadDeadline(time.Now().Add(lingerLimit))
	}
}

// interrupted reports whether a Read was interrupted, or would have been.
func (b *body) interrupted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.abandoned
}

// broken reports whether the client broke off, or was too slow.
func (b *body) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil && b.err != io.EOF
}

// reason returns why a request can't be served if reading the body failed.
func (b *body) reason(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errSlow
	case b.broken():
		return errBroken
	}
	return err
}

// A paced is a response with a time limit for each chunk. It is the last response on its connection unless the request was read to its end.
type paced struct {
	http.ResponseWriter
	to    *body
	limit time.Duration
}

// Unwrap is for [http.ResponseController].
func (w *paced) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *paced) WriteHeader(status int) {
	if !w.to.ended() {
		w.Header().Set("Connection", "close")
	}
	w.renew()
	w.ResponseWriter.WriteHeader(status)
}

func (w *paced) Write(p []byte) (written int, err error) {
	for first := true; err == nil && (first || len(p) > 0); first = false {
		w.renew()
		var n int
		n, err = w.ResponseWriter.Write(p[:min(len(p), chunkBytes)])
		p = p[n:]
		written += n
	}
	return written, err
}

// renew sets the deadline of the next chunk. net/http removes it at the end of the request.
func (w *paced) renew() {
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.limit))
}
