package smarthttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// A client must not be able to hide a request, with another user's name, in a body that git does
// not read.
func TestTheRestOfABodyIsNoRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := serve(r)
	const hidden = "GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
	request := hidden[:len(hidden)-4] + "\r\nX: " + strings.Repeat("x", 64-len(hidden)-5) + "\r\n\r\n" // 64 bytes, a divisor of each buffer's size
	for range 20 {
		began := s.began.Load()
		conn := s.post("git-receive-pack", strings.Repeat(request, 3200), 64*3200)
		from := bufio.NewReader(conn)
		response, err := http.ReadResponse(from, nil)
		s.must(err)
		text, err := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusForbidden || err != nil {
			t.Errorf("an anonymous push: %d, %q, %v", response.StatusCode, text, err)
		}
		s.must(conn.SetReadDeadline(time.Now().Add(sitetest.Patience)))
		if rest, err := io.ReadAll(from); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("then: %q, %v", rest, err)
		}
		if n := s.began.Load() - began; n != 1 {
			t.Fatalf("%d requests", n)
		}
	}
}

// Bytes that arrive after the server has stopped waiting for the body are no request either.
func TestALateBodyIsNoRequest(t *testing.T) {
	t.Parallel()
	s := serve(newRig(t))
	conn := s.post("git-receive-pack", "", 100_000)
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, nil)
	s.must(err)
	if text, err := io.ReadAll(response.Body); response.StatusCode != http.StatusForbidden || err != nil {
		t.Errorf("an anonymous push: %d, %q, %v", response.StatusCode, text, err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if _, err := from.Peek(1); err == nil {
			rest, _ := from.Peek(from.Buffered())
			t.Errorf("then: %q", rest)
		}
	}()
	for until := time.After(sitetest.Patience); ; {
		io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
		select {
		case <-closed:
			if n := s.began.Load(); n != 1 {
				t.Errorf("%d requests", n)
			}
			return
		case <-until:
			t.Fatal("the connection stays open")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// A proxy that has given up a request may still read the response. To the proxy's client, an empty
// response would look like a repository without refs.
func TestACancelledRequestGetsNoResponse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, service := range []string{"git-upload-pack", "git-receive-pack"} {
		if w := r.get(ctx, "/"+project+".git/info/refs?service="+service); w.Code != cutOff {
			t.Errorf("%s: %d, %q", service, w.Code, w.Body)
		}
	}
}

// The state in which a request leaves a connection does not end the next request.
func TestARequestDoesNotEndTheNextOnItsConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Err() == nil {
			fmt.Fprint(w, "served")
		}
		// Git may end before the server has read the end of the empty body.
		b := newBody(w, r, time.Minute)
		b.abandon()
		select {
		case <-r.Context().Done():
		case <-time.After(100 * time.Millisecond): // the fault takes less time, or is missed in this run
		}
	}))
	defer server.Close()
	for n := range 2 {
		response, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if string(text) != "served" || err != nil {
			t.Errorf("request %d: %q, %v", n+1, text, err)
		}
	}
}

// If git dies while the client still sends its request, the client gets the same response as after
// any other failure.
func TestAGitThatDiesDuringARequestIsAFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dies := filepath.Join(t.TempDir(), "dies")
	r.fake("until [ -e " + dies + " ]; do sleep 0.01; done; exit 1\n")
	s := serve(r)
	conn := s.post("git-receive-pack", "0000", 100)
	s.event("the rest of the body is waited for", s.reads)
	r.must(os.WriteFile(dies, nil, 0o644))
	s.must(conn.SetReadDeadline(time.Now().Add(sitetest.Patience)))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	s.must(err)
	if text, err := io.ReadAll(response.Body); response.StatusCode != http.StatusServiceUnavailable || !response.Close || err != nil {
		t.Errorf("%d, %q, %v", response.StatusCode, text, err)
	}
	r.wantCount(r.counts.failed, 1)
}

// After a refusal, the server waits only briefly for a body that nobody needs.
func TestARefusalDoesNotWaitForEverForTheBody(t *testing.T) {
	t.Parallel()
	s := serve(newRig(t))
	for path, status := range map[string]int{"/nothing": http.StatusNotFound, "/other.git/git-receive-pack": http.StatusNotFound} {
		response := s.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n", path))
		if response.StatusCode != status || !response.Close {
			t.Errorf("%s: %d, and the connection stays open: %t", path, response.StatusCode, !response.Close)
		}
	}
}

func TestHTTP10IsRefused(t *testing.T) {
	t.Parallel()
	s := serve(newRig(t))
	response := s.send("GET " + refsURL + " HTTP/1.0\r\n\r\n")
	if text, err := io.ReadAll(response.Body); response.StatusCode != http.StatusHTTPVersionNotSupported || !strings.Contains(string(text), "proxy_http_version 1.1") {
		t.Errorf("%d, %q, %v", response.StatusCode, text, err)
	}
}

// send sends text on a new connection, and returns the response.
func (s *served) send(text string) *http.Response {
	s.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	s.must(err)
	s.Cleanup(func() { conn.Close() })
	_, err = io.WriteString(conn, text)
	s.must(err)
	s.must(conn.SetReadDeadline(time.Now().Add(sitetest.Patience)))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	s.must(err)
	return response
}

// A recorded is a response recorder that records the order of writes and of new write deadlines.
type recorded struct {
	*httptest.ResponseRecorder
	events []string
}

func (w *recorded) Write(p []byte) (int, error) {
	w.events = append(w.events, "write")
	return w.ResponseRecorder.Write(p)
}

func (w *recorded) SetWriteDeadline(time.Time) error {
	w.events = append(w.events, "deadline")
	return nil
}

// net/http writes the end of an answer as a chunk of its own. Git may have been silent for long
// before it.
func TestTheEndOfAnAnswerHasItsOwnDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := &recorded{ResponseRecorder: httptest.NewRecorder()}
	r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", refsURL, nil))
	if n := len(w.events); n < 3 || w.events[n-1] != "deadline" || !slices.Contains(w.events, "write") {
		t.Errorf("%q", w.events)
	}
}
