package refdbtest_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// An admission says at which server may be written.
type admission struct {
	server    string // the present one
	restarts  int
	admitted  string
	rewritten driver.Position // before what a recovery wrote first; 0 if it has not
	witnesses map[string]driver.Witness
	policy    driver.PolicyMark
	missing   map[driver.LostCursor]driver.LostChange
}

func newAdmission() admission {
	return admission{server: "server-0", admitted: "server-0", witnesses: make(map[string]driver.Witness), policy: driver.PolicyMark{Policy: driver.Wait}, missing: make(map[driver.LostCursor]driver.LostChange)}
}

func (m *memory) Restart(testing.TB) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restarts++
	m.server = fmt.Sprintf("server-%d", m.restarts)
}

// beginWrite is begin for a method that needs an admitted server.
func (d *connection) beginWrite(ctx context.Context, method string) (end func(), err error) {
	end, err = d.begin(ctx)
	if err == nil && d.server != d.admitted && d.bug != "not compared by "+method {
		end()
		return nil, fmt.Errorf("writing: %w", driver.ErrNotAdmitted)
	}
	return end, err
}

// refuseBarred refuses an owner whose site has to compare the server first.
func (d *connection) refuseBarred(owner, what string) error {
	site, _, _ := strings.Cut(owner, "/")
	if d.witnesses[site].Barred() && d.bug != "barred sites "+what {
		return fmt.Errorf("writing: %w", driver.ErrNotAdmitted)
	}
	return nil
}

func (d *connection) admissionNow() driver.Admission {
	a := driver.Admission{Server: d.server, Admitted: d.server == d.admitted, Policy: d.policy}
	for _, l := range d.missing {
		if l.Fate == driver.Undecided {
			a.Lost++
		}
	}
	a.Halted = a.Lost > 0
	for _, name := range slices.Sorted(maps.Keys(d.witnesses)) {
		a.Witnesses = append(a.Witnesses, d.witnesses[name])
	}
	return a
}

func (d *connection) Admission(ctx context.Context) (driver.Admission, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return driver.Admission{}, err
	}
	defer end()
	return d.admissionNow(), nil
}

func (d *connection) Look(ctx context.Context, witness string, known []driver.Known) (driver.Looked, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return driver.Looked{}, err
	}
	defer end()
	return driver.Looked{Server: d.server, Missing: d.look(witness, known)}, nil
}

func (d *connection) look(witness string, known []driver.Known) (missing []int) {
	upto := d.state.PrunedTime
	if seen := d.witnesses[witness].Seen; witness != "" && seen.Before(upto) && d.bug != "whatever is old was pruned" {
		upto = seen
	}
	for i, k := range known {
		if !d.has(k) && (upto.IsZero() || k.At.After(upto) || d.bug == "nothing was pruned") {
			missing = append(missing, i)
		}
	}
	return missing
}

func (d *connection) has(k driver.Known) bool {
	l, recorded := d.missing[k.Cursor()]
	if recorded && l.Fate != driver.Undecided && d.bug != "the decided stay missing" {
		return true
	}
	for _, c := range d.changes {
		same := c.Op == k.Op || k.Token != 0 && strings.HasPrefix(c.Op, k.Op+"-") && d.bug != "intents end by their own operation"
		if same && c.Project == k.Project && (c.Ref == k.Ref || d.bug == "looks for operations of any ref") {
			return true
		}
	}
	for id, i := range d.intents {
		if k.Token != 0 && id.key == (key{k.Project, k.Ref}) && i.Op == k.Op && d.bug != "looks for no intents" {
			return true
		}
	}
	return false
}

func (d *connection) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return driver.Admission{}, err
	}
	defer end()
	if r.Server != d.server && d.bug != "reports of other servers count" {
		return driver.Admission{}, fmt.Errorf("reporting: %w: another server", driver.ErrUnavailable)
	}
	if d.bug == "marks are ignored" {
		r.Marks = nil
	}
	if d.bug == "open reports are complete" {
		r.Open = false
	}
	switch d.bug {
	case "sites are never closed":
		r.Closes = nil
	case "testimonies are never given":
		r.Testimonies = slices.DeleteFunc(slices.Clone(r.Testimonies), func(t driver.Testimony) bool { return !t.Given })
	case "testimonies are given once":
		r.Testimonies = slices.DeleteFunc(slices.Clone(r.Testimonies), func(t driver.Testimony) bool { return t.Given })
	case "whoever is excused is not waited for":
		for _, name := range r.Excused {
			if w := d.witnesses[name]; w.Awaited(d.server) {
				d.witnesses[name] = driver.Witness{Name: name, Seen: w.Seen, Away: true, Since: rules.Later(w.Since, now())}
			}
		}
	case "the policy goes back with the database":
		r.Policy = driver.PolicyMark{}
	}
	reported := rules.Report(d.admissionNow(), r, now())
	if d.bug == "carried intents always count" {
		reported.Missing = r.Missing
	}
	l := driver.LostChange{Witness: cmp.Or(r.Witness, r.Owner), Fate: reported.Fate, Reported: now()}
	if d.bug == "late changes halt" {
		l.Fate = driver.Undecided
	}
	missing := d.look(r.Witness, reported.Missing)
	if d.bug == "reports are believed" {
		missing = nil
		for i := range reported.Missing {
			missing = append(missing, i)
		}
	}
	for _, i := range missing {
		l.Known = reported.Missing[i]
		l.Word = time.Time{}
		was, recorded := d.missing[l.Cursor()]
		tells := rules.Tells(was, l.Witness, l.Move)
		switch d.bug {
		case "a second report is nothing":
			tells = false
		case "a site does not correct another's report":
			tells = tells && was.Witness == l.Witness
		}
		switch {
		case !recorded:
			d.missing[l.Cursor()] = l
		case tells:
			was.Move = l.Move
			d.missing[l.Cursor()] = was
		}
	}
	for _, w := range reported.Witnesses {
		if w.Name == r.Witness {
			w.Away = w.Away && d.bug != "nobody is away"
			if !r.Open {
				w.Server = d.server
			}
		}
		if d.bug == "words stay" && w.Word.IsZero() {
			w.Word = d.witnesses[w.Name].Word
		}
		d.witnesses[w.Name] = w
	}
	if reported.Policy.Policy != "" {
		d.policy = reported.Policy
	}
	a := d.admissionNow()
	switch next := rules.DecideAdmission(d.admitted, a); {
	case d.bug == "lost changes do not halt", d.bug == "nobody is waited for":
		if a.Lost = 0; d.bug == "nobody is waited for" || len(a.Waiting()) == 0 {
			d.admitted = d.server
		}
	case d.bug == "admissions stay" && d.admitted == d.server && a.Lost == 0:
	default:
		d.admitted = next
	}
	return d.admissionNow(), nil
}

