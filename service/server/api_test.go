package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

func do(t *testing.T, r *http.Request) (int, string) {
	t.Helper()
	response, err := patient(http.DefaultTransport).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func locking(refs ...string) *refdbv1.AcquireRequest {
	return &refdbv1.AcquireRequest{Project: "p", Refs: refs, LeaseTime: durationpb.New(time.Minute)}
}

func moving(ref, from, to string) *refdbv1.UpdateRequest {
	return &refdbv1.UpdateRequest{Project: "p", Updates: []*refdbv1.RefUpdate{{Ref: ref, Old: from, New: to}}}
}

func update(t *testing.T, c refdbv1connect.RefdbServiceClient, r *refdbv1.UpdateRequest) *refdbv1.UpdateResponse {
	t.Helper()
	response, err := c.Update(t.Context(), connect.NewRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	return response.Msg
}

// Each method needs its right, on the very project and ref.
func TestEachMethodNeedsItsRight(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.put(t, "p", mainRef, one)
	r.place(t, "stored", "enforce", "all")
	r.put(t, "stored", mainRef, one)
	rights := []access.Right{access.Read, access.Lock, access.Write, access.Administer}
	for _, right := range rights {
		r.allow(t, string(right), right, "p", "refs/heads/*")
		r.allow(t, string(right), right, "stored", "refs/heads/*")
		r.allow(t, string(right)+" of others", right, "other", access.All)
		r.allow(t, string(right)+" of others", right, "p", "refs/tags/*")
	}
	r.allow(t, "none", access.Read, "elsewhere", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	state, err := r.db.HistoryState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	position := fmt.Sprint(state.Upto)
	const lock = `{"project":"p","refs":["refs/heads/main"],"owner":"/%s/x","token":"1"}`
	rows := map[string]bool{}
	for _, m := range []struct {
		method, body string
		needs        access.Right
	}{
		{"Get", `{"project":"p","refs":["refs/heads/main"]}`, access.Read},
		{"List", `{"project":"p","prefix":"refs/heads/"}`, access.Read},
		{"IsUpToDate", `{"project":"p","ref":"refs/heads/main","local":"x"}`, access.Read},
		{"Log", `{"project":"p","ref":"refs/heads/main"}`, access.Read},
		{"At", `{"project":"p","position":"` + position + `","refs":["refs/heads/main"]}`, access.Read},
		{"Watch", `{"project":"p","prefix":"refs/heads/"}`, access.Read},
		{"Acquire", `{"project":"p","refs":["refs/heads/lock"],"leaseTime":"1s"}`, access.Lock},
		{"Extend", `{"lock":` + lock + `}`, access.Lock},
		{"Release", `{"lock":` + lock + `}`, access.Lock},
		{"Update", `{"project":"p","updates":[{"ref":"refs/heads/main","old":"no","new":"x"}]}`, access.Write},
		{"Update", `{"project":"stored","updates":[{"ref":"refs/heads/main","old":"no","new":"x"}]}`, access.Administer},
	} {
		rows[m.method] = true
		for _, right := range rights {
			has := right == m.needs || right == access.Administer || m.needs == access.Read
			body := m.body
			if strings.Contains(body, "%s") {
				body = fmt.Sprintf(body, right)
			}
			want := http.StatusForbidden
			if has {
				want = http.StatusOK
			}
			if status, text := s.ask(t, r.tokens[string(right)], m.method, body); status != want {
				t.Errorf("%s with %s: %d %s", m.method, right, status, text)
			}
			others := string(right) + " of others"
			if strings.Contains(m.body, "%s") {
				body = fmt.Sprintf(m.body, others)
			}
			status, text := s.ask(t, r.tokens[others], m.method, body)
			if m.method == "List" || m.method == "Watch" { // they show what the subject may see
				if status != http.StatusOK || strings.Contains(text, mainRef) {
					t.Errorf("%s with rights on other refs: %d %s", m.method, status, text)
				}
			} else if status != http.StatusForbidden {
				t.Errorf("%s with %s on other refs: %d %s", m.method, right, status, text)
			}
		}
		if status, text := s.ask(t, r.tokens["none"], m.method, m.body); status != http.StatusForbidden {
			t.Errorf("%s without a right: %d %s", m.method, status, text)
		}
		if status, text := s.ask(t, "", m.method, m.body); status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", m.method, status, text)
		}
	}
	for _, method := range methods() {
		if !rows[method] {
			t.Errorf("%s has no row: which right does it need?", method)
		}
	}
}

// methods returns the names of all methods of the API.
func methods() (all []string) {
	of := refdbv1.File_refdb_v1_refdb_proto.Services().ByName("RefdbService").Methods()
	for i := range of.Len() {
		all = append(all, string(of.Get(i).Name()))
	}
	return all
}

func TestTheRecordsOfSitesAndTokensAreOutOfReach(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "root", access.Administer, access.All, access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	for method, body := range map[string]string{
		"Get":     `{"project":"refdb/sites","refs":["refs/sites/eu-1"]}`,
		"List":    `{"project":"refdb/sites"}`,
		"Log":     `{"project":"refdb/sites"}`,
		"At":      `{"project":"refdb/sites","position":"1"}`,
		"Acquire": `{"project":"refdb/sites","refs":["refs/sites/eu-1"],"leaseTime":"10s"}`,
		"Update":  `{"project":"refdb/sites","updates":[{"ref":"refs/access/rules/x","new":"x"}]}`,
	} {
		if status, text := s.post(t, r.tokens["root"], method, body); status != http.StatusForbidden {
			t.Errorf("%s: %d %s", method, status, text)
		}
	}
}

func TestALockOutlivesItsConnectionAndItsServer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.put(t, "p", mainRef, one)
		r.allow(t, "ci", access.Lock, "p", access.All)
		r.allow(t, "ci", access.Write, "p", access.All)
		r.allow(t, "thief", access.Lock, "p", access.All)
		first, second := r.serve(t, server.DefaultLimits, nil), r.serve(t, server.DefaultLimits, nil)
		got := r.acquire(t, first.plain("ci"), locking(nextRef, mainRef)).GetAcquired()
		if got == nil || len(got.Values) != 1 || got.Values[0].Value != one || got.LeaseTime.AsDuration() != time.Minute {
			t.Fatalf("%v", got)
		}
		first.Drain()
		http.DefaultClient.CloseIdleConnections()

		locked := r.acquire(t, second.plain("thief"), locking(mainRef)).GetLocked()
		if locked == nil || len(locked.Holders) != 1 || locked.Holders[0].Subject != "ci" || locked.Holders[0].Ref != mainRef {
			t.Errorf("%v", locked)
		}
		if l := update(t, second.plain("ci"), moving(mainRef, one, two)).GetLocked(); l == nil || l.Holders[0].Subject != "ci" {
			t.Errorf("an update without the lock: %v", l)
		}
		for what, c := range map[string]func() error{
			"Extend": func() error {
				_, err := second.plain("thief").Extend(t.Context(), connect.NewRequest(&refdbv1.ExtendRequest{Lock: got.Lock}))
				return err
			},
			"Release": func() error {
				_, err := second.plain("thief").Release(t.Context(), connect.NewRequest(&refdbv1.ReleaseRequest{Lock: got.Lock}))
				return err
			},
		} {
			if err := c(); connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("%s of another subject's lock: %v", what, err)
			}
		}
		extended, err := second.plain("ci").Extend(t.Context(), connect.NewRequest(&refdbv1.ExtendRequest{Lock: got.Lock}))
		if err != nil || extended.Msg.GetExtended() == nil {
			t.Errorf("%v, %v", extended, err)
		}
		under := moving(mainRef, one, two)
		under.Under = got.Lock
		if u := update(t, second.plain("ci"), under); u.GetUpdated() == nil {
			t.Errorf("under the lock: %v", u)
		}
		last := moving(mainRef, two, three)
		last.Under, last.Release = got.Lock, true
		if u := update(t, second.plain("ci"), last); u.GetUpdated() == nil {
			t.Errorf("with the release: %v", u)
		}
		if l := update(t, second.plain("ci"), last).GetLost(); l == nil || len(l.Refs) == 0 {
			t.Errorf("after the release: %v", l)
		}
		released, err := second.plain("ci").Release(t.Context(), connect.NewRequest(&refdbv1.ReleaseRequest{Lock: got.Lock}))
		if err != nil || released.Msg.GetLost() == nil {
			t.Errorf("released again: %v, %v", released, err)
		}
		if a := r.acquire(t, second.plain("thief"), locking(mainRef)); a.GetAcquired() == nil {
			t.Errorf("the lock was not released: %v", a)
		}
		by := ""
		for c, err := range r.db.History(t.Context(), "p", mainRef) {
			if err != nil {
				t.Fatal(err)
			}
			by = c.By
			break
		}
		if by != "ci" {
			t.Errorf("the history names %q", by)
		}
	})
}

