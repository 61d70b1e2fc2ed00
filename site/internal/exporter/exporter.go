// Package exporter serves metrics and the state of a process over HTTP.
package exporter

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/globalrefdb/globalrefdb/internal/socket"
)

const (
	scrapeLimit  = 10 * time.Second // for a request and its answer
	scrapes      = 4                // at a time; more are refused
	scrapeHeader = 8 << 10          // bytes
)

// An Exporter serves over HTTP:
//   - /metrics: the process's own metrics, and Go's and the operating system's about the process;
//   - /healthz: 200 while the process serves HTTP;
//   - /readyz: 200 while the process does its work, otherwise 503 with the reason.
type Exporter struct {
	listener net.Listener
	server   *http.Server
	socket   string // the path of a socket, or ""
	made     fs.FileInfo
}

// New listens at an address: a host and a port, or the path of a socket. Ready returns nil while the
// process does its work. The text of its error is public.
func New(address string, own []prometheus.Collector, ready func() error, log *slog.Logger) (e *Exporter, err error) {
	registry := prometheus.NewRegistry()
	process := []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector()}
	for _, c := range slices.Concat(own, process) {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	e = &Exporter{server: &http.Server{
		Handler: mux, MaxHeaderBytes: scrapeHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: scrapeLimit, ReadTimeout: scrapeLimit, WriteTimeout: scrapeLimit, IdleTimeout: 2 * time.Minute,
	}}
	if strings.HasPrefix(address, "/") {
		err = e.bind(address)
	} else {
		e.listener, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: free the address, or configure another", err)
	}
	return e, nil
}

// bind makes a socket that the daemon's group may use, too, such as for a proxy.
func (e *Exporter) bind(path string) error {
	l, err := socket.Bind(path)
	if err != nil {
		return err
	}
	err = os.Chmod(path, 0o660)
	if err == nil {
		e.made, err = os.Lstat(path)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	e.listener, e.socket = l, path
	return nil
}

// Serve returns after Close.
func (e *Exporter) Serve() error {
	err := e.server.Serve(e.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close ends all scrapes.
func (e *Exporter) Close() {
	e.server.Close()
	if l, ok := e.listener.(*net.UnixListener); ok {
		socket.Unbind(l, e.socket, e.made)
	}
	e.listener.Close() // the server does not know the listener unless Serve has been called
}
