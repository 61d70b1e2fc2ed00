package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/api"
)

func TestBytesOfAnAcquisitionThatItsCallHasLeftStayCounted(t *testing.T) {
	t.Parallel()
	l := newLimiter(Limits{Calls: 10, CallsPerSubject: 10, Body: 100, Bodies: 1000, BodiesPerSubject: 100}, ofCalls)
	enter := func() *place {
		t.Helper()
		p, reason := l.enter("ci")
		if p == nil {
			t.Fatal(reason)
		}
		return p
	}
	first := enter()
	if reason := first.charge(60); reason != "" {
		t.Fatal(reason)
	}
	release := first.keep()
	first.leave()
	second := enter()
	if reason := second.charge(60); reason != rejectedSubjectBytes || l.now() != 1 {
		t.Errorf("%q, %d calls", reason, l.now())
	}
	second.leave()
	release()
	release() // without effect
	if l.used != (usage{}) || len(l.bySubject) != 0 {
		t.Errorf("after the end: %+v", l)
	}
	lasting := enter()
	lasting.charge(75)
	if reason := lasting.last(); reason != "" {
		t.Error(reason)
	}
	release = lasting.keep()
	lasting.leave()
	more := enter()
	if more.charge(1); more.last() != rejectedSubjectLastingBytes {
		t.Error("bytes of an acquisition that waited are not counted any more")
	}
	more.leave()
	release()
	if l.used != (usage{}) || len(l.bySubject) != 0 {
		t.Errorf("after the end of a wait: %+v", l)
	}
	third := enter()
	third.charge(100)
	third.keep()()
	third.leave()
	if l.used.bytes != 0 || len(l.bySubject) != 0 {
		t.Errorf("with a request that ended before its call: %+v", l)
	}
	empty := enter()
	release = empty.keep()
	empty.leave()
	release()
}

func TestBytesOfAStreamAreCountedUntilTheyAreRead(t *testing.T) {
	t.Parallel()
	s := &Server{counts: newCounts()}
	const most = 100
	l := newLimiter(Limits{Calls: 10, CallsPerSubject: 10, Body: most, Bodies: most, BodiesPerSubject: most}, ofStreams)
	arrived, read, begun, end := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(api.WithCaller(r.Context(), access.Identity{Subject: "ci"}))
		s.bounded(l, streamed(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			<-read
			if text, err := io.ReadAll(r.Body); err != nil || len(text) != most {
				t.Errorf("read %d bytes, %v", len(text), err)
			}
			begun <- struct{}{}
			<-end
		}))).ServeHTTP(w, r)
	}))
	defer server.Close()
	defer close(end)
	client := &http.Client{Timeout: time.Minute}
	post := func() int {
		response, err := client.Post(server.URL, "text/plain", strings.NewReader(strings.Repeat("a", most)))
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	wait := func(event <-chan struct{}) {
		t.Helper()
		select {
		case <-event:
		case <-time.After(5 * time.Minute): // only a hang reaches it
			t.Fatal("the stream does not begin")
		}
	}
	go post()
	wait(arrived)
	if status := post(); status != http.StatusTooManyRequests {
		t.Errorf("while the request of a stream is in memory: %d", status)
	}
	if got := s.counts.rejections(t); got[rejectedSubjectStreamBytes] != 1 || got[rejectedSubjectBytes] != 0 {
		t.Errorf("rejected: %v", got)
	}
	read <- struct{}{}
	wait(begun)
	l.mu.Lock()
	bytes := l.used.bytes
	l.mu.Unlock()
	if bytes != 0 {
		t.Errorf("%d bytes are counted for a stream that has begun", bytes)
	}
	go post()
	wait(arrived)
	read <- struct{}{}
	wait(begun)
}
