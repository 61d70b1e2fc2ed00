package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A track is a lane whose trips take until they are let go.
type track struct {
	lane
	alone  atomic.Int32
	trips  chan []string // that were shared
	ctxs   []context.Context
	letGo  chan error // ends a shared trip with that error
	closed bool
}

// A ticket is the call of that name.
type ticket struct {
	name     string
	answered bool
}

func (t *ticket) what() string { return "test" }
func (t *ticket) ref() refName { return refName{"project", t.name} }

func newTrack() *track {
	t := &track{trips: make(chan []string, 100), letGo: make(chan error)}
	t.begin, t.end = func() bool { return !t.closed }, func() {}
	t.share = func(ctx context.Context, together []call) error {
		var names []string
		for _, c := range together {
			c := c.(*ticket)
			names = append(names, c.name)
			c.answered = true
		}
		t.ctxs = append(t.ctxs, ctx)
		t.trips <- names
		return <-t.letGo
	}
	return t
}

var errAlone = errors.New("made a trip of its own")

// ride makes a request, and tells what came of it.
func (t *track) ride(ctx context.Context, name string) <-chan error {
	done := make(chan error, 1)
	go func() {
		c := ticket{name: name}
		shared, err := t.pass(ctx, &c, func() error {
			t.alone.Add(1)
			return errAlone
		})
		if shared != (err == nil) || shared && !c.answered {
			err = fmt.Errorf("shared: %v, answered: %v, %w", shared, c.answered, err)
		}
		done <- err
	}()
	synctest.Wait()
	return done
}

// occupy has trips of their own under way, as many as there may be, until the function is called.
func (t *track) occupy() (leave func()) {
	gone := make(chan struct{})
	var all sync.WaitGroup
	for n := range laneWidth {
		all.Go(func() {
			_, _ = t.pass(context.Background(), &ticket{name: fmt.Sprint("occupied ", n)}, func() error { <-gone; return nil })
		})
	}
	synctest.Wait()
	return func() { close(gone); all.Wait(); synctest.Wait() }
}

