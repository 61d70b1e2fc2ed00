package refdbtest_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

type intentKey struct {
	key
	token driver.Token
}

func (d *connection) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	end, err := d.beginWrite(ctx, "Prepare")
	if err != nil {
		return driver.Prepared{}, err
	}
	defer end()
	if err := d.refuseBarred(r.Owner, "prepare"); err != nil {
		return driver.Prepared{}, err
	}
	asked := driver.AcquireRequest{Project: r.Project, Owner: r.Owner, Nonce: r.Nonce, StaleAfter: driver.NeverStale}
	for _, u := range r.Updates {
		asked.Refs = append(asked.Refs, u.Ref)
	}
	own, holders := d.found(r.Project, asked.Refs, r.Owner, r.Nonce)
	if d.bug == "a freeze comes before adoption" {
		if err := d.frozen(r.Project); err != nil {
			return driver.Prepared{}, err
		}
	}
	if d.bug == "packs come before locks" || d.bug == "packs come before adoption" && len(own) > 0 {
		if err := d.usePacks(r); err != nil {
			return driver.Prepared{}, err
		}
	}
	if len(own) == len(asked.Refs) {
		return driver.Prepared{Token: own[0].Token, Time: now()}, nil
	}
	if d.bug != "a freeze comes after locks" && d.bug != "freezes no preparations" {
		if err := d.frozen(r.Project); err != nil {
			return driver.Prepared{}, err
		}
		d.pause("looks at freezes before transaction")
	}
	if d.bug == "partial intents are given up" {
		for _, l := range own {
			delete(d.locks, key{l.Project, l.Ref})
		}
	} else {
		holders = append(holders, own...)
		slices.SortFunc(holders, func(a, b driver.LockInfo) int { return strings.Compare(a.Ref, b.Ref) })
	}
	intents, conflicts := d.excluding(r.Project, r.Updates)
	d.pause("looks at names before transaction")
	d.pause("acquires after looking")
	inTheWay := slices.SortedFunc(slices.Values(slices.Concat(holders, intents)), func(a, b driver.LockInfo) int { return strings.Compare(a.Ref, b.Ref) })
	if len(conflicts) > 0 && d.bug == "names come before locks" {
		return driver.Prepared{}, &driver.NameConflictError{Project: r.Project, Conflicts: conflicts}
	}
	if d.refuses(inTheWay) {
		return driver.Prepared{}, fmt.Errorf("preparing: %w", &driver.LockedError{Holders: d.refusing(inTheWay)})
	}
	if d.bug == "a freeze comes after locks" {
		if err := d.frozen(r.Project); err != nil {
			return driver.Prepared{}, err
		}
	}
	if len(conflicts) > 0 && d.bug == "names come before values" {
		return driver.Prepared{}, &driver.NameConflictError{Project: r.Project, Conflicts: conflicts}
	}
	if d.bug == "packs come before values" || d.bug == "revoked preparations use packs" && d.revoked(r) {
		if err := d.usePacks(r); err != nil {
			return driver.Prepared{}, err
		}
	}
	if d.revoked(r) {
		return driver.Prepared{}, driver.ErrReleased
	}
	if err := d.compare(r, asked); err != nil {
		return driver.Prepared{}, err
	}
	if len(conflicts) > 0 {
		if d.bug == "an excluded name leaves intents" {
			d.intend(r, d.mark+1)
		}
		return driver.Prepared{}, fmt.Errorf("preparing: %w", &driver.NameConflictError{Project: r.Project, Conflicts: conflicts})
	}
	if err := d.usePacks(r); err != nil && d.bug != "prepares without packs" {
		if d.bug == "a missing pack leaves intents" {
			d.intend(r, d.mark+1)
		}
		return driver.Prepared{}, err
	}
	token := d.nextToken(holders)
	for _, ref := range asked.Refs {
		waiting := d.locks[key{r.Project, ref}].queue
		if d.bug != "preparations pass nobody" {
			waiting = waiting.Overtaken()
		}
		if d.bug == "reclaims forget the queue" {
			waiting = nil
		}
		d.insert(asked, ref, token, waiting)
	}
	d.intend(r, token)
	p := driver.Prepared{Token: token, Time: now(), Reclaimed: d.reclaimed(holders)}
	switch d.bug {
	case "preparations without a time":
		p.Time = time.Time{}
	case "preparations are of the future":
		p.Time = p.Time.Add(time.Hour)
	}
	return p, nil
}

