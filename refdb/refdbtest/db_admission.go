package refdbtest

import (
	"context"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A DB compares what it knows with what a new server has, and admits it.
func dbAdmissionRows() []row {
	return []row{
		{"a write after a restart succeeds by itself", alone(func(e *env) {
			db, t := e.openFaulty(refdb.Options{})
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}))
			e.restart(t)
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, v1, v2)}))
			e.wantRefs(map[string]refdb.Value{refA: v2})
			e.restart(t)
			e.hold(db, refB)
			e.wantAdmission(e.admission(), true)
		})},
		{"a write waits for a witness, and says for which", alone(func(e *env) {
			e.witnesses("site-v", "site-w")
			db, t := e.openFaulty(refdb.Options{})
			e.restart(t)
			err := db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)})
			e.wantIs(err, refdb.ErrNotAdmitted)
			if err != nil && !strings.Contains(err.Error(), "site-v") {
				e.Errorf("%v does not name site-v", err)
			}
			e.report(refdb.Report{Witness: "site-v"})
			e.report(refdb.Report{Witness: "site-w"})
			e.notice(t)
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}))
		})},
		{"a change that the server lost halts all, until a recovery", alone(func(e *env) {
			j := &testJournal{changes: []refdb.Known{e.known("op1", refA, "", v1)}}
			db, t := e.openFaulty(refdb.Options{Site: "site-w", Journal: j})
			e.restart(t)
			err := db.Update(e.Context(), e.project, []refdb.Update{move(refB, "", v1)})
			e.wantClass(err, refdb.ErrLostChanges, refdb.ClassOf(refdb.ErrLostChanges))
			other, u := e.openFaulty(refdb.Options{})
			e.notice(u)
			e.wantIs(other.Update(e.Context(), e.project, []refdb.Update{move(refB, "", v1)}), refdb.ErrLostChanges)
			a, err := other.Admission(e.Context())
			if e.must(err); !a.Halted || a.Lost != 1 {
				e.Errorf("%+v", a)
			}
			for l, err := range other.LostChanges(e.Context(), false) {
				if e.must(err); l.Op != "op1" || l.Witness != "site-w" {
					e.Errorf("%+v", l)
				}
			}
			var decided []string
			r, err := other.Recover(e.Context(), refdb.RecoverOptions{By: "alice", Reason: "a backup", Each: func(l refdb.LostChange) { decided = append(decided, fate(l)) }})
			if e.must(err); !r.Done || strings.Join(decided, ", ") != "op1 again" {
				e.Errorf("%+v, decided %q", r, decided)
			}
			e.notice(t, u)
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, v1, v2)}))
		})},
		{"what leaves the server as it is is found by a comparison", alone(func(e *env) {
			j := &testJournal{}
			db := e.open(refdb.Options{Site: "site-w", Journal: j})
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}))
			p := e.prepareWith(db, move(refB, "", v1))
			a, err := db.Compare(e.Context())
			e.must(err)
			e.wantAdmission(a, true)
			if !a.May("site-w") || a.May("site-v") {
				e.Errorf("%+v", a)
			}
			e.must(db.Finish(e.Context(), p, []string{refB}, nil))
			if intents, _ := j.Pending(); len(j.changes) != 2 || len(intents) != 0 {
				e.Logf("the journal has %+v and %+v", j.changes, intents)
			}
			j.changes = append(j.changes, e.known("op1", refA, v1, v2))
			if a, err = db.Compare(e.Context()); err != nil || !a.Halted || a.Lost != 1 {
				e.Errorf("%+v, %v", a, err)
			}
		})},
		{"a witness that ends is not waited for", alone(func(e *env) {
			db := e.open(refdb.Options{Site: "site-w", Journal: &testJournal{}})
			if _, err := db.Compare(e.Context()); err != nil {
				e.Error(err)
			}
			e.must(db.Leave(e.Context()))
			e.restart()
			e.wantAdmission(e.report(refdb.Report{Owner: "a tool"}), true)
		})},
		{"a witness tells others whom it knew to be live", alone(func(e *env) {
			e.witnesses("site-v")
			j := &testJournal{}
			db := e.open(refdb.Options{Site: "site-w", Journal: j})
			if _, err := db.Compare(e.Context()); err != nil {
				e.Error(err)
			}
			marks, _ := j.Marks()
			if len(marks) != 2 || marks[0].Name != "site-v" || marks[0].Since.IsZero() {
				e.Fatalf("%+v", marks)
			}
			e.report(refdb.Report{Witness: "site-v", Away: true})
			e.restart()
			marks[0].Since = e.admission().Witnesses[0].Since.Add(time.Second) // it has come back since, and the database went back
			a, err := db.Compare(e.Context())
			e.must(err)
			e.wantAdmission(a, false, "site-v")
		})},
		{"a reader of changes waits until the server is admitted", alone(func(e *env) {
			e.witnesses("site-w")
			e.must(e.update(e.a, move(refA, "", v1)))
			e.complete()
			db, t := e.openFaulty(refdb.Options{})
			e.restart(t)
			read := make(chan refdb.Changes, 1)
			ctx, cancel := context.WithCancel(e.Context())
			ended := make(chan struct{})
			defer func() { cancel(); <-ended }()
			go func() {
				defer close(ended)
				for c, err := range db.Changes(ctx, refdb.ChangeQuery{Project: e.project}) {
					if err != nil && ctx.Err() == nil {
						e.Error(err)
					}
					if len(c.Changes) > 0 {
						read <- c
						return
					}
				}
			}()
			e.eventually("it asks again", func() bool { return t.count("Changes") > 2 })
			select {
			case c := <-read:
				e.Errorf("it read %s at a server that is not admitted", saidAll(c.Changes))
				return
			default:
			}
			e.report(refdb.Report{Witness: "site-w"})
			e.notice(t)
			if c := receive(e, read, "changes"); saidAll(c.Changes) != "a ->1" {
				e.Errorf("read %s", saidAll(c.Changes))
			}
		})},
		{"a write that overlaps a comparison is compared, too", alone(func(e *env) {
			db, t := e.openFaulty(refdb.Options{})
			for method, write := range map[string]func() error{
				"Update": func() error { return db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}) },
				"Prepare": func() error {
					_, err := db.Prepare(e.Context(), e.project, []refdb.Update{move(refB, "", v1)}, agent)
					return err
				},
			} {
				t.inject(onFirst(method, func(c call) error {
					err := c.do()
					_, compareErr := db.Compare(e.Context())
					e.must(compareErr)
					return err
				}))
				before := t.count("Report")
				e.must(write())
				if n := t.count("Report") - before; n != 2 {
					e.Errorf("%s: compared %d times, want 2", method, n)
				}
				t.inject(nil)
				before = t.count("Report")
				e.must(db.Update(e.Context(), e.project, []refdb.Update{move("refs/heads/after/"+method, "", v1)}))
				if n := t.count("Report") - before; n != 0 {
					e.Errorf("after %s: compared %d times without need", method, n)
				}
			}
		})},
		{"a write whose comparison finds a loss is not acknowledged", alone(func(e *env) {
			j := &testJournal{}
			db, t := e.openFaulty(refdb.Options{Site: "site-w", Journal: j})
			t.inject(onFirst("Update", func(c call) error {
				err := c.do()
				_, compareErr := db.Compare(e.Context())
				e.must(compareErr)
				j.mu.Lock()
				defer j.mu.Unlock()
				j.changes = append(j.changes, e.known("op1", refB, "", v1))
				return err
			}))
			err := db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)})
			e.wantIs(err, refdb.ErrLostChanges)
			e.wantIs(err, refdb.ErrOutcomeUnknown)
		})},
	}
}
