package main

import (
	"strings"
	"testing"
	"time"
)

const (
	ms = instant(time.Millisecond)
	s  = instant(time.Second)
)

// lines are a hand-made journal.
type lines []entry

// section adds a section of a ref: asked for, entered and held until then.
func (l lines) section(id string, token int64, asked, begin, end instant, refs ...string) lines {
	return append(l,
		entry{Kind: entered, ID: id, Token: token, From: asked, T: begin, Refs: refs},
		entry{Kind: held, ID: id, T: end})
}

// leave adds that a section was left in time.
func (l lines) leave(id string, at instant) lines {
	return append(l, entry{Kind: left, ID: id, T: at})
}

// update adds an update of moves, each written "ref old new".
func (l lines) update(id string, token int64, sent, ends instant, outcome string, moves ...string) lines {
	var all []move
	for _, m := range moves {
		f := strings.Split(m, " ")
		all = append(all, move{f[0], f[1], f[2]})
	}
	return append(l, entry{Kind: asked, ID: id, Token: token, T: sent, Moves: all},
		entry{Kind: answered, ID: id, T: ends, Outcome: outcome})
}

func (l lines) root(refs ...string) lines {
	e := entry{Kind: asked, ID: "root-1", T: 1}
	for _, ref := range refs {
		e.Moves = append(e.Moves, move{ref, "", "root"})
	}
	return append(l, e, entry{Kind: answered, ID: "root-1", T: 2, Outcome: accepted})
}

func (l lines) read(ref, value string, from, to instant) lines {
	return append(l, entry{Kind: got, Refs: []string{ref}, Value: value, From: from, T: to})
}

func (l lines) noticed(id string, at instant) lines {
	return append(l, entry{Kind: noticed, ID: id, T: at})
}

func (l lines) mismatch(id string) lines {
	for i, e := range l {
		if e.Kind == answered && e.ID == id {
			l[i].Mismatch = true
		}
	}
	return l
}

func (l lines) input(t *testing.T, d disturbances, final map[string]string) *checkInput {
	t.Helper()
	h := newHistory()
	if err := h.addAll(l); err != nil {
		t.Fatal(err)
	}
	return &checkInput{history: h, disturbances: d, final: final}
}

// at is a step, or a loss, at a time.
func at(t instant) []span { return []span{{t, t + ms}} }

