package refdbtest_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

type intentKey struct {
	key
	token refdb.Token
}

// compare returns a *refdb.MismatchError unless the refs hold what r's intents expect.
func (d *driver) compare(r refdb.AcquireRequest) error {
	var mismatches []refdb.Mismatch
	for _, u := range r.Intents {
		have := d.refs[key{r.Project, u.Ref}].Value
		if have != u.Old && !(have.IsAbsent() && u.Old.IsAbsent()) {
			mismatches = append(mismatches, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: have})
		} else if d.bug == "prepares what it can" {
			d.insert(r, u.Ref, d.mark+1)
		}
	}
	d.pause("compares intents before transaction")
	if mismatches == nil || d.bug == "intents expect nothing" {
		return nil
	}
	if d.bug == "mismatch leaves intents" {
		d.intend(r, d.mark+1)
	}
	return fmt.Errorf("acquiring: %w", &refdb.MismatchError{Project: r.Project, Mismatches: mismatches})
}

// intend records r's intents.
func (d *driver) intend(r refdb.AcquireRequest, token refdb.Token) {
	for _, u := range r.Intents {
		i := refdb.Intent{Project: r.Project, Ref: u.Ref, Token: token, Owner: r.Owner, Agent: r.Agent, Old: u.Old, New: u.New, Time: now()}
		d.intents[intentKey{key{r.Project, u.Ref}, token}] = i
		if d.bug == "records the first intent" {
			break
		}
	}
}

// endIntent deletes the intent that a lock stands for, if it does.
func (d *driver) endIntent(k key, token refdb.Token) {
	if d.bug != "intents outlive their locks" {
		delete(d.intents, intentKey{k, token})
	}
}

func (d *driver) Intents(ctx context.Context, q refdb.IntentQuery) ([]refdb.Intent, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	all := slices.SortedFunc(maps.Values(d.intents), func(a, b refdb.Intent) int {
		return compareIntents(a, b.Project, b.Ref, b.Token)
	})
	var page []refdb.Intent
	for _, i := range all {
		if d.selectsIntent(q, i) && len(page) < q.Limit {
			i.Age = now().Sub(i.Time)
			page = append(page, i)
		}
	}
	return page, nil
}

func compareIntents(i refdb.Intent, project, ref string, token refdb.Token) int {
	return cmp.Or(strings.Compare(i.Project, project), strings.Compare(i.Ref, ref), cmp.Compare(i.Token, token))
}

func (d *driver) selectsIntent(q refdb.IntentQuery, i refdb.Intent) bool {
	after := compareIntents(i, q.AfterProject, q.AfterRef, q.AfterToken) > 0
	if d.bug == "a page ends a ref" {
		after = key{i.Project, i.Ref}.compare(key{q.AfterProject, q.AfterRef}) > 0
	}
	owner := i.Owner == q.Owner || strings.HasPrefix(i.Owner, q.Owner+"/")
	if d.bug == "sites by prefix" {
		owner = strings.HasPrefix(i.Owner, q.Owner)
	}
	return after && (q.Owner == "" || owner) &&
		(q.Project == "" || i.Project == q.Project) &&
		(q.Ref == "" || i.Ref == q.Ref) &&
		(q.Decided == (i.Decision != refdb.Pending) || d.bug == "decided are pending")
}

func (d *driver) Resolve(ctx context.Context, r refdb.ResolveRequest) ([]bool, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	ended := make([]bool, len(r.Intents))
	for n, asked := range r.Intents {
		k := key{asked.Project, asked.Ref}
		lock, locked := d.locks[k]
		token := asked.Token
		if d.bug == "resolves by name" {
			token = lock.Token
		}
		i, known := d.intents[intentKey{k, token}]
		d.pause("resolves after looking")
		pending := known && i.Decision == refdb.Pending
		stands := locked && lock.Token == token || r.Decision == refdb.KeepOld
		if !pending && !(known && d.bug == "resolves twice") || !stands && d.bug != "resolves twice" && d.bug != "resolves without a lock" {
			continue
		}
		if r.Decision == refdb.TakeNew && d.bug != "never writes" || d.bug == "always writes" {
			d.refs[k] = refdb.Ref{Name: k.ref, Value: i.New, Time: now()}
		}
		if d.bug != "resolved stay locked" {
			if locked && lock.Token == token {
				delete(d.locks, k)
			}
			if d.bug != "resolutions wake nobody" {
				d.released(k)
			}
		}
		i.Decision, i.DecidedBy, i.Reason, i.DecidedAt = r.Decision, r.By, r.Reason, now()
		if d.bug == "resolved are forgotten" {
			delete(d.intents, intentKey{k, token})
		} else {
			d.intents[intentKey{k, token}] = i
		}
		ended[n] = true
	}
	return ended, nil
}

func (d *driver) Forget(ctx context.Context, intents []refdb.Intent) error {
	end, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for _, i := range intents {
		k := intentKey{key{i.Project, i.Ref}, i.Token}
		if d.intents[k].Decision != refdb.Pending || d.bug == "forgets the pending" {
			delete(d.intents, k)
		}
	}
	return nil
}

func (d *driver) Revoke(ctx context.Context, r refdb.AcquireRequest) error {
	end, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for _, ref := range r.Refs {
		k := key{r.Project, ref}
		if row, ok := d.locks[k]; ok && (row.of(r.Owner, r.Nonce, d.bug) || d.bug == "revokes by name") && d.bug != "revokes only what comes" {
			delete(d.locks, k)
			d.endIntent(k, row.Token)
		}
	}
	if d.bug == "revokes only what came" {
		return nil
	}
	d.mark++
	u := r.Intents[0]
	d.intents[intentKey{key{r.Project, u.Ref}, d.mark}] = refdb.Intent{
		Project: r.Project, Ref: u.Ref, Token: d.mark, Owner: r.Owner, Agent: r.Agent, Old: u.Old, New: u.New, Time: now(),
		Decision: refdb.Revoked, DecidedBy: r.Owner, Reason: r.Nonce, DecidedAt: now(),
	}
	return nil
}

// revoked reports whether r must not be carried out. The nonce is kept as the reason.
func (d *driver) revoked(r refdb.AcquireRequest) bool {
	for _, i := range d.intents {
		if i.Decision == refdb.Revoked && i.Project == r.Project && (i.Reason == r.Nonce || d.bug == "revokes the ref") {
			return true
		}
	}
	return false
}

func (d *driver) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var states []refdb.State
	for _, ref := range refs {
		k := key{project, ref}
		row, known := d.refs[k]
		d.pause("states in two looks")
		lock, locked := d.standing(k)
		if !known && (!locked || d.bug == "states of rows only") {
			continue
		}
		s := refdb.State{Ref: ref, Value: row.Value}
		if locked && !(d.bug == "states without stale locks" && lock.Stale()) {
			s.Lock = &lock.LockInfo
		}
		states = append(states, s)
	}
	return states, nil
}