func TestARequestWithAnIDIsRepeatedThroughAnyServer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.allow(t, "ci", access.Administer, "p", access.All)
		r.allow(t, "other", access.Administer, "p", access.All)
		first, second := r.serve(t, server.DefaultLimits, nil), r.serve(t, server.DefaultLimits, nil)
		a := locking(nextRef, mainRef)
		a.RequestId = "f3a1e0c2-0000-4000-8000-000000000001"
		one1 := r.acquire(t, first.plain("ci"), a).GetAcquired()
		again := r.acquire(t, second.plain("ci"), a).GetAcquired()
		if one1 == nil || again == nil || one1.RepeatedRequest || !again.RepeatedRequest || again.Lock.Token != one1.Lock.Token || again.Lock.Owner != one1.Lock.Owner {
			t.Fatalf("%v, then %v", one1, again)
		}
		if l := r.acquire(t, second.plain("other"), a).GetLocked(); l == nil {
			t.Error("another subject repeats the request")
		}
		otherRefs := locking(mainRef)
		otherRefs.RequestId = a.RequestId
		if l := r.acquire(t, second.plain("ci"), otherRefs).GetLocked(); l == nil {
			t.Error("another request with the same ID is taken for a repeat")
		}

		u := moving(mainRef, "", one)
		u.RequestId, u.Under, u.Release = "f3a1e0c2-0000-4000-8000-000000000002", one1.Lock, true
		if got := update(t, first.plain("ci"), u).GetUpdated(); got == nil || got.RepeatedRequest {
			t.Fatalf("%v", got)
		}
		if got := update(t, second.plain("ci"), u).GetUpdated(); got == nil || !got.RepeatedRequest {
			t.Errorf("repeated: %v", got)
		}
		// The ref moves on, and back to what it held.
		update(t, first.plain("other"), moving(mainRef, one, two))
		update(t, first.plain("other"), moving(mainRef, two, string(refdb.Deleted)))
		if got := update(t, second.plain("ci"), u).GetUpdated(); got == nil || !got.RepeatedRequest {
			t.Errorf("repeated late: %v", got)
		}
		if v, err := r.db.Get(t.Context(), "p", mainRef); err != nil || !v.IsDeleted() {
			t.Errorf("the repeat was carried out: the ref holds %q, %v", v, err)
		}
		different := moving(mainRef, "", three)
		different.RequestId = u.RequestId
		if got := update(t, second.plain("ci"), different).GetUpdated(); got == nil || got.RepeatedRequest {
			t.Errorf("another update with the same ID: %v", got)
		}
		if m := update(t, second.plain("ci"), moving(mainRef, one, two)).GetMismatched(); m == nil || m.Mismatches[0].Value != three || m.Mismatches[0].Expected != one {
			t.Errorf("%v", m)
		}
	})
}

