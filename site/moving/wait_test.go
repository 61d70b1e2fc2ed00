package moving_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

var errLocked = refusal.Because(refusal.Locked, refusal.Lines{"locked"})

// A waiting is a call of Await that is refused until free is set.
type waiting struct {
	*moving.Coordinator
	stop  context.CancelFunc // the daemon
	gone  chan struct{}      // closed when the client goes
	mu    sync.Mutex         // guards the next
	free  error              // nil, or what refuses
	tries []time.Duration    // when, since the start
	ended chan struct{}      // closed when the call has ended
	err   error              // of the call
	began time.Time
	took  time.Duration
}

// answer changes what refuses.
func (w *waiting) answer(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = err
}

// wait begins to wait for ref, in a bubble.
func wait(t *testing.T, limit time.Duration) *waiting {
	state := serving.New(&config.Config{}, nil)
	w := &waiting{Coordinator: &moving.Coordinator{Deps: moving.Deps{State: state}}, gone: make(chan struct{}), free: errLocked, ended: make(chan struct{}), began: time.Now()}
	state.Upkeep, w.stop = context.WithCancel(t.Context())
	go func() {
		defer close(w.ended)
		w.err = w.Await(t.Context(), moving.Wait{
			Project: project, Moves: []refdb.Update{{Ref: "refs/heads/other"}, {Ref: ref}}, Until: w.began.Add(limit), Passes: moving.Locked, Gone: w.gone,
		}, func() error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tries = append(w.tries, time.Since(w.began))
			return w.free
		})
		w.took = time.Since(w.began)
	}()
	synctest.Wait()
	return w
}

const (
	moment = 5 * time.Millisecond // before the first poll
	long   = 2 * time.Second
)

func TestAWaiterTriesAgainWhenItsRefIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wait(t, long)
		time.Sleep(moment)
		w.Wake("team/other", ref)
		w.Wake(project, "refs/heads/b")
		synctest.Wait()
		if len(w.tries) != 1 {
			t.Errorf("after changes of other refs it has tried at %v", w.tries)
		}
		w.answer(nil)
		w.Wake(project, "refs/heads/b", ref)
		<-w.ended
		if w.err != nil || w.took != moment || len(w.tries) != 2 {
			t.Errorf("after %s: %v; it has tried at %v", w.took, w.err, w.tries)
		}
	})
}

// A ref that comes free between the database's answer and the wait must not be missed.
func TestAWakeUpDuringATryIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wait(t, 0)
		<-w.ended
		tries := 0
		start := time.Now()
		err := w.Await(t.Context(), moving.Wait{Project: project, Moves: []refdb.Update{{Ref: ref}}, Until: start.Add(long), Passes: moving.Locked}, func() error {
			if tries++; tries > 1 {
				return nil
			}
			w.Wake(project, ref)
			return errLocked
		})
		if err != nil || time.Since(start) != 0 {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestAWaiterThatNobodyWakesPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wait(t, time.Hour)
		time.Sleep(long)
		synctest.Wait()
		if n := len(w.tries); n < 4 || n > 12 {
			t.Errorf("in %s it has tried %d times: %v", long, n, w.tries)
		}
		w.answer(nil)
		<-w.ended
		if w.err != nil || w.took > long+time.Second {
			t.Errorf("after %s: %v", w.took, w.err)
		}
	})
}

func TestAWaitEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(*waiting)
		after  time.Duration
		reason refusal.Reason
	}{
		"when its time is over":             {func(*waiting) {}, long, refusal.Locked},
		"when its client goes":              {func(w *waiting) { close(w.gone) }, moment, refusal.Locked},
		"when the daemon stops":             {func(w *waiting) { w.stop() }, moment, refusal.Stopping},
		"when the refusal is another":       {func(w *waiting) { w.answer(errRefused); w.Wake(project, ref) }, moment, refusal.Other},
		"when the database does not answer": {func(w *waiting) { w.answer(refusal.DatabaseFailed(refdb.ErrUnavailable)); w.Wake(project, ref) }, moment, refusal.Database},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := wait(t, long)
				time.Sleep(moment)
				c.end(w)
				<-w.ended
				if refusal.ReasonOf(w.err) != c.reason || w.took != c.after {
					t.Errorf("after %s: %v", w.took, w.err)
				}
				if last := w.tries[len(w.tries)-1]; c.after == long && last != long {
					t.Errorf("the last try was after %s", last)
				}
			})
		})
	}
}

