package site

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// longestDecision bounds the time between a look at a project's rules and the answer: rules that are over are gone by by then (G4).
const longestDecision = 15 * time.Second

// errCancelled says that nobody waits for the answer any more.
var errCancelled = errors.New(wire.TransactionGivenUp)

// answerWithin is how long an announcement may wait for its answer, objects that are stored aside.
func answerWithin(c *config.Config) time.Duration {
	return min(c.Timeout+c.LockWait, longestDecision)
}

// decide decides about an announcement of a session, and tells the guard. Ctx ends with [errCancelled] if nobody waits for that any more.
func (d *Daemon) decide(ctx context.Context, t *transaction, s *session, limit time.Duration) {
	start := time.Now()
	err := d.permit(ctx, t, s, limit)
	refused := err
	if err != nil && !errors.Is(err, errCancelled) && d.letTransactionThrough(t, err) {
		err = nil
	}
	d.metrics.announcements.Observe(time.Since(start).Seconds())

	gs := &d.guards
	gs.lock()
	cancelled := ctx.Err() != nil && context.Cause(ctx) == errCancelled
	switch {
	case err == nil && !cancelled:
		t.phase, t.mayHaveMoved = granted, true
		s.send(wire.Granted{TX: t.id.TX})
		gs.unlock()
		d.counters.prepared.Add(1)
		return
	case err != nil && !cancelled:
		d.counters.refused.Add(1)
		d.metrics.refusals.WithLabelValues(string(refusal.ReasonOf(refused))).Inc()
		d.counters.refusedRefs.Add(uint64(len(t.lines)))
		s.send(wire.Refused{TX: t.id.TX, Kind: kindOf(err), Reason: string(refusal.ReasonOf(err)), Lines: textOf(err)})
		t.session = nil
	}
	t.finish()
	gs.wake()
	gs.unlock()
	if err != nil && !cancelled {
		d.refusal(ctx, err) // logs it
	}
	d.settle(d.work, t)
}

// kindOf says whether time mends what refuses a transaction.
func kindOf(err error) string {
	switch refusal.ReasonOf(err) {
	case refusal.Changed, refusal.Behind, refusal.Locked, refusal.Undecided:
		return wire.Retry
	}
	return wire.Final
}

