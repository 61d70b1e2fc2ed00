package main

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

func message(kind byte, body string) []byte {
	m := []byte{kind}
	m = binary.BigEndian.AppendUint32(m, uint32(4+len(body)))
	return append(m, body...)
}

func TestARequestIsCountedHoweverItIsCutUp(t *testing.T) {
	stream := binary.BigEndian.AppendUint32(nil, 8) // the start-up message
	stream = append(stream, "QESx"...)
	for _, m := range [][]byte{
		message('P', "ESQ"), message('B', ""), message('E', "SS"), message('B', ""), message('E', ""), message('S', ""),
		message('Q', "EEE"), message('X', ""),
	} {
		stream = append(stream, m...)
	}
	for size := 1; size <= len(stream); size++ {
		l := &link{}
		r := &requests{link: l}
		for rest := stream; len(rest) > 0; {
			n := min(size, len(rest))
			if _, err := r.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if s, n := l.statements.Load(), l.trips.Load(); s != 3 || n != 2 {
			t.Fatalf("in pieces of %d: %d statements and %d trips, want 3 and 2", size, s, n)
		}
	}
}

func TestALinkDelaysAndDoesNotThrottle(t *testing.T) {
	var running sync.WaitGroup
	defer running.Wait() // when all that they use is closed
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	running.Go(func() {
		c, err := echo.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.Copy(c, c)
	})
	const roundTrip = 100 * time.Millisecond
	l, err := newLink(echo.Addr().String(), roundTrip)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	c, err := net.Dial("tcp", l.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Many small pieces: one after the other they would take a hundred round trips.
	const pieces = 100
	start := time.Now()
	running.Go(func() {
		for range pieces {
			c.Write(message('d', "01234567890123456789"))
		}
	})
	if _, err := io.ReadFull(c, make([]byte, pieces*25)); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	if took < roundTrip {
		t.Errorf("the answer came after %s, before a round trip of %s", took, roundTrip)
	}
	if took > pieces*roundTrip/4 {
		t.Errorf("%d pieces took %s: they waited for each other", pieces, took)
	}
}
