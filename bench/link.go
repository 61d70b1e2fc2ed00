package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A link stands between PostgreSQL's clients and their server. It delays each
// way by half of a round-trip time, as a long line does: what is sent together
// arrives together, however much it is. And it counts what clients ask for.
type link struct {
	listener net.Listener
	server   string
	delay    time.Duration // one way
	running  sync.WaitGroup
	cancel   context.CancelFunc

	statements atomic.Int64 // executed
	trips      atomic.Int64 // requests that the client waits for the end of
}

// newLink listens for clients of the server at that address.
func newLink(server string, roundTrip time.Duration) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{listener: listener, server: server, delay: roundTrip / 2, cancel: cancel}
	l.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			l.running.Go(func() { l.serve(ctx, client) })
		}
	})
	return l, nil
}

func (l *link) port() int { return l.listener.Addr().(*net.TCPAddr).Port }

// close cuts all connections and waits for their goroutines.
func (l *link) close() {
	l.listener.Close()
	l.cancel()
	l.running.Wait()
}

func (l *link) serve(ctx context.Context, client net.Conn) {
	server, err := net.Dial("tcp", l.server)
	if err != nil {
		client.Close()
		return
	}
	stop := context.AfterFunc(ctx, func() {
		client.Close()
		server.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { l.forward(server, io.TeeReader(client, &requests{link: l})) })
	both.Go(func() { l.forward(client, server) })
	both.Wait()
}

// forward carries bytes until from ends, and each of them for as long as the
// delay; meanwhile it reads on.
func (l *link) forward(to net.Conn, from io.Reader) {
	type packet struct {
		data []byte
		due  time.Time
	}
	const onTheLine = 1 << 14 // packets
	line := make(chan packet, onTheLine)
	var arrivals sync.WaitGroup
	arrivals.Go(func() {
		defer to.Close()
		for p := range line {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				break
			}
		}
		for range line { // so that the reader never blocks
		}
	})
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			line <- packet{append([]byte(nil), buffer[:n]...), time.Now().Add(l.delay)}
		}
		if err != nil {
			break
		}
	}
	close(line)
	arrivals.Wait()
}

// requests counts the messages that a client sends: a first one without a
// type, then a byte for the type and four for the length, which counts itself.
type requests struct {
	link    *link
	started bool
	head    []byte
	skip    int // rest of the message
}

func (r *requests) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		if r.skip > 0 {
			n := min(r.skip, len(rest))
			r.skip -= n
			rest = rest[n:]
			continue
		}
		headLen := 5
		if !r.started {
			headLen = 4
		}
		n := min(headLen-len(r.head), len(rest))
		r.head = append(r.head, rest[:n]...)
		rest = rest[n:]
		if len(r.head) < headLen {
			break
		}
		length := int(binary.BigEndian.Uint32(r.head[headLen-4:]))
		if length < 4 {
			return 0, errors.New("this is not PostgreSQL's protocol")
		}
		if r.started {
			r.count(r.head[0])
		}
		r.started, r.skip, r.head = true, length-4, r.head[:0]
	}
	return len(p), nil
}

func (r *requests) count(kind byte) {
	switch kind {
	case 'Q': // a simple query: executes, and ends with an answer to wait for
		r.link.statements.Add(1)
		r.link.trips.Add(1)
	case 'E': // Execute
		r.link.statements.Add(1)
	case 'S': // Sync
		r.link.trips.Add(1)
	}
}
