// Package faultproxy stands between a client and its server. A [Proxy] carries
// bytes, and on demand cuts connections, delays, holds back, swallows or resets
// what goes one way. [Postgres] also counts what clients of PostgreSQL ask for,
// and loses single round trips.
package faultproxy

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// A Direction is one of the two in which a proxy carries bytes.
type Direction int

const (
	Requests Direction = iota // from clients to the server
	Replies
)

// A Fault is what happens to bytes that go in a direction.
type Fault int

const (
	None    Fault = iota
	Hold          // they wait, even if their sender gives up
	Swallow       // they vanish; Clear closes the connections
	Reset         // they reset their connection
)

// An Endpoint is where to listen or to connect to, as package net names it.
type Endpoint struct {
	Network, Address string
}

// Options are what proxies differ in.
type Options struct {
	Server  Endpoint
	Listen  Endpoint      // none: a free TCP port of the loopback interface
	Latency time.Duration // of each byte, one way, whatever else travels with it
	Filter  func() Filter // for each connection; nil: all bytes pass
}

// A Filter looks at the bytes of one connection. Its methods may be called at the same time.
type Filter interface {
	// Pass returns how many of the next bytes may go on; the others are dropped. With
	// an error the connection ends after those.
	Pass(d Direction, p []byte) (n int, err error)
}

// A Proxy listens for clients of a server.
type Proxy struct {
	options Options
	running sync.WaitGroup

	mu          sync.Mutex
	changed     *sync.Cond
	listener    net.Listener // nil while the proxy is cut
	connections map[net.Conn]bool
	closed      bool
	delay       time.Duration
	jitter      time.Duration
	faults      [2]Fault // by Direction
	holdWhen    func() error
	notYet      error // what holdOnce returned last
}

// New returns a proxy that listens.
func New(o Options) (*Proxy, error) {
	if o.Listen == (Endpoint{}) {
		o.Listen = Endpoint{"tcp", "127.0.0.1:0"}
	}
	p := &Proxy{options: o, connections: make(map[net.Conn]bool)}
	p.changed = sync.NewCond(&p.mu)
	return p, p.Restore()
}

// Address returns where the proxy listens.
func (p *Proxy) Address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.options.Listen.Address
}

// Close closes all connections and waits for their goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
	p.Clear()
	p.running.Wait()
}

// Cut closes all connections and refuses new ones until Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.closeConnections()
}

// closeConnections needs mu.
func (p *Proxy) closeConnections() {
	for c := range p.connections {
		c.Close()
	}
}

// Restore accepts connections again, where it did before.
func (p *Proxy) Restore() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := &p.options.Listen
	if at.Network == "unix" {
		if err := os.Remove(at.Address); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	l, err := net.Listen(at.Network, at.Address)
	if err != nil {
		return err
	}
	at.Address = l.Addr().String()
	p.listener = l
	p.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			p.running.Go(func() { p.serve(l, client) })
		}
	})
	return nil
}

// Set lets a fault happen to all that goes in that direction from now on.
func (p *Proxy) Set(d Direction, f Fault) { p.change(func() { p.faults[d] = f }) }

// SetDelay delays all bytes, in both directions, by between delay-jitter and
// delay+jitter from now on.
func (p *Proxy) SetDelay(delay, jitter time.Duration) {
	p.change(func() { p.delay, p.jitter = delay, jitter })
}

// HoldRepliesWhen holds replies once reached returns nil. It is called before each reply
// goes on, so that what leads there, such as a new connection, is not held up.
func (p *Proxy) HoldRepliesWhen(reached func() error) {
	p.change(func() { p.holdWhen, p.notYet = reached, errors.New("no reply has come") })
}

// Holding returns nil once replies are held, and otherwise what HoldRepliesWhen's function returned last.
func (p *Proxy) Holding() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults[Replies] == Hold {
		return nil
	}
	return p.notYet
}

// Clear ends all faults and delays but a cut and the latency.
func (p *Proxy) Clear() {
	p.change(func() {
		if p.faults[Requests] == Swallow || p.faults[Replies] == Swallow {
			p.closeConnections() // bytes are missing
		}
		p.faults, p.holdWhen, p.delay, p.jitter = [2]Fault{}, nil, 0, 0
	})
}

func (p *Proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.changed.Broadcast()
}

// serve connects a client that came by l to the server, until one of them ends.
func (p *Proxy) serve(l net.Listener, client net.Conn) {
	defer client.Close()
	server, err := net.Dial(p.options.Server.Network, p.options.Server.Address)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(l, client, server) {
		return
	}
	pass := func(_ Direction, b []byte) (int, error) { return len(b), nil }
	if p.options.Filter != nil {
		pass = p.options.Filter().Pass
	}
	var both sync.WaitGroup
	both.Go(func() { p.carry(Requests, client, server, pass) })
	both.Go(func() { p.carry(Replies, server, client, pass) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.connections, client)
	delete(p.connections, server)
}

// keep notes connections for Cut. It is false if the proxy was cut meanwhile.
func (p *Proxy) keep(l net.Listener, client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != l {
		return false
	}
	p.connections[client], p.connections[server] = true, true
	return true
}

// A piece is bytes on their way.
type piece struct {
	bytes []byte
	due   time.Time
}

// carry brings bytes from one connection to the other until one of them ends.
// While some are on their way it reads on: what is sent together arrives together.
func (p *Proxy) carry(d Direction, from, to net.Conn, pass func(Direction, []byte) (int, error)) {
	const onTheWay = 1 << 10 // pieces
	way := make(chan piece, onTheWay)
	var delivery sync.WaitGroup
	delivery.Go(func() {
		defer to.Close()
		for next := range way {
			time.Sleep(time.Until(next.due))
			if err := p.deliver(d, from, to, next.bytes); err != nil {
				from.Close()
				break
			}
		}
		for range way { // so that the reader never blocks
		}
	})
	for b := make([]byte, 64<<10); ; {
		n, err := from.Read(b)
		if n > 0 {
			now := time.Now()
			passed, filterErr := pass(d, b[:n])
			err = errors.Join(filterErr, err)
			way <- piece{append([]byte(nil), b[:passed]...), now.Add(p.travelTime())}
		}
		if err != nil {
			break
		}
	}
	close(way)
	delivery.Wait()
}

// travelTime is how long the next bytes take.
func (p *Proxy) travelTime() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.options.Latency + p.delay
	if p.jitter > 0 {
		d += rand.N(2*p.jitter) - p.jitter
	}
	return d
}

// deliver writes bytes when they may go on, if they may.
func (p *Proxy) deliver(d Direction, from, to net.Conn, b []byte) error {
	switch p.await(d) {
	case Swallow:
		return nil
	case Reset:
		reset(from)
		reset(to)
		return io.ErrClosedPipe
	}
	_, err := to.Write(b)
	return err
}

// await returns what is to happen to bytes once they are not held.
func (p *Proxy) await(d Direction) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d == Replies && p.holdWhen != nil {
		if p.notYet = p.holdWhen(); p.notYet == nil {
			p.faults[Replies], p.holdWhen = Hold, nil
		}
	}
	for p.faults[d] == Hold && !p.closed {
		p.changed.Wait()
	}
	return p.faults[d]
}

// reset closes a connection with a reset, if its network knows that.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}
