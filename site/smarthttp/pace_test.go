package smarthttp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// A clientConn is a connection to a client of the test, and its response writer.
type clientConn struct {
	*httptest.ResponseRecorder
	net.Conn
}

func (c clientConn) Write(p []byte) (int, error)        { return c.Conn.Write(p) }
func (c clientConn) SetReadDeadline(t time.Time) error  { return c.Conn.SetReadDeadline(t) }
func (c clientConn) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(t) }

// A sends is a number of bytes that a client sends after a pause.
type sends struct {
	bytes int
	after time.Duration
}

func TestABodyMustArriveInTime(t *testing.T) {
	t.Parallel()
	const most = chunkLimit - time.Second
	for name, row := range map[string]struct {
		sends []sends
		slow  time.Duration // how long git takes between two reads
		ok    bool
	}{
		"at once":                             {[]sends{{10, 0}}, 0, true},
		"a small one, late":                   {[]sends{{10, most}}, 0, true},
		"never":                               {[]sends{{10, chunkLimit + time.Second}}, 0, false},
		"each chunk late":                     {[]sends{{chunkBytes, most}, {chunkBytes, most}, {chunkBytes, most}}, 0, true},
		"parts of a chunk that are each late": {[]sends{{1, most}, {1, most}}, 0, false},
		"the last chunk too late":             {[]sends{{chunkBytes, 0}, {10, chunkLimit + time.Second}}, 0, false},
		"at once, to a git that is slow":      {[]sends{{3 * chunkBytes, 0}}, time.Hour, true},
		"parts, to a git that is slow":        {[]sends{{chunkBytes / 2, most / 2}, {chunkBytes, most / 2}}, time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				var client sync.WaitGroup
				defer client.Wait()
				defer here.Close()
				client.Go(func() {
					defer there.Close()
					for _, s := range row.sends {
						time.Sleep(s.after)
						if _, err := there.Write(make([]byte, s.bytes)); err != nil {
							return
						}
					}
				})
				b := &body{from: here, conn: http.NewResponseController(clientConn{httptest.NewRecorder(), here}), limit: chunkLimit}
				var err error
				for p := make([]byte, 32<<10); err == nil; {
					_, err = b.Read(p)
					time.Sleep(row.slow)
				}
				if ok := err == io.EOF; ok != row.ok || b.broken() == row.ok || !row.ok && b.reason(err) != errSlow {
					t.Errorf("it ended with %v, broken: %t", err, b.broken())
				}
			})
		})
	}
}

func TestAnAnswerMustBeReadInTime(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		pause time.Duration // between two reads of a chunk
		ok    bool
	}{
		"slowly":   {chunkLimit - time.Second, true},
		"too late": {chunkLimit + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				var client sync.WaitGroup
				defer client.Wait()
				defer here.Close()
				client.Go(func() {
					defer there.Close()
					for p := make([]byte, chunkBytes); ; {
						time.Sleep(row.pause)
						if _, err := io.ReadFull(there, p); err != nil {
							return
						}
					}
				})
				w := &pacedWriter{clientConn{httptest.NewRecorder(), here}, &body{err: io.EOF}, chunkLimit}
				n, err := w.Write(make([]byte, 4*chunkBytes))
				if row.ok != (err == nil && n == 4*chunkBytes) || !row.ok && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%d bytes were written: %v", n, err)
				}
			})
		})
	}
}

// An abandoned body ends at once, and does not count as broken by the client.
func TestAnAbandonedBodyEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		b := &body{from: here, conn: http.NewResponseController(clientConn{httptest.NewRecorder(), here}), limit: chunkLimit}
		ended := make(chan error)
		go func() {
			_, err := b.Read(make([]byte, 1))
			ended <- err
		}()
		synctest.Wait()
		b.abandon()
		if err := <-ended; err != io.EOF || b.broken() {
			t.Errorf("%v, broken: %t", err, b.broken())
		}
		if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after that: %d, %v", n, err)
		}
	})
}

func TestBodiesShareTheirMemory(t *testing.T) {
	t.Parallel()
	m := &bodyMemory{limit: 64 << 10}
	read := func(h *buffered, want string) {
		t.Helper()
		if got, err := io.ReadAll(h); err != nil || string(got) != want {
			t.Errorf("read %d bytes, %v, want %d", len(got), err, len(want))
		}
	}
	small, large := strings.Repeat("s", 10<<10), strings.Repeat("l", 60<<10)
	first, err := m.buffer(strings.NewReader(small))
	if err != nil || !first.whole {
		t.Fatal(err)
	}
	if _, err := m.buffer(strings.NewReader(large)); err != errBusy {
		t.Errorf("beyond the limit: %v", err)
	}
	failing := io.MultiReader(strings.NewReader(small), iotestErr{})
	if _, err := m.buffer(failing); !errors.Is(err, errBroken) {
		t.Errorf("a body that fails: %v", err)
	}
	second, err := m.buffer(strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	read(first, small)
	read(second, small)
	second.release()
	if n := m.used.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
	// The beginning of a large body is held in memory until it has been read.
	m = &bodyMemory{limit: maxBuffered}
	huge := strings.Repeat("h", maxBuffered+10)
	third, err := m.buffer(strings.NewReader(huge))
	if err != nil || third.whole {
		t.Fatal(err)
	}
	read(third, huge)
	if n := m.used.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error) { return 0, errBroken }

// git receive-pack gets a compressed body uncompressed: git http-backend would kill it if it could
// not read the end of the body.
func TestACompressedPushIsUncompressedForGit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fake("printf 'Content-Type: x\\r\\n\\r\\n'\nenv | grep -c HTTP_CONTENT_ENCODING\ncat\n")
	for name, row := range map[string]struct{ body, encoding, want string }{
		"plain":  {"body", "", "0\nbody"},
		"gzip":   {gzipped("body"), "gzip", "0\nbody"},
		"x-gzip": {gzipped("body"), "x-gzip", "0\nbody"},
	} {
		q := httptest.NewRequestWithContext(t.Context(), "POST", "/"+project+".git/git-receive-pack", strings.NewReader(row.body))
		q.Header.Set("Content-Encoding", row.encoding)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, q)
		if got := w.Body.String(); got != row.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A client that stalls gets an error or is disconnected, and its process ends.
func TestAClientThatStallsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for service, status := range map[string]string{"git-upload-pack": "408", "git-receive-pack": ""} {
		var answer []byte
		for deadline := time.Now().Add(sitetest.Patience); ; {
			r := newRig(t)
			r.git(r.dir, "config", "http.receivepack", "true")
			r.limits.chunk = 100 * time.Millisecond
			s := serve(r)
			conn := s.post(service, "0", 100_000)
			answer, _ = io.ReadAll(conn)
			s.event(service, s.ended)
			r.wantCount(r.counts.broken, 1)
			// The limit applies to the answer, too, and a busy machine may exceed it.
			if status == "" || len(answer) > 0 || time.Now().After(deadline) {
				break
			}
		}
		if !bytes.Contains(answer, []byte(status)) {
			t.Errorf("%s: %q", service, answer)
		}
	}
	// This client does not read its answer.
	r := newRig(t)
	r.fake("printf 'Content-Type: x\\r\\n\\r\\n'\nexec cat /dev/zero\n")
	r.limits.chunk = 100 * time.Millisecond
	s := serve(r)
	s.post("git-upload-pack", "0000", 4)
	s.event("the answer", s.ended)
}
