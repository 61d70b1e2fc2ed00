package server

import (
	"fmt"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Limits bound the resources that callers can use at a time. Requests beyond a limit are refused at once.
type Limits struct {
	Calls             int   // of all callers; three quarters of them may be acquisitions
	CallsPerSubject   int   // of one subject, of which three quarters may be acquisitions
	Body              int64 // bytes of one request
	Bodies            int64 // bytes of all requests that have arrived, in whole or in part; three quarters may be of acquisitions
	BodiesPerSubject  int64 // of those of one subject; three quarters may be of acquisitions
	Connections       int   // open ones; more wait until one is closed
	Streams           int   // of all callers; they aren't calls
	StreamsPerSubject int
	Requests          int // calls that have requests at the database; more wait. A subject has a quarter of them. 0 is for the size of the pool
}

// DefaultLimits are the limits unless others are configured.
var DefaultLimits = Limits{Calls: 1024, CallsPerSubject: 128, Body: 2 << 20, Bodies: 32 << 20, BodiesPerSubject: 8 << 20, Connections: 16 << 10, Streams: 10_000, StreamsPerSubject: 1000}

func (l Limits) check() error {
	if l.Calls < 1 || l.CallsPerSubject < 1 || l.Body < 1 || l.BodiesPerSubject < l.Body || l.Bodies < l.BodiesPerSubject || l.Connections < 1 || l.Streams < 1 || l.StreamsPerSubject < 1 || l.Requests < 4 && l.Requests != 0 {
		return fmt.Errorf("%w limits: those of calls, streams and connections must be positive, one request must fit into the bytes of a subject "+
			"and these into those of all, and at least 4 requests must be allowed at the database", refdb.ErrInvalid)
	}
	return nil
}

// mayLast is how many of so many calls, or of their bytes, calls may use that last: the others are left for
// calls such as Extend.
func mayLast[N int | int64](limit N) N { return max(1, limit*3/4) }

// A limited is what a limiter counts: the noun, and the reasons for which one more is rejected.
type limited struct {
	noun                              string
	all, bytes, subject, subjectBytes string
}

var (
	ofCalls   = limited{"calls", rejectedCalls, rejectedBytes, rejectedSubjectCalls, rejectedSubjectBytes}
	ofStreams = limited{"streams", rejectedStreams, rejectedStreamBytes, rejectedSubjectStreams, rejectedSubjectStreamBytes}
	ofScrapes = limited{"requests for metrics", rejectedScrapes, "", rejectedSubjectScrapes, ""} // without a body
)

// A limiter counts calls of authenticated callers, and the memory that their bodies take.
type limiter struct {
	limits Limits
	what   limited

	mu        sync.Mutex
	used      usage
	bySubject map[string]*usage
}

// usage is what all subjects use, or one.
type usage struct {
	calls, lasting      int
	bytes, lastingBytes int64
}

func newLimiter(l Limits, what limited) *limiter {
	return &limiter{limits: l, what: what, bySubject: map[string]*usage{}}
}

// A place is one call's share of the limits.
type place struct {
	of      *limiter
	subject string
	bytes   int64
	users   int  // of the bytes: the call, and an acquisition
	lasts   bool // it is an acquisition, and charges nothing more
}

// enter counts a call until leave. If that would exceed a limit, it returns nil and the reason.
func (l *limiter) enter(subject string) (p *place, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.bySubject[subject]
	switch {
	case used != nil && used.calls >= l.limits.CallsPerSubject:
		return nil, l.what.subject
	case l.used.calls >= l.limits.Calls:
		return nil, l.what.all
	case used == nil:
		used = &usage{}
		l.bySubject[subject] = used
	}
	l.used.calls++
	used.calls++
	return &place{of: l, subject: subject, users: 1}, ""
}

// last counts the call as one that lasts, until leave, and its bytes as those of one. If that would exceed a
// limit, it returns the reason.
func (p *place) last() (reason string) {
	l := p.of
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.bySubject[p.subject]
	switch {
	case p.lasts:
		return ""
	case used.lasting >= mayLast(l.limits.CallsPerSubject):
		return rejectedSubjectLasting
	case l.used.lasting >= mayLast(l.limits.Calls):
		return rejectedLasting
	case used.lastingBytes+p.bytes > mayLast(l.limits.BodiesPerSubject):
		return rejectedSubjectLastingBytes
	case l.used.lastingBytes+p.bytes > mayLast(l.limits.Bodies):
		return rejectedLastingBytes
	}
	p.lasts = true
	for _, u := range []*usage{&l.used, used} {
		u.lasting++
		u.lastingBytes += p.bytes
	}
	return ""
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
		return l.what.subjectBytes
	case more > 0 && l.used.bytes+more > l.limits.Bodies:
		return l.what.bytes
	}
	p.bytes, used.bytes, l.used.bytes = bytes, used.bytes+more, l.used.bytes+more
	return ""
}

// keep has the bytes counted until release, also after the call.
func (p *place) keep() (release func()) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.users++
	return sync.OnceFunc(func() {
		p.of.mu.Lock()
		defer p.of.mu.Unlock()
		p.release()
	})
}

// leave ends the call.
func (p *place) leave() {
	l := p.of
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.bySubject[p.subject]
	l.used.calls--
	used.calls--
	if p.lasts {
		l.used.lasting--
		used.lasting--
	}
	p.release()
}

// release ends one use of the bytes; the limiter's mu is held.
func (p *place) release() {
	l, used := p.of, p.of.bySubject[p.subject]
	if p.users--; used == nil {
		return // there were no bytes
	}
	if p.users == 0 {
		for _, u := range []*usage{&l.used, used} {
			u.bytes -= p.bytes
			if p.lasts {
				u.lastingBytes -= p.bytes
			}
		}
	}
	if used.calls == 0 && used.bytes == 0 {
		delete(l.bySubject, p.subject)
	}
}

// now returns the number of calls in progress.
func (l *limiter) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used.calls
}