func TestEveryViolationInAHistoryIsFoundAndNothingElse(t *testing.T) {
	a := map[string]string{"a": "v2"}
	// What a history without a fault looks like.
	fine := lines{}.root("a", "b").
		section("x-1", 10, 1*s, 2*s, 3*s, "a").
		update("x-2", 10, 2*s, 2*s+ms, accepted, "a root v1").
		leave("x-1", 3*s+ms).
		section("y-1", 20, 2*s, 4*s, 5*s, "a", "b").
		update("y-2", 20, 4*s, 4*s+ms, accepted, "a v1 v2", "b root w1")
	tests := []struct {
		name  string
		lines lines
		d     disturbances
		final map[string]string
		want  string // of the check, "" for none
		text  string // a part of the violation's
	}{
		{name: "nothing wrong", lines: fine, final: map[string]string{"a": "v2", "b": "w1"}},
		{
			name:  "two holders",
			lines: lines{}.section("x-1", 10, 1*s, 2*s, 4*s+ms, "a").section("y-1", 20, 3*s, 4*s, 5*s, "a"),
			want:  "one holder per ref", text: "two holders of a for at least 1ms",
		},
		{
			name:  "two holders, neither the latest before the other",
			lines: lines{}.section("x-1", 10, 1*s, 2*s, 9*s, "a").section("y-1", 20, 9*s, 10*s, 11*s, "a").section("z-1", 15, 3*s, 4*s, 5*s, "a"),
			want:  "one holder per ref", text: "two holders",
		},
		{
			name:  "two holders after a forward step, until the next beat",
			lines: lines{}.section("x-1", 10, 1*s, 2*s, 4*s+ms, "a").section("y-1", 20, 3*s, 4*s, 5*s, "a"),
			d:     disturbances{forward: at(3 * s)},
		},
		{
			name:  "two holders after a forward step, for longer than a lease",
			lines: lines{}.section("x-1", 10, 1*s, 2*s, 4*s+instant(leaseTime)+ms, "a").section("y-1", 20, 3*s, 4*s, 5*s, "a"),
			d:     disturbances{forward: at(3 * s)},
			want:  "one holder per ref", text: "two holders",
		},
		{
			name:  "two holders before a forward step",
			lines: lines{}.section("x-1", 10, 1*s, 2*s, 4*s+ms, "a").section("y-1", 20, 3*s, 4*s, 5*s, "a"),
			d:     disturbances{forward: at(6 * s)},
			want:  "one holder per ref", text: "two holders",
		},
		{
			name:  "a holder that never notices that all data is lost",
			lines: lines{}.section("x-1", 10, 1*s, 2*s, 4*s+instant(leaseTime), "a"),
			d:     disturbances{dataLost: at(3 * s)},
			want:  "one holder per ref", text: "did not notice",
		},
		{
			name:  "a token that regresses",
			lines: lines{}.section("x-1", 10, 1*s, 2*s, 3*s, "a").section("y-1", 9, 4*s, 5*s, 6*s, "a"),
			want:  "tokens grow", text: "regressed by 1",
		},
		{
			name:  "a token that comes twice",
			lines: lines{}.section("x-1", 10, 1*s, 2*s, 3*s, "a", "b").section("y-1", 10, 4*s, 5*s, 6*s, "b"),
			want:  "tokens grow", text: "regressed by 0",
		},
		{
			name:  "a loss known after the takeover",
			lines: lines{}.section("x-1", 10, 1*s, 2*s, 3*s, "a").section("y-1", 20, 4*s, 5*s, 6*s, "a").noticed("x-1", 5*s+ms),
			want:  "loss known before takeover", text: "1ms after",
		},
		{
			name: "a loss that was never told of",
			lines: lines{}.root("b").section("x-1", 10, 1*s, 2*s, 3*s, "a").section("y-1", 20, 4*s, 5*s, 6*s, "a").
				update("x-2", 0, 10*s, 11*s, accepted, "b root v1"),
			final: map[string]string{"b": "v1"},
			want:  "loss known before takeover", text: "never told",
		},
		{
			name: "a holder that was killed",
			lines: lines{}.root("b").section("x-1", 10, 1*s, 2*s, 3*s, "a").section("y-1", 20, 4*s, 5*s, 6*s, "a").
				update("x-2", 0, 2*s, 3*s, accepted, "b root v1"),
			final: map[string]string{"b": "v1"},
		},
		{
			name:  "a loss known before the takeover",
			lines: lines{}.section("x-1", 10, 1*s, 2*s, 3*s, "a").section("y-1", 20, 4*s, 5*s, 6*s, "a").noticed("x-1", 5*s-ms),
		},
		{
			name:  "a loss known late, because the holder was frozen",
			lines: lines{}.section("x-1", 10, 1*s, 2*s, 3*s, "a").section("y-1", 20, 4*s, 5*s, 6*s, "a").noticed("x-1", 5*s+ms),
			d:     disturbances{frozen: map[string][]span{"x": {{3 * s, 5 * s}}}},
		},
		{
			name:  "a loss known late, while another was frozen",
			lines: lines{}.section("x-1", 10, 1*s, 2*s, 3*s, "a").section("y-1", 20, 4*s, 5*s, 6*s, "a").noticed("x-1", 5*s+ms),
			d:     disturbances{frozen: map[string][]span{"y": {{3 * s, 5 * s}}}},
			want:  "loss known before takeover", text: "1ms after",
		},
		{
			name:  "an acknowledged update that is lost at the end",
			lines: lines{}.root("a").update("x-1", 0, 1*s, 2*s, accepted, "a root v1"),
			final: map[string]string{"a": "root"},
			want:  "no acknowledged update lost, no refused one visible", text: "an acknowledged update of a is lost",
		},
		{
			name: "an acknowledged update that is lost in the middle",
			lines: lines{}.root("a").update("x-1", 0, 1*s, 2*s, accepted, "a root v1").
				update("y-1", 0, 1*s, 2*s, accepted, "a root v2"),
			final: a,
			want:  "no acknowledged update lost, no refused one visible", text: "an acknowledged update of a is lost",
		},
		{
			name: "a refused update that another builds on",
			lines: lines{}.root("a").update("x-1", 0, 1*s, 2*s, refused, "a root v1").
				update("y-1", 0, 3*s, 4*s, accepted, "a v1 v2"),
			final: a,
			want:  "no acknowledged update lost, no refused one visible", text: "a refused update of a is visible",
		},
		{
			name:  "a refused update that is there at the end",
			lines: lines{}.root("a").update("x-1", 0, 1*s, 2*s, refused, "a root v2"),
			final: a,
			want:  "no acknowledged update lost, no refused one visible", text: "a refused update of a is visible",
		},
		{
			name:  "a refused update that was read",
			lines: lines{}.root("a").update("x-1", 0, 1*s, 2*s, refused, "a root v1").read("a", "v1", 3*s, 4*s),
			final: map[string]string{"a": "root"},
			want:  "no acknowledged update lost, no refused one visible", text: "was read, of an update that did not happen",
		},
		{
			name:  "a value that nobody wrote",
			lines: lines{}.root("a"),
			final: map[string]string{"a": "other"},
			want:  "no acknowledged update lost, no refused one visible", text: "nobody wrote",
		},
		{
			name:  "an unknown outcome that happened, and one that did not",
			lines: lines{}.root("a").update("x-1", 0, 1*s, 2*s, unknown, "a root v2").update("y-1", 0, 1*s, 2*s, unknown, "a root v3"),
			final: a,
		},
		{
			name: "updates of before and after a loss of all data",
			lines: append(lines{}.root("a").update("x-1", 0, 1*s, 2*s, accepted, "a root v1"),
				entry{Kind: asked, ID: "root-2", T: 5 * s, Moves: []move{{"a", "", "root2"}}},
				entry{Kind: answered, ID: "root-2", T: 6 * s, Outcome: accepted}),
			d:     disturbances{dataLost: []span{{4 * s, 5 * s}}},
			final: map[string]string{"a": "root2"},
		},
		{
			name: "two that were both acknowledged before a loss of all data",
			lines: append(lines{}.root("a").update("x-1", 0, 1*s, 2*s, accepted, "a root v1").update("y-1", 0, 1*s, 2*s, accepted, "a root v3"),
				entry{Kind: asked, ID: "root-2", T: 5 * s, Moves: []move{{"a", "", "root2"}}},
				entry{Kind: answered, ID: "root-2", T: 6 * s, Outcome: accepted}),
			d:     disturbances{dataLost: []span{{4 * s, 5 * s}}},
			final: map[string]string{"a": "root2"},
			want:  "no acknowledged update lost, no refused one visible", text: "an acknowledged update of a is lost",
		},
		{
			name: "an update that takes effect before one that was over before it",
			lines: lines{}.root("a").update("x-1", 0, 5*s, 6*s, accepted, "a root v1").
				update("y-1", 0, 3*s, 4*s, accepted, "a v1 v2"),
			final: a,
			want:  "updates and reads in real-time order", text: "came after one that was sent later",
		},
		{
			name:  "a stale read",
			lines: lines{}.root("a").update("x-1", 0, 1*s, 2*s, accepted, "a root v2").read("a", "root", 2*s+ms, 3*s),
			final: a,
			want:  "updates and reads in real-time order", text: "had been replaced",
		},
		{
			name:  "a read from the future",
			lines: lines{}.root("a").update("x-1", 0, 4*s, 5*s, accepted, "a root v2").read("a", "v2", 2*s, 3*s),
			final: a,
			want:  "updates and reads in real-time order", text: "before it was written",
		},
		{
			name:  "half of an update",
			lines: lines{}.root("a", "b").update("x-1", 0, 1*s, 2*s, unknown, "a root v2", "b root w2"),
			final: map[string]string{"a": "v2", "b": "root"},
			want:  "updates of several refs are whole", text: "moved [a], and not [b]",
		},
		{
			name: "fenced writers that mix",
			lines: lines{}.root("a").update("x-1", 10, 1*s, 2*s, accepted, "a root v1").
				update("y-1", 20, 1*s, 3*s, accepted, "a v1 v3").update("x-2", 10, 1*s, 4*s, accepted, "a v3 v2"),
			final: a,
			want:  "fenced writers never overlap", text: "came after one with a later token",
		},
		{
			name: "a stale token",
			lines: lines{}.root("a").section("x-1", 10, 1*s, 2*s, 3*s, "a").section("y-1", 20, 4*s, 5*s, 6*s, "a").
				update("x-2", 10, 7*s, 8*s, accepted, "a root v2"),
			final: a,
			want:  "fenced writers never overlap", text: "a stale token was accepted",
		},
		{
			name: "a ref that moves under its lock",
			lines: lines{}.root("a").section("x-1", 10, 1*s, 2*s, 3*s, "a").
				update("x-2", 10, 2*s, 3*s, refused, "a root v3").mismatch("x-2"),
			final: map[string]string{"a": "root"},
			want:  "fenced writers never overlap", text: "was moved by another while its lock stood",
		},
		{
			name: "an update past a lock",
			lines: lines{}.root("a").section("x-1", 10, 1*s, 2*s, 5*s, "a").
				update("y-2", 0, 3*s, 4*s, accepted, "a root v2"),
			final: a,
			want:  "a fresh lock keeps others' updates out", text: "moved past a lock",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := test.lines.input(t, test.d, test.final)
			for _, c := range checks {
				_, found := c.do(w)
				if c.name == test.want {
					if len(found) == 0 || !strings.Contains(found[0].Text, test.text) {
						t.Errorf("check %q found %v, want one that says %q", c.name, found, test.text)
					}
				} else if test.want == "" && len(found) > 0 {
					t.Errorf("check %q found %v", c.name, found)
				}
			}
		})
	}
}

