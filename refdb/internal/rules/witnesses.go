package rules

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Reported contains the writes of a report.
type Reported struct {
	Witnesses []driver.Witness // the rows that it changes, sorted by name
	// Missing are the missing changes of the report that become lost changes if Look still does not
	// find them. Fate is their fate.
	Missing []driver.Known
	Fate    driver.Fate
	Policy  driver.PolicyMark // becomes the database's, unless it is zero
}

// Report decides what the report r changes. a is the state before r, and now the database's time.
func Report(a driver.Admission, r driver.Report, now time.Time) Reported {
	p := report{r: r, now: now, admitted: a.Admitted, lost: a.Lost, rows: make(map[string]driver.Witness), policy: a.Policy}
	for _, w := range a.Witnesses {
		p.rows[w.Name] = w
	}
	var answer Reported
	if r.Policy.Policy == driver.Wait && r.Policy.Since.After(a.Policy.Since) {
		answer.Policy, p.policy = r.Policy, r.Policy
	}
	p.restoreMarks()
	p.testifyAgain()
	answer.Missing = slices.DeleteFunc(slices.Clone(r.Missing), p.speaksForItself)
	if p.rows[r.Witness].Without {
		answer.Fate = driver.Late
	}
	p.speak()
	if p.mayAct() {
		p.excuse()
		p.close()
		p.testify()
	}
	before := make(map[string]driver.Witness)
	for _, w := range a.Witnesses {
		before[w.Name] = w
	}
	for _, name := range slices.Sorted(maps.Keys(p.rows)) {
		if was, registered := before[name]; !registered || was != p.rows[name] {
			answer.Witnesses = append(answer.Witnesses, p.rows[name])
		}
	}
	return answer
}

// A report is a driver.Report and the state that it changes step by step.
type report struct {
	r        driver.Report
	now      time.Time
	admitted bool                      // whether the server was admitted before the report
	lost     int                       // how many lost changes were undecided before the report
	rows     map[string]driver.Witness // by name
	policy   driver.PolicyMark
}

func live(w driver.Witness) bool { return w.Name != "" && !w.Away && !w.Without }

// restoreMarks makes witnesses live and awaited whose rows are older than their marks, because
// these rows went back in time. A row gets the time of its mark, not a new time, so that a
// testimony of that time can be given again. If the witness has reported to this server since, the
// row gets a new time.
func (p *report) restoreMarks() {
	for _, mark := range p.r.Marks {
		w, registered := p.rows[mark.Name]
		if registered && !w.Since.Before(mark.Since) {
			continue
		}
		back := driver.Witness{Name: mark.Name, Seen: w.Seen, Since: mark.Since}
		if w.Server == p.r.Server {
			back.Since = Later(mark.Since, p.now)
			if live(w) {
				back.Server = w.Server
			}
		}
		p.rows[mark.Name] = back
	}
}

// testifyAgain makes witnesses away whose rows went back to a time before the testimonies about
// them, unless they have reported since. A reporter that is not live itself does not decide about
// other witnesses.
func (p *report) testifyAgain() {
	if !live(p.rows[p.r.Witness]) {
		return
	}
	for _, t := range p.r.Testimonies {
		if w := p.rows[t.Site]; t.Given && live(w) && !w.Since.After(t.Word) && t.Word.After(w.Seen) && w.Server != p.r.Server {
			p.rows[t.Site] = testified(w, t.Word)
		}
	}
}

func testified(w driver.Witness, word time.Time) driver.Witness {
	return driver.Witness{Name: w.Name, Seen: w.Seen, Away: true, Since: word, Word: word}
}

// speaksForItself reports whether k is an intent from a testimony about another site, and that site
// has come back since.
func (p *report) speaksForItself(k driver.Known) bool {
	site, _, _ := strings.Cut(k.Owner, "/")
	return !k.Word.IsZero() && p.rows[site].Since.After(k.Word)
}

