package rules

import (
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const here, elsewhere = "here", "elsewhere"

// at is the n-th instant. A report is made at the tenth.
func at(n int) time.Time { return time.Date(2026, 11, 30, 0, 0, 0, n*1000, time.UTC) }

func liveAt(server string, since, seen, word int) driver.Witness {
	w := driver.Witness{Name: "w", Server: server, Since: at(since), Seen: at(seen)}
	if word != 0 {
		w.Word = at(word)
	}
	return w
}

func awayAt(since, seen, word int) driver.Witness {
	w := liveAt("", since, seen, word)
	w.Away = true
	return w
}

// The rules Y1 to Y8 of the model, as far as one report decides about them: what becomes of the row of
// the site w when v reports, or w itself.
func TestAReportDecidesAboutTestimonies(t *testing.T) {
	mine := func(name, server string) driver.Witness {
		return driver.Witness{Name: name, Server: server, Since: at(1), Seen: at(1)}
	}
	out := mine("v", "")
	out.Without = true
	give := func(word int, given bool) driver.Report {
		return driver.Report{Witness: "v", Testimonies: []driver.Testimony{{Site: "w", Word: at(word), Given: given}}}
	}
	with := func(r driver.Report, change func(*driver.Report)) driver.Report {
		change(&r)
		return r
	}
	marked := func(r driver.Report, since int) driver.Report {
		return with(r, func(r *driver.Report) { r.Marks = []driver.WitnessMark{{Name: "w", Since: at(since)}} })
	}
	closes := driver.Report{Witness: "v", Closes: []string{"w"}}
	excuses := driver.Report{Witness: "v", Excused: []string{"w"}}
	for name, c := range map[string]struct {
		report driver.Report
		v      driver.Witness
		w      driver.Witness
		away   bool // no server is admitted
		lost   int
		policy driver.Policy
		want   driver.Witness
	}{
		"Y1: a site that is live gets a word":               {report: closes, w: liveAt(here, 1, 2, 0), want: liveAt(here, 1, 2, 10)},
		"Y1: later than when it was seen":                   {report: closes, w: liveAt(here, 1, 20, 0), want: liveAt(here, 1, 20, 21)},
		"Y1: and since when it is live":                     {report: closes, w: liveAt(here, 30, 20, 0), want: liveAt(here, 30, 20, 31)},
		"Y1: not twice":                                     {report: closes, w: liveAt(here, 1, 2, 3), want: liveAt(here, 1, 2, 3)},
		"Y1: not if no server is admitted":                  {report: closes, w: liveAt(here, 1, 2, 0), away: true, want: liveAt(here, 1, 2, 0)},
		"Y1: not if it has not compared the server":         {report: closes, w: liveAt(elsewhere, 1, 2, 0), want: liveAt(elsewhere, 1, 2, 0)},
		"Y1: not if it is away":                             {report: closes, w: awayAt(1, 2, 0), want: awayAt(1, 2, 0)},
		"Y1: not by an open report":                         {report: with(closes, func(r *driver.Report) { r.Open = true }), w: liveAt(here, 1, 2, 0), want: liveAt(here, 1, 2, 0)},
		"Y1: not by a site that leaves":                     {report: with(closes, func(r *driver.Report) { r.Away = true }), w: liveAt(here, 1, 2, 0), want: liveAt(here, 1, 2, 0)},
		"Y3: given":                                         {report: give(5, false), w: liveAt(here, 1, 2, 5), want: awayAt(5, 2, 5)},
		"Y3: not with another word":                         {report: give(4, false), w: liveAt(here, 1, 2, 5), want: liveAt(here, 1, 2, 5)},
		"Y3: not if it has come back":                       {report: give(5, false), w: liveAt(here, 1, 7, 0), want: liveAt(here, 1, 7, 0)},
		"Y3: not if no server is admitted":                  {report: give(5, false), w: liveAt(here, 1, 2, 5), away: true, want: liveAt(here, 1, 2, 5)},
		"Y5: a report withdraws the word":                   {report: marked(driver.Report{Witness: "w"}, 1), w: liveAt(here, 1, 2, 5), want: liveAt(here, 1, 10, 0)},
		"Y5: also one of a slow clock":                      {report: marked(driver.Report{Witness: "w"}, 1), w: liveAt(here, 1, 2, 50), want: liveAt(here, 1, 51, 0)},
		"Y5: also an open one":                              {report: driver.Report{Witness: "w", Open: true}, w: liveAt(here, 1, 2, 5), want: liveAt(here, 10, 2, 0)},
		"Y5: back from away":                                {report: driver.Report{Witness: "w"}, w: awayAt(5, 2, 5), want: liveAt(here, 10, 10, 0)},
		"Y5: back from away, as it has read":                {report: marked(driver.Report{Witness: "w"}, 5), w: awayAt(5, 2, 5), want: liveAt(here, 10, 10, 0)},
		"Y1: not about itself":                              {report: marked(driver.Report{Witness: "w", Closes: []string{"w"}}, 1), w: liveAt(here, 1, 2, 0), want: liveAt(here, 1, 10, 0)},
		"the policy excuses nobody while something is lost": {report: excuses, w: liveAt(elsewhere, 1, 2, 0), away: true, lost: 1, policy: driver.Synchronous, want: liveAt(elsewhere, 1, 2, 0)},
		"Y5: put back by somebody":                          {report: marked(driver.Report{Witness: "w"}, 4), w: liveAt("", 5, 2, 0), want: liveAt(here, 10, 10, 0)},
		"Y5: put back by itself":                            {report: marked(driver.Report{Witness: "w"}, 5), w: liveAt("", 4, 2, 0), want: liveAt(here, 5, 10, 0)},
		"Y6: again":                                         {report: give(5, true), w: liveAt(elsewhere, 1, 2, 0), away: true, want: awayAt(5, 2, 5)},
		"Y6: again with the mark of the testimony":          {report: marked(give(5, true), 5), w: liveAt(elsewhere, 1, 2, 0), away: true, want: awayAt(5, 2, 5)},
		"Y6: not about a newer row":                         {report: marked(give(5, true), 6), w: liveAt(elsewhere, 1, 2, 0), away: true, want: liveAt("", 6, 2, 0)},
		"Y6: not about a site that has reported here":       {report: give(5, true), w: liveAt(here, 1, 2, 0), want: liveAt(here, 1, 2, 0)},
		"Y6: not if it has reported since":                  {report: give(5, true), w: liveAt(elsewhere, 1, 7, 0), away: true, want: liveAt(elsewhere, 1, 7, 0)},
		"Y6: not if it was never given":                     {report: give(5, false), w: liveAt(elsewhere, 1, 2, 0), away: true, want: liveAt(elsewhere, 1, 2, 0)},
		"Y6: not by a site that was left out":               {report: give(5, true), v: out, w: liveAt(elsewhere, 1, 2, 0), away: true, want: liveAt(elsewhere, 1, 2, 0)},
		"Y7: a row that went back gets its mark":            {report: marked(driver.Report{Witness: "v"}, 5), w: awayAt(2, 2, 0), want: liveAt("", 5, 2, 0)},
		"Y7: a new time if it has reported here":            {report: marked(driver.Report{Witness: "v"}, 5), w: liveAt(here, 2, 2, 3), want: liveAt(here, 10, 2, 0)},
		"Y7: the newer row stays":                           {report: marked(driver.Report{Witness: "v"}, 2), w: awayAt(2, 2, 0), want: awayAt(2, 2, 0)},
		"the policy waits":                                  {report: excuses, w: liveAt(elsewhere, 1, 2, 0), away: true, want: liveAt(elsewhere, 1, 2, 0)},
		"the policy excuses":                                {report: excuses, w: liveAt(elsewhere, 1, 2, 0), away: true, policy: driver.Synchronous, want: awayAt(10, 2, 0)},
		"the policy excuses nobody who has reported":        {report: excuses, w: liveAt(here, 1, 2, 0), policy: driver.Synchronous, want: liveAt(here, 1, 2, 0)},
		"the policy excuses nobody if something is lost":    {report: with(excuses, func(r *driver.Report) { r.Missing = make([]driver.Known, 1) }), w: liveAt(elsewhere, 1, 2, 0), away: true, policy: driver.Synchronous, want: liveAt(elsewhere, 1, 2, 0)},
		"a later policy that waits comes before excuses":    {report: with(excuses, func(r *driver.Report) { r.Policy = driver.PolicyMark{Policy: driver.Wait, Since: at(9)} }), w: liveAt(elsewhere, 1, 2, 0), away: true, policy: driver.Synchronous, want: liveAt(elsewhere, 1, 2, 0)},
		"an earlier policy that waits is none of them now":  {report: with(excuses, func(r *driver.Report) { r.Policy = driver.PolicyMark{Policy: driver.Wait, Since: at(8)} }), w: liveAt(elsewhere, 1, 2, 0), away: true, policy: driver.Synchronous, want: awayAt(10, 2, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			if c.v.Name == "" {
				c.v = mine("v", here)
			}
			a := driver.Admission{Server: here, Admitted: !c.away, Lost: c.lost, Witnesses: []driver.Witness{c.v, c.w}, Policy: driver.PolicyMark{Policy: c.policy, Since: at(8)}}
			c.report.Server = here
			got := c.w
			for _, w := range Report(a, c.report, at(10)).Witnesses {
				if w.Name == "w" {
					got = w
				}
			}
			if got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestACarriedIntentCountsWhileTheRowIsNotNewer(t *testing.T) {
	for since, counts := range map[int]int{4: 1, 5: 1, 6: 0} {
		a := driver.Admission{Server: here, Witnesses: []driver.Witness{awayAt(since, 2, 0)}}
		r := driver.Report{Witness: "v", Server: here, Missing: []driver.Known{{Owner: "w/1", Token: 1, Word: at(5)}}}
		if got := Report(a, r, at(10)).Missing; len(got) != counts {
			t.Errorf("since %d: %+v", since, got)
		}
		r.Missing[0].Word = time.Time{}
		if got := Report(a, r, at(10)).Missing; len(got) != 1 {
			t.Errorf("of its own, since %d: %+v", since, got)
		}
	}
}

func TestWhichReportsDecideTheOutcomeOfAMove(t *testing.T) {
	for _, c := range []struct {
		owner, witness string
		fate           driver.Fate
		reporter       string
		want           bool
	}{
		{"w/1", "v", driver.Undecided, "v", true}, {"w/1", "v", driver.Undecided, "w", true}, {"w/1", "v", driver.Undecided, "x", false},
		{"w/1", "v", driver.Rewritten, "w", false}, {"", "v", driver.Undecided, "x", false},
	} {
		l := driver.LostChange{Known: driver.Known{Owner: c.owner}, Witness: c.witness, Fate: c.fate}
		if got := Tells(l, c.reporter, driver.MoveMade); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
		if Tells(l, c.reporter, driver.MoveUnknown) {
			t.Errorf("%+v: it does not know", c)
		}
	}
}
