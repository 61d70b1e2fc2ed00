package linearizability

import (
	"context"
	"errors"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A tap stands between a DB and its driver, and notes the database's answers to
// the requests of a call.
type tap struct {
	refdb.Driver
	client *Client
}

// tapped puts a tap on d. The result implements the same optional roles as d.
func tapped(d refdb.Driver, c *Client) refdb.Driver {
	t := &tap{d, c}
	if n, ok := d.(refdb.Notifier); ok {
		return struct {
			*tap
			refdb.Notifier
		}{t, n}
	}
	return t
}

// heard is the database's answers during one call. The background work of a call
// may make requests after the call has returned.
type heard struct {
	mu       sync.Mutex
	underWay int // requests without an answer so far
	answers
}

// answers are the answers that have come.
type answers struct {
	updates  int  // requests
	goesOn   bool // a request is under way, or may be repeated because it was not carried out
	doubt    bool // a reply was lost, or what was granted was given back
	acquired refdb.Acquired
	released *refdb.Released
}

// ask notes that a request is made, and returns what notes its answer.
func (h *heard) ask(note func()) (answered func(err error, note func())) {
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
		h.doubt = h.doubt || errors.Is(err, refdb.ErrOutcomeUnknown)
		if err == nil {
			note()
		}
	}
}

// sofar returns the answers that have come so far.
func (h *heard) sofar() answers {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answers
}

type heardKey struct{}

// listen returns a context under which the tap notes answers.
func listen(ctx context.Context) (context.Context, *heard) {
	h := &heard{}
	return context.WithValue(ctx, heardKey{}, h), h
}

// hearing returns where to note answers. Those to a DB's background work are not noted.
func hearing(ctx context.Context) *heard {
	if h, ok := ctx.Value(heardKey{}).(*heard); ok {
		return h
	}
	return &heard{}
}

func (t *tap) Update(ctx context.Context, r refdb.UpdateRequest) error {
	h := hearing(ctx)
	answered := h.ask(func() { h.updates++ })
	err := t.Driver.Update(ctx, r)
	answered(err, func() {})
	return err
}

func (t *tap) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	h := hearing(ctx)
	// A caller that asks again has given back what came too late.
	answered := h.ask(func() { h.doubt = h.doubt || h.acquired.Token != 0 })
	a, err := t.Driver.Acquire(ctx, r)
	answered(err, func() { h.acquired = a })
	return a, err
}

func (t *tap) Release(ctx context.Context, r refdb.ReleaseRequest) (refdb.Released, error) {
	h := hearing(ctx)
	answered := h.ask(func() {})
	released, err := t.Driver.Release(ctx, r)
	answered(err, func() { h.released = &released })
	return released, err
}

func (t *tap) Beat(ctx context.Context, locks []refdb.LockID) ([]refdb.BeatResult, error) {
	end := t.client.begin(t.client.Owner(), Input{Kind: Beat})
	results, err := t.Driver.Beat(ctx, locks)
	out := answer(err)
	for i, r := range results {
		if r != refdb.BeatUnknown {
			out.Beats = append(out.Beats, Row{locks[i].Project, locks[i].Ref, locks[i].Token, r})
		}
	}
	end(out)
	return results, err
}
