package server_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// metric returns a line of the metrics; "" if there is none.
func (s *serving) metric(t *testing.T, subject, name string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.rig.tokens[subject])
	_, text := do(t, r)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func TestOnlyOneValidBearerTokenIsAccepted(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	token := r.tokens["ci"]
	for what, row := range map[string]struct {
		headers []string
		want    int
	}{
		"a token":           {[]string{"Bearer " + token}, http.StatusOK},
		"another case":      {[]string{"bearer " + token}, http.StatusOK},
		"none":              {nil, http.StatusUnauthorized},
		"an empty one":      {[]string{"Bearer "}, http.StatusUnauthorized},
		"the token alone":   {[]string{token}, http.StatusUnauthorized},
		"another scheme":    {[]string{"Basic " + token}, http.StatusUnauthorized},
		"two tokens":        {[]string{"Bearer " + token, "Bearer " + token}, http.StatusUnauthorized},
		"a wrong one":       {[]string{"Bearer " + token[:len(token)-1] + "_"}, http.StatusUnauthorized},
		"more than a token": {[]string{"Bearer " + token + " x"}, http.StatusUnauthorized},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/refdb.v1.RefdbService/Get", strings.NewReader(`{"project":"p","refs":["HEAD"]}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header["Authorization"] = row.headers
		if status, text := do(t, request); status != row.want && !(what == "a wrong one" && strings.HasSuffix(token, "_")) {
			t.Errorf("%s: %d %s", what, status, text)
		}
	}
	if status, _ := s.post(t, "", "../metrics", ""); status == http.StatusOK {
		t.Error("strangers see the metrics")
	}
	response, err := patient(http.DefaultTransport).Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("the metrics without a token: %s", response.Status)
	}
	if got := s.metric(t, "ci", `refdb_server_rejected_total{reason="unauthenticated"}`); got == "" || got == "0" {
		t.Errorf("%q were rejected", got)
	}
	if got := s.metric(t, "ci", `refdb_server_calls_total{method="/refdb.v1.RefdbService/Get",result="ok"}`); got != "2" {
		t.Errorf("%q calls were answered", got)
	}
}

// dial opens a connection, and sends the beginning of a request.
func (s *serving) dial(t *testing.T, begin string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, begin); err != nil {
		t.Fatal(err)
	}
	return c
}

func header(token string, length int) string {
	return fmt.Sprintf("POST /refdb.v1.RefdbService/Get HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", token, length)
}

func statusOf(t *testing.T, c net.Conn) int {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func TestStrangersAreRefusedBeforeTheirBodyIsRead(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", access.All)
	s := r.serve(t, server.Limits{Calls: 1, CallsPerSubject: 1, Body: 1000, Bodies: 1000, BodiesPerSubject: 1000, Connections: 100, Streams: 1, StreamsPerSubject: 1, Requests: 16}, nil)
	for range 10 {
		// The body never comes.
		if status := statusOf(t, s.dial(t, header("refdb_"+strings.Repeat("A", 43), 500))); status != http.StatusUnauthorized {
			t.Errorf("%d", status)
		}
	}
	if status, text := s.post(t, r.tokens["ci"], "Get", `{"project":"p","refs":["HEAD"]}`); status != http.StatusOK {
		t.Errorf("strangers took the only place: %d %s", status, text)
	}
}

func TestCallsBeyondALimitAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	for _, subject := range []string{"one", "two", "three", "watcher"} {
		r.allow(t, subject, access.Lock, "p", access.All)
	}
	const get = `{"project":"p","refs":["HEAD"]}`
	for _, row := range []struct {
		limits               server.Limits
		length               int
		same, other, another int // statuses of a second call of the same subject, of another one, and of a third one
	}{
		{server.Limits{Calls: 100, CallsPerSubject: 1, Body: 1000, Bodies: 1e6, BodiesPerSubject: 1e6, Connections: 100, Streams: 1, StreamsPerSubject: 1, Requests: 16}, 500, http.StatusTooManyRequests, http.StatusOK, http.StatusOK},
		{server.Limits{Calls: 1, CallsPerSubject: 10, Body: 1000, Bodies: 1e6, BodiesPerSubject: 1e6, Connections: 100, Streams: 1, StreamsPerSubject: 1, Requests: 16}, 500, http.StatusTooManyRequests, http.StatusTooManyRequests, http.StatusTooManyRequests},
		{server.Limits{Calls: 100, CallsPerSubject: 10, Body: 1000, Bodies: 1e6, BodiesPerSubject: 1000, Connections: 100, Streams: 1, StreamsPerSubject: 1, Requests: 16}, 990, http.StatusTooManyRequests, http.StatusOK, http.StatusOK},
		{server.Limits{Calls: 100, CallsPerSubject: 10, Body: 1000, Bodies: 1000, BodiesPerSubject: 1000, Connections: 100, Streams: 1, StreamsPerSubject: 1, Requests: 16}, 990, http.StatusTooManyRequests, http.StatusTooManyRequests, http.StatusTooManyRequests},
		{server.Limits{Calls: 100, CallsPerSubject: 10, Body: 1000, Bodies: 1e6, BodiesPerSubject: 1e6, Connections: 100, Streams: 1, StreamsPerSubject: 1, Requests: 16}, 990, http.StatusOK, http.StatusOK, http.StatusOK},
	} {
		s := r.serve(t, row.limits, nil)
		slow := s.dial(t, header(r.tokens["one"], row.length)+"{")
		eventually(t, "the slow call is counted", func() bool { return s.metric(t, "watcher", "refdb_server_calls") == "1" })
		for subject, want := range map[string]int{"one": row.same, "two": row.other, "three": row.another} {
			if status, text := s.post(t, r.tokens[subject], "Get", get); status != want {
				t.Errorf("%+v: %s: %d %s", row.limits, subject, status, text)
			}
		}
		slow.Close()
		eventually(t, "the place is free again", func() bool { return s.metric(t, "watcher", "refdb_server_calls") == "0" })
		if status, text := s.post(t, r.tokens["two"], "Get", get); status != http.StatusOK {
			t.Errorf("%+v: afterwards: %d %s", row.limits, status, text)
		}
	}
}

