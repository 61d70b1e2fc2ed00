package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/api"
)

func TestASubjectHasItsShareOfTheRequestsForMetrics(t *testing.T) {
	t.Parallel()
	db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "server"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := New(Options{DB: db, Rules: db, Logger: slog.New(slog.DiscardHandler), Limits: DefaultLimits})
	if err != nil {
		t.Fatal(err)
	}
	release, entered := make(chan struct{}), make(chan struct{}, 10)
	h := s.scraped(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}))
	get := func(subject string) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		h.ServeHTTP(w, r.WithContext(api.WithCaller(r.Context(), access.Identity{Subject: subject})))
		return w.Code
	}
	var running sync.WaitGroup
	hang := func(subject string) {
		t.Helper()
		running.Go(func() { get(subject) })
		select {
		case <-entered:
		case <-time.After(time.Minute):
			t.Fatalf("%s is not answered", subject)
		}
	}
	hang("ci")
	hang("ci")
	if status := get("ci"); status != http.StatusTooManyRequests {
		t.Errorf("one more of the subject: %d", status)
	}
	hang("other")
	hang("third")
	if status := get("fourth"); status != http.StatusTooManyRequests {
		t.Errorf("one more of all: %d", status)
	}
	for reason, want := range map[string]float64{rejectedSubjectScrapes: 1, rejectedScrapes: 1, rejectedSubjectCalls: 0, rejectedCalls: 0} {
		if got := s.counts.rejections(t)[reason]; got != want {
			t.Errorf("%s: %v were rejected, not %v", reason, got, want)
		}
	}
	close(release)
	running.Wait()
	if status := get("ci"); status != http.StatusOK {
		t.Errorf("later: %d", status)
	}
}

// rejections returns how many requests were rejected, by reason.
func (c counts) rejections(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c.rejected)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return all
}
