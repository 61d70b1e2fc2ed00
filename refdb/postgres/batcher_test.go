package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A station is a batcher whose round trips take until they are let go.
type station struct {
	batcher
	batches  chan []string // that were sent
	ctxs     []context.Context
	letGo    chan error // ends the round trip of a batch with that error
	disowned []string
	closed   bool
	// noConnection, unless nil, keeps batches from being sent until it is closed.
	noConnection chan struct{}
}

// A ticket is the call of that name.
type ticket struct {
	name     string
	alone    bool // it was sent by itself
	answered bool
}

func (t *ticket) what() string   { return "test" }
func (t *ticket) ref() refName   { return refName{"project", t.name} }
func (t *ticket) reset()         {}
func (t *ticket) decide(*Driver) {}

func newStation() *station {
	s := &station{batches: make(chan []string, 100), letGo: make(chan error)}
	s.begin, s.end = func() bool { return !s.closed }, func() {}
	s.disown = func(c call) { s.disowned = append(s.disowned, c.(*ticket).name) }
	s.carryOut = func(ctx context.Context, _ []call, wanted func() []call) error {
		if s.noConnection != nil {
			<-s.noConnection
		}
		calls := wanted()
		if first := calls[0].(*ticket); ctx.Value(alone) != nil {
			first.alone = true
			return errAlone
		}
		var names []string
		for _, c := range calls {
			names = append(names, c.(*ticket).name)
		}
		s.ctxs = append(s.ctxs, ctx)
		s.batches <- names
		err := <-s.letGo
		for _, c := range calls {
			c.(*ticket).answered = err == nil
		}
		return err
	}
	return s
}

var (
	errAlone     = errors.New("was sent by itself")
	errUndecided = errors.New("was left undecided")
)

// alone is in the contexts of callers: a batch has one of its own.
var alone = new(struct{ _ int })

// ask makes a request, and tells what came of it.
func (s *station) ask(ctx context.Context, name string) <-chan error {
	done := make(chan error, 1)
	go func() {
		c := ticket{name: name}
		err := s.do(context.WithValue(ctx, alone, true), &c)
		switch {
		case c.alone != errors.Is(err, errAlone):
			err = fmt.Errorf("sent by itself: %v, %w", c.alone, err)
		case err == nil && !c.answered:
			err = errUndecided
		}
		done <- err
	}()
	synctest.Wait()
	return done
}

// occupy has as many round trips under way as there may be, until the function is called.
func (s *station) occupy() (leave func()) {
	s.mu.Lock()
	s.underWay += maxUnderWay
	s.mu.Unlock()
	return func() {
		var all sync.WaitGroup
		for range maxUnderWay {
			all.Go(s.leave)
		}
		all.Wait()
		synctest.Wait()
	}
}