// other is the database as another site opens it.
func (g *rig) other() *refdb.DB {
	g.t.Helper()
	db, err := refdb.New(g.driver, refdb.Options{Site: "w"})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { db.Close() })
	return db
}

const (
	second = refdb.Value("2222222222222222222222222222222222222222")
	third  = refdb.Value("3333333333333333333333333333333333333333")
)

func TestAMoveThatCanNotMatchAnyMoreIsRefusedAtOnce(t *testing.T) {
	// The database has second, and another site is about to move the ref to third.
	intent := func(t *testing.T, g *rig) {
		if _, err := g.other().Intents().Prepare(t.Context(), project, []refdb.Update{{Ref: ref, Old: second, New: third}}, agent); err != nil {
			t.Fatal(err)
		}
	}
	lock := func(t *testing.T, g *rig) {
		held, err := g.other().TryLock(t.Context(), project, ref)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { held.Release(context.Background()) })
	}
	for name, c := range map[string]struct {
		held   func(*testing.T, *rig)
		old    refdb.Value
		reason refusal.Reason
		waits  bool
	}{
		"neither value of an intent": {intent, value, refusal.Behind, false},
		"neither value of an intent of this site": {func(t *testing.T, g *rig) {
			if _, err := g.DB.Intents().Prepare(t.Context(), project, []refdb.Update{{Ref: ref, Old: second, New: third}}, agent); err != nil {
				t.Fatal(err)
			}
		}, value, refusal.Locked, true},
		"the old value of an intent": {intent, second, refusal.Locked, true},
		"the new value of an intent": {intent, third, refusal.Locked, true},
		"a lock may bring any value": {lock, value, refusal.Locked, true},
		"an intent of long ago": {func(t *testing.T, g *rig) {
			intent(t, g)
			time.Sleep(time.Minute)
		}, second, refusal.Held, true},
		"another value, without a lock": {func(*testing.T, *rig) {}, value, refusal.Behind, false},
	} {
		for hook, ask := range map[string]func(*rig, refdb.Update) error{
			"update": func(g *rig, u refdb.Update) error {
				return g.AwaitMovable(g.t.Context(), g.config, project, []refdb.Update{u}, nil)
			},
			"prepared": func(g *rig, u refdb.Update) error {
				a := g.announcement("", ref)
				a.Moves = []refdb.Update{u}
				_, claim, err := g.Announce(g.t.Context(), g.config, a)
				if claim != nil || g.isClaimed(ref) {
					g.t.Error("a claim is left")
				}
				return err
			},
		} {
			t.Run(name+", "+hook, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newRig(t)
					if err := g.DB.Update(t.Context(), project, []refdb.Update{{Ref: ref, New: second}}); err != nil {
						t.Fatal(err)
					}
					c.held(t, g)
					start := time.Now()
					err := ask(g, refdb.Update{Ref: ref, Old: c.old, New: "4444444444444444444444444444444444444444"})
					if reason := refusal.ReasonOf(err); reason != c.reason {
						t.Errorf("%s: %v", reason, err)
					}
					want := time.Duration(0)
					if c.waits {
						want = g.config.LockWait
					}
					if took := time.Since(start); took != want {
						t.Errorf("it waited %s", took)
					}
				})
			})
		}
	}
}

// While a push waits it costs the database fewer requests than with a poll every 0.2 s, and when it
// is woken no more than are needed.
func TestWhatAWaitingPushAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		west := g.other()
		p, err := west.Intents().Prepare(t.Context(), project, []refdb.Update{{Ref: ref, New: value}}, agent)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		ask := func() {
			g.driver.asked.Store(0)
			go func() {
				_, claim, err := g.Announce(t.Context(), g.config, g.announcement(second, ref))
				g.Claims.Release(claim)
				ended <- err
			}()
			synctest.Wait()
		}
		ask()
		time.Sleep(long)
		if n := g.driver.asked.Load(); n > 12 {
			t.Errorf("in %s it has asked %d times", long, n)
		}
		if err := west.Intents().Finish(t.Context(), p, nil, []string{ref}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if p, err = west.Intents().Prepare(t.Context(), project, []refdb.Update{{Ref: "refs/heads/b", New: value}}, agent); err != nil {
			t.Fatal(err)
		}
		go func() {
			g.driver.asked.Store(0)
			ended <- g.AwaitMovable(t.Context(), g.config, project, []refdb.Update{{Ref: "refs/heads/b", New: second}}, nil)
		}()
		synctest.Wait()
		if err := west.Intents().Finish(t.Context(), p, []string{"refs/heads/b"}, nil); err != nil {
			t.Fatal(err)
		}
		g.Wake(project, "refs/heads/b")
		if err := <-ended; refusal.ReasonOf(err) != refusal.Behind {
			t.Error(err)
		}
		if n := g.driver.asked.Load(); n != 2 {
			t.Errorf("update has asked %d times, want once before and once after it was woken", n)
		}
	})
}

