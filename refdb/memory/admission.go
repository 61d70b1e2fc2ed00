package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"

	refdbdriver "github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// An admission says which server may be written at.
type admission struct {
	server    string // that serves the database now
	admitted  string // "" for none
	witnesses map[string]refdbdriver.Witness
	lost      map[refdbdriver.LostCursor]refdbdriver.LostChange
	rewritten refdbdriver.Position // of the first change that the present recovery wrote again; 0 if it has not
}

func newAdmission() admission {
	server := rand.Text()
	return admission{server: server, admitted: server, witnesses: make(map[string]refdbdriver.Witness), lost: make(map[refdbdriver.LostCursor]refdbdriver.LostChange)}
}

// Restart makes the server another one, as a restart or a fail-over does. Nothing is lost.
func (db *Database) Restart() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.admission.server = rand.Text()
}

// write is transact for a request that needs an admitted server.
func write[T any](ctx context.Context, d *driver, doing string, do func(*tx) (T, error)) (T, error) {
	return transact(ctx, d, doing, func(t *tx) (none T, _ error) {
		if t.admission.server != t.admission.admitted {
			return none, fmt.Errorf("memory: %s: %w", doing, refdbdriver.ErrNotAdmitted)
		}
		return do(t)
	})
}

// write is the function write for a request without an answer.
func (d *driver) write(ctx context.Context, doing string, do func(*tx) error) error {
	_, err := write(ctx, d, doing, func(t *tx) (struct{}, error) { return struct{}{}, do(t) })
	return err
}

// refuseBarred returns ErrNotAdmitted if the owner's site is a witness that is away or was left out of a recovery: it has to
// compare the server first.
func (t *tx) refuseBarred(owner string) error {
	site, _, _ := strings.Cut(owner, "/")
	if w := t.admission.witnesses[site]; w.Away || w.Without {
		return fmt.Errorf("memory: %w", refdbdriver.ErrNotAdmitted)
	}
	return nil
}

func (t *tx) admissionNow() refdbdriver.Admission {
	a := refdbdriver.Admission{Server: t.admission.server, Admitted: t.admission.server == t.admission.admitted}
	for _, l := range t.admission.lost {
		if l.Fate == refdbdriver.Undecided {
			a.Lost++
		}
	}
	a.Halted = a.Lost > 0
	for _, name := range slices.Sorted(maps.Keys(t.admission.witnesses)) {
		a.Witnesses = append(a.Witnesses, t.admission.witnesses[name])
	}
	return a
}

func (d *driver) Admission(ctx context.Context) (refdbdriver.Admission, error) {
	return transact(ctx, d, "read which server is admitted", func(t *tx) (refdbdriver.Admission, error) { return t.admissionNow(), nil })
}

func (d *driver) Look(ctx context.Context, witness string, known []refdbdriver.Known) (refdbdriver.Looked, error) {
	return transact(ctx, d, "compare with the server", func(t *tx) (refdbdriver.Looked, error) {
		return refdbdriver.Looked{Server: t.admission.server, Missing: t.look(witness, known)}, nil
	})
}

