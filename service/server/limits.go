package server

import (
	"fmt"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Limits bound what callers can use at a time. Requests beyond a limit are refused at once.
type Limits struct {
	Calls           int   // of all callers
	CallsPerSubject int   // of one; calls that wait for a lock count
	Body            int64 // bytes of one request
	Bodies          int64 // bytes of all requests that are being answered
}

// DefaultLimits are the limits unless others are configured.
var DefaultLimits = Limits{Calls: 1024, CallsPerSubject: 128, Body: 8 << 20, Bodies: 256 << 20}

func (l Limits) check() error {
	if l.Calls < 1 || l.CallsPerSubject < 1 || l.Body < 1 || l.Bodies < l.Body {
		return fmt.Errorf("%w limits %+v: each must be positive, and one request fit among all", refdb.ErrInvalid, l)
	}
	return nil
}

// A limiter counts calls of authenticated callers.
type limiter struct {
	limits Limits

	mu        sync.Mutex
	calls     int
	bytes     int64
	bySubject map[string]int
}

func newLimiter(l Limits) *limiter { return &limiter{limits: l, bySubject: map[string]int{}} }

// enter counts a call until leave. If that would exceed a limit, leave is nil, and reason names it.
func (l *limiter) enter(subject string, size int64) (leave func(), reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.bySubject[subject] >= l.limits.CallsPerSubject:
		return nil, rejectedSubjectBusy
	case l.calls >= l.limits.Calls, l.bytes+size > l.limits.Bodies:
		return nil, rejectedBusy
	}
	l.calls, l.bytes = l.calls+1, l.bytes+size
	l.bySubject[subject]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls, l.bytes = l.calls-1, l.bytes-size
		if l.bySubject[subject]--; l.bySubject[subject] == 0 {
			delete(l.bySubject, subject)
		}
	}, ""
}

// now returns how many calls are being answered.
func (l *limiter) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}
