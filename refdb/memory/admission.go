package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// An admission says which server may be written at.
type admission struct {
	server    string // that serves the database now
	admitted  string // "" for none
	witnesses map[string]driver.Witness
	policy    driver.PolicyMark
	lost      map[driver.LostCursor]driver.LostChange
	rewritten driver.Position // of the first change that the present recovery wrote again; 0 if it has not
}

func newAdmission() admission {
	server := rand.Text()
	return admission{server: server, admitted: server, witnesses: make(map[string]driver.Witness), lost: make(map[driver.LostCursor]driver.LostChange), policy: driver.PolicyMark{Policy: driver.Wait}}
}

// Restart makes the server another one, as a restart or a fail-over does. Nothing is lost.
func (db *Database) Restart() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.admission.server = rand.Text()
}

// write is transact for a request that needs an admitted server.
func write[T any](ctx context.Context, d *connection, doing string, do func(*tx) (T, error)) (T, error) {
	return transact(ctx, d, doing, func(t *tx) (none T, _ error) {
		if t.admission.server != t.admission.admitted {
			return none, fmt.Errorf("memory: %s: %w", doing, driver.ErrNotAdmitted)
		}
		return do(t)
	})
}

// write is the function write for a request without an answer.
func (d *connection) write(ctx context.Context, doing string, do func(*tx) error) error {
	_, err := write(ctx, d, doing, func(t *tx) (struct{}, error) { return struct{}{}, do(t) })
	return err
}

// refuseBarred returns ErrNotAdmitted if the owner's site is barred: it has to compare the server
// first.
func (t *tx) refuseBarred(owner string) error {
	site, _, _ := strings.Cut(owner, "/")
	if t.admission.witnesses[site].Barred() {
		return fmt.Errorf("memory: %w", driver.ErrNotAdmitted)
	}
	return nil
}

func (t *tx) admissionNow() driver.Admission {
	a := driver.Admission{Server: t.admission.server, Admitted: t.admission.server == t.admission.admitted, Policy: t.admission.policy}
	for _, l := range t.admission.lost {
		if l.Fate == driver.Undecided {
			a.Lost++
		}
	}
	a.Halted = a.Lost > 0
	for _, name := range slices.Sorted(maps.Keys(t.admission.witnesses)) {
		a.Witnesses = append(a.Witnesses, t.admission.witnesses[name])
	}
	return a
}

func (d *connection) Admission(ctx context.Context) (driver.Admission, error) {
	return transact(ctx, d, "read which server is admitted", func(t *tx) (driver.Admission, error) { return t.admissionNow(), nil })
}

func (d *connection) Look(ctx context.Context, witness string, known []driver.Known) (driver.Looked, error) {
	return transact(ctx, d, "compare with the server", func(t *tx) (driver.Looked, error) {
		return driver.Looked{Server: t.admission.server, Missing: t.look(witness, known)}, nil
	})
}

func (t *tx) look(witness string, known []driver.Known) (missing []int) {
	upto := t.history.prunedAt
	if seen := t.admission.witnesses[witness].Seen; witness != "" && seen.Before(upto) {
		upto = seen
	}
	for i, k := range known {
		if !t.has(k) && (upto.IsZero() || k.At.After(upto)) {
			missing = append(missing, i)
		}
	}
	return missing
}

// has reports whether k is there, or was decided about.
func (t *tx) has(k driver.Known) bool {
	if l, recorded := t.admission.lost[k.Cursor()]; recorded && l.Fate != driver.Undecided {
		return true
	}
	for _, c := range t.history.changes {
		if c.Project == k.Project && c.Ref == k.Ref && (c.Op == k.Op || k.Token != 0 && strings.HasPrefix(c.Op, k.Op+"-")) {
			return true
		}
	}
	for key, i := range t.intents {
		if k.Token != 0 && key.Project == k.Project && key.Ref == k.Ref && i.Op == k.Op {
			return true
		}
	}
	return false
}

func (d *connection) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	return transact(ctx, d, "report a comparison with the server", func(t *tx) (a driver.Admission, _ error) {
		if r.Server != t.admission.server {
			return a, fmt.Errorf("memory: report a comparison with the server: %w: it was replaced meanwhile", driver.ErrUnavailable)
		}
		t.report(r)
		t.admission.admitted = rules.DecideAdmission(t.admission.admitted, t.admissionNow())
		return t.admissionNow(), nil
	})
}

func (t *tx) report(r driver.Report) {
	reported := rules.Report(t.admissionNow(), r, t.now)
	lost := driver.LostChange{Witness: cmp.Or(r.Witness, r.Owner), Fate: reported.Fate, Reported: t.now}
	// This goes by when the witness was seen last, so it comes before the witness's new row.
	for _, i := range t.look(r.Witness, reported.Missing) {
		k := reported.Missing[i]
		k.Word = time.Time{}
		if recorded, is := t.admission.lost[k.Cursor()]; is {
			if rules.Tells(recorded, lost.Witness, k.Move) {
				recorded.Move = k.Move
				t.admission.lost[k.Cursor()] = recorded
			}
			continue
		}
		lost.Known = k
		t.admission.lost[k.Cursor()] = lost
	}
	for _, w := range reported.Witnesses {
		t.admission.witnesses[w.Name] = w
	}
	if reported.Policy.Policy != "" {
		t.admission.policy = reported.Policy
	}
}

