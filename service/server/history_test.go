package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

const secretRef = "refs/secret/plan"

// logged returns all pages of a log, from two servers in turn, as "REF=VALUE" with the last part of REF.
func (r *rig) logged(t *testing.T, clients [2]refdbv1connect.RefdbServiceClient, q *refdbv1.LogRequest) (shown string, pages int) {
	t.Helper()
	for ; ; pages++ {
		response, err := clients[pages%2].Log(t.Context(), connect.NewRequest(q))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range response.Msg.Changes {
			shown += c.Ref[strings.LastIndex(c.Ref, "/")+1:] + "=" + c.New + " "
		}
		if q.PageToken = response.Msg.NextPageToken; q.PageToken == "" {
			return strings.TrimSpace(shown), pages + 1
		}
		if strings.Contains(q.PageToken, "secret") {
			t.Errorf("a token names a ref that the caller may not read: %s", q.PageToken)
		}
	}
}

func TestTheLogShowsWhatTheSubjectMayRead(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.allow(t, "ci", access.Read, "p", "refs/heads/*")
		for _, v := range []refdb.Value{"1", "2", "3"} {
			err := r.db.Update(t.Context(), "p", []refdb.Update{
				{Ref: mainRef, Old: before(v), New: v}, {Ref: nextRef, Old: before(v), New: v}, {Ref: secretRef, Old: before(v), New: v},
			}, refdb.By("jo"))
			if err != nil {
				t.Fatal(err)
			}
			r.put(t, "p", secretRef+string(v), v)
		}
		r.put(t, "other", mainRef, "x")
		first, second := r.serve(t, server.DefaultLimits, nil), r.serve(t, server.DefaultLimits, nil)
		clients := [2]refdbv1connect.RefdbServiceClient{first.plain("ci"), second.grpc("ci")}
		for size := range int32(8) { // 0 is the default
			if got, _ := r.logged(t, clients, &refdbv1.LogRequest{Project: "p", PageSize: size}); got != "next=3 main=3 next=2 main=2 next=1 main=1" {
				t.Errorf("pages of %d: %s", size, got)
			}
			if got, _ := r.logged(t, clients, &refdbv1.LogRequest{Project: "p", Ref: mainRef, PageSize: size}); got != "main=3 main=2 main=1" {
				t.Errorf("of a ref, pages of %d: %s", size, got)
			}
		}
		got, err := clients[0].Log(t.Context(), connect.NewRequest(&refdbv1.LogRequest{Project: "p", Ref: mainRef, PageSize: 1}))
		if err != nil {
			t.Fatal(err)
		}
		if c := got.Msg.Changes[0]; c.Old != "2" || c.New != "3" || c.By != "jo" || c.Owner != r.db.Owner() || c.Position == 0 || c.Time.AsTime().Before(time.Now().Add(-patience)) {
			t.Errorf("%v", c)
		}
		for _, q := range []*refdbv1.LogRequest{{Project: "p", Ref: secretRef}, {Project: "other"}} {
			if _, err := clients[0].Log(t.Context(), connect.NewRequest(q)); connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("%v: %v", q, err)
			}
		}
		for _, token := range []string{"x", "-1", "1:", "1:no\nref", "1:..", secretRef} {
			if _, err := clients[0].Log(t.Context(), connect.NewRequest(&refdbv1.LogRequest{Project: "p", PageToken: token})); connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("token %q: %v", token, err)
			}
		}
	})
}

// before returns the number before v; nothing before 1.
func before(v refdb.Value) refdb.Value {
	if v == "1" {
		return ""
	}
	return refdb.Value([]byte{v[0] - 1})
}

