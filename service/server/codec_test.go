package server_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"connectrpc.com/connect"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// It measures what the process allocates: no other test may run at the same time.
func TestASmallBodyDoesNotBecomeALargeMessage(t *testing.T) {
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	half := int(server.DefaultLimits.Body) / 2
	for what, send := range map[string]struct{ kind, body string }{
		"empty updates":         {"application/proto", strings.Repeat("\x12\x00", half-100)},
		"empty updates in JSON": {"application/json", `{"updates":[` + strings.Repeat("{},", half/2) + `{}]}`},
		"refs of a lock":        {"application/proto", "\x1a\x80\x80\x10" + strings.Repeat("\x12\x00", 1<<17)},
		"unknown fields":        {"application/proto", strings.Repeat("\x78\x00", half-100)},
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/refdb.v1.RefdbService/Update", strings.NewReader(send.body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", send.kind)
		q.Header.Set("Authorization", "Bearer "+r.tokens["ci"])
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		status, text := do(t, q)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; status != http.StatusBadRequest || !strings.Contains(text, "fields") || took > 16*uint64(server.DefaultLimits.Body) {
			t.Errorf("%s: %d %.300s, %d bytes were allocated", what, status, text, took)
		}
	}
}

func TestTheLargestUpdateIsAnswered(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	r.allow(t, "ci", access.Write, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	u := &refdbv1.UpdateRequest{Project: "p"}
	var refs []string
	for i := range 1000 {
		refs = append(refs, fmt.Sprintf(`refs/heads/%d,{["%s`, i, strings.Repeat("x", 400)))
		refs[i] = strings.NewReplacer("[", "(", `"`, "'").Replace(refs[i])
		u.Updates = append(u.Updates, &refdbv1.RefUpdate{Ref: refs[i], Old: strings.Repeat("0", 64), New: one})
	}
	for name, c := range map[string]refdbv1connect.RefdbServiceClient{"JSON": s.plain("ci"), "gRPC": s.grpc("ci")} {
		got := r.acquire(t, c, locking(refs...)).GetAcquired()
		if got == nil {
			t.Fatal(name)
		}
		u.Under, u.Release = got.Lock, true
		u.RequestId = "f3a1e0c2-0000-4000-8000-00000000" + name
		response, err := c.Update(t.Context(), connect.NewRequest(u))
		if err != nil || response.Msg.GetUpdated() == nil && len(response.Msg.GetMismatched().GetMismatches()) != len(refs) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