func TestAWaitEndsWithTheLockOrTheServer(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	held := r.acquire(t, s.plain("ci"), locking(mainRef)).GetAcquired()
	wait := func() <-chan *refdbv1.AcquireResponse {
		got := make(chan *refdbv1.AcquireResponse, 1)
		go func() {
			a := locking(mainRef)
			a.Wait = durationpb.New(30 * time.Second)
			response, err := s.plain("ci").Acquire(context.WithoutCancel(t.Context()), connect.NewRequest(a))
			if err != nil {
				t.Error(err)
				close(got)
				return
			}
			got <- response.Msg
		}()
		return got
	}
	first := wait()
	if _, err := s.plain("ci").Release(t.Context(), connect.NewRequest(&refdbv1.ReleaseRequest{Lock: held.Lock})); err != nil {
		t.Fatal(err)
	}
	if got := <-first; got.GetAcquired() == nil {
		t.Errorf("%v", got)
	}
	second := wait()
	s.Drain()
	if got := <-second; got.GetLocked() == nil {
		t.Errorf("%v", got)
	}
}

func TestAListHasWhatTheSubjectMayRead(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for i := range 7 {
			r.put(t, "p", fmt.Sprintf("refs/a/%d", i), one)
			r.put(t, "p", fmt.Sprintf("refs/b/%d", i), one)
			r.put(t, "p", fmt.Sprintf("refs/c/%d", i), one)
		}
		r.put(t, "p", "refs/c/5", refdb.Deleted)
		r.allow(t, "all", access.Read, "p", access.All)
		r.allow(t, "some", access.Read, "p", "refs/a/*")
		r.allow(t, "some", access.Lock, "p", "refs/c/3")
		r.allow(t, "some", access.Lock, "p", "refs/c/5")
		r.allow(t, "some", access.Lock, "p", "refs/c/6")
		s := r.serve(t, server.DefaultLimits, nil)
		for _, row := range []struct {
			subject, prefix string
			want            string
		}{
			{"all", "", "a0 a1 a2 a3 a4 a5 a6 b0 b1 b2 b3 b4 b5 b6 c0 c1 c2 c3 c4 c6"},
			{"some", "", "a0 a1 a2 a3 a4 a5 a6 c3 c6"},
			{"some", "refs/b/", ""},
			{"some", "refs/c/", "c3 c6"},
			{"some", "refs/a/3", "a3"},
		} {
			for _, size := range []int32{0, 1, 2, 3, 7, 9} {
				var names []string
				token := ""
				for pages := 0; ; pages++ {
					response, err := s.plain(row.subject).List(t.Context(), connect.NewRequest(&refdbv1.ListRequest{Project: "p", Prefix: row.prefix, PageSize: size, PageToken: token}))
					if err != nil || pages > 30 {
						t.Fatal(pages, err)
					}
					for _, ref := range response.Msg.Refs {
						names = append(names, strings.ReplaceAll(strings.TrimPrefix(ref.Name, "refs/"), "/", ""))
					}
					if size > 0 && len(response.Msg.Refs) > int(size) {
						t.Errorf("a page of %d has %d", size, len(response.Msg.Refs))
					}
					if token = response.Msg.NextPageToken; token == "" {
						break
					}
				}
				if got := strings.Join(names, " "); got != row.want {
					t.Errorf("%s below %q in pages of %d: %s", row.subject, row.prefix, size, got)
				}
			}
		}
	})
}

