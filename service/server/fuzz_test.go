package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// Whatever a client sends, the server answers, and the lock of another subject stands.
func FuzzRequestsHarmNobodyElse(f *testing.F) {
	for i, method := range methods() {
		for _, body := range []string{
			getMain, `{}`, method,
			`{"lock":{"project":"p","refs":["refs/heads/main"],"owner":"/other/x","token":"1"}}`,
			`{"project":"p","refs":["refs/heads/next"],"leaseTime":"1s","wait":"0s","requestId":"0123456789abcdef"}`,
			`{"project":"p","updates":[{"ref":"refs/heads/main","old":"","new":"x"}],"under":{"owner":"/ci/x"},"release":true}`,
		} {
			f.Add(uint8(i), true, []byte(body))
		}
		f.Add(uint8(i), false, []byte("\n\x01p\x12\x0frefs/heads/main\x1a\x02\x08\x01"))
	}
	r := inMemory(f)
	r.allow(f, "ci", access.Lock, access.All, access.All)
	r.allow(f, "ci", access.Write, access.All, access.All)
	r.allow(f, "other", access.Lock, "p", access.All)
	r.put(f, "p", mainRef, one)
	s := r.serve(f, server.DefaultLimits, nil)
	other := s.plain("other")
	response, err := other.Acquire(f.Context(), connect.NewRequest(locking(mainRef)))
	if err != nil {
		f.Fatal(err)
	}
	held := &refdbv1.ExtendRequest{Lock: response.Msg.GetAcquired().GetLock()}
	s.Drain() // no call waits
	f.Fuzz(func(t *testing.T, method uint8, asJSON bool, body []byte) {
		name := methods()[int(method)%len(methods())]
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/refdb.v1.RefdbService/"+name, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+r.tokens["ci"])
		if q.Header.Set("Content-Type", "application/proto"); asJSON {
			q.Header.Set("Content-Type", "application/json")
		}
		response, err := patient(http.DefaultTransport).Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusUnauthorized {
			t.Errorf("%s: %s %s, %v", name, response.Status, text, err)
		}
		if asJSON && response.StatusCode < http.StatusBadRequest && !json.Valid(text) {
			t.Errorf("%s: %s", name, text)
		}
		if e, err := other.Extend(t.Context(), connect.NewRequest(held)); err != nil || e.Msg.GetExtended() == nil {
			t.Errorf("%s: another subject's lock: %v, %v", name, e, err)
		}
		if v, err := r.db.Get(t.Context(), "p", mainRef); err != nil || v != one {
			t.Errorf("%s: the locked ref has %q, %v", name, v, err)
		}
	})
}
