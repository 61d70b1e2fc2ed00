package smarthttp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// A served is a rig that listens for connections.
type served struct {
	*rig
	url   string
	began atomic.Int64  // the number of requests
	reads chan struct{} // receives a value before each Read of the rest of a body
	ended chan struct{} // receives a value when a request has been served
}

func serve(r *rig) *served {
	r.Helper()
	s := &served{rig: r, reads: make(chan struct{}, 100), ended: make(chan struct{}, 100)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		s.began.Add(1)
		defer func() { s.ended <- struct{}{} }()
		q.Body = &signalingBody{ReadCloser: q.Body, more: s.reads}
		r.ServeHTTP(w, q)
	}))
	r.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// A signalingBody sends a value to more before each Read after its first bytes.
type signalingBody struct {
	io.ReadCloser
	more chan struct{}
	n    int
}

func (b *signalingBody) Read(p []byte) (int, error) {
	if b.n > 0 {
		b.more <- struct{}{}
	}
	n, err := b.ReadCloser.Read(p)
	b.n += n
	return n, err
}

// post sends the header of a request with the given Content-Length, and the beginning of its body.
func (s *served) post(service, body string, length int, header ...string) net.Conn {
	s.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	s.must(err)
	s.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST /%s.git/%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-%s-request\r\nContent-Length: %d\r\n", project, service, service, length)
	for i := 0; i < len(header); i += 2 {
		fmt.Fprintf(conn, "%s: %s\r\n", header[i], header[i+1])
	}
	_, err = io.WriteString(conn, "\r\n"+body)
	s.must(err)
	return conn
}

// event waits for an event.
func (s *served) event(what string, happens <-chan struct{}) {
	s.Helper()
	select {
	case <-happens:
	case <-time.After(sitetest.Patience):
		s.Fatalf("%s: nothing happens", what)
	}
}

const fetchV0 = "0032want %s\n00000009done\n"

// If a client disconnects at any point, its request ends, with all its processes: git http-backend
// waits for the processes that it has started.
func TestARequestEndsWhenItsClientDisconnects(t *testing.T) {
	t.Parallel()
	for _, service := range []string{"git-receive-pack", "git-upload-pack"} {
		for name, body := range map[string]string{"in the first line": "0", "after it": pkt("x\n"), "before all": ""} {
			for _, header := range [][]string{nil, {"Content-Encoding", "gzip"}} {
				r := newRig(t)
				r.git(r.dir, "config", "http.receivepack", "true")
				s := serve(r)
				if len(header) > 0 && body != "" {
					body = gzipped(body)[:len(body)]
				}
				conn := s.post(service, body, 100_000, header...)
				if body != "" {
					s.event("the rest of the body is waited for", s.reads)
				}
				conn.Close()
				s.event(fmt.Sprint(service, ", ", name, ", ", header), s.ended)
			}
		}
	}
}

// However many clients don't send their requests, others are served.
func TestAReaderThatDoesNotSendItsRequestOccupiesNoProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.readers = make(semaphore, 1)
	s := serve(r)
	for range 2 {
		s.post("git-upload-pack", "0", 100_000)
		s.event("the rest of the body is waited for", s.reads)
	}
	whole := fmt.Sprintf(fetchV0, r.a)
	conn := s.post("git-upload-pack", whole, len(whole))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	s.must(err)
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != 200 || err != nil || !strings.Contains(string(text), "PACK") {
		t.Errorf("another reader: %d, %q, %v", response.StatusCode, text, err)
	}
}

// The server does not wait for the body of a push that git refuses.
func TestAnAnonymousPushIsRefusedBeforeItsBodyArrives(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := serve(r)
	conn := s.post("git-receive-pack", "0", 100_000)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	s.must(err)
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusForbidden || err != nil {
		t.Errorf("%d, %q, %v", response.StatusCode, text, err)
	}
	s.event("its end", s.ended)
}