func TestGetHasEachRequestedRef(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", access.All)
	r.put(t, "p", mainRef, one)
	r.put(t, "p", nextRef, one)
	r.put(t, "p", nextRef, refdb.Deleted)
	s := r.serve(t, server.DefaultLimits, nil)
	status, text := s.post(t, r.tokens["ci"], "Get", `{"project":"p","refs":["refs/heads/next","refs/heads/main","refs/heads/unknown"]}`)
	order := []string{`"name":"refs/heads/main"`, one, `"name":"refs/heads/next"`, string(refdb.Deleted), `"name":"refs/heads/unknown"`}
	rest := strings.ReplaceAll(text, " ", "")
	for _, want := range order {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("%d %s lacks %s in its place", status, text, want)
		}
		rest = after
	}
	for local, want := range map[string]bool{one: true, two: false, "": false} {
		response, err := s.plain("ci").IsUpToDate(t.Context(), connect.NewRequest(&refdbv1.IsUpToDateRequest{Project: "p", Ref: mainRef, Local: local}))
		if err != nil || response.Msg.UpToDate != want || response.Msg.Value != one {
			t.Errorf("local %q: %v, %v", local, response, err)
		}
	}
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Administer, "*", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	many := strings.Repeat(`"refs/heads/x",`, 1000) + `"refs/heads/x"`
	for body, method := range map[string]string{
		`{"project":"p","refs":["main"],"leaseTime":"10s"}`:                                                        "Acquire",
		`{"project":"p","refs":[],"leaseTime":"10s"}`:                                                              "Acquire",
		`{"project":"p","refs":["refs/heads/x"]}`:                                                                  "Acquire",
		`{"project":"p","refs":["refs/heads/x"],"leaseTime":"0.5s"}`:                                               "Acquire",
		`{"project":"p","refs":["refs/heads/x"],"leaseTime":"3601s"}`:                                              "Acquire",
		`{"project":"p","refs":["refs/heads/x"],"leaseTime":"10s","wait":"31s"}`:                                   "Acquire",
		`{"project":"p","refs":["refs/heads/x"],"leaseTime":"10s","wait":"-1s"}`:                                   "Acquire",
		`{"project":"p","refs":["refs/heads/x"],"leaseTime":"10s","requestId":"short"}`:                            "Acquire",
		`{"project":"p","refs":[` + many + `],"leaseTime":"10s"}`:                                                  "Acquire",
		`{"project":"p","refs":[` + many + `]}`:                                                                    "Get",
		`{"project":"","refs":["refs/heads/x"]}`:                                                                   "Get",
		`{"project":"p","ref":"` + strings.Repeat("\\u0001", 3000) + `"}`:                                          "IsUpToDate",
		`{"project":"p","pageSize":1001}`:                                                                          "List",
		`{"project":"p","pageToken":"x"}`:                                                                          "List",
		`{}`:                                                                                                       "Extend",
		`{"lock":{}}`:                                                                                              "Release",
		`{"project":"p","updates":[null]}`:                                                                         "Update",
		`{"project":"p","updates":[{"ref":"refs/heads/x","new":""}]}`:                                              "Update",
		`{"project":"p","release":true,"updates":[{"ref":"refs/heads/x","new":"1"}]}`:                              "Update",
		`{"project":"p","updates":[{"ref":"refs/heads/x","new":"1"},{"ref":"refs/heads/x","new":"2"}]}`:            "Update",
		`{"project":"p","updates":[{"ref":"refs/heads/x","new":"1"}],"under":{"project":"q","owner":"/ci/x"}}`:     "Update",
		`{"project":"p","updates":[{"ref":"refs/heads/x","new":"1"}],"under":{"project":"p","owner":"eu-1/x"}}`:    "Update",
		`{"project":"p","updates":[{"ref":"refs/heads/x","new":"1"}],"under":{"project":"p","owner":"/other/x"}}`:  "Update",
		`{"project":"p","updates":[{"ref":"refs/heads/x","new":"1"}],"under":{"project":"p","owner":"/ci/x"},"a":`: "Update",
	} {
		status, text := s.post(t, r.tokens["ci"], method, body)
		if status != http.StatusBadRequest && status != http.StatusForbidden || len(text) > 3000 {
			t.Errorf("%s %.100s: %d %.3000s", method, body, status, text)
		}
	}
	if rows := len(locks(t, r)); rows != 0 {
		t.Errorf("there are %d locks", rows)
	}
}