func (t *tx) look(witness string, known []refdbdriver.Known) (missing []int) {
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
func (t *tx) has(k refdbdriver.Known) bool {
	if l, recorded := t.admission.lost[k.Cursor()]; recorded && l.Fate != refdbdriver.Undecided {
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

func (d *driver) Report(ctx context.Context, r refdbdriver.Report) (refdbdriver.Admission, error) {
	return transact(ctx, d, "report a comparison with the server", func(t *tx) (a refdbdriver.Admission, _ error) {
		if r.Server != t.admission.server {
			return a, fmt.Errorf("memory: report a comparison with the server: %w: it was replaced meanwhile", refdbdriver.ErrUnavailable)
		}
		t.report(r)
		t.admission.admitted = rules.DecideAdmission(t.admission.admitted, t.admissionNow())
		return t.admissionNow(), nil
	})
}

func (t *tx) report(r refdbdriver.Report) {
	changed, fate := rules.ReportWitnesses(t.admissionNow().Witnesses, r, t.now)
	lost := refdbdriver.LostChange{Witness: cmp.Or(r.Witness, r.Owner), Fate: fate, Reported: t.now}
	// This goes by when the witness was seen last, so it comes before the witness's new row.
	for _, i := range t.look(r.Witness, r.Missing) {
		k := r.Missing[i]
		if recorded, is := t.admission.lost[k.Cursor()]; is {
			if recorded.Witness == lost.Witness {
				recorded.Move = k.Move
				t.admission.lost[k.Cursor()] = recorded
			}
			continue
		}
		lost.Known = k
		t.admission.lost[k.Cursor()] = lost
	}
	for _, w := range changed {
		t.admission.witnesses[w.Name] = w
	}
}

func (t *tx) sortedLost() []refdbdriver.LostChange {
	return slices.SortedFunc(maps.Values(t.admission.lost), func(a, b refdbdriver.LostChange) int {
		return compareCursors(a.Cursor(), b.Cursor())
	})
}

func compareCursors(a, b refdbdriver.LostCursor) int {
	return slices.Compare([]string{a.Project, a.Ref, a.Op}, []string{b.Project, b.Ref, b.Op})
}

func (d *driver) LostChanges(ctx context.Context, q refdbdriver.LostQuery) (refdbdriver.LostPage, error) {
	return transact(ctx, d, "list lost changes", func(t *tx) (p refdbdriver.LostPage, _ error) {
		for _, l := range t.sortedLost() {
			if compareCursors(l.Cursor(), q.After) <= 0 || l.Fate != refdbdriver.Undecided && !q.Decided {
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

func (d *driver) Recover(ctx context.Context, r refdbdriver.RecoverRequest) (refdbdriver.Recovered, error) {
	return transact(ctx, d, "recover", func(t *tx) (answer refdbdriver.Recovered, _ error) {
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
		t.unlock(t.locksWhere(func(l refdbdriver.LockInfo) bool { return !l.Intended() }))
		t.mark = max(t.mark, refdbdriver.Token(t.now.UnixMicro()))
		t.beginEpoch(r)
		t.admission.admitted = t.admission.server
		answer.Admission, answer.Done = t.admissionNow(), true
		return answer, nil
	})
}

// beginEpoch begins an epoch before what the recovery wrote again: what else was lost may have had the
// same positions.
func (t *tx) beginEpoch(r refdbdriver.RecoverRequest) {
	first := t.history.position + 1
	if t.admission.rewritten != 0 {
		first = t.admission.rewritten
	}
	first = max(first, t.history.epochs[len(t.history.epochs)-1].First+1)
	t.history.position, t.admission.rewritten = max(t.history.position, first-1), 0
	t.history.epochs = append(t.history.epochs, refdbdriver.Epoch{ID: r.Epoch, First: first, Began: t.now, By: r.By, Reason: r.Reason})
}

// decideLost decides about lost changes of at most limit refs.
func (t *tx) decideLost(limit int) (decided []refdbdriver.LostChange) {
	var refs rules.LostRefs
	for _, l := range t.sortedLost() {
		if l.Fate == refdbdriver.Undecided {
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
		if i.Project == k.Project && i.Ref == k.Ref && i.Decision == refdbdriver.Pending {
			ref.Intent, ref.Token = i.Op, i.Token
		}
	}
	return ref
}

// rewrite makes a lost change again.
func (t *tx) rewrite(k key, to refdbdriver.Value, by refdbdriver.Origin) {
	if t.admission.rewritten == 0 {
		t.admission.rewritten = t.history.position + 1
	}
	if to != refdbdriver.Unknown {
		t.change(k, to, by)
		return
	}
	t.noteChange(k, t.refs[k].Value, refdbdriver.Unknown, by)
	delete(t.refs, k)
}
