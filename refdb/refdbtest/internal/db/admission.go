package db

import (
	"context"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/recovery"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// A DB compares what it knows with what a new server has, and admits it.
func admissionRows() []row {
	return []row{
		{"a write after a restart succeeds by itself", suite.Alone(func(e *env) {
			db, t := e.OpenFaulty(refdb.Options{})
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}))
			e.Restart(t)
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, v1, v2)}))
			e.WantRefs(map[string]driver.Value{refA: v2})
			e.Restart(t)
			e.Hold(db, refB)
			e.WantAdmission(e.Admission(), true)
		})},
		{"a write waits for a witness, and its error names the witness", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			db, t := e.OpenFaulty(refdb.Options{})
			e.Restart(t)
			err := db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)})
			e.WantIs(err, driver.ErrNotAdmitted)
			if err != nil && !strings.Contains(err.Error(), "site-v") {
				e.Errorf("%v does not name site-v", err)
			}
			e.Report(driver.Report{Witness: "site-v"})
			e.Report(driver.Report{Witness: "site-w"})
			e.Notice(t)
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}))
		})},
		{"a change that the server lost halts all, until a recovery", suite.Alone(func(e *env) {
			j := &suite.TestJournal{Changes: []driver.Known{e.Known("op1", refA, "", v1)}}
			db, t := e.OpenFaulty(refdb.Options{Site: "site-w", Journal: j})
			e.Restart(t)
			err := db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refB, "", v1)})
			e.WantClass(err, driver.ErrLostChanges, driver.ClassOf(driver.ErrLostChanges))
			other, u := e.OpenFaulty(refdb.Options{})
			e.Notice(u)
			e.WantIs(other.Update(e.Context(), e.Project, []driver.Update{suite.Move(refB, "", v1)}), driver.ErrLostChanges)
			a, err := other.Recovery().Admission(e.Context())
			if e.Must(err); !a.Halted || a.Lost != 1 {
				e.Errorf("%+v", a)
			}
			for l, err := range other.Recovery().LostChanges(e.Context(), false) {
				if e.Must(err); l.Op != "op1" || l.Witness != "site-w" {
					e.Errorf("%+v", l)
				}
			}
			var decided []string
			r, err := other.Recovery().Recover(e.Context(), recovery.Options{By: "alice", Reason: "a backup", Each: func(l driver.LostChange) { decided = append(decided, suite.Fate(l)) }})
			if e.Must(err); !r.Done || strings.Join(decided, ", ") != "op1 again" {
				e.Errorf("%+v, decided %q", r, decided)
			}
			e.Notice(t, u)
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, v1, v2)}))
		})},
		{"a loss without a change of the server is found by a comparison", suite.Alone(func(e *env) {
			j := &suite.TestJournal{}
			db := e.Open(refdb.Options{Site: "site-w", Journal: j})
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}))
			p := prepareWith(e, db, suite.Move(refB, "", v1))
			a, err := db.Recovery().Compare(e.Context())
			e.Must(err)
			e.WantAdmission(a, true)
			if !a.May("site-w") || a.May("site-v") {
				e.Errorf("%+v", a)
			}
			e.Must(db.Intents().Finish(e.Context(), p, []string{refB}, nil))
			if intents, _ := j.Pending(); len(j.Changes) != 2 || len(intents) != 0 {
				e.Logf("the journal has %+v and %+v", j.Changes, intents)
			}
			j.Changes = append(j.Changes, e.Known("op1", refA, v1, v2))
			if a, err = db.Recovery().Compare(e.Context()); err != nil || !a.Halted || a.Lost != 1 {
				e.Errorf("%+v, %v", a, err)
			}
		})},
		{"a witness that ends is not awaited", suite.Alone(func(e *env) {
			db := e.Open(refdb.Options{Site: "site-w", Journal: &suite.TestJournal{}})
			if _, err := db.Recovery().Compare(e.Context()); err != nil {
				e.Error(err)
			}
			e.Must(db.Recovery().Leave(e.Context()))
			e.Restart()
			e.WantAdmission(e.Report(driver.Report{Owner: "a tool"}), true)
		})},
		{"a witness reports the witnesses that it knew to be live", suite.Alone(func(e *env) {
			e.Witnesses("site-v")
			j := &suite.TestJournal{}
			db := e.Open(refdb.Options{Site: "site-w", Journal: j})
			if _, err := db.Recovery().Compare(e.Context()); err != nil {
				e.Error(err)
			}
			marks, _ := j.Marks()
			if len(marks) != 2 || marks[0].Name != "site-v" || marks[0].Since.IsZero() {
				e.Fatalf("%+v", marks)
			}
			e.Report(driver.Report{Witness: "site-v", Away: true})
			e.Restart()
			marks[0].Since = e.Admission().Witnesses[0].Since.Add(time.Second) // it has come back since, and the database went back
			a, err := db.Recovery().Compare(e.Context())
			e.Must(err)
			e.WantAdmission(a, false, "site-v")
		})},
		{"a reader of changes waits until the server is admitted", suite.Alone(func(e *env) {
			e.Witnesses("site-w")
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.Complete()
			db, t := e.OpenFaulty(refdb.Options{})
			e.Restart(t)
			read := make(chan refdb.Changes, 1)
			ctx, cancel := context.WithCancel(e.Context())
			ended := make(chan struct{})
			defer func() { cancel(); <-ended }()
			go func() {
				defer close(ended)
				for c, err := range db.Changes(ctx, refdb.ChangeQuery{Project: e.Project}) {
					if err != nil && ctx.Err() == nil {
						e.Error(err)
					}
					if len(c.Changes) > 0 {
						read <- c
						return
					}
				}
			}()
			e.Eventually("it asks again", func() bool { return t.Count("Changes") > 2 })
			select {
			case c := <-read:
				e.Errorf("it read %s at a server that is not admitted", suite.SaidAll(c.Changes))
				return
			default:
			}
			e.Report(driver.Report{Witness: "site-w"})
			e.Notice(t)
			if c := suite.Receive(e, read, "changes"); suite.SaidAll(c.Changes) != "a ->1" {
				e.Errorf("read %s", suite.SaidAll(c.Changes))
			}
		})},
		{"a write that overlaps a comparison is looked up, and not compared again", suite.Alone(func(e *env) {
			db, t := e.OpenFaulty(refdb.Options{})
			for method, write := range map[string]func() error{
				"Update": func() error { return db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}) },
				"Prepare": func() error {
					_, err := db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(refB, "", v1)}, agent)
					return err
				},
			} {
				var looks, reports int
				t.Inject(suite.OnFirst(method, func(c suite.Call) error {
					err := c.Do()
					_, compareErr := db.Recovery().Compare(e.Context())
					e.Must(compareErr)
					looks, reports = t.Count("Look"), t.Count("Report")
					return err
				}))
				e.Must(write())
				if looked, reported := t.Count("Look")-looks, t.Count("Report")-reports; looked != 1 || reported != 0 {
					e.Errorf("%s: looked up %d times, compared %d times, want 1 and 0", method, looked, reported)
				}
				t.Inject(nil)
				looks = t.Count("Look")
				e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move("refs/heads/after/"+method, "", v1)}))
				if n := t.Count("Look") - looks; n != 0 {
					e.Errorf("after %s: looked up %d times without need", method, n)
				}
			}
		})},
		{"a write during a comparison that finds a loss is not acknowledged", suite.Alone(func(e *env) {
			j := &suite.TestJournal{}
			db, t := e.OpenFaulty(refdb.Options{Site: "site-w", Journal: j})
			t.Inject(suite.OnFirst("Update", func(c suite.Call) error {
				err := c.Do()
				j.Mu.Lock()
				j.Changes = append(j.Changes, e.Known("op1", refB, "", v1))
				j.Mu.Unlock()
				_, compareErr := db.Recovery().Compare(e.Context())
				e.Must(compareErr)
				return err
			}))
			err := db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)})
			e.WantIs(err, driver.ErrLostChanges)
			e.WantIs(err, driver.ErrOutcomeUnknown)
		})},
	}
}
