package smarthttp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/globalrefdb/globalrefdb/internal/socket"
	"github.com/globalrefdb/globalrefdb/site/internal/exporter"
)

const (
	headerLimit = 10 * time.Second // for the header of a request; its body may take much longer
	idleLimit   = 2 * time.Minute
	headerBytes = 64 << 10
)

// Listen says where a server listens.
type Listen struct {
	Address string // a host and a port, or the absolute path of a socket, open to the group
	Metrics string // of the metrics, in the same form; "" for none
}

// Run serves requests until ctx ends. Then it accepts no more requests, waits at most stopLimit for
// those in progress, and returns nil.
func (s *Server) Run(ctx context.Context, at Listen, stopLimit time.Duration) error {
	l, err := listen(at.Address)
	if err != nil {
		return err
	}
	defer l.close()
	var metrics *exporter.Exporter
	if at.Metrics != "" {
		if metrics, err = exporter.New(at.Metrics, s.Collectors(), func() error { return s.ready(ctx) }, s.o.Logger); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headerLimit, IdleTimeout: idleLimit, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(l.Listener) }()
	if metrics != nil {
		defer metrics.Close()
		go func() { ended <- metrics.Serve() }()
	}
	daemon.SdNotify(false, daemon.SdNotifyReady) // without systemd it does nothing
	s.o.Logger.InfoContext(ctx, "serving")
	select {
	case err := <-ended:
		return errors.Join(err, server.Close())
	case <-ctx.Done():
	}
	daemon.SdNotify(false, daemon.SdNotifyStopping)
	s.o.Logger.Info("stopping")
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		server.Close()
		s.o.Logger.Warn("stopped with requests in progress")
		return nil
	}
	s.Wait()
	return nil
}

// stopped returns an error once ctx has ended.
func stopped(ctx context.Context) error {
	if ctx.Err() != nil {
		return errors.New("the server stops")
	}
	return nil
}

type listener struct {
	net.Listener
	path string // of a socket, or ""
	info fs.FileInfo
}

func listen(address string) (*listener, error) {
	if !strings.HasPrefix(address, "/") {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("%w: free the address, or give another", err)
		}
		return &listener{Listener: l}, nil
	}
	l, err := socket.Bind(address)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(address)
	if err == nil {
		err = os.Chmod(address, 0o660) // for the web server in front
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &listener{l, address, info}, nil
}

func (l *listener) close() {
	if u, ok := l.Listener.(*net.UnixListener); ok {
		socket.Unbind(u, l.path, l.info)
	}
	l.Listener.Close()
}
