package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/globalrefdb/globalrefdb/internal/testissuer"
	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A watching is a stream, which somebody reads.
type watching struct {
	*connect.ServerStreamForClient[refdbv1.WatchResponse]
	end    context.CancelFunc
	cursor string // of the last response
}

// watch opens a stream, and waits for its first response, which has a cursor.
func watch(t *testing.T, c refdbv1connect.RefdbServiceClient, q *refdbv1.WatchRequest) *watching {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), patience)
	t.Cleanup(end)
	stream, err := c.Watch(ctx, connect.NewRequest(q))
	if err != nil {
		t.Fatal(err)
	}
	return &watching{stream, end, ""}
}

// next returns the next changes, as "REF=VALUE" with the last part of REF. A heartbeat has none.
func (w *watching) next(t *testing.T) (shown string) {
	t.Helper()
	if !w.Receive() {
		t.Fatalf("the stream has ended: %v", w.Err())
	}
	w.cursor = w.Msg().Cursor
	for _, c := range w.Msg().Changes {
		shown += " " + c.Ref[strings.LastIndex(c.Ref, "/")+1:] + "=" + c.New
	}
	return strings.TrimSpace(shown)
}

// until reads until it has read a change.
func (w *watching) until(t *testing.T, last string) string {
	t.Helper()
	var all []string
	for !slices.Contains(all, last) {
		all = append(all, strings.Fields(w.next(t))...)
	}
	return strings.Join(all, " ")
}

// ask is post for every method. Watch is answered with the status that a call would have, and the first response.
func (s *serving) ask(t *testing.T, token, method, body string) (status int, text string) {
	t.Helper()
	if method != "Watch" {
		return s.post(t, token, method, body)
	}
	q := &refdbv1.WatchRequest{}
	if err := protojson.Unmarshal([]byte(body), q); err != nil {
		t.Fatal(err)
	}
	w := watch(t, refdbv1connect.NewRefdbServiceClient(patient(bearing(token)), s.url, connect.WithProtoJSON()), q)
	defer w.end()
	if w.Receive() {
		return http.StatusOK, w.Msg().String()
	}
	return map[connect.Code]int{
		connect.CodePermissionDenied: http.StatusForbidden, connect.CodeUnauthenticated: http.StatusUnauthorized,
	}[connect.CodeOf(w.Err())], w.Err().Error()
}

// failure reads until the stream ends, and returns the code.
func (w *watching) failure() connect.Code {
	for w.Receive() {
	}
	return connect.CodeOf(w.Err())
}

func TestAStreamThatGoesOnFromItsCursorMissesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.allow(t, "ci", access.Read, "p", "refs/heads/*")
		r.put(t, "p", mainRef, "0")
		first, second := r.serve(t, server.DefaultLimits, nil), r.serve(t, server.DefaultLimits, nil)
		w := watch(t, first.plain("ci"), &refdbv1.WatchRequest{Project: "p"})
		if got := w.next(t); got != "" || w.cursor == "" {
			t.Errorf("first %q with the cursor %q", got, w.cursor)
		}
		r.put(t, "p", mainRef, "1")
		r.put(t, "p", secretRef, "1")
		r.put(t, "p", mainRef, "2")
		if got := w.until(t, "main=2"); got != "main=1 main=2" {
			t.Errorf("%s", got)
		}
		w.end()
		r.put(t, "p", secretRef, "3")
		r.put(t, "p", nextRef, "3")
		r.put(t, "p", mainRef, "3")
		for name, c := range map[string]refdbv1connect.RefdbServiceClient{"Connect": second.plain("ci"), "gRPC": second.grpc("ci")} {
			again := watch(t, c, &refdbv1.WatchRequest{Project: "p", Cursor: w.cursor})
			if got := again.until(t, "main=3"); got != "next=3 main=3" {
				t.Errorf("%s: %s", name, got)
			}
			again.end()
			begin := watch(t, c, &refdbv1.WatchRequest{Project: "p", Prefix: mainRef, Cursor: "begin"})
			if got := begin.until(t, "main=3"); got != "main=0 main=1 main=2 main=3" {
				t.Errorf("%s, from the beginning: %s", name, got)
			}
			begin.end()
		}
	})
}

// An event is one that a server sent.
type event struct{ kind, id, data string }