// gRPC does not announce the length of a body, and a call that waits has read its own.
func TestCallsThatWaitTakeNoBytesFromOthers(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "many", access.Lock, "p", access.All)
	r.allow(t, "other", access.Lock, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	r.acquire(t, s.plain("many"), locking(mainRef))
	const waiting = 33
	var ended sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range waiting {
		ended.Go(func() {
			a := locking(mainRef)
			a.Wait = durationpb.New(30 * time.Second)
			_, err := s.grpc("many").Acquire(ctx, connect.NewRequest(a))
			if code := connect.CodeOf(err); code != connect.CodeCanceled {
				t.Errorf("%v", err)
			}
		})
	}
	eventually(t, "they wait", func() bool { return s.metric(t, "other", "refdb_server_calls") == fmt.Sprint(waiting) })
	if a := r.acquire(t, s.grpc("other"), locking(nextRef)); a.GetAcquired() == nil {
		t.Errorf("%v", a)
	}
	cancel()
	ended.Wait()
}

func TestAnnouncedBodiesThatDoNotArriveTakeNoBytes(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "many", access.Lock, "p", access.All)
	r.allow(t, "other", access.Lock, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	const announced = 40
	for range announced {
		s.dial(t, header(r.tokens["many"], int(server.DefaultLimits.Body))+"{")
	}
	eventually(t, "they are counted", func() bool { return s.metric(t, "other", "refdb_server_calls") == fmt.Sprint(announced) })
	for _, subject := range []string{"many", "other"} {
		if status, text := s.post(t, r.tokens[subject], "Get", `{"project":"p","refs":["HEAD"]}`); status != http.StatusOK {
			t.Errorf("%s: %d %s", subject, status, text)
		}
	}
}

