package smarthttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// A client must not be able to hide a request, with another's name, in a body that git does not read.
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
			t.Errorf("who may not push: %d, %q, %v", response.StatusCode, text, err)
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

// A proxy that has given a request up may still read: an empty answer would tell its client that there is nothing.
func TestARequestThatWasGivenUpIsNotAnswered(t *testing.T) {
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

// What a request has left on a connection does not end the next one.
func TestARequestDoesNotEndTheNextOnItsConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Err() == nil {
			fmt.Fprint(w, "served")
		}
		// Git may end before anybody has read that there is no body.
		b := newBody(w, r, time.Minute)
		b.abandon()
		select {
		case <-r.Context().Done():
		case <-time.After(100 * time.Millisecond): // a fault takes less, or is not seen this time
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