// board has a and b under way in a trip that they share.
func (t *track) board(a, b context.Context) (aDone, bDone <-chan error) {
	leave := t.occupy()
	aDone, bDone = t.ride(a, "a"), t.ride(b, "b")
	leave()
	<-t.trips
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

func TestLane(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, l *track){
		"whoever finds it free goes alone, at once": func(t *testing.T, l *track) {
			want(t, l.ride(t.Context(), "a"), errAlone)
			want(t, l.ride(t.Context(), "b"), errAlone)
		},
		"as many go alone at once as the lane is wide": func(t *testing.T, l *track) {
			l.under = laneWidth - 1
			want(t, l.ride(t.Context(), "a"), errAlone)
		},
		"a trip leaves once as many have come as shared the last one": func(t *testing.T, l *track) {
			l.under, l.crowd = laneWidth, 3
			a, b := l.ride(t.Context(), "a"), l.ride(t.Context(), "b")
			if l.departAs(l.departed, false) {
				t.Error("left too early")
			}
			c := l.ride(t.Context(), "c")
			if !l.departAs(l.departed, false) {
				t.Error("waits for more")
			}
			if got := <-l.trips; len(got) != 3 {
				t.Error(got)
			}
			l.letGo <- nil
			want(t, a, nil)
			want(t, b, nil)
			want(t, c, nil)
		},
		"those who come while trips are under way share the next": func(t *testing.T, l *track) {
			leave := l.occupy()
			a, b := l.ride(t.Context(), "a"), l.ride(t.Context(), "b")
			waits(t, a)
			leave()
			c := l.ride(t.Context(), "c")
			if got := <-l.trips; !slices.Equal(got, []string{"a", "b"}) {
				t.Error(got)
			}
			l.letGo <- nil
			want(t, a, nil)
			want(t, b, nil)
			if got := <-l.trips; !slices.Equal(got, []string{"c"}) {
				t.Error(got)
			}
			l.letGo <- nil
			want(t, c, nil)
			want(t, l.ride(t.Context(), "d"), errAlone)
		},
		"the next waits for a shared trip to return": func(t *testing.T, l *track) {
			l.crowd = 2
			a := l.ride(t.Context(), "a")
			l.crowd = 2
			b, c := l.ride(t.Context(), "b"), l.ride(t.Context(), "c")
			if got := <-l.trips; !slices.Equal(got, []string{"a"}) {
				t.Error(got)
			}
			if len(l.trips) > 0 {
				t.Error("the next left beside it")
			}
			l.letGo <- nil
			want(t, a, nil)
			if got := <-l.trips; !slices.Equal(got, []string{"b", "c"}) {
				t.Error(got)
			}
			l.letGo <- nil
			want(t, b, nil)
			want(t, c, nil)
		},
		"unless many come": func(t *testing.T, l *track) {
			l.under, l.crowd = 1, 2
			var all []<-chan error
			come := func(n int) {
				for range n {
					all = append(all, l.ride(t.Context(), fmt.Sprint(len(all))))
				}
			}
			left := func(n int) {
				t.Helper()
				synctest.Wait()
				switch {
				case len(l.trips) > 0:
					if got := <-l.trips; len(got) != n {
						t.Errorf("left with %d, want %d", len(got), n)
					}
				case n > 0:
					t.Error("has not left")
				}
			}
			come(laneFull - 1)
			left(0)
			come(1)
			left(laneFull)
			come(laneFull) // more than two are not under way
			left(0)
			l.leave()
			left(laneFull)
			l.letGo <- nil
			l.letGo <- nil
			for _, done := range all {
				want(t, done, nil)
			}
		},
		"nobody waits long for a trip that does not return": func(t *testing.T, l *track) {
			leave := l.occupy()
			a := l.ride(t.Context(), "a")
			time.Sleep(lanePatience - 1)
			b := l.ride(t.Context(), "b")
			waits(t, a)
			if len(l.trips) > 0 {
				t.Error("left early")
			}
			time.Sleep(time.Nanosecond)
			if got := <-l.trips; !slices.Equal(got, []string{"a", "b"}) {
				t.Error(got)
			}
			c := l.ride(t.Context(), "c")
			time.Sleep(lanePatience)
			if got := <-l.trips; !slices.Equal(got, []string{"c"}) {
				t.Error(got)
			}
			l.letGo <- nil
			l.letGo <- nil
			want(t, a, nil)
			want(t, b, nil)
			want(t, c, nil)
			leave()
		},
		"a full trip leaves at once": func(t *testing.T, l *track) {
			leave := l.occupy()
			var all []<-chan error
			for n := range laneSeats {
				all = append(all, l.ride(t.Context(), fmt.Sprint(n)))
			}
			if got := <-l.trips; len(got) != laneSeats {
				t.Error(len(got))
			}
			l.letGo <- nil
			for _, done := range all {
				want(t, done, nil)
			}
			leave()
		},
		"a request for a ref that another queues for goes alone": func(t *testing.T, l *track) {
			leave := l.occupy()
			a := l.ride(t.Context(), "a")
			want(t, l.ride(t.Context(), "a"), errAlone)
			leave()
			<-l.trips
			l.letGo <- nil
			want(t, a, nil)
		},
		"after a shared trip that did nothing all go alone": func(t *testing.T, l *track) {
			a, b := l.board(t.Context(), t.Context())
			l.letGo <- refdb.ErrUnavailable
			want(t, a, errAlone)
			want(t, b, errAlone)
		},
		"after the driver was closed all go alone, to hear of it": func(t *testing.T, l *track) {
			leave := l.occupy()
			a := l.ride(t.Context(), "a")
			l.closed = true
			leave()
			want(t, a, errAlone)
		},
		"an unknown outcome is everybody's": func(t *testing.T, l *track) {
			a, b := l.board(t.Context(), t.Context())
			l.letGo <- fmt.Errorf("lost: %w", refdb.ErrOutcomeUnknown)
			want(t, a, refdb.ErrOutcomeUnknown)
			want(t, b, refdb.ErrOutcomeUnknown)
			if n := l.alone.Load(); n != 0 {
				t.Errorf("%d went again", n)
			}
		},
		"who gives up in the queue was not carried out": func(t *testing.T, l *track) {
			leave := l.occupy()
			ctx, cancel := context.WithCancel(t.Context())
			a, b := l.ride(ctx, "a"), l.ride(t.Context(), "b")
			cancel()
			want(t, a, errAlone) // which fails, for ctx has ended
			leave()
			if got := <-l.trips; !slices.Equal(got, []string{"b"}) {
				t.Error(got)
			}
			l.letGo <- nil
			want(t, b, nil)
		},
		"who gives up as the first does not take the others' patience along": func(t *testing.T, l *track) {
			leave := l.occupy()
			ctx, cancel := context.WithCancel(t.Context())
			a, b := l.ride(ctx, "a"), l.ride(t.Context(), "b")
			cancel()
			want(t, a, errAlone)
			time.Sleep(lanePatience)
			synctest.Wait()
			if len(l.trips) == 0 {
				t.Error("the other is left behind")
				leave()
			} else {
				defer leave()
			}
			if got := <-l.trips; !slices.Equal(got, []string{"b"}) {
				t.Error(got)
			}
			l.letGo <- nil
			want(t, b, nil)
		},
		"who gives up under way knows nothing, and ends it for nobody else": func(t *testing.T, l *track) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := l.board(ctx, t.Context())
			cancel()
			time.Sleep(cancelLimit - 1)
			synctest.Wait()
			if len(a) > 0 {
				t.Error("the answer was not waited for")
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			want(t, a, refdb.ErrOutcomeUnknown)
			if l.ctxs[0].Err() != nil {
				t.Error("the trip was ended")
			}
			l.letGo <- nil
			want(t, b, nil)
		},
		"who gives up under way still takes the answer if it comes soon": func(t *testing.T, l *track) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := l.board(ctx, t.Context())
			cancel()
			time.Sleep(cancelLimit / 2)
			l.letGo <- nil
			synctest.Wait()
			want(t, a, nil)
			want(t, b, nil)
		},
		"a trip that nobody waits for any more is ended": func(t *testing.T, l *track) {
			ctx, cancel := context.WithCancel(t.Context())
			a, b := l.board(ctx, ctx)
			cancel()
			synctest.Wait()
			if l.ctxs[0].Err() == nil {
				t.Error("the trip goes on")
			}
			l.letGo <- l.ctxs[0].Err()
			synctest.Wait()
			want(t, a, errAlone) // which fails, for ctx has ended
			want(t, b, errAlone)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newTrack()) })
		})
	}
}
