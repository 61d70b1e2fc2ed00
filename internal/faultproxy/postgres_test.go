package faultproxy_test

import (
	"encoding/binary"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
)

func message(kind byte, body string) []byte {
	m := []byte{kind}
	m = binary.BigEndian.AppendUint32(m, uint32(4+len(body)))
	return append(m, body...)
}

// startup is a client's first message.
func startup() []byte {
	return append(binary.BigEndian.AppendUint32(nil, 8), "QESx"...)
}

func TestARequestIsCountedHoweverItIsCutUp(t *testing.T) {
	stream := startup()
	for _, m := range [][]byte{
		message('P', "ESQ"), message('B', ""), message('E', "SS"), message('B', ""), message('E', ""), message('S', ""),
		message('Q', "EEE"), message('P', ""), message('D', ""), message('S', ""), message('X', ""),
	} {
		stream = append(stream, m...)
	}
	for size := 1; size <= len(stream); size++ {
		var p faultproxy.Postgres
		c := p.Connection()
		for rest := stream; len(rest) > 0; {
			n := min(size, len(rest))
			if passed, err := c.Pass(faultproxy.Requests, rest[:n]); err != nil || passed != n {
				t.Fatalf("%d of %d bytes passed, %v", passed, n, err)
			}
			rest = rest[n:]
		}
		if s, n, e := p.Statements.Load(), p.RoundTrips.Load(), p.Executing.Load(); s != 3 || n != 3 || e != 2 {
			t.Fatalf("in pieces of %d: %d statements and %d round trips, of which %d execute; want 3, 3 and 2", size, s, n, e)
		}
	}
}

func TestALostRequestEndsBeforeItsSync(t *testing.T) {
	var p faultproxy.Postgres
	c := p.Connection()
	p.Lose(faultproxy.LoseRequest)
	begun := append(startup(), message('E', "x")...)
	if n, err := c.Pass(faultproxy.Requests, append(begun, message('S', "")...)); n != len(begun) || err == nil {
		t.Errorf("%d bytes passed, %v; want %d", n, err, len(begun))
	}
	if n, err := p.Connection().Pass(faultproxy.Requests, append(begun, message('S', "")...)); n != len(begun)+5 || err != nil {
		t.Errorf("the next round trip: %d bytes passed, %v", n, err)
	}
}

func TestALostReplyEndsTheConnectionWhenTheServerIsReady(t *testing.T) {
	var p faultproxy.Postgres
	c := p.Connection()
	p.Lose(faultproxy.LoseReply)
	request := append(append(startup(), message('E', "x")...), message('S', "")...)
	if n, err := c.Pass(faultproxy.Requests, append(request, message('E', "")...)); n != len(request) || err != nil {
		t.Errorf("%d bytes passed, %v; want %d", n, err, len(request))
	}
	if n, err := c.Pass(faultproxy.Replies, message('C', "Z")); n != 0 || err != nil {
		t.Errorf("%d bytes passed, %v", n, err)
	}
	if n, err := c.Pass(faultproxy.Replies, message('Z', "I")); n != 0 || err == nil {
		t.Errorf("%d bytes passed, %v", n, err)
	}
}