func TestALeakIsFound(t *testing.T) {
	quiet := func(goroutines, files int) report {
		return report{State: paused, Goroutines: goroutines, Files: files}
	}
	tests := map[string]struct {
		u    usage
		want string
	}{
		"none": {usage{quiet: []report{quiet(30, 20), quiet(35, 30)}}, ""},
		"goroutines, little by little": {
			usage{quiet: []report{quiet(30, 20), quiet(45, 20), quiet(51, 20)}}, "has 51 goroutines"},
		"files":                         {usage{quiet: []report{quiet(30, 20), quiet(30, 41)}}, "41 files"},
		"a goroutine that Close leaves": {usage{first: report{Goroutines: 4, Files: 6}, last: report{State: closed, Goroutines: 5, Files: 8}}, "after Close"},
		"a file that Close leaves":      {usage{first: report{Goroutines: 4, Files: 6}, last: report{State: closed, Goroutines: 4, Files: 10}}, "after Close"},
		"killed while it worked":        {usage{first: report{Goroutines: 4}, last: report{State: working, Goroutines: 50}}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, found := checkLeaks([]usage{test.u})
			if test.want == "" && len(found) > 0 || test.want != "" && (len(found) == 0 || !strings.Contains(found[0].Text, test.want)) {
				t.Errorf("found %v, want %q", found, test.want)
			}
		})
	}
}