// events opens a stream of server-sent events, and returns what reads one.
func (s *serving) events(t *testing.T, subject, query, lastID string) (status int, next func() event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/watch?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+s.rig.tokens[subject])
	q.Header.Set("Accept", "text/event-stream")
	if lastID != "" {
		q.Header.Set("Last-Event-ID", lastID)
	}
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); response.Body.Close() })
	lines := bufio.NewScanner(response.Body)
	return response.StatusCode, func() (e event) {
		t.Helper()
		for lines.Scan() {
			key, value, _ := strings.Cut(lines.Text(), ": ")
			switch key {
			case "event":
				e.kind = value
			case "id":
				e.id = value
			case "data":
				e.data = value
			case "":
				return e
			}
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return e
	}
}

func TestServerSentEventsGoOnFromTheLastOne(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.allow(t, "ci", access.Read, "p", "refs/heads/*")
		first, second := r.serve(t, server.DefaultLimits, nil), r.serve(t, server.DefaultLimits, nil)
		status, next := first.events(t, "ci", "project=p&prefix=refs/heads/", "")
		begin := next()
		if status != http.StatusOK || begin.kind != "heartbeat" || begin.id == "" {
			t.Errorf("%d %+v", status, begin)
		}
		changes := func(next func() event) event {
			for {
				if e := next(); e.kind != "heartbeat" {
					return e
				}
			}
		}
		r.put(t, "p", mainRef, "line\nbreak")
		one := changes(next)
		if one.kind != "changes" || !strings.Contains(one.data, `line\nbreak`) || !strings.Contains(one.data, one.id) {
			t.Errorf("%+v", one)
		}
		r.put(t, "p", mainRef, "2")
		_, next = second.events(t, "ci", "project=p&cursor="+begin.id, one.id) // the header is later than the URL
		if e := changes(next); !strings.Contains(e.data, `"2"`) || strings.Count(e.data, `"ref"`) != 1 {
			t.Errorf("%+v", e)
		}
		for query, want := range map[string]int{"project=other": http.StatusForbidden, "project=p&cursor=x": http.StatusBadRequest, "project=p&since=x": http.StatusBadRequest, "project=p&project=q": http.StatusBadRequest} {
			if status, _ := second.events(t, "ci", query, ""); status != want {
				t.Errorf("%s: %d", query, status)
			}
		}
		head, err := http.NewRequestWithContext(t.Context(), http.MethodHead, second.url+"/v1/watch?project=p", nil)
		if err != nil {
			t.Fatal(err)
		}
		head.Header.Set("Authorization", "Bearer "+r.tokens["ci"])
		if status, _ := do(t, head); status != http.StatusMethodNotAllowed {
			t.Errorf("HEAD: %d", status)
		}
		first.Drain()
		second.Drain()
		if e := changes(next); e.kind != "end" || !strings.Contains(e.data, "unavailable") {
			t.Errorf("%+v", e)
		}
	})
}

