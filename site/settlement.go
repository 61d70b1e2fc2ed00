package site

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// settle ends a transaction that is over, by what the repository has. What can't be recorded now is left to reconcile. What a dead
// guard has left is settled after its lock files are gone: see Daemon.bury.
func (d *Daemon) settle(ctx context.Context, t *transaction) {
	d.guards.lock()
	dead := t.guard.dead
	d.guards.unlock()
	if !dead {
		d.settleNow(ctx, t)
	}
}

// settleNow is settle, whether or not the guard lives.
func (d *Daemon) settleNow(ctx context.Context, t *transaction) {
	gs := &d.guards
	gs.lock()
	if t.phase != over || t.settling || t.guard.transactions[t.id.TX] != t {
		gs.unlock()
		return
	}
	t.settling = true
	moves, mayHaveMoved := slices.Clone(t.moves), t.cleared
	gs.unlock()

	ctx, cancel := context.WithTimeout(ctx, d.config.Load().Timeout)
	defer cancel()
	if mayHaveMoved {
		d.moved.raise(t.repo.Path)
	}
	values := d.valuesOf(ctx, t) // nobody else moves the guarded ones before they are settled
	for _, m := range moves {
		m.over.Store(true)
	}
	ended, err := d.resolve(ctx, moves)
	d.logFailure(ctx, "what became of a transaction could not be recorded yet", err)
	d.open.end(ended)
	d.logged.over(t.repo.Project, t.lines)

	gs.lock()
	t.settling = false
	for _, m := range ended {
		t.elsewhere = t.elsewhere || m.elsewhere.Load()
	}
	t.moves = slices.DeleteFunc(t.moves, func(m *pendingMove) bool { return slices.Contains(ended, m) })
	settled := len(t.moves) == 0 && !t.elsewhere && !t.unknown
	if settled {
		gs.forget(t)
	}
	if t.reported {
		t.session.send(wire.Settled{TX: t.id.TX, Values: values})
		t.reported = false
	}
	gs.unlock()
	if settled {
		d.free(t)
	} else {
		d.requestReconcile()
	}
}

// valuesOf returns what the repository holds of the announced refs. Refs that can't be read are left out.
func (d *Daemon) valuesOf(ctx context.Context, t *transaction) (values []wire.RefValue) {
	if len(t.lines) == 0 || t.repo.Path == "" {
		return nil
	}
	repo, err := gitrepo.OpenDir(t.repo.Path)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(t.lines))
	for _, l := range t.lines {
		if l.Ref != headRef {
			names = append(names, l.Ref)
		}
	}
	local, err := repo.Values(ctx, names)
	for broken := (*gitrepo.BrokenError)(nil); errors.As(err, &broken) && slices.Contains(names, broken.Ref); {
		names = slices.DeleteFunc(names, func(name string) bool { return name == broken.Ref })
		local, err = repo.Values(ctx, names)
	}
	if err != nil {
		return nil
	}
	for _, l := range t.lines {
		value := local[l.Ref]
		switch {
		case l.Ref == headRef:
			head, ok, err := repo.Head(ctx)
			if err != nil || !ok {
				continue
			}
			value = head.Value
		case !slices.Contains(names, l.Ref):
			continue
		case value == "":
			value = strings.Repeat("0", len(zeroOf(l)))
		}
		if target, is := strings.CutPrefix(value, "ref: "); is {
			value = "ref:" + target
		}
		values = append(values, wire.RefValue{Value: value, Ref: l.Ref})
	}
	return values
}

const headRef = "HEAD"

// zeroOf returns an object ID as long as those of the line.
func zeroOf(l wire.Line) string {
	for _, v := range []string{l.New, l.Old} {
		if !strings.HasPrefix(v, "ref:") {
			return v
		}
	}
	return strings.Repeat("0", 40)
}