// board has a and b under way in a batch that they share.
func (s *station) board(a, b context.Context) (aDone, bDone <-chan error) {
	leave := s.occupy()
	aDone, bDone = s.ask(a, "a"), s.ask(b, "b")
	leave()
	<-s.batches
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
	for name, test := range map[string]func(t *testing.T, s *station){
		"a request that finds it idle is sent by itself, at once": func(t *testing.T, s *station) {
			want(t, s.ask(t.Context(), "a"), errAlone)
			want(t, s.ask(t.Context(), "b"), errAlone)
		},
		"so is one beside another": func(t *testing.T, s *station) {
			s.underWay = maxUnderWay - 1
			want(t, s.ask(t.Context(), "a"), errAlone)
		},
		"a batch is sent once it is as large as the last one": func(t *testing.T, s *station) {
			s.underWay, s.lastSize = maxUnderWay, 3
			a, b := s.ask(t.Context(), "a"), s.ask(t.Context(), "b")
			if s.sendQueue(s.sent, false) {
				t.Error("sent too early")
			}
			c := s.ask(t.Context(), "c")
			if !s.sendQueue(s.sent, false) {
				t.Error("waits for more")
			}
			if got := <-s.batches; len(got) != 3 {
				t.Error(got)
			}
			s.letGo <- nil
			want(t, a, nil)
			want(t, b, nil)
			want(t, c, nil)
		},
		"requests that come while others are under way share the next batch": func(t *testing.T, s *station) {
			leave := s.occupy()
			a, b := s.ask(t.Context(), "a"), s.ask(t.Context(), "b")
			waits(t, a)
			leave()
			c := s.ask(t.Context(), "c")
			if got := <-s.batches; !slices.Equal(got, []string{"a", "b"}) {
				t.Error(got)
			}
			s.letGo <- nil
			want(t, a, nil)
			want(t, b, nil)
			if got := <-s.batches; !slices.Equal(got, []string{"c"}) {
				t.Error(got)
			}
			s.letGo <- nil
			want(t, c, nil)
			want(t, s.ask(t.Context(), "d"), errAlone)
		},
		"the next batch waits for one under way to return": func(t *testing.T, s *station) {
			s.lastSize = 2
			a := s.ask(t.Context(), "a")
			s.lastSize = 2
			b, c := s.ask(t.Context(), "b"), s.ask(t.Context(), "c")
			if got := <-s.batches; !slices.Equal(got, []string{"a"}) {
				t.Error(got)
			}
			if len(s.batches) > 0 {
				t.Error("the next was sent beside it")
			}
			s.letGo <- nil
			want(t, a, nil)
			if got := <-s.batches; !slices.Equal(got, []string{"b", "c"}) {
				t.Error(got)
			}
			s.letGo <- nil
			want(t, b, nil)
			want(t, c, nil)
		},
		"unless many requests come": func(t *testing.T, s *station) {
			s.underWay, s.lastSize = 1, 2
			var all []<-chan error
			come := func(n int) {
				for range n {
					all = append(all, s.ask(t.Context(), fmt.Sprint(len(all))))
				}
			}
			sent := func(n int) {
				t.Helper()
				synctest.Wait()
				switch {
				case len(s.batches) > 0:
					if got := <-s.batches; len(got) != n {
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
			come(fullBatch) // more than two are not under way
			sent(0)
			s.leave()
			sent(fullBatch)
			s.letGo <- nil
			s.letGo <- nil
			for _, done := range all {
				want(t, done, nil)
			}
		},
		"no request waits long for a round trip that does not return": func(t *testing.T, s *station) {
			leave := s.occupy()
			a := s.ask(t.Context(), "a")
			time.Sleep(queuePatience - 1)
			b := s.ask(t.Context(), "b")
			waits(t, a)
			if len(s.batches) > 0 {
				t.Error("sent early")
			}
			time.Sleep(time.Nanosecond)
			if got := <-s.batches; !slices.Equal(got, []string{"a", "b"}) {
				t.Error(got)
			}
			c := s.ask(t.Context(), "c")
			time.Sleep(queuePatience)
			if got := <-s.batches; !slices.Equal(got, []string{"c"}) {
				t.Error(got)
			}
			s.letGo <- nil
			s.letGo <- nil
			want(t, a, nil)
			want(t, b, nil)
			want(t, c, nil)
			leave()
		},
		"the largest batch is sent at once": func(t *testing.T, s *station) {
			leave := s.occupy()
			var all []<-chan error
			for n := range maxBatch {
				all = append(all, s.ask(t.Context(), fmt.Sprint(n)))
			}
			if got := <-s.batches; len(got) != maxBatch {
				t.Error(len(got))
			}
			s.letGo <- nil
			for _, done := range all {
				want(t, done, nil)
			}
			leave()
		},
		"a second request about a ref is sent by itself": func(t *testing.T, s *station) {
			leave := s.occupy()
			a := s.ask(t.Context(), "a")
			want(t, s.ask(t.Context(), "a"), errAlone)
			leave()
			<-s.batches
			s.letGo <- nil
			want(t, a, nil)
		},
		"a batch that did nothing leaves all undecided": func(t *testing.T, s *station) {
			a, b := s.board(t.Context(), t.Context())
			s.letGo <- refdb.ErrUnavailable
			want(t, a, errUndecided)
			want(t, b, errUndecided)
		},
		"after the driver was closed all are left undecided": func(t *testing.T, s *station) {
			leave := s.occupy()
			a := s.ask(t.Context(), "a")
			s.closed = true
			leave()
			want(t, a, errUndecided)
		},
		"an unknown outcome is everybody's": func(t *testing.T, s *station) {
			a, b := s.board(t.Context(), t.Context())
			s.letGo <- fmt.Errorf("lost: %w", refdb.ErrOutcomeUnknown)
			want(t, a, refdb.ErrOutcomeUnknown)
			want(t, b, refdb.ErrOutcomeUnknown)
		},
		"a request that is given up in the queue was not carried out": func(t *testing.T, s *station) {
			leave := s.occupy()
			ctx, cancel := context.WithCancel(t.Context())
			a, b := s.ask(ctx, "a"), s.ask(t.Context(), "b")
			cancel()
			synctest.Wait()
			if err := <-a; !errors.Is(err, context.Canceled) || errors.Is(err, refdb.ErrOutcomeUnknown) {
				t.Error(err)
			}
			leave()
			if got := <-s.batches; !slices.Equal(got, []string{"b"}) {
				t.Error(got)
			}
			s.letGo <- nil
			want(t, b, nil)
		},
		"so was not one that is given up before its batch has a connection": func(t *testing.T, s *station) {
			s.noConnection = make(chan struct{})
			leave := s.occupy()
			ctx, cancel := context.WithCancel(t.Context())
			a, b := s.ask(ctx, "a"), s.ask(t.Context(), "b")
			leave()
			cancel()
			synctest.Wait()
			if err := <-a; !errors.Is(err, context.Canceled) || errors.Is(err, refdb.ErrOutcomeUnknown) {
				t.Error(err)
			}
			close(s.noConnection)
			if got := <-s.batches; !slices.Equal(got, []string{"b"}) {
				t.Error(got)
			}
			s.letGo <- nil
			want(t, b, nil)
			if s.disowned != nil {
				t.Errorf("the answers of %q were nobody's", s.disowned)
			}
		},
		"one that is given up under way may have been carried out, if that is unknown": func(t *testing.T, s *station) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := s.board(ctx, t.Context())
			cancel()
			time.Sleep(cancelLimit)
			want(t, a, refdb.ErrOutcomeUnknown)
			s.letGo <- refdb.ErrOutcomeUnknown
			want(t, b, refdb.ErrOutcomeUnknown)
			if !slices.Equal(s.disowned, []string{"a"}) {
				t.Errorf("disowned are %q", s.disowned)
			}
		},
		"giving up the first request does not end the patience of the others": func(t *testing.T, s *station) {
			leave := s.occupy()
			ctx, cancel := context.WithCancel(t.Context())
			a, b := s.ask(ctx, "a"), s.ask(t.Context(), "b")
			cancel()
			want(t, a, context.Canceled)
			time.Sleep(queuePatience)
			synctest.Wait()
			if len(s.batches) == 0 {
				t.Error("the other is left behind")
				leave()
			} else {
				defer leave()
			}
			if got := <-s.batches; !slices.Equal(got, []string{"b"}) {
				t.Error(got)
			}
			s.letGo <- nil
			want(t, b, nil)
		},
		"the outcome of a request that is given up under way is unknown, that of the others is not": func(t *testing.T, s *station) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := s.board(ctx, t.Context())
			cancel()
			time.Sleep(cancelLimit - 1)
			synctest.Wait()
			if len(a) > 0 {
				t.Error("the answer was not waited for")
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			want(t, a, refdb.ErrOutcomeUnknown)
			if s.ctxs[0].Err() != nil {
				t.Error("the round trip was ended")
			}
			s.letGo <- nil
			want(t, b, nil)
			if !slices.Equal(s.disowned, []string{"a"}) {
				t.Errorf("the answers of %q were nobody's", s.disowned)
			}
		},
		"nor does one that failed leave an answer behind": func(t *testing.T, s *station) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := s.board(ctx, t.Context())
			cancel()
			time.Sleep(cancelLimit)
			want(t, a, refdb.ErrOutcomeUnknown)
			s.letGo <- refdb.ErrUnavailable
			want(t, b, errUndecided)
			if s.disowned != nil {
				t.Errorf("the answers of %q were nobody's", s.disowned)
			}
		},
		"an answer that comes soon after giving up is still taken": func(t *testing.T, s *station) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := s.board(ctx, t.Context())
			cancel()
			time.Sleep(cancelLimit / 2)
			s.letGo <- nil
			synctest.Wait()
			want(t, a, nil)
			want(t, b, nil)
			if s.disowned != nil {
				t.Errorf("the answers of %q were nobody's", s.disowned)
			}
		},
		"a batch that nobody waits for any more is ended": func(t *testing.T, s *station) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := s.board(ctx, ctx)
			cancel()
			synctest.Wait()
			if s.ctxs[0].Err() == nil {
				t.Error("the round trip goes on")
			}
			s.letGo <- s.ctxs[0].Err()
			synctest.Wait()
			want(t, a, errUndecided)
			want(t, b, errUndecided)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newStation()) })
		})
	}
}
