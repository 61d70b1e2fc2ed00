package exporter

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestWhatIsServed(t *testing.T) {
	t.Parallel()
	var notReady error
	own := prometheus.NewCounter(prometheus.CounterOpts{Name: "own_total"})
	e, err := New("127.0.0.1:0", []prometheus.Collector{own}, func() error { return notReady }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- e.Serve() }()
	for _, row := range []struct {
		path     string
		notReady error
		status   int
		lines    []string
	}{
		{"/metrics", nil, http.StatusOK, []string{"own_total 0", "go_goroutines ", "process_open_fds ", "go_build_info{"}},
		{"/healthz", errors.New("starting"), http.StatusOK, []string{"ok"}},
		{"/readyz", nil, http.StatusOK, []string{"ok"}},
		{"/readyz", errors.New("starting"), http.StatusServiceUnavailable, []string{"starting"}},
		{"/", nil, http.StatusNotFound, nil},
	} {
		notReady = row.notReady
		response, err := http.Get("http://" + e.listener.Addr().String() + row.path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != row.status {
			t.Errorf("%+v: %d, %v: %s", row, response.StatusCode, err, text)
		}
		for _, line := range row.lines {
			if !strings.Contains("\n"+string(text), "\n"+line) {
				t.Errorf("%s lacks %q: %s", row.path, line, text)
			}
		}
	}
	e.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