func (d *connection) SetPolicy(ctx context.Context, p driver.Policy) (driver.Admission, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return driver.Admission{}, err
	}
	defer end()
	d.policy = driver.PolicyMark{Policy: p, Since: rules.Later(d.policy.Since, now())}
	return d.admissionNow(), nil
}

func (d *connection) sortedLost() []driver.LostChange {
	return slices.SortedFunc(maps.Values(d.missing), func(a, b driver.LostChange) int { return compareLost(a.Cursor(), b.Cursor()) })
}

func compareLost(a, b driver.LostCursor) int {
	return slices.Compare([]string{a.Project, a.Ref, a.Op}, []string{b.Project, b.Ref, b.Op})
}

func (d *connection) LostChanges(ctx context.Context, q driver.LostQuery) (p driver.LostPage, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return p, err
	}
	defer end()
	for _, l := range d.sortedLost() {
		if compareLost(l.Cursor(), q.After) <= 0 || l.Fate != driver.Undecided && !q.Decided {
			continue
		}
		if len(p.Lost) == q.Limit {
			p.Next = p.Lost[q.Limit-1].Cursor()
			break
		}
		p.Lost = append(p.Lost, l)
	}
	return p, nil
}

func (d *connection) Recover(ctx context.Context, r driver.RecoverRequest) (answer driver.Recovered, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return answer, err
	}
	defer end()
	if answer.Admission = d.admissionNow(); answer.Admitted && d.bug != "recovers what is admitted" {
		answer.Done = true
		return answer, nil
	}
	if !r.MayBegin(answer.Admission) && d.bug != "recovers at once" {
		return answer, nil
	}
	answer.Decided = d.decideLost(r.Limit)
	if answer.Admission = d.admissionNow(); answer.Lost > 0 {
		return answer, nil
	}
	for _, name := range answer.Waiting() {
		w := d.witnesses[name]
		w.Without, w.Since = true, rules.Later(w.Since, now())
		d.witnesses[name] = w
	}
	for k, row := range d.locks {
		if (!row.Intended() || d.bug == "intents end with a recovery") && d.bug != "locks outlive a recovery" {
			delete(d.locks, k)
		}
	}
	d.mark = max(d.mark, driver.TokenOf(now()))
	first := d.position + 1
	if d.rewritten != 0 && d.bug != "the epoch begins last" {
		first = d.rewritten
	}
	first = max(first, d.state.Epochs[len(d.state.Epochs)-1].First+1)
	d.position, d.rewritten = max(d.position, first-1), 0
	if d.bug != "no new epoch" {
		d.state.Epochs = append(d.state.Epochs, driver.Epoch{ID: r.Epoch, First: first, Began: now(), By: r.By, Reason: r.Reason})
	}
	d.admitted = d.server
	answer.Admission, answer.Done = d.admissionNow(), true
	return answer, nil
}

func (d *connection) decideLost(limit int) (decided []driver.LostChange) {
	refs := make(map[key][]driver.LostChange)
	for _, l := range d.sortedLost() {
		k := key{l.Project, l.Ref}
		if l.Fate == driver.Undecided && (len(refs) < limit || refs[k] != nil) {
			refs[k] = append(refs[k], l)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(refs), key.compare) {
		op := ""
		for id, i := range d.intents {
			if id.key == k && i.Decision == driver.Pending {
				op = i.Op
			}
		}
		verdict := rules.LostRef{Lost: refs[k], Value: d.refs[k].Value, Intent: op}.Decide()
		if verdict.Again != nil {
			d.rewrite(k, *verdict.Again)
		}
		if verdict.EndIntent && d.bug != "an intent outlives its change" {
			if row, locked := d.locks[k]; locked {
				delete(d.intents, intentKey{k, row.Token})
			}
			delete(d.locks, k)
		}
		for _, l := range verdict.Decided {
			d.missing[l.Cursor()] = l
			decided = append(decided, l)
		}
	}
	return decided
}

func (d *connection) rewrite(k key, l driver.LostChange) {
	by := driver.Origin{ID: l.Op, Owner: l.Owner, By: l.By}
	if d.bug == "a recovery writes by nobody" {
		by.Owner, by.By = "", ""
	}
	if d.rewritten == 0 {
		d.rewritten = d.position + 1
	}
	if l.New != driver.Unknown {
		d.put(k.project, []driver.Ref{{Name: k.ref, Value: l.New, Time: now(), Op: l.Op}}, by)
		return
	}
	d.position++
	d.record(k, d.refs[k].Value, driver.Unknown, by)
	delete(d.refs, k)
}