// The end of a move of this site wakes those who wait for its ref: pushes, which ask the database,
// and guards, which are refused for as long as the move is known here.
func TestTheEndOfALocalMoveWakes(t *testing.T) {
	for name, c := range map[string]struct {
		end func(*rig, *moving.Pending, []*moving.Move) error
		ask func(*rig, []refdb.Update) error
	}{
		"a push": {
			func(g *rig, _ *moving.Pending, moves []*moving.Move) error {
				_, err := g.Resolve(g.t.Context(), moves)
				return err
			},
			func(g *rig, moves []refdb.Update) error {
				return g.AwaitMovable(g.t.Context(), g.config, project, moves, nil)
			},
		},
		"a guard": {
			func(g *rig, p *moving.Pending, moves []*moving.Move) error { return g.End(g.t.Context(), p, moves) },
			func(g *rig, moves []refdb.Update) error {
				w := moving.Wait{Project: project, Moves: moves, Until: time.Now().Add(long), Passes: moving.Locked}
				return g.Await(g.t.Context(), w, func() error { return g.UnderWay(project, moves) })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				p := g.NewPending()
				moves := g.announce(value, ref)
				p.Add(moves...)
				ended := make(chan error)
				start := time.Now()
				go func() { ended <- c.ask(g, []refdb.Update{{Ref: ref, New: second}}) }()
				synctest.Wait()
				if err := c.end(g, p, moves); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; err != nil || time.Since(start) != 0 {
					t.Errorf("after %s: %v", time.Since(start), err)
				}
			})
		})
	}
}

// A preparation may be refused because of another ref, whose name excludes that of the new one.
func TestAnAnnouncementWaitsForARefThatExcludesItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		west := g.other()
		p, err := west.Intents().Prepare(t.Context(), project, []refdb.Update{{Ref: ref + "/x", New: value}}, agent)
		if err != nil {
			t.Fatal(err)
		}
		dropped := make(chan error, 1)
		time.AfterFunc(time.Second, func() { dropped <- west.Intents().Finish(t.Context(), p, nil, []string{ref + "/x"}) })
		start := time.Now()
		if moves := g.announce(value, ref); len(moves) != 1 || time.Since(start) < time.Second || time.Since(start) > long {
			t.Errorf("after %s: %v", time.Since(start), moves)
		}
		if err := <-dropped; err != nil {
			t.Error(err)
		}
	})
}

// A push waits for a follower's claim with git's locks in its hands.
func TestHowLongAPushWaitsForAFollower(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(gone, stop func()) // after a second
		want time.Duration
	}{
		"as long as for a lock":       {func(gone, stop func()) {}, 10 * time.Second},
		"until its process ends":      {func(gone, stop func()) { gone() }, time.Second},
		"until the daemon is stopped": {func(gone, stop func()) { stop() }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				upkeep, stop := context.WithCancel(t.Context())
				defer stop()
				g.State.Upkeep = upkeep
				claim, _ := g.Claims.Follow(t.Context(), project, []string{ref})
				a, gone := g.announcement(value, ref), make(chan struct{})
				a.Gone = gone
				start := time.Now()
				time.AfterFunc(time.Second, func() { c.do(func() { close(gone) }, stop) })
				_, _, err := g.Announce(t.Context(), g.config, a)
				if stopped := upkeep.Err() != nil; err == nil || stopped != (refusal.ReasonOf(err) == refusal.Stopping) {
					t.Errorf("beside a follower it was answered %v", err)
				}
				if took := time.Since(start); took != c.want {
					t.Errorf("it waited %s", took)
				}
				g.Claims.Release(claim)
			})
		})
	}
}
