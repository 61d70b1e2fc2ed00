package postgres_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A wire is a proxy in front of the server, which counts round trips and can
// be cut.
type wire struct {
	url     string // through it
	network string
	address string
	ln      net.Listener

	mu    sync.Mutex
	trips int
	fault fault
	conns map[net.Conn]bool
	done  sync.WaitGroup
}

// A fault is what happens to the next round trip that executes something.
type fault int

const (
	none        fault = iota
	loseRequest       // cut before its Sync reaches the server
	loseReply         // cut after the server has answered, before the answer passes
)

func newWire(tb testing.TB, address string) *wire {
	tb.Helper()
	to, err := pgx.ParseConfig(address)
	if err != nil {
		tb.Fatal(err)
	}
	w := &wire{conns: make(map[net.Conn]bool)}
	w.network, w.address = pgconn.NetworkAddress(to.Host, to.Port)
	if w.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		tb.Fatal(err)
	}
	through := url.URL{
		Scheme: "postgres", Host: w.ln.Addr().String(), Path: "/" + to.Database,
		User:     url.UserPassword(to.User, to.Password),
		RawQuery: url.Values{"sslmode": {"disable"}, "pool_max_conns": {"1"}}.Encode(),
	}
	w.url = through.String()
	w.done.Go(w.accept)
	tb.Cleanup(func() {
		w.cut()
		w.done.Wait()
	})
	return w
}

// cut ends all connections, and refuses new ones.
func (w *wire) cut() {
	w.ln.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// inject has the next round trip fail.
func (w *wire) inject(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// count returns how many round trips do takes.
func (w *wire) count(do func()) int {
	read := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.trips
	}
	before := read()
	do()
	return read() - before
}

func (w *wire) accept() {
	for {
		client, err := w.ln.Accept()
		if err != nil {
			return
		}
		w.done.Go(func() { w.serve(client) })
	}
}

// keep notes a connection for cut, or closes it if that was called.
func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns == nil {
		c.Close()
		return false
	}
	w.conns[c] = true
	return true
}

func (w *wire) serve(client net.Conn) {
	defer client.Close()
	if !w.keep(client) {
		return
	}
	server, err := net.Dial(w.network, w.address)
	if err != nil {
		return
	}
	defer server.Close()
	if !w.keep(server) {
		return
	}
	replies := &replies{to: client, lost: make(chan struct{})}
	var back sync.WaitGroup
	back.Go(func() {
		replies.copy(server)
		client.Close()
	})
	if err := w.requests(client, server, replies); err == nil {
		<-replies.lost
	}
	server.Close()
	client.Close()
	back.Wait()
}

// requests forwards messages to the server. nil says that the reply to the last one is to be lost.
func (w *wire) requests(client io.Reader, server io.Writer, r *replies) error {
	executes := false
	for startup := true; ; startup = false {
		kind, message, err := readMessage(client, !startup)
		if err != nil {
			return err
		}
		f := none
		switch kind {
		case 'E': // Execute
			executes = true
		case 'S', 'Q': // Sync, Query
			w.mu.Lock()
			w.trips++
			if executes {
				f, w.fault = w.fault, none
			}
			w.mu.Unlock()
			executes = false
		}
		switch f {
		case loseRequest:
			return errors.New("lost")
		case loseReply:
			r.lose()
		}
		if _, err := server.Write(message); err != nil {
			return err
		}
		if f == loseReply {
			return nil
		}
	}
}

// replies forwards messages to the client, until they are to be lost.
type replies struct {
	to     io.Writer
	mu     sync.Mutex
	losing bool
	lost   chan struct{} // closed with the ReadyForQuery that was lost
}

func (r *replies) lose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losing = true
}

func (r *replies) copy(server io.Reader) {
	for {
		kind, message, err := readMessage(server, true)
		if err != nil {
			return
		}
		r.mu.Lock()
		losing := r.losing
		r.mu.Unlock()
		if losing {
			if kind == 'Z' { // ReadyForQuery
				close(r.lost)
				return
			}
			continue
		}
		if _, err := r.to.Write(message); err != nil {
			return
		}
	}
}

// readMessage reads one message of the protocol. The very first has no kind.
func readMessage(from io.Reader, kinded bool) (kind byte, message []byte, err error) {
	head := make([]byte, 4, 5)
	if kinded {
		head = head[:5]
	}
	if _, err := io.ReadFull(from, head); err != nil {
		return 0, nil, err
	}
	if kinded {
		kind = head[0]
	}
	length := binary.BigEndian.Uint32(head[len(head)-4:])
	if length < 4 || length > 1<<28 {
		return 0, nil, fmt.Errorf("message of %d bytes", length)
	}
	message = append(head, make([]byte, length-4)...)
	_, err = io.ReadFull(from, message[len(head):])
	return kind, message, err
}