// compare returns a *driver.MismatchError unless the refs hold what r expects.
func (d *connection) compare(r driver.PrepareRequest, asked driver.AcquireRequest) error {
	var mismatches []driver.Mismatch
	for _, u := range r.Updates {
		have := d.refs[key{r.Project, u.Ref}].Value
		if have != u.Old && !(have.IsAbsent() && u.Old.IsAbsent()) {
			mismatches = append(mismatches, driver.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
		} else if d.bug == "prepares what it can" {
			d.insert(asked, u.Ref, d.mark+1, nil)
		}
	}
	d.pause("compares intents before transaction")
	if mismatches == nil || d.bug == "intents expect nothing" {
		return nil
	}
	if d.bug == "mismatch leaves intents" {
		d.intend(r, d.mark+1)
	}
	return fmt.Errorf("preparing: %w", &driver.MismatchError{Project: r.Project, Mismatches: mismatches})
}

// intend records r's intents.
func (d *connection) intend(r driver.PrepareRequest, token driver.Token) {
	for _, u := range r.Updates {
		i := driver.Intent{Project: r.Project, Ref: u.Ref, Token: token, Owner: r.Owner, Agent: r.Agent, By: r.By, Op: r.Nonce, Old: u.Old, New: u.New, Time: now()}
		switch d.bug {
		case "intents of nobody":
			i.By = ""
		case "intents by no operation":
			i.Op = ""
		}
		d.intents[intentKey{key{r.Project, u.Ref}, token}] = i
		if d.bug == "records the first intent" {
			break
		}
	}
}

// pending returns the intent that id names, and whether its lock stands.
func (d *connection) pending(id driver.LockID, method string) (i driver.Intent, pending, stands bool) {
	k := key{id.Project, id.Ref}
	own := func(owner string) bool { return owner == id.Owner || d.bug == "owner ignored by "+method }
	i, known := d.intents[intentKey{k, id.Token}]
	lock, locked := d.locks[k]
	return i, known && i.Decision == driver.Pending && own(i.Owner), locked && lock.Token == id.Token && own(lock.Owner)
}

func (d *connection) Finish(ctx context.Context, r driver.FinishRequest) error {
	end, err := d.beginWrite(ctx, "Finish")
	if err != nil {
		return err
	}
	defer end()
	if err := d.refuseBarred(r.Owner, "finish"); err != nil {
		return err
	}
	if d.bug == "freezes the ends of intents" {
		if err := d.frozen(r.Project); err != nil {
			return err
		}
	}
	refs := slices.Clone(r.Dropped)
	for _, u := range r.Done {
		refs = append(refs, u.Ref)
	}
	slices.Sort(refs)
	if lock, ok := d.locks[key{r.Project, refs[0]}]; ok && d.bug == "finishes by name" {
		r.Owner, r.Token = lock.Owner, lock.Token
	}
	var lost []string
	for _, ref := range refs {
		if _, pending, stands := d.pending(driver.LockID{Project: r.Project, Ref: ref, Owner: r.Owner, Token: r.Token}, "finishes"); !pending || !stands {
			lost = append(lost, ref)
		}
	}
	d.pause("finishes after looking")
	if len(lost) > 0 && !(d.bug == "finishes twice") {
		return d.lost(r, refs, lost)
	}
	var mismatches []driver.Mismatch
	for _, u := range r.Done {
		if have := d.refs[key{r.Project, u.Ref}].Value; have != u.Old && !(have.IsAbsent() && u.Old.IsAbsent()) {
			mismatches = append(mismatches, driver.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
		}
	}
	if len(mismatches) > 0 && d.bug != "finishes over any value" {
		return fmt.Errorf("finishing: %w", &driver.MismatchError{Project: r.Project, Mismatches: mismatches})
	}
	var rows []driver.Ref
	for _, u := range r.Done {
		ref := driver.Ref{Name: u.Ref, Value: u.New, Time: now(), Op: r.ID}
		if d.bug == "finishes by no operation" {
			ref.Op = ""
		}
		rows = append(rows, ref)
	}
	if d.bug == "finishes of nobody" {
		r.By = ""
	}
	d.put(r.Project, rows, r.Origin)
	for _, ref := range refs {
		d.endIntent(key{r.Project, ref}, r.Token)
		d.endBy("finishes", key{r.Project, ref})
		if old, ok := d.refs[key{r.Project, ref}]; ok && d.bug == "finishes touch the dropped" {
			old.Op = r.ID
			d.refs[key{r.Project, ref}] = old
		}
	}
	return nil
}

// lost refuses a finish of refs, of which some are not pending.
func (d *connection) lost(r driver.FinishRequest, refs, lost []string) error {
	if d.bug == "drops what it can" && len(r.Done) == 0 || d.bug == "finishes what it can" {
		for _, ref := range refs {
			if !slices.Contains(lost, ref) {
				d.endIntent(key{r.Project, ref}, r.Token)
				d.endBy("finishes", key{r.Project, ref})
			}
		}
	}
	switch d.bug {
	case "the first lost only":
		lost = lost[:1]
	case "all are lost":
		lost = refs
	}
	for _, u := range r.Done {
		if d.bug == "mismatch before loss" && d.refs[key{r.Project, u.Ref}].Value != u.Old {
			return fmt.Errorf("finishing: %w", &driver.MismatchError{Project: r.Project})
		}
	}
	return fmt.Errorf("finishing: %w", &driver.LostError{Project: r.Project, Refs: lost})
}

// endIntent deletes the intent that a lock stands for, if it does.
func (d *connection) endIntent(k key, token driver.Token) {
	if d.bug != "intents outlive their locks" {
		delete(d.intents, intentKey{k, token})
	}
}

func (d *connection) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return driver.IntentPage{}, err
	}
	defer end()
	all := slices.SortedFunc(maps.Values(d.intents), func(a, b driver.Intent) int {
		return compareIntents(a, driver.IntentCursor{Project: b.Project, Ref: b.Ref, Token: b.Token})
	})
	var page driver.IntentPage
	for _, i := range all {
		if d.selectsIntent(q, i) && len(page.Intents) < q.Limit {
			i.Age = now().Sub(i.Time)
			page.Intents = append(page.Intents, i)
		}
	}
	if i, ok := lastOf(d.bug, page.Intents, q.Limit); ok {
		page.Next = driver.IntentCursor{Project: i.Project, Ref: i.Ref, Token: i.Token}
	}
	return page, nil
}