func TestTooManyConnectionsAreFound(t *testing.T) {
	if found := checkConnections(3*poolSize, 3); found != nil {
		t.Error(found)
	}
	if checkConnections(3*poolSize+1, 3) == nil {
		t.Error("one too many was not found")
	}
}

func TestRecoveryIsMeasuredFromTheEndOfTheFault(t *testing.T) {
	const end = 60 * s
	any := func(instant) bool { return true }
	for name, test := range map[string]struct {
		back      instant // when the sites are fast again
		rate      int     // then
		want      time.Duration
		recovered bool
	}{
		"at once":           {end, 100, 0, true},
		"after two seconds": {end + 2*s, 100, 1500 * time.Millisecond, true}, // half of a bucket is as before, and the next two
		"to nine tenths":    {end, 90, 0, true},
		"to less":           {end, 89, 0, false},
		"after ten seconds": {end + 10*s + 500*ms, 100, 10 * time.Second, true},
		"later":             {end + 10*s + 600*ms, 100, 0, false},
		"never":             {1000 * s, 100, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &meter{}
			for at := instant(0); at < 120*s; at += instant(reportEvery) {
				if at >= test.back {
					m.add(at, test.rate/10)
					if test.rate%10 > 0 && (at/instant(reportEvery))%10 == 0 {
						m.add(at, test.rate%10)
					}
				}
			}
			took, recovered := recovery(m, 100, end, any)
			if recovered != test.recovered || recovered && took != test.want {
				t.Errorf("recovered %v after %s, want %v after %s", recovered, took, test.recovered, test.want)
			}
		})
	}
}

func TestALineThatAKillCutShortSpoilsNoOther(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir + "/eu-1.1.journal")
	if err != nil {
		t.Fatal(err)
	}
	j.write(entry{Kind: asked, ID: "eu-1.1-1", T: 1})
	if _, err := j.file.WriteString("\n{\"k\":\"answ"); err != nil {
		t.Fatal(err)
	}
	j.write(entry{Kind: asked, ID: "eu-1.1-2", T: 2})
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	h, err := readHistory(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.updates) != 2 || h.torn != 1 {
		t.Errorf("%d updates, %d torn lines", len(h.updates), h.torn)
	}
}

func TestAViolationIsToldOnceAndCounted(t *testing.T) {
	var out strings.Builder
	r := newRecord(&out)
	v := violation{Text: "two holders", Evidence: []string{"x", "y"}}
	r.checked("sqlite", "one holder per ref", 5, []violation{v})
	v.Evidence = []string{"x", "z"}
	r.checked("sqlite", "one holder per ref", 9, []violation{v})
	if n := strings.Count(out.String(), "\n"); n != 1 || r.sum.violations() != 1 {
		t.Errorf("told %d times, counted %d:\n%s", n, r.sum.violations(), out.String())
	}
}
