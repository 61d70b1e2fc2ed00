package faultproxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
)

// echo returns the address of a server that sends back what it gets.
func echo(t *testing.T) faultproxy.Endpoint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return faultproxy.Endpoint{Network: "tcp", Address: l.Addr().String()}
}

func proxy(t *testing.T, o faultproxy.Options) *faultproxy.Proxy {
	t.Helper()
	o.Server = echo(t)
	p, err := faultproxy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func connect(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// wantEcho fails unless the text comes next.
func wantEcho(t *testing.T, c net.Conn, text string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("got %q, %v; want %q", got, err, text)
	}
}

// wantNothing fails if anything comes within a moment. On a busy machine it may come later.
func wantNothing(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes came, %v", n, err)
	}
}

// wantEnd fails unless the connection ends.
func wantEnd(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes came, %v", n, err)
	}
}

func TestWhatIsSentTogetherArrivesTogether(t *testing.T) {
	t.Parallel()
	const oneWay = 200 * time.Millisecond
	c := connect(t, proxy(t, faultproxy.Options{Latency: oneWay}))
	// Many small pieces: one after the other they would take minutes.
	const pieces, size = 1000, 25
	var sending sync.WaitGroup
	defer sending.Wait()
	start := time.Now()
	sending.Go(func() {
		for range pieces {
			c.Write(make([]byte, size))
		}
	})
	if _, err := io.ReadFull(c, make([]byte, pieces*size)); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	if took < 2*oneWay {
		t.Errorf("the reply came after %s, before a round trip of %s", took, 2*oneWay)
	}
	if took > pieces*oneWay/2 {
		t.Errorf("%d pieces took %s: they waited for each other", pieces, took)
	}
}

func TestHeldBytesArriveInTheEnd(t *testing.T) {
	t.Parallel()
	for _, d := range []faultproxy.Direction{faultproxy.Requests, faultproxy.Replies} {
		p := proxy(t, faultproxy.Options{})
		c := connect(t, p)
		p.Set(d, faultproxy.Hold)
		send(t, c, "late")
		wantNothing(t, c)
		p.Clear()
		wantEcho(t, c, "late")
	}
}

func TestRepliesAreHeldOnceAConditionHolds(t *testing.T) {
	t.Parallel()
	p := proxy(t, faultproxy.Options{})
	c := connect(t, p)
	replies := 0
	p.HoldRepliesWhen(func() error {
		if replies++; replies == 1 {
			return errors.New("too early")
		}
		return nil
	})
	if p.Holding() == nil {
		t.Error("replies are held before there is any")
	}
	send(t, c, "one")
	wantEcho(t, c, "one")
	if err := p.Holding(); err == nil || err.Error() != "too early" {
		t.Error(err)
	}
	send(t, c, "two")
	wantNothing(t, c)
	if err := p.Holding(); err != nil {
		t.Error(err)
	}
	p.Clear()
	wantEcho(t, c, "two")
}

func TestSwallowedBytesEndTheirConnectionWhenTheFaultEnds(t *testing.T) {
	t.Parallel()
	p := proxy(t, faultproxy.Options{})
	c := connect(t, p)
	p.Set(faultproxy.Replies, faultproxy.Swallow)
	send(t, c, "lost")
	wantNothing(t, c)
	p.Clear()
	wantEnd(t, c)
	again := connect(t, p)
	send(t, again, "again")
	wantEcho(t, again, "again")
}

func TestTheNextRequestResetsItsConnection(t *testing.T) {
	t.Parallel()
	p := proxy(t, faultproxy.Options{})
	c := connect(t, p)
	send(t, c, "before")
	wantEcho(t, c, "before")
	p.Set(faultproxy.Requests, faultproxy.Reset)
	wantNothing(t, c)
	send(t, c, "reset")
	wantEnd(t, c)
}

func TestAProxyThatIsCutRefusesConnectionsUntilItIsRestored(t *testing.T) {
	t.Parallel()
	p := proxy(t, faultproxy.Options{})
	c := connect(t, p)
	send(t, c, "before")
	wantEcho(t, c, "before")
	p.Cut()
	wantEnd(t, c)
	if _, err := net.Dial("tcp", p.Address()); err == nil {
		t.Error("a connection was accepted")
	}
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	again := connect(t, p)
	send(t, again, "again")
	wantEcho(t, again, "again")
}