// textOf returns lines as a message can hold them.
func textOf(err error) []string {
	var lines []string
	for _, line := range refusal.LinesOf(err) {
		if line = strings.ToValidUTF8(wire.OneLine(strings.ReplaceAll(line, "\x00", " ")), "\uFFFD"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// letTransactionThrough reports whether a transaction goes on in spite of err, because the project is in mode log.
func (d *Daemon) letTransactionThrough(t *transaction, err error) bool {
	rules, logs := d.projects.Logs(t.repo.Project)
	if !logs || refusal.ReasonOf(err) == refusal.Pruning || refusal.ReasonOf(err) == refusal.PeerRefs {
		return false
	}
	c := d.config.Load().Under(rules)
	guarded := slices.DeleteFunc(slices.Clone(t.lines), func(l wire.Line) bool { return !c.Guards(t.repo.Project, l.Ref) })
	d.noteLetThrough(t.repo.Project, t.by, guarded, err)
	d.guards.lock()
	t.mayHaveLocks = true
	d.guards.unlock()
	return true
}

// permit decides whether the refs of t may move. After a nil error the database has an intent for each that is guarded.
func (d *Daemon) permit(ctx context.Context, t *transaction, s *session, limit time.Duration) error {
	c := d.config.Load()
	deadline := time.Now().Add(limit - min(reserve, limit/4))
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	r, err := c.Find(t.dir)
	if err != nil {
		return err
	}
	d.guards.lock()
	t.repo = r
	d.guards.unlock()
	if err := d.note(t.guard); err != nil {
		return err
	}
	if err := d.awaitServing(limited); err != nil {
		return err
	}
	body := bodyOf(t.lines)
	if err := noPeers(body); err != nil {
		return err
	}
	if err := d.protectTransaction(limited, t); err != nil {
		return err
	}
	if err := d.adoptNew(limited, c, t.repo); err != nil {
		return err
	}
	ruled, lines, err := d.guardedLines(limited, c, t.repo, body)
	if err != nil {
		return err
	}
	moves := announcedMoves(lines)
	if d.keepsObjects(ruled, t.repo.Project) && len(moves) > 0 {
		if err := d.storeForTransaction(ctx, ruled, t, s, moves); err != nil {
			return err
		}
		// That may have taken long.
		limited, cancel = context.WithTimeout(ctx, limit-min(reserve, limit/4))
		defer cancel()
		if ruled, lines, err = d.guardedLines(limited, c, t.repo, body); err != nil {
			return err
		}
		moves = announcedMoves(lines)
	}
	limited, cancel = context.WithTimeout(limited, answerWithin(ruled))
	defer cancel()
	if len(moves) == 0 {
		return d.awaitNoLocksOfDead(limited, t, time.Now().Add(ruled.LockWait))
	}
	until := time.Now().Add(ruled.LockWait)
	if _, logs := d.projects.Logs(t.repo.Project); logs {
		until = time.Now()
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, 200*time.Millisecond
	for {
		err := d.tryPermit(limited, ruled, t, moves, until)
		switch refusal.ReasonOf(err) {
		case refusal.Behind:
			d.lookAgain(t.repo, moves)
			fallthrough
		case refusal.Locked, refusal.Undecided:
			// Time mends it. Nothing is claimed meanwhile.
			wait := pause.NextBackOff()
			if time.Now().Add(wait).Before(until) && waitFor(limited, wait) {
				continue
			}
		}
		return given(ctx, d.neverHad(limited, t, moves, err))
	}
}

// given returns err, or errCancelled if that is why.
func given(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errCancelled {
		return errCancelled
	}
	return err
}

func waitFor(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// tryPermit claims all refs, compares what was announced with the repository and the database, and has the intents recorded. After an error
// nothing is claimed, unless the outcome is unknown.
func (d *Daemon) tryPermit(ctx context.Context, c *config.Config, t *transaction, moves []refdb.Update, until time.Time) error {
	if err := d.awaitNoLocksOfDead(ctx, t, until); err != nil {
		return err
	}
	claim, err := d.claims.await(ctx, t.repo.Project, moves, until)
	if err != nil {
		return d.withoutLocks(t, err)
	}
	// What came before may have taken long: another daemon may be this site's by now.
	if err = d.awaitServing(ctx); err == nil {
		err = d.compareClaimed(ctx, t, moves)
	}
	if err != nil {
		d.claims.release(claim)
		return d.withoutLocks(t, err)
	}
	var preparation refdb.Preparation
	carried := t.objects.packsOf(moves)
	err = d.retryNotAdmitted(ctx, c, func(ctx context.Context) (err error) {
		preparation, err = d.db.Prepare(ctx, t.repo.Project, moves, t.id.String(), refdb.AskedBy(t.by), refdb.WithPacks(carried...))
		return err
	})
	if errors.Is(err, refdb.ErrOutcomeUnknown) {
		d.guards.lock()
		t.claim, t.unknown = claim, true
		d.guards.unlock()
		d.claims.markUnknown(claim, preparation)
		d.requestReconcile()
		return refusal.DatabaseFailed(err)
	}
	if errors.Is(err, refdb.ErrNoPack) {
		t.objects.forget()
		err = refusal.Because(refusal.Objects, errors.New(wire.ObjectsGone))
	} else if err != nil {
		err = notPrepared(c, err)
	}
	if err != nil {
		d.claims.release(claim)
		return d.withoutLocks(t, err)
	}
	d.unusedPacks.Add(-t.objects.used(carried))
	d.follower.Made(t.repo.Project, t.repo.Path, carried)
	announced := announcedAs(preparation, t.repo, time.Now())
	d.guards.lock()
	t.claim, t.moves = claim, announced
	d.guards.unlock()
	d.open.begin(announced)
	return nil
}

// awaitNoLocksOfDead waits until no dead guard has left lock files in the repository of t, which may have some itself from then on.
func (d *Daemon) awaitNoLocksOfDead(ctx context.Context, t *transaction, until time.Time) error {
	path := t.repo.Path
	ok := d.guards.await(ctx, until, func() bool {
		t.mayHaveLocks = !d.guards.deadIn(path)
		return t.mayHaveLocks
	})
	if !ok {
		return refusal.Because(refusal.Locked, refusal.Lines{wire.GuardDied})
	}
	return nil
}

// withoutLocks says that t has no lock file, and returns err.
func (d *Daemon) withoutLocks(t *transaction, err error) error {
	d.guards.lock()
	defer d.guards.unlock()
	t.mayHaveLocks = false
	d.guards.wake()
	return err
}

// compareClaimed compares the announced values with what the repository has, and looks for pushes over git that are not settled.
func (d *Daemon) compareClaimed(ctx context.Context, t *transaction, moves []refdb.Update) error {
	if err := d.awaitEarlierFollowers(ctx, t.repo.Path); err != nil {
		return err
	}
	for _, p := range d.pushes.all() {
		for _, u := range moves {
			if m := p.find(t.repo.Project, u.Ref); m != nil {
				return underWay(u.Ref, m.since)
			}
		}
	}
	repo, err := gitrepo.OpenDir(t.repo.Path)
	if err != nil {
		return err
	}
	if repo.Dir() != t.repo.Path {
		return errors.New(wire.WorkTree(t.repo.Path, repo.Dir()))
	}
	names := make([]string, len(moves))
	for i, u := range moves {
		names[i] = u.Ref
	}
	values, err := repo.Values(ctx, names)
	if err != nil {
		return err
	}
	var symbolic, changed refusal.Lines
	for _, u := range moves {
		local := values[u.Ref]
		if target, is := strings.CutPrefix(local, "ref: "); is {
			symbolic = append(symbolic, wire.IsSymbolicRef(u.Ref, target))
		} else if !u.Old.Equivalent(refdb.Value(local)) {
			changed = append(changed, wire.ChangedHere(u.Ref, u.Old.Abbrev(), refdb.Value(local).Abbrev()))
		}
	}
	if err := refusal.Because(refusal.Unguardable, symbolic.OrNil()); err != nil {
		return err
	}
	return refusal.Because(refusal.Changed, changed.OrNil())
}

// neverHad returns another refusal than err if a ref has a value here that the database never had, so that waiting does not help, and
// raises an alarm then.
func (d *Daemon) neverHad(ctx context.Context, t *transaction, moves []refdb.Update, err error) error {
	if refusal.ReasonOf(err) == refusal.Behind {
		for _, u := range moves {
			if d.historyLacks(ctx, t.repo.Project, u) {
				err = refusal.Because(refusal.UnknownRef, refusal.Lines{wire.NeverInDatabase(u.Ref, u.Old.Abbrev())})
				break
			}
		}
	}
	if refusal.ReasonOf(err) == refusal.UnknownRef {
		d.counters.alarms.Add(1)
		d.o.Logger.ErrorContext(ctx, "a ref is here that the database never had: run `refdbctl site check`", "repository", d.digest(t.repo.Project, ""))
	}
	return err
}

// historyLacks reports whether the history of a ref, from its beginning, lacks the value that it has here.
func (d *Daemon) historyLacks(ctx context.Context, project string, u refdb.Update) bool {
	complete := false
	for change, err := range d.db.History(ctx, project, u.Ref) {
		if err != nil || change.New.Equivalent(u.Old) || change.Old.Equivalent(u.Old) {
			return false
		}
		complete = change.Old == refdb.Unknown
	}
	return complete
}

// retryNotAdmitted repeats a request while the database's server is not admitted.
func (d *Daemon) retryNotAdmitted(ctx context.Context, c *config.Config, request func(context.Context) error) error {
	once := *c
	once.LockWait = 0
	return d.retryLocked(ctx, &once, request)
}

func bodyOf(lines []wire.Line) []byte {
	var b []byte
	for _, l := range lines {
		b = append(b, l.Old+" "+l.New+" "+l.Ref+"\n"...)
	}
	return b
}

// announcedAs returns the moves of a preparation.
func announcedAs(p refdb.Preparation, r config.Repository, since time.Time) (moves []*pendingMove) {
	for _, u := range p.Updates {
		moves = append(moves, &pendingMove{
			project: r.Project, path: r.Path, owner: p.Owner, token: p.Token, by: p.By, op: p.Op, Update: u, since: since,
		})
	}
	return moves
}

// protectTransaction keeps the repository from being pruned until t is settled, and looks whether all that the new values reach is
// there if it may have been pruned since the guard began.
func (d *Daemon) protectTransaction(ctx context.Context, t *transaction) error {
	release, err := d.share(ctx, t.repo.Path)
	if err != nil {
		return refusal.Because(refusal.Pruning, errors.New(wire.BeingPruned))
	}
	d.guards.lock()
	t.release = release
	d.guards.unlock()
	if !d.mayHavePruned(t) {
		return nil
	}
	return wholeNew(ctx, t.repo.Path, t.lines)
}

// storeForTransaction stores the objects of moves, and tells the guard to wait meanwhile.
func (d *Daemon) storeForTransaction(ctx context.Context, c *config.Config, t *transaction, s *session, moves []refdb.Update) error {
	guard := waitingGuard(s, t.id.TX)
	ctx, stop := guard.keepWaiting(ctx)
	err := d.storeObjects(ctx, c, &t.objects, t.repo, moves, packs.Limits{Bytes: c.PackLimit, Stored: guard.stored})
	stop()
	guard.tell() // it then waits for as long again
	return err
}
