package faultproxy

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
)

// A Loss is what happens to a round trip to PostgreSQL that executes something.
type Loss int

const (
	NoLoss      Loss = iota
	LoseRequest      // cut before the request's end, its Sync, reaches the server
	LoseReply        // cut after the server has answered, before the answer reaches the client
)

// Postgres counts what PostgreSQL's clients ask for. Its zero value is ready,
// for a proxy whose Filter is [Postgres.Connection]. The connections must not be encrypted.
type Postgres struct {
	Statements atomic.Int64 // executed
	RoundTrips atomic.Int64 // requests that the client waits for the end of
	Executing  atomic.Int64 // round trips that execute something, rather than only describe it

	mu   sync.Mutex
	next Loss
}

// Lose loses the next round trip that executes something.
func (p *Postgres) Lose(l Loss) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = l
}

func (p *Postgres) takeLoss() Loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.next
	p.next = NoLoss
	return l
}

// Connection returns the filter of a new connection.
func (p *Postgres) Connection() Filter {
	return &postgresConnection{postgres: p, requests: scanner{startup: true}}
}

type postgresConnection struct {
	postgres          *Postgres
	requests, replies scanner
	executes          bool        // the round trip that has begun
	losing            atomic.Bool // replies, until the server is ready again
}

var errLost = errors.New("lost")

func (c *postgresConnection) Pass(d Direction, b []byte) (int, error) {
	if d == Replies {
		return c.passReplies(b)
	}
	if c.losing.Load() {
		return 0, nil
	}
	for read := 0; read < len(b); {
		kind, n, err := c.requests.next(b[read:])
		read += n
		if err != nil {
			return 0, err
		}
		switch c.request(kind) {
		case LoseRequest:
			return max(0, read-headSize), errLost
		case LoseReply:
			c.losing.Store(true)
			return read, nil
		}
	}
	return len(b), nil
}

// request counts a message of that kind and returns what to lose with it.
func (c *postgresConnection) request(kind byte) Loss {
	switch kind {
	case 'Q': // a simple query: executes, and ends with an answer to wait for
		c.postgres.Statements.Add(1)
		c.postgres.RoundTrips.Add(1)
		c.postgres.Executing.Add(1)
	case 'E': // Execute
		c.postgres.Statements.Add(1)
		c.executes = true
	case 'S': // Sync
		c.postgres.RoundTrips.Add(1)
		executes := c.executes
		c.executes = false
		if executes {
			c.postgres.Executing.Add(1)
			return c.postgres.takeLoss()
		}
	}
	return NoLoss
}

func (c *postgresConnection) passReplies(b []byte) (int, error) {
	losing := c.losing.Load()
	for read := 0; read < len(b); {
		kind, n, err := c.replies.next(b[read:])
		read += n
		if err != nil {
			return 0, err
		}
		if losing && kind == 'Z' { // ReadyForQuery
			return 0, errLost
		}
	}
	if losing {
		return 0, nil
	}
	return len(b), nil
}

// headSize is the size of a message's head: a byte for the kind and four for
// the length, which counts itself.
const headSize = 5

// A scanner finds the messages in a stream of bytes, however it is cut up.
type scanner struct {
	startup bool // the next message is a client's first, which has no kind
	head    []byte
	body    int // the rest of a message
}

// next reads up to the end of the next message's head, or all of b, and returns how much
// that is. The kind is 0 if there is no head in b, or if the message has no kind.
func (s *scanner) next(b []byte) (kind byte, n int, err error) {
	n = min(s.body, len(b))
	s.body -= n
	size := headSize
	if s.startup {
		size--
	}
	k := min(size-len(s.head), len(b)-n)
	s.head = append(s.head, b[n:n+k]...)
	n += k
	if len(s.head) < size {
		return 0, n, nil
	}
	length := int(binary.BigEndian.Uint32(s.head[size-4:]))
	if length < 4 || length > 1<<30 {
		return 0, n, errors.New("this is not PostgreSQL's protocol")
	}
	if !s.startup {
		kind = s.head[0]
	}
	s.startup, s.body, s.head = false, length-4, s.head[:0]
	return kind, n, nil
}