func TestAStreamEndsWithTheRightTheCredentialAndTheServer(t *testing.T) {
	t.Parallel()
	r, i := inMemory(t), testissuer.New(t)
	r.trust(i)
	r.allow(t, pipeline, access.Read, "p", access.All)
	for _, subject := range []string{"denied", "revoked", "drained"} {
		r.allow(t, subject, access.Read, "p", access.All)
	}
	s := r.serve(t, server.DefaultLimits, nil)
	open := func(subject string) *watching {
		w := watch(t, s.plain(subject), &refdbv1.WatchRequest{Project: "p"})
		w.next(t)
		return w
	}
	denied, revoked, drained := open("denied"), open("revoked"), open("drained")
	eventually(t, "the keys are read", func() bool {
		status, _ := s.post(t, jwt(t, i, time.Hour), "Get", getMain)
		return status == http.StatusOK
	})
	r.tokens[pipeline] = jwt(t, i, 5*time.Second)
	expiring := watch(t, s.plain(pipeline), &refdbv1.WatchRequest{Project: "p"})
	_, next := s.events(t, "denied", "project=p", "")
	records, err := access.ReadRecords(t.Context(), r.db)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range records.Rules {
		if rule.Subject == "denied" {
			err = access.RemoveRule(t.Context(), r.db, rule.ID)
		}
	}
	for _, token := range records.Tokens {
		if token.Subject == "revoked" && err == nil {
			err = access.RevokeToken(t.Context(), r.db, token.ID)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if code := denied.failure(); code != connect.CodePermissionDenied {
		t.Errorf("without the right: %s", code)
	}
	e := next()
	for e.kind == "heartbeat" {
		e = next()
	}
	if e.kind != "end" || !strings.Contains(e.data, "permission_denied") {
		t.Errorf("server-sent events: %+v", e)
	}
	if code := revoked.failure(); code != connect.CodeUnauthenticated {
		t.Errorf("with a revoked token: %s", code)
	}
	if code := expiring.failure(); code != connect.CodeUnauthenticated {
		t.Errorf("with a JWT that has expired: %s", code)
	}
	s.Drain()
	if code := drained.failure(); code != connect.CodeUnavailable {
		t.Errorf("when the server stops: %s", code)
	}
}

func TestStreamsHaveLimitsOfTheirOwn(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	for _, subject := range []string{"ci", "other", "third"} {
		r.allow(t, subject, access.Read, "p", access.All)
	}
	limits := server.DefaultLimits
	limits.Calls, limits.CallsPerSubject, limits.Requests, limits.Streams, limits.StreamsPerSubject = 1, 1, 4, 5, 4
	s := r.serve(t, limits, nil)
	open := func(subject string) connect.Code {
		w := watch(t, s.plain(subject), &refdbv1.WatchRequest{Project: "p"})
		if w.Receive() {
			return 0
		}
		return connect.CodeOf(w.Err())
	}
	for range 4 {
		if code := open("ci"); code != 0 {
			t.Fatalf("%s", code)
		}
	}
	if code := open("ci"); code != connect.CodeResourceExhausted {
		t.Errorf("one more of the subject: %v", code)
	}
	if code := open("other"); code != 0 {
		t.Errorf("of another subject: %v", code)
	}
	if code := open("third"); code != connect.CodeResourceExhausted {
		t.Errorf("one more of all: %v", code)
	}
	if status, text := s.post(t, r.tokens["ci"], "Get", `{"project":"p","refs":["refs/heads/main"]}`); status != http.StatusOK {
		t.Errorf("a call: %d %s", status, text)
	}
	if status, _ := s.events(t, "third", "project=p", ""); status != http.StatusTooManyRequests {
		t.Errorf("server-sent events: %d", status)
	}
	for reason, want := range map[string]string{"subject_streams": "1", "streams": "2", "subject_calls": "0", "calls": "0"} {
		if got := s.metric(t, "ci", fmt.Sprintf("refdb_server_rejected_total{reason=%q}", reason)); got != want {
			t.Errorf("%s: %q were rejected, not %s", reason, got, want)
		}
	}
}

// A transaction takes its position when it first writes, and may commit after those with larger ones.
func TestAWriteUnderWayWhenACursorIsMadeIsNotSkipped(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: transactions of PostgreSQL that commit out of order; make test-all runs it")
	}
	t.Parallel()
	kind := local.PostgresKind()
	url := kind.New(t).URL()
	r := at(t, "PostgreSQL", kind, url)
	r.allow(t, "ci", access.Read, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	if _, err := c.Exec(t.Context(), `BEGIN; INSERT INTO refs (project, ref, value) VALUES ('p', 'refs/heads/slow', '1')`); err != nil {
		t.Fatal(err)
	}
	r.put(t, "p", "refs/heads/fast", "1")
	w := watch(t, s.plain("ci"), &refdbv1.WatchRequest{Project: "p"})
	w.next(t)
	w.end()
	if _, err := c.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	again := watch(t, s.plain("ci"), &refdbv1.WatchRequest{Project: "p", Cursor: w.cursor})
	if got := again.until(t, "fast=1"); got != "slow=1 fast=1" {
		t.Errorf("%s", got)
	}
}

func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: it takes the 10 seconds that a client has; make test-all runs it")
	}
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	s.events(t, "ci", "project=p&cursor=begin", "") // nobody reads on
	value := strings.Repeat("x", 4000)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				if _, err := r.db.Put(context.WithoutCancel(t.Context()), "p", mainRef, refdb.Value(fmt.Sprint(n, value))); err != nil {
					return
				}
			}
		}
	}()
	eventually(t, "the stream is counted as slow", func() bool {
		return s.metric(t, "ci", `refdb_server_calls_total{method="/refdb.v1.RefdbService/Watch",result="resource_exhausted"}`) == "1"
	})
}
