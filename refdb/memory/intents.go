package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// An intent is a row of the table of intents.
type intent struct {
	refdb.Intent        // without an age
	nonce        string // of the request that recorded it
}

func (d *driver) Prepare(ctx context.Context, r refdb.PrepareRequest) (p refdb.Prepared, err error) {
	err = d.transact(ctx, "prepare updates", func(t *tx) error {
		refs := refsOf(r.Updates)
		if t.revoked(r) {
			return fmt.Errorf("memory: prepare updates: they were revoked: %w", refdb.ErrReleased)
		}
		ours := t.taken(r.Project, refs, r.Owner, r.Nonce)
		if len(ours) == len(refs) && !slices.ContainsFunc(ours, func(l refdb.LockInfo) bool { return t.pending(l.ID()) == nil }) {
			p.Token = ours[0].Token
			return nil
		}
		locks := slices.DeleteFunc(t.locksOn(r.Project, refs), func(l refdb.LockInfo) bool { return l.Reserved() && l.Stale() })
		if err := refusal(locks, refdb.MandatoryLocks); err != nil {
			return err
		}
		if err := t.mismatch(r.Project, r.Updates, false); err != nil {
			return err
		}
		p = refdb.Prepared{Token: t.lock(r.Project, refs, r.Owner, r.Nonce, refdb.NeverStale), Reclaimed: locks}
		for _, ref := range refs {
			l := t.locks[key{r.Project, ref}]
			l.queue = l.queue.Overtaken()
		}
		for _, u := range r.Updates {
			t.record(r, u, p.Token)
		}
		return nil
	})
	return p, err
}

// record records what r is about to do to one ref.
func (t *tx) record(r refdb.PrepareRequest, u refdb.Update, token refdb.Token) *intent {
	i := &intent{refdb.Intent{
		Project: r.Project, Ref: u.Ref, Token: token, Owner: r.Owner, Agent: r.Agent, Old: u.Old, New: u.New, Time: t.now,
	}, r.Nonce}
	t.intents[intentKey{r.Project, u.Ref, token}] = i
	return i
}

// recorded returns the intent of that name, nil if there is none.
func (t *tx) recorded(id refdb.LockID) *intent {
	if i := t.intents[intentKey{id.Project, id.Ref, id.Token}]; i != nil && i.Owner == id.Owner {
		return i
	}
	return nil
}

// pending returns the intent of that name, nil if there is none or it was decided.
func (t *tx) pending(id refdb.LockID) *intent {
	if i := t.recorded(id); i != nil && i.Decision == refdb.Pending {
		return i
	}
	return nil
}

// locked reports whether the lock of an intent stands, which somebody who knows
// of no intents may have deleted, and moved the ref then.
func (t *tx) locked(id refdb.LockID) bool {
	l := t.locks[key{id.Project, id.Ref}]
	return l != nil && l.ID() == id && l.Intended()
}

func (d *driver) Finish(ctx context.Context, r refdb.FinishRequest) error {
	return d.transact(ctx, "finish intents", func(t *tx) error {
		refs := slices.Sorted(slices.Values(slices.Concat(refsOf(r.Done), r.Dropped)))
		lost := slices.DeleteFunc(slices.Clone(refs), func(ref string) bool {
			return t.locked(refdb.LockID{Project: r.Project, Ref: ref, Owner: r.Owner, Token: r.Token})
		})
		if len(lost) > 0 {
			return &refdb.LostError{Project: r.Project, Refs: lost, Reason: "the intent was ended already"}
		}
		if err := t.mismatch(r.Project, r.Done, false); err != nil {
			return err
		}
		t.write(r.Project, r.Done, r.ID)
		t.end(r.Project, refs, refdb.Waiter{})
		for _, ref := range refs {
			delete(t.intents, intentKey{r.Project, ref, r.Token})
		}
		return nil
	})
}

func (d *driver) Revoke(ctx context.Context, r refdb.PrepareRequest) error {
	return d.transact(ctx, "revoke intents", func(t *tx) error {
		t.unlock(t.taken(r.Project, refsOf(r.Updates), r.Owner, r.Nonce))
		for k, i := range t.intents {
			if i.of(r) && i.Decision == refdb.Pending {
				delete(t.intents, k)
			}
		}
		i := t.record(r, r.Updates[0], t.token())
		i.Decision, i.DecidedBy, i.DecidedAt = refdb.Revoked, r.Owner, t.now
		return nil
	})
}

// revoked reports whether r must not be carried out.
func (t *tx) revoked(r refdb.PrepareRequest) bool {
	for _, i := range t.intents {
		if i.of(r) && i.Decision == refdb.Revoked {
			return true
		}
	}
	return false
}

func (i *intent) of(r refdb.PrepareRequest) bool {
	return i.Project == r.Project && i.Owner == r.Owner && i.nonce == r.Nonce
}

func (d *driver) Resolve(ctx context.Context, r refdb.ResolveRequest) (ended []bool, err error) {
	err = d.transact(ctx, "resolve intents", func(t *tx) error {
		ended = make([]bool, len(r.Intents))
		for n, id := range r.Intents {
			i, locked := t.pending(id), t.locked(id)
			// Without its lock the ref can only keep what it holds.
			if ended[n] = i != nil && (locked || r.Decision == refdb.KeepOld); !ended[n] {
				continue
			}
			if r.Decision == refdb.TakeNew {
				t.write(id.Project, []refdb.Update{{Ref: id.Ref, New: i.New}}, "")
			}
			if locked {
				delete(t.locks, key{id.Project, id.Ref})
			}
			i.Decision, i.DecidedBy, i.Reason, i.DecidedAt = r.Decision, r.By, r.Reason, t.now
		}
		return nil
	})
	return ended, err
}

func (d *driver) Forget(ctx context.Context, intents []refdb.LockID) error {
	return d.transact(ctx, "forget intents", func(t *tx) error {
		for _, id := range intents {
			if i := t.recorded(id); i != nil && i.Decision != refdb.Pending {
				delete(t.intents, intentKey{id.Project, id.Ref, id.Token})
			}
		}
		return nil
	})
}

func (d *driver) Intents(ctx context.Context, q refdb.IntentQuery) (p refdb.IntentPage, err error) {
	err = d.transact(ctx, "list intents", func(t *tx) error {
		for _, k := range sorted(t.intents) {
			i := t.intents[k].Intent
			if k.compare(intentKey(q.After)) > 0 && selectsIntent(q.IntentFilter, i) && len(p.Intents) < q.Limit {
				i.Age = t.now.Sub(i.Time)
				p.Intents = append(p.Intents, i)
			}
		}
		if n := len(p.Intents); n == q.Limit {
			last := p.Intents[n-1]
			p.Next = refdb.IntentCursor{Project: last.Project, Ref: last.Ref, Token: last.Token}
		}
		return nil
	})
	return p, err
}

func selectsIntent(f refdb.IntentFilter, i refdb.Intent) bool {
	return (f.Project == "" || i.Project == f.Project) &&
		(f.Ref == "" || i.Ref == f.Ref) &&
		ownedBy(i.Owner, f.Owner) &&
		f.Decided == (i.Decision != refdb.Pending)
}
