// Package exporter serves metrics over HTTP.
package exporter

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/globalrefdb/globalrefdb/site/internal/socket"
)

const (
	scrapeLimit  = 10 * time.Second // for a request and its answer
	scrapes      = 4                // at a time; more are refused
	scrapeHeader = 8 << 10          // bytes
)

// An Exporter serves metrics over HTTP.
type Exporter struct {
	listener net.Listener
	server   *http.Server
	socket   string // the path of a socket, or ""
	made     fs.FileInfo
}

// New listens at an address: a host and a port, or the path of a socket.
func New(address string, collectors []prometheus.Collector, log *slog.Logger) (e *Exporter, err error) {
	registry := prometheus.NewRegistry()
	for _, c := range collectors {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes}))
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