// A call looks at some thousand changes, and its token lets the next one go on.
func TestPagesOfALogEndThoughTheSubjectMayReadNothing(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", "refs/heads/*")
	r.put(t, "p", mainRef, "1")
	const transactions, each = 20, 700
	for i := range transactions {
		var updates []refdb.Update
		for n := range each {
			updates = append(updates, refdb.Update{Ref: fmt.Sprintf("%s/%d-%d", secretRef, i, n), New: "x"})
		}
		if err := r.db.Update(t.Context(), "p", updates); err != nil {
			t.Fatal(err)
		}
	}
	s := r.serve(t, server.DefaultLimits, nil)
	got, pages := r.logged(t, [2]refdbv1connect.RefdbServiceClient{s.plain("ci"), s.plain("ci")}, &refdbv1.LogRequest{Project: "p"})
	if got != "main=1" || pages != 3 {
		t.Errorf("%d pages: %s", pages, got)
	}
}

func TestThePastIsReadByTimeAndByPosition(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.allow(t, "ci", access.Read, "p", "refs/heads/*")
		r.allow(t, "ci", access.Read, "p", "refs/tags/v1")
		for _, ref := range []string{mainRef, nextRef, "refs/tags/v1", "refs/tags/v2", secretRef} {
			r.put(t, "p", ref, "old")
		}
		position := func() refdb.Position {
			t.Helper()
			state, err := r.db.HistoryState(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for begun := state.Begun; state.Upto < begun; { // on PostgreSQL a position is complete moments later
				if state, err = r.db.HistoryState(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			return state.Upto
		}
		then := position()
		now, err := r.db.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the database's clock goes on", func() bool {
			later, err := r.db.Now(t.Context())
			return err == nil && later.After(now)
		})
		if err := r.db.Update(t.Context(), "p", []refdb.Update{{Ref: mainRef, Old: "old", New: "new"}, {Ref: nextRef, Old: "old", New: refdb.Deleted}}); err != nil {
			t.Fatal(err)
		}
		last := position()
		first, second := r.serve(t, server.DefaultLimits, nil), r.serve(t, server.DefaultLimits, nil)
		clients := [2]refdbv1connect.RefdbServiceClient{first.plain("ci"), second.grpc("ci")}
		at := func(q *refdbv1.AtRequest) (shown string) {
			t.Helper()
			for page := 0; ; page++ {
				response, err := clients[page%2].At(t.Context(), connect.NewRequest(q))
				if err != nil {
					t.Fatal(err)
				}
				for _, ref := range response.Msg.Refs {
					shown += ref.Name[strings.LastIndex(ref.Name, "/")+1:] + "=" + strings.Replace(ref.Value, string(refdb.Deleted), "deleted", 1) + " "
				}
				if q.PageToken = response.Msg.NextPageToken; q.PageToken == "" {
					return strings.TrimSpace(shown)
				}
				q.When = &refdbv1.AtRequest_Position{Position: response.Msg.Position}
			}
		}
		byPosition := func(p refdb.Position, q *refdbv1.AtRequest) string {
			q.Project, q.When = "p", &refdbv1.AtRequest_Position{Position: int64(p)}
			return at(q)
		}
		for size := range int32(4) {
			if got := byPosition(then, &refdbv1.AtRequest{PageSize: size}); got != "main=old next=old v1=old" {
				t.Errorf("pages of %d: %s", size, got)
			}
			if got := at(&refdbv1.AtRequest{Project: "p", When: &refdbv1.AtRequest_Time{Time: timestamppb.New(now)}, PageSize: size}); got != "main=old next=old v1=old" {
				t.Errorf("by time, pages of %d: %s", size, got)
			}
			if got := byPosition(last, &refdbv1.AtRequest{PageSize: size}); got != "main=new v1=old" {
				t.Errorf("later, pages of %d: %s", size, got)
			}
		}
		if got := byPosition(last, &refdbv1.AtRequest{Prefix: "refs/heads/"}); got != "main=new" {
			t.Errorf("with a prefix: %s", got)
		}
		if got := byPosition(last, &refdbv1.AtRequest{Refs: []string{nextRef, mainRef, "refs/heads/mai"}}); got != "mai= main=new next=deleted" {
			t.Errorf("by name: %s", got)
		}
		for body, want := range map[string]int{
			`{"project":"p","position":"` + fmt.Sprint(last) + `","refs":["refs/secret/plan"]}`: http.StatusForbidden,
			`{"project":"p"}`: http.StatusBadRequest,
			`{"project":"p","position":"` + fmt.Sprint(last+1000000) + `"}`:                                  http.StatusBadRequest,
			`{"project":"p","position":"-2"}`:                                                                http.StatusBadRequest,
			`{"project":"p","time":"2001-01-01T00:00:00Z"}`:                                                  http.StatusBadRequest,
			`{"project":"p","time":"2001-01-01T00:00:00Z","pageToken":"refs/heads/main"}`:                    http.StatusBadRequest,
			`{"project":"p","position":"` + fmt.Sprint(last) + `","refs":["refs/heads/main"],"pageSize":10}`: http.StatusBadRequest,
		} {
			if status, text := first.post(t, r.tokens["ci"], "At", body); status != want {
				t.Errorf("%s: %d %s", body, status, text)
			}
		}
		if _, err := r.db.Operator().PruneHistory(t.Context(), operator.PruneOptions{}); err != nil {
			t.Fatal(err)
		}
		if status, text := first.post(t, r.tokens["ci"], "At", fmt.Sprintf(`{"project":"p","position":"%d"}`, then)); status != http.StatusBadRequest || !strings.Contains(text, "out_of_range") {
			t.Errorf("what was pruned: %d %s", status, text)
		}
	})
}
