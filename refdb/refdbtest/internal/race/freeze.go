package race

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// Nothing is accepted once a freeze has returned.
func freezeRows() []row {
	return []row{
		{"updates and preparations race with a freeze, and none is accepted after it has returned", func(e *env) {
			var revision int64
			repeatTimes(e, e.Rounds()/8, func(dir, _, _ string) {
				revision = freezeAgainstMoves(e, dir, revision)
			})
		}},
	}
}

// freezeAgainstMoves freezes the row's project while five writers move refs below dir, each until it
// is refused, and at least once after the freeze. Then it lifts the freeze, and returns the revision of the project's row.
func freezeAgainstMoves(e *env, dir string, revision int64) int64 {
	name := func(writer string, n int) string { return fmt.Sprintf("%s/%s/%06d", dir, writer, n) }
	one, pair, many := []string{dir + "/one"}, []string{dir + "/pair-1", dir + "/pair-2"}, []string(nil)
	for i := range 300 { // more than PostgreSQL has keys for
		many = append(many, name("many", i))
	}
	e.Must(e.Update(e.A, suite.Creations(slices.Concat(one, pair, many))...))
	var prepared sync.Map
	value := func(n int) driver.Value { return driver.Value(fmt.Sprint(n)) }
	move := func(refs []string) func(n int) error {
		return func(n int) error {
			var updates []driver.Update
			for _, ref := range refs {
				from := v1
				if n > 0 {
					from = value(n)
				}
				updates = append(updates, suite.Move(ref, from, value(n+1)))
			}
			return e.Update(e.A, updates...)
		}
	}
	var ready, writing sync.WaitGroup
	failed, frozen := make(chan error, 5), make(chan struct{})
	for _, write := range []func(n int) error{
		move(one), move(pair), move(many),
		func(n int) error { return e.Update(e.B, suite.Move(name("created", n), "", v1)) },
		func(n int) error {
			l, err := e.TryPrepare(e.B, suite.Move(name("prepared", n), "", v1))
			if err == nil {
				prepared.Store(n, l)
			}
			return err
		},
	} {
		ready.Add(1)
		writing.Go(func() {
			started := sync.OnceFunc(ready.Done)
			defer started()
			for n, after := 0, false; ; n++ {
				select {
				case <-frozen:
					after = true
				default:
				}
				err := write(n)
				if err == nil && after {
					err = errors.New("a move that began after the freeze was accepted")
				}
				if err != nil {
					failed <- err
					return
				}
				started()
			}
		})
	}
	ready.Wait() // each has written once
	row := e.PutProject(e.A, e.ProjectRequest(driver.WithFreeze(driver.Freeze{Reason: "a race"}, "ref *"), revision))
	close(frozen)
	state := func() (map[string]driver.Value, []driver.LockID) {
		return suite.ValuesOf(e.List(e.Project)), suite.IntentIDs(e.Pending())
	}
	refs, intents := state()
	writing.Wait()
	close(failed)
	for err := range failed {
		if !errors.Is(err, driver.ErrFrozen) {
			e.Errorf("a writer ended with %v", err)
		}
	}
	if later, laterIntents := state(); !maps.Equal(later, refs) || !slices.Equal(laterIntents, intents) {
		e.Errorf("accepted after the freeze had returned: refs %v, and %d intents became %d", changed(refs, later), len(intents), len(laterIntents))
	}
	prepared.Range(func(_, l any) bool {
		e.Drop(e.B, l.(preparation))
		return true
	})
	return e.PutProject(e.B, e.ProjectRequest("ref *", row.Revision)).Revision
}

// changed returns the refs whose values differ.
func changed(before, after map[string]driver.Value) (refs []string) {
	for ref, value := range after {
		if before[ref] != value {
			refs = append(refs, ref)
		}
	}
	return refs
}