func compareIntents(i driver.Intent, c driver.IntentCursor) int {
	return cmp.Or(strings.Compare(i.Project, c.Project), strings.Compare(i.Ref, c.Ref), cmp.Compare(i.Token, c.Token))
}

func (d *connection) selectsIntent(q driver.IntentQuery, i driver.Intent) bool {
	after := compareIntents(i, q.After) > 0
	if d.bug == "a page ends a ref" {
		after = key{i.Project, i.Ref}.compare(key{q.After.Project, q.After.Ref}) > 0
	}
	owner := i.Owner == q.Owner || strings.HasPrefix(i.Owner, q.Owner+"/")
	if d.bug == "sites by prefix" {
		owner = strings.HasPrefix(i.Owner, q.Owner)
	}
	return after && (q.Owner == "" || owner) &&
		(q.Project == "" || i.Project == q.Project) &&
		(q.Ref == "" || i.Ref == q.Ref) &&
		(q.Decided == (i.Decision != driver.Pending) || d.bug == "decided are pending")
}

func (d *connection) Resolve(ctx context.Context, r driver.ResolveRequest) ([]bool, error) {
	end, err := d.beginWrite(ctx, "Resolve")
	if err != nil {
		return nil, err
	}
	defer end()
	ended := make([]bool, len(r.Intents))
	for n, id := range r.Intents {
		k := key{id.Project, id.Ref}
		if lock := d.locks[k]; d.bug == "resolves by name" {
			id.Owner, id.Token = lock.Owner, lock.Token
		}
		i, pending, stands := d.pending(id, "resolutions")
		_, known := d.intents[intentKey{k, id.Token}]
		d.pause("resolves after looking")
		if !pending && !(known && d.bug == "resolves twice") {
			continue
		}
		if !stands && r.Decision != driver.KeepOld && d.bug != "resolves twice" && d.bug != "resolves without a lock" {
			continue
		}
		if r.Decision == driver.TakeNew && d.bug != "never writes" || d.bug == "always writes" {
			if d.bug == "decisions are no changes" {
				d.refs[k] = driver.Ref{Name: k.ref, Value: i.New, Time: now()}
			} else {
				d.put(k.project, []driver.Ref{{Name: k.ref, Value: i.New, Time: now(), Op: r.ID}}, r.Origin)
			}
		}
		if stands && d.bug != "resolved stay locked" || d.bug == "resolves any lock" {
			d.endBy("resolutions", k)
		}
		i.Decision, i.DecidedBy, i.Reason, i.DecidedAt = r.Decision, r.By, r.Reason, now()
		if d.bug == "resolved are forgotten" {
			delete(d.intents, intentKey{k, id.Token})
		} else {
			d.intents[intentKey{k, id.Token}] = i
		}
		ended[n] = true
	}
	return ended, nil
}

