package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// reconcileEvery is how often the database is asked what it has of this site,
// beside whenever something was left undone.
const reconcileEvery = 10 * time.Second

// lateRequests is after how long no request to the database can be under way any more.
const lateRequests = 24 * time.Hour

// reconcileLoop keeps what the database has of this site in accord with what
// becomes of its pushes: it is the net for whatever was missed. err is how the
// first attempt ended.
func (d *Daemon) reconcileLoop(ctx context.Context, err error) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 100*time.Millisecond, reconcileEvery/2
	for {
		wait, hurry := reconcileEvery, d.unclean
		if err != nil {
			d.o.Logger.WarnContext(ctx, "reconciling failed; trying again: see `refdbctl site status`", "class", refdb.ClassOf(err).String())
			wait, hurry = retry.NextBackOff(), nil
		} else {
			retry.Reset()
		}
		notifyStatus(d.status().summary())
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-hurry:
		}
		err = d.reconcile(ctx)
	}
}

// reconcile resolves the intents of this site that no push under way stands
// for, and carries out what an operator decided in its absence.
func (d *Daemon) reconcile(ctx context.Context) error {
	if err := d.presence.lost(); err != nil {
		return err
	}
	dirt, start := d.dirt.Load(), time.Now()
	if err := d.revokeAll(ctx); err != nil {
		return err
	}
	c := d.config.Load()
	pending, err := d.intents(ctx, refdb.IntentFilter{Owner: c.Site})
	if err != nil {
		return err
	}
	decided, err := d.intents(ctx, refdb.IntentFilter{Owner: c.Site, Decided: true})
	if err != nil {
		return err
	}
	d.forgetAlarms(slices.Concat(pending, decided))
	d.forgetEnded(start, pending)
	late, pending, err := d.inherit(c.State, pending)
	if err != nil {
		return err
	}
	byAgent := map[string][]refdb.Intent{}
	for _, i := range pending {
		byAgent[i.Agent] = append(byAgent[i.Agent], i)
	}
	failures := []error{d.disregard(ctx, late)}
	for _, name := range slices.Sorted(maps.Keys(byAgent)) {
		failures = append(failures, d.reconcileAgent(ctx, name, byAgent[name]))
	}
	failures = append(failures, d.heed(ctx, c, decided))
	if err := errors.Join(failures...); err != nil {
		return err
	}
	d.clean.Store(dirt)
	return nil
}

// disregard drops intents that came too late to count.
func (d *Daemon) disregard(ctx context.Context, late []refdb.Intent) error {
	var failures []error
	for _, i := range late {
		p := refdb.Preparation{Project: i.Project, Owner: i.Owner, Token: i.Token, Updates: []refdb.Update{{Ref: i.Ref, Old: i.Old, New: i.New}}}
		err := d.db.Finish(ctx, p, nil, []string{i.Ref})
		d.heard(err)
		if !errors.Is(err, refdb.ErrLockLost) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// running reports whether the process of that name has not ended.
func (d *Daemon) running(name string) bool {
	a, ok := parseAgent(name)
	if !ok || a.boot != d.boot {
		return false
	}
	p, err := watch(a)
	if err == nil {
		p.close()
	}
	return !errors.Is(err, errOrphan)
}

func (d *Daemon) revokeAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileEvery)
	defer cancel()
	return d.revoke(ctx)
}

func (d *Daemon) intents(ctx context.Context, f refdb.IntentFilter) (all []refdb.Intent, err error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileEvery)
	defer cancel()
	for i, err := range d.db.Intents(ctx, f) {
		if err != nil {
			d.heard(err)
			return nil, err
		}
		all = append(all, i)
	}
	d.heard(nil)
	return all, nil
}

// reconcileAgent looks after the intents of one process.
func (d *Daemon) reconcileAgent(ctx context.Context, name string, intents []refdb.Intent) error {
	a, ok := parseAgent(name)
	if !ok || a.boot != d.boot {
		return d.bury(ctx, intents)
	}
	p, err := d.track(d.work, a)
	switch {
	case errors.Is(err, errOrphan):
		return d.bury(ctx, intents)
	case err != nil:
		return err
	case !p.tryEnter():
		// Somebody is about to decide. What they can't end, they report.
		return nil
	}
	defer p.leave()
	if p.dead {
		return nil
	}
	return d.adopt(ctx, p, intents)
}

// bury resolves the intents of a process that has ended.
func (d *Daemon) bury(ctx context.Context, intents []refdb.Intent) error {
	moves := make([]*pending, len(intents))
	for i, intent := range intents {
		moves[i] = pendingOf(intent)
	}
	_, err := d.resolve(ctx, moves)
	return err
}

func pendingOf(i refdb.Intent) *pending {
	return &pending{
		project: i.Project, owner: i.Owner, token: i.Token, Update: refdb.Update{Ref: i.Ref, Old: i.Old, New: i.New},
		since: time.Now().Add(-i.Age), adopted: true,
	}
}

// adopt takes on the intents of a running process that this daemon doesn't
// know of: those that an earlier one recorded, and those of requests whose
// reply was lost. Those that git is through with are resolved.
func (d *Daemon) adopt(ctx context.Context, p *push, intents []refdb.Intent) error {
	var over []*pending
	for _, i := range intents {
		m := p.find(i.Project, i.Ref)
		switch {
		case m == nil || m.token != i.Token:
			// It may have been ended since it was listed.
			still, err := d.intents(ctx, refdb.IntentFilter{Project: i.Project, Ref: i.Ref, Owner: i.Owner})
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(still, func(s refdb.Intent) bool { return s.Token == i.Token }) {
				continue
			}
			if m != nil {
				p.drop([]*pending{m})
			}
			p.add(pendingOf(i))
		case m.over:
			over = append(over, m)
		}
	}
	ended, err := d.resolve(ctx, over)
	p.drop(ended)
	return err
}

