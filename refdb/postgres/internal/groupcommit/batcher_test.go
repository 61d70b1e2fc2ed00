package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A harness is a batcher whose round trips last until reply receives their outcomes.
type harness struct {
	Batcher[string, *testRequest]
	batches   chan []string // the batches sent so far
	ctxs      []context.Context
	reply     chan error // ends the round trip of a batch with the given error
	givenBack []string
	closed    bool
	// noConnection, unless nil, keeps batches from being sent until it is closed.
	noConnection chan struct{}
}

// A testRequest is a request whose key is its name.
type testRequest struct {
	name     string
	alone    bool // it was sent by itself
	answered bool
}

func (r *testRequest) What() string { return "test" }
func (r *testRequest) Key() string  { return r.name }

// answerLimit is the AnswerLimit of the batchers here.
const answerLimit = time.Second

func newHarness() *harness {
	h := &harness{batches: make(chan []string, 100), reply: make(chan error)}
	h.AnswerLimit = answerLimit
	h.Begin, h.End = func() bool { return !h.closed }, func() {}
	h.GiveBack = func(r *testRequest) { h.givenBack = append(h.givenBack, r.name) }
	h.Send = func(ctx context.Context, _ []*testRequest, wanted func() []*testRequest) error {
		if h.noConnection != nil {
			<-h.noConnection
		}
		requests := wanted()
		if ctx.Value(alone) != nil {
			requests[0].alone = true
			return errAlone
		}
		var names []string
		for _, r := range requests {
			names = append(names, r.name)
		}
		h.ctxs = append(h.ctxs, ctx)
		h.batches <- names
		err := <-h.reply
		for _, r := range requests {
			r.answered = err == nil
		}
		return err
	}
	return h
}

var (
	errAlone     = errors.New("was sent alone")
	errUndecided = errors.New("was left undecided")
)

// alone is a key in the contexts of callers: a batch has a context of its own.
var alone = new(struct{ _ int })

// ask makes a request, and returns its outcome.
func (h *harness) ask(ctx context.Context, name string) <-chan error {
	done := make(chan error, 1)
	go func() {
		r := testRequest{name: name}
		err := h.Do(context.WithValue(ctx, alone, true), &r)
		switch {
		case r.alone != errors.Is(err, errAlone):
			err = fmt.Errorf("sent by itself: %v, %w", r.alone, err)
		case err == nil && !r.answered:
			err = errUndecided
		}
		done <- err
	}()
	synctest.Wait()
	return done
}

// occupy keeps the maximum number of round trips in flight until leave is called.
func (h *harness) occupy() (leave func()) {
	h.mu.Lock()
	h.underWay += maxUnderWay
	h.mu.Unlock()
	return func() {
		var all sync.WaitGroup
		for range maxUnderWay {
			all.Go(h.returned)
		}
		all.Wait()
		synctest.Wait()
	}
}

// share puts a and b in flight in a batch that they share.
func (h *harness) share(a, b context.Context) (aDone, bDone <-chan error) {
	leave := h.occupy()
	aDone, bDone = h.ask(a, "a"), h.ask(b, "b")
	leave()
	<-h.batches
	return aDone, bDone
}

func want(t *testing.T, done <-chan error, err error) {
	t.Helper()
	synctest.Wait()
	select {
	case got := <-done:
		if !errors.Is(got, err) {
			t.Errorf("got %v, want %v", got, err)
		}
	default:
		t.Error("no answer")
	}
}

func waits(t *testing.T, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Errorf("answered: %v", err)
	default:
	}
}