func (d *connection) Forget(ctx context.Context, intents []driver.LockID) error {
	end, err := d.beginWrite(ctx, "Forget")
	if err != nil {
		return err
	}
	defer end()
	for _, id := range intents {
		k := intentKey{key{id.Project, id.Ref}, id.Token}
		i := d.intents[k]
		if (i.Decision != driver.Pending || d.bug == "forgets the pending") && (i.Owner == id.Owner || d.bug == "owner ignored by forgetting") {
			delete(d.intents, k)
		}
	}
	return nil
}

func (d *connection) Revoke(ctx context.Context, r driver.PrepareRequest) error {
	end, err := d.beginWrite(ctx, "Revoke")
	if err != nil {
		return err
	}
	defer end()
	if err := d.refuseBarred(r.Owner, "revoke"); err != nil {
		return err
	}
	for _, u := range r.Updates {
		k := key{r.Project, u.Ref}
		if row, ok := d.locks[k]; ok && (row.of(r.Owner, r.Nonce, d.bug) || d.bug == "revokes by name") && d.bug != "revokes only what comes" {
			d.endBy("revocations", k)
			d.endIntent(k, row.Token)
		}
	}
	if d.bug == "revokes only what came" {
		return nil
	}
	d.mark++
	u := r.Updates[0]
	d.intents[intentKey{key{r.Project, u.Ref}, d.mark}] = driver.Intent{
		Project: r.Project, Ref: u.Ref, Token: d.mark, Owner: r.Owner, Agent: r.Agent, Old: u.Old, New: u.New, Time: now(),
		Decision: driver.Revoked, DecidedBy: r.Owner, Reason: r.Nonce, DecidedAt: now(),
	}
	return nil
}

// revoked reports whether r must not be carried out. The nonce is kept as the reason.
func (d *connection) revoked(r driver.PrepareRequest) bool {
	for _, i := range d.intents {
		if i.Decision == driver.Revoked && i.Project == r.Project && (i.Reason == r.Nonce || d.bug == "revokes the ref") {
			return true
		}
	}
	return false
}
