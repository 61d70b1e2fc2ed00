package server

import (
	"fmt"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Limits bound the resources that callers can use at a time. Requests beyond a limit are refused at once.
type Limits struct {
	Calls            int   // of all callers
	CallsPerSubject  int   // of one subject; calls that wait for a lock count, too
	Body             int64 // bytes of one request
	Bodies           int64 // bytes of all requests that have arrived, in whole or in part, and are being answered
	BodiesPerSubject int64 // bytes of such requests of one subject
	Connections      int   // open connections; more wait until one is closed
}

// DefaultLimits are the limits unless others are configured.
var DefaultLimits = Limits{Calls: 1024, CallsPerSubject: 128, Body: 2 << 20, Bodies: 32 << 20, BodiesPerSubject: 8 << 20, Connections: 16 << 10}

func (l Limits) check() error {
	if l.Calls < 1 || l.CallsPerSubject < 1 || l.Body < 1 || l.BodiesPerSubject < l.Body || l.Bodies < l.BodiesPerSubject || l.Connections < 1 {
		return fmt.Errorf("%w limits %+v: each must be positive, and one request fit among those of a subject, and these among all", refdb.ErrInvalid, l)
	}
	return nil
}

// A limiter counts calls of authenticated callers, and the memory that their bodies take.
type limiter struct {
	limits Limits

	mu        sync.Mutex
	calls     int
	bytes     int64
	bySubject map[string]*usage
}

// usage is what one subject uses.
type usage struct {
	calls int
	bytes int64
}

func newLimiter(l Limits) *limiter { return &limiter{limits: l, bySubject: map[string]*usage{}} }

// A place is one call's share of the limits.
type place struct {
	of      *limiter
	subject string
	bytes   int64
}

// enter counts a call until leave. If that would exceed a limit, it returns nil and the reason.
func (l *limiter) enter(subject string) (p *place, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.bySubject[subject]
	switch {
	case used != nil && used.calls >= l.limits.CallsPerSubject:
		return nil, rejectedSubjectBusy
	case l.calls >= l.limits.Calls:
		return nil, rejectedBusy
	case used == nil:
		used = &usage{}
		l.bySubject[subject] = used
	}
	l.calls++
	used.calls++
	return &place{of: l, subject: subject}, ""
}

// charge sets the bytes that the call takes. If that would exceed a limit, it changes nothing and
// returns the reason.
func (p *place) charge(bytes int64) (reason string) {
	l := p.of
	l.mu.Lock()
	defer l.mu.Unlock()
	used, more := l.bySubject[p.subject], bytes-p.bytes
	switch {
	case more > 0 && used.bytes+more > l.limits.BodiesPerSubject:
		return rejectedSubjectBusy
	case more > 0 && l.bytes+more > l.limits.Bodies:
		return rejectedBusy
	}
	p.bytes, used.bytes, l.bytes = bytes, used.bytes+more, l.bytes+more
	return ""
}

func (p *place) leave() {
	l := p.of
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.bySubject[p.subject]
	l.calls, l.bytes = l.calls-1, l.bytes-p.bytes
	used.calls, used.bytes = used.calls-1, used.bytes-p.bytes
	if used.calls == 0 {
		delete(l.bySubject, p.subject)
	}
}

// now returns the number of calls in progress.
func (l *limiter) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}