func TestBatcher(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, h *harness){
		"a request that finds it idle is sent by itself, at once": func(t *testing.T, h *harness) {
			want(t, h.ask(t.Context(), "a"), errAlone)
			want(t, h.ask(t.Context(), "b"), errAlone)
		},
		"batches are counted by their size": func(t *testing.T, h *harness) {
			want(t, h.ask(t.Context(), "a"), errAlone)
			a, b := h.share(t.Context(), t.Context())
			h.reply <- nil
			want(t, a, nil)
			want(t, b, nil)
			if got := h.Stats(); got.Sizes != [10]uint64{1, 1} || got.Requests != 3 {
				t.Errorf("%+v, want one of one and one of two", got)
			}
		},
		"a request beside one in flight is sent alone, too": func(t *testing.T, h *harness) {
			h.underWay = maxUnderWay - 1
			want(t, h.ask(t.Context(), "a"), errAlone)
		},
		"a batch is sent once it is as large as the last one": func(t *testing.T, h *harness) {
			h.underWay, h.lastSize = maxUnderWay, 3
			a, b := h.ask(t.Context(), "a"), h.ask(t.Context(), "b")
			if h.sendQueue(h.queueNumber, h.lastSize) {
				t.Error("sent too early")
			}
			c := h.ask(t.Context(), "c")
			if !h.sendQueue(h.queueNumber, h.lastSize) {
				t.Error("waits for more")
			}
			if got := <-h.batches; len(got) != 3 {
				t.Error(got)
			}
			h.reply <- nil
			want(t, a, nil)
			want(t, b, nil)
			want(t, c, nil)
		},
		"requests that arrive while others are in flight share the next batch": func(t *testing.T, h *harness) {
			leave := h.occupy()
			a, b := h.ask(t.Context(), "a"), h.ask(t.Context(), "b")
			waits(t, a)
			leave()
			c := h.ask(t.Context(), "c")
			if got := <-h.batches; !slices.Equal(got, []string{"a", "b"}) {
				t.Error(got)
			}
			h.reply <- nil
			want(t, a, nil)
			want(t, b, nil)
			if got := <-h.batches; !slices.Equal(got, []string{"c"}) {
				t.Error(got)
			}
			h.reply <- nil
			want(t, c, nil)
			want(t, h.ask(t.Context(), "d"), errAlone)
		},
		"the next batch waits for an in-flight one to return": func(t *testing.T, h *harness) {
			h.lastSize = 2
			a := h.ask(t.Context(), "a")
			h.lastSize = 2
			b, c := h.ask(t.Context(), "b"), h.ask(t.Context(), "c")
			if got := <-h.batches; !slices.Equal(got, []string{"a"}) {
				t.Error(got)
			}
			if len(h.batches) > 0 {
				t.Error("the next was sent beside it")
			}
			h.reply <- nil
			want(t, a, nil)
			if got := <-h.batches; !slices.Equal(got, []string{"b", "c"}) {
				t.Error(got)
			}
			h.reply <- nil
			want(t, b, nil)
			want(t, c, nil)
		},
		"the next batch does not wait if many requests arrive": func(t *testing.T, h *harness) {
			h.underWay, h.lastSize = 1, 2
			var all []<-chan error
			come := func(n int) {
				for range n {
					all = append(all, h.ask(t.Context(), fmt.Sprint(len(all))))
				}
			}
			sent := func(n int) {
				t.Helper()
				synctest.Wait()
				switch {
				case len(h.batches) > 0:
					if got := <-h.batches; len(got) != n {
						t.Errorf("sent %d, want %d", len(got), n)
					}
				case n > 0:
					t.Error("nothing was sent")
				}
			}
			come(fullBatch - 1)
			sent(0)
			come(1)
			sent(fullBatch)
			come(fullBatch) // at most two are in flight
			sent(0)
			h.returned()
			sent(fullBatch)
			h.reply <- nil
			h.reply <- nil
			for _, done := range all {
				want(t, done, nil)
			}
		},
		"no request waits long for a round trip that does not return": func(t *testing.T, h *harness) {
			leave := h.occupy()
			a := h.ask(t.Context(), "a")
			time.Sleep(window - 1)
			b := h.ask(t.Context(), "b")
			waits(t, a)
			if len(h.batches) > 0 {
				t.Error("sent early")
			}
			time.Sleep(time.Nanosecond)
			if got := <-h.batches; !slices.Equal(got, []string{"a", "b"}) {
				t.Error(got)
			}
			c := h.ask(t.Context(), "c")
			time.Sleep(window)
			if got := <-h.batches; !slices.Equal(got, []string{"c"}) {
				t.Error(got)
			}
			h.reply <- nil
			h.reply <- nil
			want(t, a, nil)
			want(t, b, nil)
			want(t, c, nil)
			leave()
		},
		"the largest batch is sent at once": func(t *testing.T, h *harness) {
			leave := h.occupy()
			var all []<-chan error
			for n := range maxBatch {
				all = append(all, h.ask(t.Context(), fmt.Sprint(n)))
			}
			if got := <-h.batches; len(got) != maxBatch {
				t.Error(len(got))
			}
			h.reply <- nil
			for _, done := range all {
				want(t, done, nil)
			}
			leave()
		},
		"a second request about a ref is sent alone": func(t *testing.T, h *harness) {
			leave := h.occupy()
			a := h.ask(t.Context(), "a")
			want(t, h.ask(t.Context(), "a"), errAlone)
			leave()
			<-h.batches
			h.reply <- nil
			want(t, a, nil)
		},
		"a batch that did nothing leaves all undecided": func(t *testing.T, h *harness) {
			a, b := h.share(t.Context(), t.Context())
			h.reply <- driver.ErrUnavailable
			want(t, a, errUndecided)
			want(t, b, errUndecided)
		},
		"after the driver was closed all are left undecided": func(t *testing.T, h *harness) {
			leave := h.occupy()
			a := h.ask(t.Context(), "a")
			h.closed = true
			leave()
			want(t, a, errUndecided)
		},
		"an unknown outcome is returned to all callers": func(t *testing.T, h *harness) {
			a, b := h.share(t.Context(), t.Context())
			h.reply <- fmt.Errorf("lost: %w", driver.ErrOutcomeUnknown)
			want(t, a, driver.ErrOutcomeUnknown)
			want(t, b, driver.ErrOutcomeUnknown)
		},
		"a request that is given up in the queue was not carried out": func(t *testing.T, h *harness) {
			leave := h.occupy()
			ctx, cancel := context.WithCancel(t.Context())
			a, b := h.ask(ctx, "a"), h.ask(t.Context(), "b")
			cancel()
			synctest.Wait()
			if err := <-a; !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrOutcomeUnknown) {
				t.Error(err)
			}
			leave()
			if got := <-h.batches; !slices.Equal(got, []string{"b"}) {
				t.Error(got)
			}
			h.reply <- nil
			want(t, b, nil)
		},
		"a request that is given up before its batch has a connection was not carried out": func(t *testing.T, h *harness) {
			h.noConnection = make(chan struct{})
			leave := h.occupy()
			ctx, cancel := context.WithCancel(t.Context())
			a, b := h.ask(ctx, "a"), h.ask(t.Context(), "b")
			leave()
			cancel()
			synctest.Wait()
			if err := <-a; !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrOutcomeUnknown) {
				t.Error(err)
			}
			close(h.noConnection)
			if got := <-h.batches; !slices.Equal(got, []string{"b"}) {
				t.Error(got)
			}
			h.reply <- nil
			want(t, b, nil)
			if h.givenBack != nil {
				t.Errorf("the answers of %q were given back", h.givenBack)
			}
		},
		"a request that is given up in flight may have been carried out, if its outcome is unknown": func(t *testing.T, h *harness) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := h.share(ctx, t.Context())
			cancel()
			time.Sleep(answerLimit)
			want(t, a, driver.ErrOutcomeUnknown)
			h.reply <- driver.ErrOutcomeUnknown
			want(t, b, driver.ErrOutcomeUnknown)
			if !slices.Equal(h.givenBack, []string{"a"}) {
				t.Errorf("given back are %q", h.givenBack)
			}
		},
		"giving up the first request does not end the window of the others": func(t *testing.T, h *harness) {
			leave := h.occupy()
			ctx, cancel := context.WithCancel(t.Context())
			a, b := h.ask(ctx, "a"), h.ask(t.Context(), "b")
			cancel()
			want(t, a, context.Canceled)
			time.Sleep(window)
			synctest.Wait()
			if len(h.batches) == 0 {
				t.Error("the other request stays in the queue")
				leave()
			} else {
				defer leave()
			}
			if got := <-h.batches; !slices.Equal(got, []string{"b"}) {
				t.Error(got)
			}
			h.reply <- nil
			want(t, b, nil)
		},
		"the outcome of a request that is given up in flight is unknown, the outcomes of the others are not": func(t *testing.T, h *harness) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := h.share(ctx, t.Context())
			cancel()
			time.Sleep(answerLimit - 1)
			synctest.Wait()
			if len(a) > 0 {
				t.Error("the answer was not waited for")
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			want(t, a, driver.ErrOutcomeUnknown)
			if h.ctxs[0].Err() != nil {
				t.Error("the round trip was cancelled")
			}
			h.reply <- nil
			want(t, b, nil)
			if !slices.Equal(h.givenBack, []string{"a"}) {
				t.Errorf("the answers of %q were given back", h.givenBack)
			}
		},
		"a failed batch gives no answer back": func(t *testing.T, h *harness) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := h.share(ctx, t.Context())
			cancel()
			time.Sleep(answerLimit)
			want(t, a, driver.ErrOutcomeUnknown)
			h.reply <- driver.ErrUnavailable
			want(t, b, errUndecided)
			if h.givenBack != nil {
				t.Errorf("the answers of %q were given back", h.givenBack)
			}
		},
		"an answer that comes soon after giving up is still taken": func(t *testing.T, h *harness) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := h.share(ctx, t.Context())
			cancel()
			time.Sleep(answerLimit / 2)
			h.reply <- nil
			synctest.Wait()
			want(t, a, nil)
			want(t, b, nil)
			if h.givenBack != nil {
				t.Errorf("the answers of %q were given back", h.givenBack)
			}
		},
		"a batch without waiting callers is cancelled": func(t *testing.T, h *harness) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := h.share(ctx, ctx)
			cancel()
			synctest.Wait()
			if h.ctxs[0].Err() == nil {
				t.Error("the round trip was not cancelled")
			}
			h.reply <- h.ctxs[0].Err()
			synctest.Wait()
			want(t, a, errUndecided)
			want(t, b, errUndecided)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newHarness()) })
		})
	}
}