func TestASubjectWithoutARuleIsRefusedBeforeItsBodyIsRead(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	text, _, err := access.CreateToken(t.Context(), r.db, "nobody", time.Hour, "")
	if err != nil {
		t.Fatal(err)
	}
	s := r.serve(t, server.DefaultLimits, nil)
	if status := statusOf(t, s.dial(t, header(text, 500))); status != http.StatusForbidden {
		t.Errorf("%d", status)
	}
	for _, path := range []string{"/metrics", "/v1/watch?project=p"} {
		if status := statusOf(t, s.dial(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+text+"\r\n\r\n")); status != http.StatusForbidden {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// Only calls have bodies. A client that announces a body elsewhere must not keep a connection by it.
func TestTheServerDoesNotWaitForAnUnexpectedBody(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	for begin, want := range map[string]int{
		"POST /x":                          http.StatusNotFound,
		"POST /refdb.v1.RefdbService/../x": http.StatusTemporaryRedirect,
		"POST //refdb.v1.RefdbService/Get": http.StatusTemporaryRedirect,
		"POST /healthz":                    http.StatusMethodNotAllowed,
		"GET /healthz":                     http.StatusOK,
		"GET /readyz":                      http.StatusOK,
		"GET /metrics":                     http.StatusOK,
	} {
		for _, body := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
			c := s.dial(t, begin+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+r.tokens["ci"]+"\r\n"+body+"\r\n\r\n")
			c.SetReadDeadline(time.Now().Add(patience))
			answer := bufio.NewReader(c)
			response, err := http.ReadResponse(answer, nil)
			if err != nil {
				t.Fatal(begin, err)
			}
			if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != want {
				t.Errorf("%s: %s, %v", begin, response.Status, err)
			}
			c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := answer.ReadByte(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s with %s: the connection stays: %v", begin, body, err)
			}
		}
	}
}

func TestLargeAndCompressedRequestsAreRefused(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	s := r.serve(t, server.Limits{Calls: 10, CallsPerSubject: 10, Body: 1 << 20, Bodies: 10 << 20, BodiesPerSubject: 10 << 20, Connections: 100, Streams: 1, StreamsPerSubject: 1, Requests: 16}, nil)
	large := `{"project":"` + strings.Repeat("x", 2<<20) + `"}`
	for what, body := range map[string]func() io.Reader{
		"with its length": func() io.Reader { return strings.NewReader(large) },
		"without":         func() io.Reader { return io.MultiReader(strings.NewReader(large)) },
	} {
		// The server closes the connection while the client still sends: the client may miss the response.
		eventually(t, what, func() bool {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/refdb.v1.RefdbService/Get", body())
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Content-Type", "application/json")
			q.Header.Set("Authorization", "Bearer "+r.tokens["ci"])
			response, err := patient(http.DefaultTransport).Do(q)
			if err != nil {
				return false
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err == nil && (response.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "too large")) {
				t.Errorf("%s: %s %s", what, response.Status, text)
			}
			return err == nil
		})
	}
	var bomb strings.Builder
	z := gzip.NewWriter(&bomb)
	if _, err := io.WriteString(z, `{"project":"`+strings.Repeat("x", 8<<20)+`"}`); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	zipped, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/refdb.v1.RefdbService/Get", strings.NewReader(bomb.String()))
	if err != nil {
		t.Fatal(err)
	}
	zipped.Header.Set("Content-Type", "application/json")
	zipped.Header.Set("Content-Encoding", "gzip")
	zipped.Header.Set("Authorization", "Bearer "+r.tokens["ci"])
	if status, text := do(t, zipped); status != http.StatusNotFound && status != http.StatusNotImplemented || !strings.Contains(text, "unimplemented") {
		t.Errorf("compressed: %d %s", status, text)
	}
	if _, err := s.zipped("ci").Get(t.Context(), connect.NewRequest(&refdbv1.GetRequest{Project: "p", Refs: []string{"HEAD"}})); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("a client that compresses: %v", err)
	}
}

// The limit for reading a body must not end a call that goes on after it.
func TestACallLastsLongerThanTheLimitForItsBody(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a call that lasts for 16 seconds; make test-all runs it")
	}
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	r.acquire(t, s.plain("ci"), locking(mainRef))
	a := locking(mainRef)
	a.Wait = durationpb.New(16 * time.Second)
	began := time.Now()
	if got := r.acquire(t, s.plain("ci"), a); got.GetLocked() == nil || time.Since(began) < 16*time.Second {
		t.Errorf("%v after %s", got, time.Since(began))
	}
}

func TestTheServerDoesNotWaitLongForALoginThatDoesNotArrive(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: logins that do not arrive within 15 seconds; make test-all runs it")
	}
	for _, begin := range []string{
		"POST /ui/login HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
		"POST /ui/login HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: cross-site\r\nContent-Length: 10\r\n\r\n",
		"POST /ui%2Flogin HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
	} {
		t.Run(begin[:strings.Index(begin, " HTTP")], func(t *testing.T) {
			t.Parallel()
			r := inMemory(t)
			r.page = "/ui"
			c := r.serve(t, server.DefaultLimits, nil).dial(t, begin)
			c.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection stays")
			}
		})
	}
}

func TestTheServerDoesNotWaitLongForABodyThatDoesNotArrive(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a request whose body does not arrive within 15 seconds; make test-all runs it")
	}
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	c := s.dial(t, header(r.tokens["ci"], 500)+"{")
	if status := statusOf(t, c); status != http.StatusRequestTimeout && status != http.StatusGatewayTimeout {
		t.Errorf("%d", status)
	}
	eventually(t, "its place is free", func() bool { return s.metric(t, "ci", "refdb_server_calls") == "0" })
}
