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
	// chunkLimit is how long a client may take to send a chunk of its request's body, and to
	// receive a chunk of the answer. A chunk has chunkBytes bytes; the last one may have fewer.
	chunkLimit = time.Minute
	chunkBytes = 64 << 10
	// lingerLimit is how long net/http reads the rest of a body that was not needed, up to 256 KiB.
	// If the connection were closed at once, the client might not be able to read the answer.
	lingerLimit = time.Second
)

// A body is the body of a request. Reads fail if the client is too slow or disconnects.
type body struct {
	from  io.Reader
	conn  *http.ResponseController
	limit time.Duration

	missing   int           // bytes of the current chunk that have not arrived
	remaining time.Duration // how long the client may still take to send them

	mu        sync.Mutex
	err       error // the error of each further Read, or nil
	abandoned bool
}

func newBody(w http.ResponseWriter, r *http.Request, limit time.Duration) *body {
	b := &body{from: r.Body, conn: http.NewResponseController(w), limit: limit}
	if r.ContentLength == 0 {
		b.err = io.EOF // without a body, net/http already reads the next request from the connection
	}
	return b
}

// Read counts only the time during which it waits for the client, as git may be slower. An
// abandoned body has ended.
func (b *body) Read(p []byte) (int, error) {
	if b.missing == 0 {
		b.missing, b.remaining = chunkBytes, b.limit
	}
	began := time.Now()
	if err := b.setDeadline(began.Add(b.remaining)); err != nil {
		return 0, err
	}
	n, err := b.from.Read(p[:min(len(p), b.missing)])
	b.remaining -= time.Since(began)
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

// setDeadline sets the deadline of a Read. Once the body has ended, setDeadline returns an error
// and does not touch the connection: from then on, net/http reads from the connection to learn when
// the client disconnects.
func (b *body) setDeadline(until time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err != nil:
		return b.err
	case b.abandoned:
		return io.EOF
	}
	b.conn.SetReadDeadline(until) // an error is ignored: only connections of tests have no deadlines
	return nil
}

// abandon interrupts a Read in progress and prevents further ones, because nobody needs the rest of
// the body.
func (b *body) abandon() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && !b.abandoned {
		b.abandoned = true
		b.conn.SetReadDeadline(time.Now())
	}
}

// ended reports whether the whole body was read. Otherwise no other request may follow on the
// connection.
func (b *body) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == io.EOF && !b.abandoned
}

// linger limits how long net/http reads the rest of the body.
func (b *body) linger() {
	if !b.ended() {
		b.conn.SetReadDeadline(time.Now().Add(lingerLimit))
	}
}

// interrupted reports whether a Read was interrupted or prevented.
func (b *body) interrupted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.abandoned
}

// broken reports whether the client disconnected or was too slow.
func (b *body) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil && b.err != io.EOF
}

// reason returns the error of a request whose body could not be read, given the error of Read.
func (b *body) reason(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errSlow
	case b.broken():
		return errBroken
	}
	return err
}

// A pacedWriter is a response writer with a time limit for each chunk. Its response is the last one
// on the connection unless the request was read to its end.
type pacedWriter struct {
	http.ResponseWriter
	request *body
	limit   time.Duration
}

// Unwrap is for [http.ResponseController].
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *pacedWriter) WriteHeader(status int) {
	if !w.request.ended() {
		w.Header().Set("Connection", "close")
	}
	w.renew()
	w.ResponseWriter.WriteHeader(status)
}

func (w *pacedWriter) Write(p []byte) (written int, err error) {
	for first := true; err == nil && (first || len(p) > 0); first = false {
		w.renew()
		var n int
		n, err = w.ResponseWriter.Write(p[:min(len(p), chunkBytes)])
		p = p[n:]
		written += n
	}
	return written, err
}

// renew sets the deadline of the next chunk. net/http removes the deadline at the end of the
// request.
func (w *pacedWriter) renew() {
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.limit))
}