func locks(t *testing.T, r *rig) (all []refdb.LockInfo) {
	t.Helper()
	for l, err := range r.db.Locks(t.Context(), refdb.LockFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// A misspelt "under" would otherwise leave an update without its fence.
func TestUnknownFieldsOfJSONAreRefused(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	r.allow(t, "ci", access.Write, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	lock := `{"project":"p","refs":["` + mainRef + `"],"owner":"/ci/x","token":"1"}`
	update := `{"project":"p","updates":[{"ref":"` + mainRef + `","new":"` + one + `"%s}]%s}`
	for _, body := range []string{
		fmt.Sprintf(update, "", `,"udner":`+lock),
		fmt.Sprintf(update, `,"odl":"`+two+`"`, ""),
		fmt.Sprintf(update, "", `,"`+strings.Repeat("x", 1<<20)+`":1`),
	} {
		status, text := s.post(t, r.tokens["ci"], "Update", body)
		if status != http.StatusBadRequest || !strings.Contains(text, "invalid_argument") || !strings.Contains(text, "unknown field") || len(text) > 1000 {
			t.Errorf("%d %.1000s", status, text)
		}
	}
	if value, err := r.db.Get(t.Context(), "p", mainRef); err != nil || !value.IsAbsent() {
		t.Errorf("the ref has %q, %v", value, err)
	}
	if status, text := s.post(t, r.tokens["ci"], "Update", fmt.Sprintf(update, "", `,"request_id":"0123456789abcdef"`)); status != http.StatusOK {
		t.Errorf("a field in its other spelling: %d %s", status, text)
	}
}

func TestARevokedTokenEndsAWait(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	r.allow(t, "gone", access.Lock, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	r.acquire(t, s.plain("ci"), locking(mainRef))
	ended := make(chan error, 1)
	go func() {
		a := locking(mainRef)
		a.Wait = durationpb.New(30 * time.Second)
		_, err := s.plain("gone").Acquire(context.WithoutCancel(t.Context()), connect.NewRequest(a))
		ended <- err
	}()
	records, err := access.ReadRecords(t.Context(), r.db)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range records.Tokens {
		if token.Subject == "gone" {
			if err := access.RevokeToken(t.Context(), r.db, token.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := <-ended; connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("%v", err)
	}
}
