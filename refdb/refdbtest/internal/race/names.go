package race

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// Git can't hold refs/heads/t beside refs/heads/t/x: of two that create them at once one is
// refused.
func nameRows() []row {
	return []row{
		{"of two preparations of names that exclude each other one wins, and the other leaves nothing", func(e *env) {
			repeat(e, func(above, _, _ string) {
				below := above + "/x/y"
				var up, down preparation
				var upErr, downErr error
				suite.Race(
					func() { up, upErr = e.TryPrepare(e.A, suite.Move(above, "", v1)) },
					func() { down, downErr = e.TryPrepare(e.B, suite.Move(below, "", v2)) },
				)
				if e.Refusal(upErr) == e.Refusal(downErr) {
					e.Fatalf("the name above got %v, the one below %v", upErr, downErr)
				}
				winner, loserErr, loser := up, downErr, below
				if upErr != nil {
					winner, loserErr, loser = down, upErr, above
				}
				if h := e.WantHolders(loserErr, winner.Refs()...); h[0].Token != winner.Token {
					e.Errorf("the loser saw %+v, the winner is %+v", h, winner)
				}
				e.WantFree(loser)
				e.WantOnly(winner)
				e.Must(e.Finish(e.A, winner))
			})
		}},
		{"of a preparation and an update of names that exclude each other one wins", func(e *env) {
			repeat(e, func(above, _, _ string) {
				for _, names := range [][2]string{{above + "/a", above + "/a/x"}, {above + "/b/x", above + "/b"}} {
					var l preparation
					var err, updateErr error
					suite.Race(
						func() { l, err = e.TryPrepare(e.A, suite.Move(names[0], "", v1)) },
						func() {
							updateErr = e.SendUpdate(e.B, driver.UpdateRequest{GitNames: true, Updates: []driver.Update{suite.Move(names[1], "", v2)}})
						},
					)
					if excluded(e, err) == e.Refusal(updateErr) {
						e.Fatalf("the preparation ended with %v, the update with %v", err, updateErr)
					}
					if err == nil {
						e.Must(e.Finish(e.A, l))
					}
				}
			})
		}},
		{"an ending intent excludes names at every moment", func(e *env) {
			repeat(e, func(above, _, _ string) {
				for _, names := range [][2]string{{above + "/a", above + "/a/x"}, {above + "/b/x", above + "/b"}} {
					l := e.Prepare(e.A, suite.Move(names[0], "", v1))
					var err error
					suite.Race(
						func() { e.Must(e.Finish(e.A, l)) },
						func() { _, err = e.TryPrepare(e.B, suite.Move(names[1], "", v2)) },
					)
					if err == nil {
						e.Fatalf("%s was created beside %s", names[1], names[0])
					}
					if !errors.Is(err, driver.ErrLocked) && !errors.Is(err, driver.ErrNameConflict) {
						e.Fatal(err)
					}
				}
			})
		}},
		{"concurrent creations, deletions and replacements never leave names that exclude each other, and wait only briefly", func(e *env) {
			processes := []process{e.A, e.B, e.Spawn("site-c/3"), e.Spawn("site-d/4")}
			repeatTimes(e, e.Rounds()/4, func(dir, _, _ string) {
				names := []string{dir, dir + "/a", dir + "/a/x", dir + "/a/y", dir + "/b", dir + "/b/x"}
				var working sync.WaitGroup
				errs := make([]error, len(processes))
				for i, p := range processes {
					working.Go(func() {
						for n := range 12 {
							if errs[i] = replace(e, p, names, n+i); errs[i] != nil {
								return
							}
						}
					})
				}
				working.Wait()
				e.Must(errors.Join(errs...))
				var there []string
				for _, r := range e.Get(names...) {
					if !r.Value.IsDeleted() {
						there = append(there, r.Name)
					}
				}
				wantNoPair(e, there)
			})
		}},
	}
}

// excluded is true for an ErrLocked or ErrNameConflict and false for nil; any other error fails the
// row.
func excluded(e *env, err error) bool {
	e.Helper()
	if errors.Is(err, driver.ErrNameConflict) {
		return true
	}
	return e.Refusal(err)
}

// replace creates one of names, and deletes those that exclude it, if they are there. It may be
// refused.
func replace(e *env, p process, names []string, n int) error {
	name := names[(n*5+n/2)%len(names)]
	values := make(map[string]driver.Value)
	rows, err := p.Get(e.Context(), e.Project, names)
	if err != nil {
		return err
	}
	for _, r := range rows {
		values[r.Name] = r.Value
	}
	updates := map[string]driver.Update{name: suite.Move(name, values[name], driver.Value(fmt.Sprint(p.Owner, n)))}
	if n%4 == 3 {
		updates[name] = suite.Move(name, values[name], driver.Deleted)
	}
	for _, other := range names {
		if n%3 != 0 && driver.Excludes(name, other) && !values[other].IsAbsent() {
			updates[other] = suite.Move(other, values[other], driver.Deleted)
		}
	}
	l, err := e.TryPrepare(p, slices.SortedFunc(maps.Values(updates), func(a, b driver.Update) int { return strings.Compare(a.Ref, b.Ref) })...)
	switch {
	case err == nil && n%5 == 4:
		return e.TryDrop(p, l)
	case err == nil:
		return e.Finish(p, l)
	case errors.Is(err, driver.ErrLocked), errors.Is(err, driver.ErrMismatch), errors.Is(err, driver.ErrNameConflict):
		return nil
	}
	return err
}

func wantNoPair(e *env, names []string) {
	e.Helper()
	for _, a := range names {
		for _, b := range names {
			if driver.Excludes(a, b) {
				e.Fatalf("%s and %s are both there, of %q", a, b, names)
			}
		}
	}
}
