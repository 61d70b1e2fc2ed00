package driver

import (
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// witness returns the row of a site; without a name if there is none.
func witness(a driver.Admission, name string) (w driver.Witness) {
	if i := slices.IndexFunc(a.Witnesses, func(w driver.Witness) bool { return w.Name == name }); i >= 0 {
		w = a.Witnesses[i]
	}
	return w
}

// closed has site-v begin a testimony about a site, and returns that.
func closed(e *env, site string) driver.Testimony {
	e.Helper()
	w := witness(e.Report(driver.Report{Witness: "site-v", Closes: []string{site}}), site)
	if !w.Closing() || !w.Word.After(w.Since) || !w.Word.After(w.Seen) {
		e.Fatalf("%+v", w)
	}
	return driver.Testimony{Site: site, Word: w.Word}
}

// prepares returns the error of a preparation, which a site asks for.
func prepares(e *env, site, ref string) error {
	r := e.PrepareRequest(e.A, suite.Move(ref, "", v1))
	r.Owner = site + "/1"
	_, err := e.SendPrepare(e.A, r)
	return err
}

// One site testifies about another one, which is silent.
func testimonyRows() []row {
	return []row{
		{"a site in the state Closing neither records nor finishes intents, and is awaited", suite.Alone(func(e *env) {
			site, _, _ := strings.Cut(e.A.Owner, "/")
			e.Witnesses("site-v", site)
			p, q := e.Prepare(e.A, suite.Move(refA, "", v1)), e.Prepare(e.A, suite.Move(refB, "", v1))
			before := witness(e.Admission(), site)
			t := closed(e, site)
			a, err := e.B.Admission(e.Context())
			e.Must(err)
			e.WantAdmission(a, true)
			if w := witness(a, site); !w.Word.Equal(t.Word) || w.Server != before.Server || !w.Seen.Equal(before.Seen) || !w.Since.Equal(before.Since) || a.May(site) {
				e.Errorf("before %+v, now %+v", before, w)
			}
			e.WantIs(prepares(e, site, refC), driver.ErrNotAdmitted)
			e.WantIs(e.Finish(e.A, p), driver.ErrNotAdmitted)
			e.WantIs(e.TryDrop(e.A, q), driver.ErrNotAdmitted)
			e.WantIs(e.A.Revoke(e.Context(), q.PrepareRequest), driver.ErrNotAdmitted)
			e.WantIntended(p)
			e.Must(prepares(e, "site-v", refD))
			e.Restart()
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v"}), false, site)
			a = e.Report(driver.Report{Witness: site})
			if e.WantAdmission(a, true); witness(a, site).Barred() {
				e.Errorf("%+v", a.Witnesses)
			}
			e.Must(prepares(e, site, refC))
			e.Must(e.Finish(e.A, p))
			e.Drop(e.A, q)
		})},
		{"a site that is away, or was left out, neither records nor finishes intents", suite.Alone(func(e *env) {
			site, _, _ := strings.Cut(e.A.Owner, "/")
			e.Witnesses("site-v", site)
			p := e.Prepare(e.A, suite.Move(refA, "", v1))
			refused := func() {
				e.Helper()
				e.WantIs(prepares(e, site, refC), driver.ErrNotAdmitted)
				e.WantIs(e.Finish(e.A, p), driver.ErrNotAdmitted)
				e.Witnesses(site)
			}
			e.Report(driver.Report{Witness: site, Away: true})
			refused()
			e.Restart()
			e.Report(driver.Report{Witness: "site-v"})
			e.Recover(suite.RecoverRequest(site))
			refused()
			e.Must(e.Finish(e.A, p))
		})},
		{"any report of a site withdraws a testimony about the site that has begun", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			for _, open := range []bool{false, true} {
				t := closed(e, "site-w")
				if w := witness(e.Report(driver.Report{Witness: "site-w", Open: open}), "site-w"); w.Barred() {
					e.Errorf("open: %t, %+v", open, w)
				}
				e.Must(prepares(e, "site-w", refA+map[bool]string{true: "-open"}[open]))
				if w := witness(e.Report(driver.Report{Witness: "site-v", Testimonies: []driver.Testimony{t}}), "site-w"); w.Away {
					e.Errorf("open: %t, %+v", open, w)
				}
			}
		})},
		{"a site about which another site has testified is away until it is back", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			t := closed(e, "site-w")
			seen := witness(e.Admission(), "site-w").Seen
			give := driver.Report{Witness: "site-v", Testimonies: []driver.Testimony{t}}
			w := witness(e.Report(give), "site-w")
			if !w.Testified() || !w.Since.Equal(t.Word) || !w.Word.Equal(t.Word) || w.Server != "" || !w.Seen.Equal(seen) {
				e.Errorf("%+v", w)
			}
			e.WantIs(prepares(e, "site-w", refA), driver.ErrNotAdmitted)
			e.Restart()
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v"}), true)
			back := witness(e.Report(driver.Report{Witness: "site-w", Marks: []driver.WitnessMark{{Name: "site-w", Since: t.Word}}}), "site-w")
			if back.Barred() || !back.Word.IsZero() || !back.Since.After(t.Word) {
				e.Errorf("%+v", back)
			}
			for _, given := range []bool{false, true} {
				give.Testimonies[0].Given = given
				if w := witness(e.Report(give), "site-w"); w != back {
					e.Errorf("given: %t, %+v", given, w)
				}
			}
			e.Restart()
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v"}), false, "site-w")
		})},
		{"a testimony is begun once, and given by any site that has noted what the silent site may know", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w", "site-x")
			t := closed(e, "site-w")
			w := witness(e.Admission(), "site-w")
			if got := witness(e.Report(driver.Report{Witness: "site-x", Closes: []string{"site-w"}}), "site-w"); got != w {
				e.Errorf("begun again: %+v, and before it was %+v", got, w)
			}
			other := driver.Testimony{Site: "site-w", Word: t.Word.Add(-time.Microsecond)}
			if got := witness(e.Report(driver.Report{Witness: "site-x", Testimonies: []driver.Testimony{other}}), "site-w"); got != w {
				e.Errorf("another word: %+v", got)
			}
			for _, name := range []string{"site-x", "site-v"} {
				if got := witness(e.Report(driver.Report{Witness: name, Testimonies: []driver.Testimony{t}}), "site-w"); !got.Testified() || !got.Word.Equal(t.Word) {
					e.Errorf("given by %s: %+v", name, got)
				}
			}
		})},
		{"no site begins a testimony about itself, or about a site that is away, unknown, or has not compared the server", suite.Long(suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w", "site-x")
			e.Report(driver.Report{Witness: "site-x", Away: true})
			for _, r := range []driver.Report{
				{Witness: "site-v", Closes: []string{"site-v", "site-x", "site-y"}},
				{Witness: "site-v", Closes: []string{"site-w"}, Open: true},
				{Owner: "a tool", Closes: []string{"site-w"}},
				{Witness: "site-v", Closes: []string{"site-w"}, Away: true},
			} {
				for _, w := range e.Report(r).Witnesses {
					if !w.Word.IsZero() || w.Name == "site-y" {
						e.Errorf("after %+v: %+v", r, w)
					}
				}
			}
			e.Witnesses("site-v")
			e.Restart()
			if w := witness(e.Report(driver.Report{Witness: "site-v", Closes: []string{"site-w"}}), "site-w"); !w.Word.IsZero() {
				e.Errorf("%+v", w)
			}
		}))},
		{"a testimony is given again if the database went back to a time before it", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			word := e.Now(e.A).Add(time.Hour)
			again := driver.Report{
				Witness: "site-v", Marks: []driver.WitnessMark{{Name: "site-w", Since: word}},
				Testimonies: []driver.Testimony{{Site: "site-w", Word: word, Given: true}},
			}
			e.Restart()
			a := e.Report(again)
			e.WantAdmission(a, true)
			if w := witness(a, "site-w"); !w.Testified() || !w.Since.Equal(word) {
				e.Errorf("%+v", w)
			}
		})},
		{"a testimony is not given again if its site has come back since, or has reported for this server", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			word := e.Now(e.A).Add(time.Hour)
			again := driver.Report{
				Witness: "site-v", Marks: []driver.WitnessMark{{Name: "site-w", Since: word.Add(time.Second)}},
				Testimonies: []driver.Testimony{{Site: "site-w", Word: word, Given: true}},
			}
			e.Restart()
			e.WantAdmission(e.Report(again), false, "site-w")
			e.WantAdmission(e.Report(driver.Report{Witness: "site-w"}), true)
			again.Testimonies[0].Word = word.Add(2 * time.Hour)
			e.WantAdmission(e.Report(again), true)
			if w := witness(e.Admission(), "site-w"); w.Away {
				e.Errorf("%+v", w)
			}
		})},
		{"an intent in a testimony counts unless its site has come back since", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			t := closed(e, "site-w")
			k := e.KnownIntent("op1", refA, "", v1, driver.MoveUnknown)
			k.Word = t.Word
			e.Report(driver.Report{Witness: "site-v", Testimonies: []driver.Testimony{t}})
			e.Report(driver.Report{Witness: "site-w"})
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v", Missing: []driver.Known{k}}), true)
			e.WantLostChanges(true, "")
			k.Word = witness(e.Admission(), "site-w").Since
			if a := e.Report(driver.Report{Witness: "site-v", Missing: []driver.Known{k}}); !a.Halted || a.Lost != 1 {
				e.Errorf("%+v", a)
			}
			p, err := e.A.LostChanges(e.Context(), driver.LostQuery{Limit: 10})
			e.Must(err)
			if k.Word = (time.Time{}); len(p.Lost) != 1 || p.Lost[0].Known != k || p.Lost[0].Witness != "site-v" {
				e.Errorf("%+v", p.Lost)
			}
		})},
		{"the site that made a move reports its outcome, even if another site reported the loss", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w", "site-x")
			k := e.KnownIntent("op1", refA, "", v1, driver.MoveUnknown)
			e.Report(driver.Report{Witness: "site-v", Missing: []driver.Known{k}})
			k.Move = driver.MoveMade
			for _, c := range []struct {
				report driver.Report
				want   string
			}{
				{driver.Report{Witness: "site-x"}, " site-v"},
				{driver.Report{Witness: "site-w"}, "made site-v"},
				{driver.Report{Witness: "site-v"}, "made site-v"},
			} {
				if c.report.Missing = []driver.Known{k}; c.report.Witness == "site-v" {
					c.report.Missing[0].Move = driver.MoveUnknown
				}
				e.Report(c.report)
				p, err := e.B.LostChanges(e.Context(), driver.LostQuery{Limit: 10})
				e.Must(err)
				if len(p.Lost) != 1 || string(p.Lost[0].Move)+" "+p.Lost[0].Witness != c.want {
					e.Errorf("after a report of %s: %+v", c.report.Witness, p.Lost)
				}
			}
		})},
		{"a new server waits for every site unless a policy says otherwise", suite.Alone(func(e *env) {
			a := e.Admission()
			if a.Policy != (driver.PolicyMark{Policy: driver.Wait}) {
				e.Errorf("%+v", a.Policy)
			}
			last := a.Policy.Since
			for _, p := range []driver.Policy{driver.Synchronous, driver.Wait, driver.Synchronous} {
				a, err := e.A.SetPolicy(e.Context(), p)
				e.Must(err)
				again, err := e.B.Admission(e.Context())
				e.Must(err)
				if a.Policy.Policy != p || !a.Policy.Since.After(last) || !a.Admitted || again.Policy != a.Policy {
					e.Errorf("after %s: %+v, and then %+v", last, a, again.Policy)
				}
				last = a.Policy.Since
			}
			if since := e.Now(e.A).Sub(last); since < -time.Minute || since > time.Hour {
				e.Errorf("it was set %s ago", since)
			}
		})},
		{"no site is excused unless the policy permits it", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			e.Restart()
			excuse := driver.Report{Witness: "site-v", Excused: []string{"site-v", "site-w", "site-x"}}
			e.WantAdmission(e.Report(excuse), false, "site-w")
			before := witness(e.Admission(), "site-w")
			if a, err := e.A.SetPolicy(e.Context(), driver.Synchronous); err != nil || a.Admitted || len(a.Waiting()) != 1 {
				e.Errorf("%+v, %v", a, err)
			}
			open := excuse
			open.Open = true
			e.WantAdmission(e.Report(open), false, "site-w")
			a := e.Report(excuse)
			e.WantAdmission(a, true)
			w := witness(a, "site-w")
			if !w.Away || w.Testified() || !w.Since.After(before.Since) || !w.Seen.Equal(before.Seen) || witness(a, "site-v").Away || len(a.Witnesses) != 2 {
				e.Errorf("%+v", a.Witnesses)
			}
			if a := e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{e.Known("op1", refA, "", v1)}}); !a.Halted {
				e.Errorf("what it misses halts nothing: %+v", a)
			}
		})},
		{"an earlier policy, after the database went back, is replaced by a later Wait and by no other", suite.Alone(func(e *env) {
			a, err := e.A.SetPolicy(e.Context(), driver.Synchronous)
			e.Must(err)
			set := a.Policy
			e.Witnesses("site-v", "site-w")
			e.Restart()
			mark := func(p driver.Policy, later time.Duration) driver.PolicyMark {
				return driver.PolicyMark{Policy: p, Since: set.Since.Add(later)}
			}
			for _, m := range []driver.PolicyMark{{}, mark(driver.Wait, -time.Hour), mark(driver.Wait, 0), mark(driver.Synchronous, time.Hour)} {
				if a := e.Report(driver.Report{Witness: "site-v", Policy: m}); a.Policy != set {
					e.Errorf("after %+v it is %+v", m, a.Policy)
				}
			}
			later := mark(driver.Wait, time.Hour)
			a = e.Report(driver.Report{Witness: "site-v", Policy: later, Excused: []string{"site-w"}})
			e.WantAdmission(a, false, "site-w")
			if got := e.Admission().Policy; got != later || a.Policy != later {
				e.Errorf("%+v, and %+v", a.Policy, got)
			}
			if a, err := e.A.SetPolicy(e.Context(), driver.Synchronous); err != nil || !a.Policy.Since.After(later.Since) {
				e.Errorf("%+v, %v", a.Policy, err)
			}
		})},
		{"once all begun positions have ended, all earlier commits are complete", suite.Alone(func(e *env) {
			for _, ref := range []string{refA, refB, refC} {
				e.Must(e.Update(e.A, suite.Move(ref, "", v1)))
				s := e.History()
				c := e.ReadLog(ref)[0]
				if s.Begun < s.Ended || s.Begun < c.Position {
					e.Errorf("%+v, and the change is at %d", s, c.Position)
				}
				var then driver.HistoryState
				if !e.Poll(func() bool { then = e.History(); return then.Ended >= s.Begun }) || then.Upto < c.Position {
					e.Errorf("%+v, then %+v; the change is at %d", s, then, c.Position)
				}
			}
		})},
	}
}
