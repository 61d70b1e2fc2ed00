package refdbtest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func updateRaceRows() []row {
	return []row{
		{"P6 of two updates from the same value one wins, and the other is told its value", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				e.must(e.update(e.a, move(ref, "", v1)))
				e.updateAgainstUpdate(
					[]refdb.Update{move(ref, v1, v2)},
					[]refdb.Update{move(ref, v1, v3)},
					refdb.Mismatch{Ref: ref, Want: v1, Have: v3},
					refdb.Mismatch{Ref: ref, Want: v1, Have: v2})
			})
		}},
		{"P6 of two updates that create a ref one wins", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				e.updateAgainstUpdate(
					[]refdb.Update{move(ref, "", v2)},
					[]refdb.Update{move(ref, "", v3)},
					refdb.Mismatch{Ref: ref, Have: v3},
					refdb.Mismatch{Ref: ref, Have: v2})
			})
		}},
		{"P6 of two updates that overlap one wins, and the other writes nothing", func(e *env) {
			e.repeat(func(a, b, c string) {
				e.updateAgainstUpdate(
					[]refdb.Update{move(a, "", v2), move(b, "", v2)},
					[]refdb.Update{move(b, "", v3), move(c, "", v3)},
					refdb.Mismatch{Ref: b, Have: v3},
					refdb.Mismatch{Ref: b, Have: v2})
				if got := e.get(a, b, c); len(got) != 2 || got[0].Value != got[1].Value {
					e.Errorf("the refs hold %v", got)
				}
			})
		}},
		{"of two updates of different refs both win", func(e *env) {
			e.repeat(func(a, b, _ string) {
				var aErr, bErr error
				race(
					func() { aErr = e.update(e.a, move(a, "", v1)) },
					func() { bErr = e.update(e.b, move(b, "", v1)) },
				)
				e.must(aErr)
				e.must(bErr)
			})
		}},
		{"P6 nobody sees half of an update", func(e *env) {
			e.must(e.update(e.a, move(refA, "", "0"), move(refB, "", "0"), move(refC, "", "0")))
			stop, failed := make(chan struct{}), make(chan error, 1)
			var writing sync.WaitGroup
			writing.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					from, to := refdb.Value(fmt.Sprint(n)), refdb.Value(fmt.Sprint(n+1))
					// An advisory one, so that the acquisitions below don't stop it.
					err := e.transact(e.a, refdb.UpdateRequest{Locks: refdb.AdvisoryLocks, Updates: []refdb.Update{move(refA, from, to), move(refB, from, to), move(refC, from, to)}})
					if err != nil {
						failed <- err
						return
					}
				}
			})
			defer writing.Wait()
			defer close(stop)
			// A round counts if there was an update since the last, so that both are at work.
			last := refdb.Value("0")
			for changes := 0; changes < e.rounds(); {
				select {
				case err := <-failed:
					e.Fatal(err)
				default:
				}
				refs := e.get(refA, refB, refC)
				page, err := e.b.List(e.Context(), refdb.RefQuery{Project: e.project, Limit: 10})
				e.must(err)
				l := e.acquire(e.b, refA, refB, refC)
				e.release(e.b, l)
				for _, seen := range [][]refdb.Ref{refs, page.Refs, l.Acquired.Refs} {
					if len(seen) != 3 || seen[0].Value != seen[1].Value || seen[1].Value != seen[2].Value {
						e.Fatalf("saw %v", seen)
					}
				}
				if refs[0].Value != last {
					last = refs[0].Value
					changes++
				}
			}
		}},
		{"P6 every update that succeeded counts, however many there are", func(e *env) {
			// Each moves two of three counters; a lost update would be missing in the end.
			refs := []string{refA, refB, refC}
			processes := []process{e.a, e.b, e.spawn("site-c/3"), e.spawn("site-d/4")}
			var won [3]atomic.Int64
			errs := make([]error, len(processes))
			var working sync.WaitGroup
			for i, p := range processes {
				working.Go(func() {
					for n := range max(10, e.rounds()/len(processes)) {
						x, y := (n+i)%3, (n+i+1)%3
						if x > y {
							x, y = y, x
						}
						switch err := e.increment(p, refs[x], refs[y]); {
						case err == nil:
							won[x].Add(1)
							won[y].Add(1)
						case !errors.Is(err, refdb.ErrMismatch):
							errs[i] = err
							return
						}
					}
				})
			}
			working.Wait()
			e.must(errors.Join(errs...))
			got := valuesOf(e.get(refs...))
			for i, ref := range refs {
				if want := refdb.Value(fmt.Sprint(won[i].Load())); got[ref] != want {
					e.Errorf("%s counts %q, %s updates of it succeeded", ref, got[ref], want)
				}
			}
		}},
	}
}

// updateAgainstUpdate races two updates of which one must win, the other fail with a mismatch.
func (e *env) updateAgainstUpdate(x, y []refdb.Update, xLost, yLost refdb.Mismatch) {
	e.Helper()
	var xErr, yErr error
	race(
		func() { xErr = e.update(e.a, x...) },
		func() { yErr = e.update(e.b, y...) },
	)
	switch {
	case xErr == nil:
		e.wantMismatches(yErr, yLost)
	case yErr == nil:
		e.wantMismatches(xErr, xLost)
	default:
		e.Errorf("both failed: %v and %v", xErr, yErr)
	}
}

// increment adds one to both counters.
func (e *env) increment(p process, refs ...string) error {
	rows, err := p.Get(e.Context(), e.project, refs)
	if err != nil {
		return err
	}
	values := valuesOf(rows)
	var updates []refdb.Update
	for _, ref := range refs {
		n := 0
		fmt.Sscan(string(values[ref]), &n)
		updates = append(updates, move(ref, values[ref], refdb.Value(fmt.Sprint(n+1))))
	}
	return e.update(p, updates...)
}
