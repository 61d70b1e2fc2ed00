package linearizability

import (
	"context"
	"errors"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A recordingDriver stands between a DB and its driver, and notes the database's answers to
// the requests of a call.
type recordingDriver struct {
	refdb.Driver
	client *Client
}

// recording returns d as one whose answers are noted. The result implements the same optional roles as d.
func recording(d refdb.Driver, c *Client) refdb.Driver {
	t := &recordingDriver{d, c}
	if n, ok := d.(driver.Notifier); ok {
		return struct {
			*recordingDriver
			driver.Notifier
		}{t, n}
	}
	return t
}

// requests are those of one call, with the database's answers. The background work of a call
// may make requests after the call has returned.
type requests struct {
	mu       sync.Mutex
	underWay int // requests without an answer so far
	answers
}

// answers are the answers that have come.
type answers struct {
	updates    int  // requests
	goesOn     bool // a request is under way, or may be repeated because it was not carried out
	unresolved bool // a reply was lost, or what was granted was given back
	acquired   driver.Acquired
	released   *driver.Released
}

// ask notes that a request is made, and returns what notes its answer.
func (h *requests) ask(note func()) (answered func(err error, note func())) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.underWay++
	h.goesOn = true
	note()
	return func(err error, note func()) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.underWay--
		h.goesOn = h.underWay > 0 || errors.Is(err, refdb.ErrUnavailable)
		h.unresolved = h.unresolved || errors.Is(err, refdb.ErrOutcomeUnknown)
		if err == nil {
			note()
		}
	}
}

// sofar returns the answers that have come so far.
func (h *requests) sofar() answers {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answers
}

type requestsKey struct{}

// noteRequests returns a context under which a recordingDriver notes answers.
func noteRequests(ctx context.Context) (context.Context, *requests) {
	h := &requests{}
	return context.WithValue(ctx, requestsKey{}, h), h
}

// requestsOf returns where to note answers. Those to a DB's background work are not noted.
func requestsOf(ctx context.Context) *requests {
	if h, ok := ctx.Value(requestsKey{}).(*requests); ok {
		return h
	}
	return &requests{}
}

func (t *recordingDriver) Update(ctx context.Context, r driver.UpdateRequest) error {
	h := requestsOf(ctx)
	answered := h.ask(func() { h.updates++ })
	err := t.Driver.Update(ctx, r)
	answered(err, func() {})
	return err
}

func (t *recordingDriver) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	h := requestsOf(ctx)
	// A caller that asks again has given back what came too late.
	answered := h.ask(func() { h.unresolved = h.unresolved || h.acquired.Token != 0 })
	a, err := t.Driver.Acquire(ctx, r)
	answered(err, func() { h.acquired = a })
	return a, err
}

func (t *recordingDriver) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	h := requestsOf(ctx)
	answered := h.ask(func() {})
	released, err := t.Driver.Release(ctx, r)
	answered(err, func() { h.released = &released })
	return released, err
}

func (t *recordingDriver) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	end := t.client.begin(t.client.Owner(), Input{Kind: Beat})
	results, err := t.Driver.Beat(ctx, locks)
	out := answer(err)
	for i, r := range results {
		if r != driver.BeatUnknown {
			out.Beats = append(out.Beats, Row{locks[i].Project, locks[i].Ref, locks[i].Token, r})
		}
	}
	end(out)
	return results, err
}