func (d *connection) SetPolicy(ctx context.Context, p driver.Policy) (driver.Admission, error) {
	return transact(ctx, d, "set the policy", func(t *tx) (driver.Admission, error) {
		t.admission.policy = driver.PolicyMark{Policy: p, Since: rules.Later(t.admission.policy.Since, t.now)}
		return t.admissionNow(), nil
	})
}

func (t *tx) sortedLost() []driver.LostChange {
	return slices.SortedFunc(maps.Values(t.admission.lost), func(a, b driver.LostChange) int {
		return compareCursors(a.Cursor(), b.Cursor())
	})
}

func compareCursors(a, b driver.LostCursor) int {
	return slices.Compare([]string{a.Project, a.Ref, a.Op}, []string{b.Project, b.Ref, b.Op})
}

func (d *connection) LostChanges(ctx context.Context, q driver.LostQuery) (driver.LostPage, error) {
	return transact(ctx, d, "list lost changes", func(t *tx) (p driver.LostPage, _ error) {
		for _, l := range t.sortedLost() {
			if compareCursors(l.Cursor(), q.After) <= 0 || l.Fate != driver.Undecided && !q.Decided {
				continue
			}
			if len(p.Lost) == q.Limit {
				p.Next = p.Lost[q.Limit-1].Cursor()
				break
			}
			p.Lost = append(p.Lost, l)
		}
		return p, nil
	})
}

func (d *connection) Recover(ctx context.Context, r driver.RecoverRequest) (driver.Recovered, error) {
	return transact(ctx, d, "recover", func(t *tx) (answer driver.Recovered, _ error) {
		answer.Admission = t.admissionNow()
		if answer.Admitted {
			answer.Done = true
			return answer, nil
		}
		if !r.MayBegin(answer.Admission) {
			return answer, nil
		}
		answer.Decided = t.decideLost(r.Limit)
		if answer.Admission = t.admissionNow(); answer.Lost > 0 {
			return answer, nil
		}
		for _, name := range answer.Waiting() {
			w := t.admission.witnesses[name]
			w.Without, w.Since = true, rules.Later(w.Since, t.now)
			t.admission.witnesses[name] = w
		}
		t.unlock(t.locksWhere(func(l driver.LockInfo) bool { return !l.Intended() }))
		t.mark = max(t.mark, driver.Token(t.now.UnixMicro()))
		t.beginEpoch(r)
		t.admission.admitted = t.admission.server
		answer.Admission, answer.Done = t.admissionNow(), true
		return answer, nil
	})
}

// beginEpoch begins an epoch before what the recovery wrote again: what else was lost may have had
// the same positions.
func (t *tx) beginEpoch(r driver.RecoverRequest) {
	first := t.history.position + 1
	if t.admission.rewritten != 0 {
		first = t.admission.rewritten
	}
	first = max(first, t.history.epochs[len(t.history.epochs)-1].First+1)
	t.history.position, t.admission.rewritten = max(t.history.position, first-1), 0
	t.history.epochs = append(t.history.epochs, driver.Epoch{ID: r.Epoch, First: first, Began: t.now, By: r.By, Reason: r.Reason})
}

// decideLost decides about lost changes of at most limit refs.
func (t *tx) decideLost(limit int) (decided []driver.LostChange) {
	var refs rules.LostRefs
	for _, l := range t.sortedLost() {
		if l.Fate == driver.Undecided {
			refs.Add(l, t.lostRef(key{l.Project, l.Ref}))
		}
	}
	for _, ref := range refs[:min(len(refs), limit)] {
		k, verdict := key{ref.Project, ref.Ref}, ref.Decide()
		if verdict.Again != nil {
			t.rewrite(k, verdict.Again.New, verdict.Origin())
		}
		if verdict.EndIntent {
			delete(t.intents, intentKey{k.Project, k.Ref, ref.Token})
			delete(t.locks, k)
		}
		for _, l := range verdict.Decided {
			t.admission.lost[l.Cursor()] = l
		}
		decided = append(decided, verdict.Decided...)
	}
	return decided
}

func (t *tx) lostRef(k key) rules.LostRef {
	ref := rules.LostRef{Value: t.refs[k].Value}
	for _, i := range t.intents {
		if i.Project == k.Project && i.Ref == k.Ref && i.Decision == driver.Pending {
			ref.Intent, ref.Token = i.Op, i.Token
		}
	}
	return ref
}

// rewrite makes a lost change again.
func (t *tx) rewrite(k key, to driver.Value, by driver.Origin) {
	if t.admission.rewritten == 0 {
		t.admission.rewritten = t.history.position + 1
	}
	if to != driver.Unknown {
		t.change(k, to, by)
		return
	}
	t.noteChange(k, t.refs[k].Value, driver.Unknown, by)
	delete(t.refs, k)
}
