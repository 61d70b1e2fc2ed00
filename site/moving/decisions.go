package moving

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// moveLimit is how long git may take to move a ref that an operator has decided about.
	moveLimit = time.Minute
	// lockPatience is how long ApplyDecision retries while another process has git's lock file. The
	// next reconciliation tries again.
	lockPatience = time.Second
)

// ApplyDecision moves the ref of an intent that an operator has resolved to its global value, and
// reports whether the ref has it. Under is the claim of the transaction that announced the intent,
// which does not prevent that; nil if there is none. The caller must know that no process makes the
// move any more.
func (co *Coordinator) ApplyDecision(ctx context.Context, c *config.Config, i driver.Intent, under *claims.Claim) (bool, error) {
	r, err := c.Repository(i.Project)
	var repo *gitrepo.Repo
	if err == nil {
		repo, err = gitrepo.OpenDir(r.Path)
	}
	if errors.Is(err, config.ErrNotConfigured) || errors.Is(err, fs.ErrNotExist) {
		// Nothing is here that could have another value. If the repository comes back,
		// its ref differs from the database, and pushes to it are refused.
		return true, nil
	}
	if err != nil {
		return false, err
	}
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	release, err := co.Pruning.Protect(limited, r.Path)
	cancel()
	if err != nil {
		return false, nil // it is being pruned: the next time
	}
	defer release()
	if co.Mover.AwaitEarlier(ctx, r.Path) != nil {
		return false, nil // the next time
	}
	// A push that is about to be announced must not see the ref move and move back. The claim may
	// have to wait for a follower, which moves the ref: the ref is read afterwards.
	limited, cancel = context.WithTimeout(ctx, c.Timeout)
	claim, err := co.Claims.Take(limited, claims.ByDecision, i.Project, []refdb.Update{{Ref: i.Ref}}, under)
	cancel()
	if err != nil {
		return false, nil // the next time
	}
	defer co.Claims.Release(claim)
	// The local value is read before the global one: otherwise a push that is acknowledged in
	// between would be undone.
	values, err := repo.Values(ctx, []string{i.Ref})
	if err != nil {
		return false, err
	}
	local := refdb.Value(values[i.Ref])
	states, err := co.States(ctx, c, i.Project, []string{i.Ref})
	if err != nil {
		return false, err
	}
	global := states[0]
	switch {
	case local.Equivalent(global.Value):
		return true, nil
	case global.Lock != nil && !global.Lock.Stale():
		return false, nil // whoever moves it now will be done soon
	case global.Value == refdb.Unknown && !local.Equivalent(i.New):
		co.RaiseAlarm(ctx, MoveOf(i), "an operator resolved it; it is not in the global database, and has another value here than was announced")
		return false, nil
	}
	// The hooks needn't be asked: while here and globally differ no push gets through.
	move := gitrepo.Move{Ref: i.Ref, From: string(local)}
	if !global.Value.IsAbsent() {
		move.To = string(global.Value)
	}
	if err := co.moveDecided(ctx, repo, move); err != nil {
		co.Logger.WarnContext(ctx, "a ref can't be brought to its global value yet", "ref", co.State.Digest(i.Project, i.Ref))
		co.RaiseAlarm(ctx, MoveOf(i), fmt.Sprintf("an operator resolved it; it can't be brought to %s yet: %s",
			global.Value.Abbrev(), wire.OneLine(err.Error())))
		return false, nil
	}
	return true, nil
}

// moveDecided moves a ref that is claimed. A push that holds git's lock file is refused because of
// the claim, and releases the file soon.
func (co *Coordinator) moveDecided(ctx context.Context, repo *gitrepo.Repo, move gitrepo.Move) error {
	ctx, cancel := context.WithTimeout(ctx, moveLimit)
	defer cancel()
	until := time.Now().Add(lockPatience)
	for {
		err := co.Mover.Refs(ctx, repo, []gitrepo.Move{move}, "refdb: the global value", 0)
		refused := (*gitrepo.RefusedError)(nil)
		if !errors.As(err, &refused) || !refused.Locked || time.Now().After(until) || !pause.For(ctx, 50*time.Millisecond) {
			return err
		}
	}
}