// forgetAlarms takes back the alarms about intents that are not among these any more.
func (d *Daemon) forgetAlarms(intents []refdb.Intent) {
	still := make(map[intentKey]bool, len(intents))
	for _, i := range intents {
		still[keyOf(i)] = true
	}
	d.alarms.mu.Lock()
	defer d.alarms.mu.Unlock()
	maps.DeleteFunc(d.alarms.stuck, func(k intentKey, _ alarm) bool { return !still[k] })
}

// forgetEnded lets go of moves that are over, and were ended by a request whose
// reply was lost: the database did not have them any more when it was asked, after start.
func (d *Daemon) forgetEnded(start time.Time, intents []refdb.Intent) {
	still := make(map[intentKey]bool, len(intents))
	for _, i := range intents {
		still[keyOf(i)] = true
	}
	for _, p := range d.pushes.all() {
		if !p.tryEnter() {
			continue
		}
		p.drop(slices.DeleteFunc(p.list(), func(m *pending) bool {
			return !m.over || still[m.key()] || m.since.After(start)
		}))
		p.leave()
	}
}

// heed brings refs to their global values whose intents an operator resolved,
// and then forgets those decisions. A ref whose object is not here yet waits for
// `refdbctl site sync`.
func (d *Daemon) heed(ctx context.Context, c *Config, decided []refdb.Intent) error {
	var failures []error
	var heeded []refdb.Intent
	for _, i := range decided {
		if i.Decision == refdb.Revoked {
			// Ours, not an operator's: it keeps a late request out.
			if i.Age-i.DecidedAt.Sub(i.Time) > lateRequests {
				heeded = append(heeded, i)
			}
			continue
		}
		if d.running(i.Agent) {
			continue // it may move the ref yet
		}
		d.disown(i)
		ok, err := d.heedOne(ctx, c, i)
		failures = append(failures, err)
		if ok {
			d.counters.heeded.Add(1)
			heeded = append(heeded, i)
		}
	}
	if len(heeded) > 0 {
		ctx, cancel := context.WithTimeout(ctx, reconcileEvery)
		defer cancel()
		err := d.db.Forget(ctx, heeded)
		d.heard(err)
		failures = append(failures, err)
		if err == nil {
			d.calmAbout(heeded)
		}
	}
	return errors.Join(failures...)
}

// calmAbout takes alarms about intents back that are settled.
func (d *Daemon) calmAbout(intents []refdb.Intent) {
	moves := make([]*pending, len(intents))
	for i, intent := range intents {
		moves[i] = pendingOf(intent)
	}
	d.calm(moves)
}

// disown lets go of a push's intent that was resolved in its place.
func (d *Daemon) disown(i refdb.Intent) {
	a, _ := parseAgent(i.Agent)
	p := d.pushes.get(a)
	if p == nil || !p.tryEnter() {
		return
	}
	defer p.leave()
	if m := p.find(i.Project, i.Ref); m != nil && m.token == i.Token {
		p.drop([]*pending{m})
	}
}

// heedOne reports whether the ref has its global value.
func (d *Daemon) heedOne(ctx context.Context, c *Config, i refdb.Intent) (bool, error) {
	r, err := c.Repository(i.Project)
	var repo *gitrepo.Repo
	if err == nil {
		repo, err = gitrepo.OpenDir(r.Path)
	}
	if errors.Is(err, ErrNotConfigured) || errors.Is(err, fs.ErrNotExist) {
		// Nothing is here that could have another value. If the repository comes back,
		// its ref differs from the database, and pushes to it are refused.
		return true, nil
	}
	if err != nil {
		return false, err
	}
	// First what is here, then what is global: the other way round a push
	// that is acknowledged in between would be undone.
	values, err := repo.Values(ctx, []string{i.Ref})
	if err != nil {
		return false, err
	}
	local := refdb.Value(values[i.Ref])
	states, err := d.states(ctx, c, i.Project, []string{i.Ref})
	if err != nil {
		return false, err
	}
	global := states[0]
	// A push that is about to be announced must not see it move there and back.
	claim, err := d.doubts.begin(i.Project, []refdb.Update{{Ref: i.Ref}})
	if err != nil {
		return false, nil // the next time
	}
	defer d.doubts.end(claim)
	switch {
	case same(local, global.Value):
		return true, nil
	case global.Lock != nil && !global.Lock.Stale():
		return false, nil // whoever moves it now will be done soon
	case global.Value == refdb.Unknown && !same(local, i.New):
		d.alarm(ctx, pendingOf(i), "an operator resolved it; it is not in the global database, and has another value here than was announced")
		return false, nil
	}
	if err := swap(ctx, repo, i.Ref, string(local), global.Value); err != nil {
		d.o.Logger.WarnContext(ctx, "a ref can't be brought to its global value yet", "ref", d.digest(i.Project, i.Ref))
		d.alarm(ctx, pendingOf(i), fmt.Sprintf("an operator resolved it; it can't be brought to %s yet: %s",
			short(global.Value), oneLine(err.Error())))
		return false, nil
	}
	return true, nil
}

// swap moves a ref to its global value. The hooks needn't be asked: while here and
// globally differ no push gets through.
func swap(ctx context.Context, repo *gitrepo.Repo, ref, local string, global refdb.Value) error {
	args := []string{"-c", "core.hooksPath=/dev/null", "update-ref", "--no-deref", "-m", "refdb: the global value"}
	if local == "" {
		local = string(refdb.Deleted[:len(global)])
	}
	if global.IsAbsent() {
		args = append(args, "-d", ref, local)
	} else {
		args = append(args, ref, string(global), local)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if out, err := repo.Command(ctx, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
