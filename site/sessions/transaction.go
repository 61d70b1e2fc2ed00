package sessions

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/keepalive"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/policy"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// longestDecision bounds the time between a look at a project's rules and the answer: afterwards no
// site decides by the old rules (G4).
const longestDecision = 15 * time.Second

// answerReserve is the part of a guard's limit that is left for sending the answer.
const answerReserve = 200 * time.Millisecond

// errCancelled says that nobody waits for the answer any more.
var errCancelled = errors.New(wire.TransactionGivenUp)

// answerWithin is how long an announcement may wait for its answer, apart from storing objects.
// However long the configuration lets hooks wait, neither part takes more than a third of the
// longest decision.
func (gs *Guards) answerWithin(c *config.Config) time.Duration {
	limit := gs.limits().Decision
	return min(min(c.Timeout, limit/3)+min(c.LockWait, limit/3), limit)
}

// decide decides about an announcement of a session, and tells the guard. Ctx ends with
// [errCancelled] once nobody waits for the answer.
func (gs *Guards) decide(ctx context.Context, t *transaction, s *session, limit time.Duration) {
	start := time.Now()
	err := gs.permit(ctx, t, s, limit)
	if err != nil && !errors.Is(err, errCancelled) && gs.letTransactionThrough(t, err) {
		err = nil
	}
	gs.State.Counts.GuardAnswered(time.Since(start))
	if gs.answer(ctx, &t.request, s, len(t.lines), err) {
		gs.State.Counts.Prepared.Add(1)
	} else {
		gs.settle(gs.State.Work, t)
	}
}

// letTransactionThrough reports whether a transaction goes on in spite of err, because the project
// is in mode log.
func (gs *Guards) letTransactionThrough(t *transaction, err error) bool {
	if refusal.ReasonOf(err) == refusal.Pruning || !gs.Policy.LetThrough(t.repo.Project, t.lines, err, func() string { return t.by }) {
		return false
	}
	gs.lock()
	t.mayHaveLocks = true
	gs.unlock()
	return true
}

// permit decides whether the refs of t may move. If it returns nil, the database has an intent for
// each guarded ref.
func (gs *Guards) permit(ctx context.Context, t *transaction, s *session, limit time.Duration) error {
	c := gs.State.Config()
	deadline := time.Now().Add(limit - min(answerReserve, limit/4))
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	r, err := c.Find(t.dir)
	if err != nil {
		return err
	}
	gs.lock()
	t.repo = r
	gs.unlock()
	if err := gs.note(t.guard); err != nil {
		return err
	}
	if err := gs.State.AwaitServing(limited); err != nil {
		return err
	}
	body := bodyOf(t.lines)
	if err := refusal.Reserved(body); err != nil {
		return err
	}
	if err := gs.protectTransaction(limited, t); err != nil {
		return err
	}
	if err := gs.adoptNew(limited, c, t.repo); err != nil {
		return err
	}
	ruled, lines, err := gs.Policy.GuardedLines(limited, c, t.repo, body)
	if err != nil {
		return err
	}
	moves := announcedMoves(lines)
	if err := refusal.Lookalikes(moves); err != nil {
		return err
	}
	if err := gs.Policy.RefuseFrozen(t.repo.Project, moves); err != nil {
		return err
	}
	if gs.Storage.Keeps(ruled, t.repo.Project) && len(moves) > 0 {
		if err := gs.storeForTransaction(ctx, ruled, t, s, moves); err != nil {
			return err
		}
		// That may have taken long.
		limited, cancel = context.WithTimeout(ctx, limit-min(answerReserve, limit/4))
		defer cancel()
		if ruled, lines, err = gs.Policy.GuardedLines(limited, c, t.repo, body); err != nil {
			return err
		}
		moves = announcedMoves(lines)
	}
	limited, cancel = context.WithTimeout(limited, gs.answerWithin(ruled))
	defer cancel()
	if len(moves) == 0 {
		return gs.awaitNoLocksOfDead(limited, t, time.Now().Add(ruled.LockWait))
	}
	until := time.Now().Add(ruled.LockWait)
	if _, logs := gs.Projects.Logs(t.repo.Project); logs {
		until = time.Now()
	}
	// Nothing is claimed while it waits.
	err = gs.Moving.Await(limited, moving.Wait{Project: t.repo.Project, Moves: moves, Until: until, Passes: mayPass}, func() error {
		err := gs.tryPermit(limited, ruled, t, moves, until)
		if refusal.ReasonOf(err) == refusal.Behind {
			gs.Follower.LookAgain(t.repo.Project, moves)
		}
		return err
	})
	return given(ctx, gs.neverHad(limited, t, moves, err))
}

// mayPass reports whether the reason to refuse a transaction may be over soon: the copy catches up,
// or whoever has the ref is done.
func mayPass(err error) bool {
	reason := refusal.ReasonOf(err)
	return moving.Locked(err) || reason == refusal.Behind || reason == refusal.Undecided
}

// given returns err, or errCancelled if that is why.
func given(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errCancelled {
		return errCancelled
	}
	return err
}

