package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/net/netutil"

	"github.com/globalrefdb/globalrefdb/internal/socket"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// Listen says where a server listens.
type Listen struct {
	Address                     string // a host and a port, or the absolute path of a socket, which the group may use
	CertificateFile, PrivateKey string // files; "" for plain text
	ClientCA                    string // the file of the authorities of clients' certificates; "" to ask for none
}

// Check returns an error wrapping refdb.ErrInvalid if tokens would cross a network in plain text.
func (l Listen) Check() error {
	switch {
	case (l.CertificateFile == "") != (l.PrivateKey == ""):
		return fmt.Errorf("%w certificate: give its file and that of its key", refdb.ErrInvalid)
	case l.ClientCA != "" && l.CertificateFile == "":
		return fmt.Errorf("%w authorities of clients: without a certificate of its own, the server can't ask for those of clients", refdb.ErrInvalid)
	case strings.HasPrefix(l.Address, "/"):
		return nil
	}
	host, _, err := net.SplitHostPort(l.Address)
	if err != nil {
		return fmt.Errorf("%w address %q: give a host and a port, or the absolute path of a socket", refdb.ErrInvalid, l.Address)
	}
	if ip, err := netip.ParseAddr(host); l.CertificateFile != "" || host == "localhost" || err == nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%w address %q: without a certificate, tokens could be read on the network: give one, or listen at a loopback address or a socket", refdb.ErrInvalid, l.Address)
}

// Stop says how a server ends.
type Stop struct {
	Delay time.Duration // how long it goes on serving while it reports that it is not ready
	Limit time.Duration // how long it then waits for the calls in progress
}

// Check returns an error wrapping refdb.ErrInvalid if a duration is negative.
func (s Stop) Check() error {
	if s.Delay < 0 || s.Limit < 0 {
		return fmt.Errorf("%w durations %s and %s for stopping: they can't be negative", refdb.ErrInvalid, s.Delay, s.Limit)
	}
	return nil
}

// Run serves until ctx ends. Then it reports that it is not ready. After stop.Delay it ends waits, and
// accepts no more requests; it waits for the requests in progress, at most stop.Limit, and returns nil.
// Run calls listening with the address once it accepts requests.
func (s *Server) Run(ctx context.Context, at Listen, stop Stop, listening func(net.Addr)) error {
	if err := errors.Join(at.Check(), stop.Check()); err != nil {
		return err
	}
	if s.o.UserHeader != "" && !strings.HasPrefix(at.Address, "/") {
		return fmt.Errorf("%w header %s of users: everybody who reaches the address %q could send it: listen at a socket, which only the proxy may use", refdb.ErrInvalid, s.o.UserHeader, at.Address)
	}
	var background sync.WaitGroup
	defer background.Wait()
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: headerLimit, WriteTimeout: callLimit, IdleTimeout: idleLimit, MaxHeaderBytes: headerBytes,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: atATime, MaxReceiveBufferPerConnection: received, MaxReceiveBufferPerStream: received}, Protocols: new(http.Protocols),
		ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
	}
	server.Protocols.SetHTTP1(true)
	if at.CertificateFile != "" {
		c, err := newCertificate(at.CertificateFile, at.PrivateKey)
		if err != nil {
			return err
		}
		s.counts.expiry.of.Store(c)
		if at.ClientCA != "" {
			if s.clients, err = newAuthorities(at.ClientCA); err != nil {
				return err
			}
			background.Go(func() { keep(lasting, s.o.Logger, "the file of the authorities of clients", s.clients.reload) })
		}
		server.TLSConfig = c.config(s.clients)
		server.Protocols.SetHTTP2(true)
		background.Go(func() { keep(lasting, s.o.Logger, "the certificate", c.reload) })
	} else {
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	l, err := listen(at.Address)
	if err != nil {
		return err
	}
	defer l.close()
	background.Go(func() { s.cache.Run(lasting) })
	if s.o.Issuers != nil {
		background.Go(func() { s.o.Issuers.Run(lasting) })
	}
	accepted := netutil.LimitListener(l.Listener, s.o.Limits.Connections)
	ended := make(chan error, 1)
	background.Go(func() {
		if server.TLSConfig != nil {
			ended <- server.ServeTLS(accepted, "", "")
		} else {
			ended <- server.Serve(accepted)
		}
	})
	daemon.SdNotify(false, daemon.SdNotifyReady) // without systemd it does nothing
	s.o.Logger.InfoContext(ctx, "serving")
	listening(l.Addr())
	select {
	case err := <-ended:
		return errors.Join(err, server.Close())
	case <-ctx.Done():
	}
	daemon.SdNotify(false, daemon.SdNotifyStopping)
	s.o.Logger.Info("stopping")
	s.draining.Store(true)
	select {
	case err := <-ended:
		return errors.Join(err, server.Close())
	case <-time.After(stop.Delay):
	}
	s.stop(lasting, server, stop.Limit)
	return nil
}

// stop waits for the calls in progress, and for the requests to the database that they have left.
func (s *Server) stop(ctx context.Context, server *http.Server, limit time.Duration) {
	s.Drain()
	stopping, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		server.Close()
	}
	finished := make(chan struct{})
	go func() {
		s.api.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-stopping.Done():
		s.o.Logger.Warn("stopped with calls in progress")
	}
}

type listener struct {
	net.Listener
	path string // of a socket, or ""
	made fs.FileInfo
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
	made, err := os.Lstat(address)
	if err == nil {
		err = os.Chmod(address, 0o660)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &listener{l, address, made}, nil
}

func (l *listener) close() {
	if u, ok := l.Listener.(*net.UnixListener); ok {
		socket.Unbind(u, l.path, l.made)
	}
	l.Listener.Close()
}
