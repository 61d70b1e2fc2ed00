//go:build linux

package sites

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A proxy is a site's way to PostgreSQL. It can be cut, and it can hold back
// what the server answers.
type proxy struct {
	t       testing.TB
	address string // of the database through it

	from, to [2]string // network and address

	mu       sync.Mutex
	changed  *sync.Cond
	listener net.Listener // nil while it is cut
	conns    map[net.Conn]bool
	held     bool
	running  sync.WaitGroup
}

// newProxy starts a proxy to the database at that URL.
func newProxy(t testing.TB, database string) *proxy {
	t.Helper()
	server, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, conns: make(map[net.Conn]bool)}
	p.changed = sync.NewCond(&p.mu)
	port := strconv.Itoa(int(server.Port))
	if p.to = [2]string{"tcp", net.JoinHostPort(server.Host, port)}; filepath.IsAbs(server.Host) {
		p.to = [2]string{"unix", filepath.Join(server.Host, ".s.PGSQL."+port)}
	}
	dir := shortDir(t)
	p.from = [2]string{"unix", filepath.Join(dir, ".s.PGSQL.5432")}
	u := url.URL{Scheme: "postgres", Path: "/" + server.Database, RawQuery: url.Values{
		"host": {dir}, "user": {server.User}, "password": {server.Password}, "sslmode": {"disable"},
	}.Encode()}
	p.address = u.String()
	p.restore()
	t.Cleanup(func() {
		p.release()
		p.cut()
		p.running.Wait()
	})
	return p
}

// restore lets connections through.
func (p *proxy) restore() {
	p.t.Helper()
	os.Remove(p.from[1])
	l, err := net.Listen(p.from[0], p.from[1])
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()
	p.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(p.to[0], p.to[1])
			if err != nil {
				client.Close()
				continue
			}
			p.join(l, client, server)
		}
	})
}

// join copies between two connections until one of them ends.
func (p *proxy) join(l net.Listener, client, server net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != l { // cut meanwhile
		client.Close()
		server.Close()
		return
	}
	p.conns[client], p.conns[server] = true, true
	p.running.Go(func() { p.copy(server, client, func() {}) })
	p.running.Go(func() { p.copy(client, server, p.wait) })
}

func (p *proxy) copy(to, from net.Conn, before func()) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, to)
		delete(p.conns, from)
		to.Close()
		from.Close()
	}()
	for b := make([]byte, 32<<10); ; {
		n, err := from.Read(b)
		if n > 0 {
			before()
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait returns when answers may go through.
func (p *proxy) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.held {
		p.changed.Wait()
	}
}

// hold keeps back all that the server answers from now on, until release.
func (p *proxy) hold() { p.setHeld(true) }

// release lets it through.
func (p *proxy) release() { p.setHeld(false) }

func (p *proxy) setHeld(held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	p.changed.Broadcast()
}

// cut closes all connections and refuses new ones, until restore. Answers that are held are lost.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		c.Close()
	}
}