// tryPermit claims all refs, compares the announced values with the repository and the database,
// and has the intents recorded. After an error nothing is claimed, unless the outcome is unknown.
func (gs *Guards) tryPermit(ctx context.Context, c *config.Config, t *transaction, moves []refdb.Update, until time.Time) error {
	if err := gs.awaitNoLocksOfDead(ctx, t, until); err != nil {
		return err
	}
	announced, claim, err := gs.Moving.Announce(ctx, c, moving.Announcement{
		Announcement: objects.Announcement{Repo: t.repo, Moves: moves, Agent: t.id.String(), By: t.by},
		Objects:      &t.objects,
		Until:        until,
		Recheck: func(ctx context.Context) error {
			// Waiting for the claim may have taken long: another daemon may be this site's by now.
			if err := gs.State.AwaitServing(ctx); err != nil {
				return err
			}
			if err := gs.Moving.UnderWay(t.repo.Project, moves); err != nil {
				return err
			}
			return policy.Compare(ctx, t.repo, moves)
		},
	})
	if err != nil && claim == nil {
		return gs.withoutLocks(t, err)
	}
	gs.lock()
	defer gs.unlock()
	t.claim, t.moves, t.unknown = claim, announced, err != nil
	return err
}

// awaitNoLocksOfDead waits until no dead guard has left lock files in the repository of t. From
// then on, t may have lock files there.
func (gs *Guards) awaitNoLocksOfDead(ctx context.Context, t *transaction, until time.Time) error {
	path := t.repo.Path
	ok := gs.await(ctx, until, func() bool {
		t.mayHaveLocks = !gs.deadIn(path)
		return t.mayHaveLocks
	})
	if !ok {
		return refusal.Because(refusal.Locked, refusal.Lines{wire.GuardDied})
	}
	return nil
}

// withoutLocks records that t has no lock files, and returns err.
func (gs *Guards) withoutLocks(t *transaction, err error) error {
	gs.lock()
	defer gs.unlock()
	t.mayHaveLocks = false
	gs.wake()
	return err
}

// neverHad replaces err if a ref has a value here that the database never had, so that waiting does
// not help, and raises an alarm then.
func (gs *Guards) neverHad(ctx context.Context, t *transaction, moves []refdb.Update, err error) error {
	if refusal.ReasonOf(err) == refusal.Behind {
		for _, u := range moves {
			if gs.historyLacks(ctx, t.repo.Project, u) {
				err = refusal.Because(refusal.UnknownRef, refusal.Lines{wire.NeverInDatabase(u.Ref, u.Old.Abbrev())})
				break
			}
		}
	}
	if refusal.ReasonOf(err) == refusal.UnknownRef {
		gs.State.Counts.Alarms.Add(1)
		gs.Logger.ErrorContext(ctx, "this site has a ref that the database never had: run `refdbctl site check`", "repository", gs.State.Digest(t.repo.Project, ""))
	}
	return err
}

// historyLacks reports whether the complete history of a ref lacks the value that it has here.
func (gs *Guards) historyLacks(ctx context.Context, project string, u refdb.Update) bool {
	complete := false
	for change, err := range gs.DB.History(ctx, project, u.Ref) {
		if err != nil || change.New.Equivalent(u.Old) || change.Old.Equivalent(u.Old) {
			return false
		}
		complete = change.Old == refdb.Unknown
	}
	return complete
}

func bodyOf(lines []wire.Line) []byte {
	var b []byte
	for _, l := range lines {
		b = append(b, l.Old+" "+l.New+" "+l.Ref+"\n"...)
	}
	return b
}

// protectTransaction keeps the repository from being pruned until t is settled. If the repository
// may have been pruned since the guard began, it checks that everything the new values reach is
// there.
func (gs *Guards) protectTransaction(ctx context.Context, t *transaction) error {
	release, err := gs.Pruning.Protect(ctx, t.repo.Path)
	if err != nil {
		return refusal.Because(refusal.Pruning, errors.New(wire.BeingPruned))
	}
	gs.lock()
	t.release = release
	gs.unlock()
	if !gs.Pruning.MayHave(t.repo.Path, t.id.Guard) {
		return nil
	}
	return maintenance.WholeNew(ctx, t.repo.Path, t.lines)
}

// storeForTransaction stores the objects of moves, and tells the guard to wait meanwhile.
func (gs *Guards) storeForTransaction(ctx context.Context, c *config.Config, t *transaction, s *session, moves []refdb.Update) error {
	guard := waitingGuard(s, t.id.TX)
	ctx, stop := guard.KeepWaiting(ctx)
	err := gs.Storage.Store(ctx, c, &t.objects, t.repo, moves, packs.Limits{Bytes: c.PackLimit, Stored: guard.Stored})
	stop()
	guard.Tell() // it then waits for as long again
	return err
}

// waitingGuard returns a client for a guard that waits for the answer to an announcement. It sends
// nothing once the session has ended.
func waitingGuard(s *session, tx string) *keepalive.Client {
	return keepalive.New(func(text string) error {
		s.send(wire.WaitOn{TX: tx, Text: text})
		return nil
	})
}