// speak updates the reporter's own row. The report proves that the reporter is alive, and so ends a
// testimony about it.
func (p *report) speak() {
	if p.r.Witness == "" {
		return
	}
	was, registered := p.rows[p.r.Witness]
	if p.r.Open {
		// The reporter is awaited, whatever other sites have reported about it. If a recovery left
		// it out, it stays left out.
		if was.Away || was.Closing() {
			w := driver.Witness{Name: was.Name, Seen: was.Seen, Since: Later(latest(was.Since, was.Word), p.now)}
			if was.Closing() {
				w.Server = was.Server
			}
			p.rows[p.r.Witness] = w
		}
		return
	}
	w := driver.Witness{Name: p.r.Witness, Server: p.r.Server, Seen: Later(was.Word, p.now), Away: p.r.Away, Since: was.Since}
	if !registered || was.Away != w.Away || was.Without || p.wasRestored(was) {
		w.Since = Later(was.Since, p.now)
	}
	p.rows[p.r.Witness] = w
}

// wasRestored reports whether another process has made the reporter's row w live because of a mark.
// In that case a testimony of that time must no longer be given.
func (p *report) wasRestored(w driver.Witness) bool {
	i := slices.IndexFunc(p.r.Marks, func(m driver.WitnessMark) bool { return m.Name == w.Name })
	return i < 0 || p.r.Marks[i].Since.Before(w.Since)
}

// mayAct reports whether the reporter is a witness that has compared this server completely, and
// continues.
func (p *report) mayAct() bool {
	return p.r.Witness != "" && !p.r.Open && !p.r.Away
}

// excuse makes awaited witnesses away, as the policy permits. Changes that they find missing when
// they come back halt the database. If changes are lost, the policy's promise was broken, and no
// witness is excused.
func (p *report) excuse() {
	if p.lost > 0 || len(p.r.Missing) > 0 {
		return
	}
	for _, name := range p.r.Excused {
		if w := p.rows[name]; p.policy.Policy == driver.Synchronous && w.Name != "" && w.Awaited(p.r.Server) {
			p.rows[name] = driver.Witness{Name: name, Seen: w.Seen, Away: true, Since: Later(w.Since, p.now)}
		}
	}
}

// close begins testimonies. A testimony that was begun earlier keeps its word: any site that has
// noted the changes for this word may give it.
func (p *report) close() {
	for _, name := range p.r.Closes {
		if w := p.rows[name]; p.admitted && name != p.r.Witness && live(w) && w.Server == p.r.Server && w.Word.IsZero() {
			w.Word = Later(latest(w.Since, w.Seen), p.now)
			p.rows[name] = w
		}
	}
}

// testify gives testimonies that have begun, unless the silent sites have come back.
func (p *report) testify() {
	for _, t := range p.r.Testimonies {
		if w := p.rows[t.Site]; p.admitted && w.Closing() && w.Word.Equal(t.Word) {
			p.rows[t.Site] = testified(w, t.Word)
		}
	}
}

// Tells reports whether a report with the given move decides what became of the move of a recorded
// lost change: the reporter knows the outcome, and has recorded the change itself or is the site that
// made the move.
func Tells(recorded driver.LostChange, reporter string, move driver.Move) bool {
	site, _, _ := strings.Cut(recorded.Owner, "/")
	return recorded.Fate == driver.Undecided && move != driver.MoveUnknown && (recorded.Witness == reporter || site == reporter)
}

// DecideAdmission returns which server is admitted after a report to server a.Server, if admitted
// was before.
func DecideAdmission(admitted string, a driver.Admission) string {
	switch {
	case a.Lost > 0, admitted == halted:
		return halted
	case len(a.Waiting()) > 0:
		return awaited
	}
	return a.Server
}

func latest(t time.Time, more ...time.Time) time.Time {
	for _, other := range more {
		if other.After(t) {
			t = other
		}
	}
	return t
}

// Later returns now or, if that is not later than t, the next microsecond.
func Later(t, now time.Time) time.Time {
	if now.After(t) {
		return now
	}
	return t.Add(time.Microsecond)
}
