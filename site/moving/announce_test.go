package moving_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/refusal"
)

const value = "1111111111111111111111111111111111111111"

func TestAnAnnouncementIsRecordedWhileItsRefsAreClaimed(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a := g.announcement(value, ref, "refs/heads/b")
	a.By = "jo"
	rechecked := false
	a.Recheck = func(context.Context) error {
		rechecked = g.isClaimed(ref) && g.isClaimed("refs/heads/b") && len(g.pending()) == 0
		return nil
	}
	announced, claim, err := g.Announce(t.Context(), g.config, a)
	if err != nil || len(announced) != 2 || !slices.Equal(g.pending(), []string{ref, "refs/heads/b"}) {
		t.Fatalf("announced %v, %v; pending are %v", announced, err, g.pending())
	}
	if !rechecked {
		t.Error("the repository was not compared between the claim and the intents")
	}
	if m := announced[0]; m.Project != project || m.Path != g.repo.Path || m.By != "jo" || m.New != value || m.Adopted {
		t.Errorf("the move is %+v", m)
	}
	if n, _ := g.Open.Count(); n != 2 || !slices.Equal(g.made, []string{project}) {
		t.Errorf("%d intents are counted; packs were used of %v", n, g.made)
	}
	if !g.isClaimed(ref) {
		t.Error("the claim has ended before its caller released it")
	}
	g.Claims.Release(claim)
}

func TestAnAnnouncementThatIsRefusedClaimsNothing(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a := g.announcement(value, ref)
	a.Recheck = func(context.Context) error { return errRefused }
	if _, claim, err := g.Announce(t.Context(), g.config, a); !errors.Is(err, errRefused) || claim != nil || len(g.pending()) > 0 || g.isClaimed(ref) {
		t.Errorf("after the recheck: %v; pending are %v; claimed: %t", err, g.pending(), g.isClaimed(ref))
	}
	other := g.announcement(value, ref)
	other.Moves[0].Old = "2222222222222222222222222222222222222222"
	if _, claim, err := g.Announce(t.Context(), g.config, other); refusal.ReasonOf(err) != refusal.UnknownRef || claim != nil || g.isClaimed(ref) {
		t.Errorf("by the database: %v; claimed: %t", err, g.isClaimed(ref))
	}
}

func TestAnUnknownOutcomeKeepsTheClaimUntilItIsRevoked(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.driver.lost.Store(true)
	_, claim, err := g.Announce(t.Context(), g.config, g.announcement(value, ref))
	if refusal.ReasonOf(err) != refusal.Database || claim == nil {
		t.Fatalf("%v; claim %v", err, claim)
	}
	if !g.isClaimed(ref) || !g.Claims.IsUnknown(claim) || !slices.Contains(g.Claims.Revocable(), claim) {
		t.Error("others may move the ref while the request may take effect")
	}
	if !g.State.Reconcile.Outstanding() {
		t.Error("nobody is asked to revoke the request")
	}
}

// A git process holds the lock files that a guard with the claim needs.
func TestAGitProcessDoesNotWaitForAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		held, err := g.Claims.Await(t.Context(), project, []refdb.Update{{Ref: ref}}, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, _, err := g.Announce(t.Context(), g.config, g.announcement(value, ref)); refusal.ReasonOf(err) != refusal.Locked || time.Since(start) > 0 {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		g.Claims.Release(held)
	})
}

func TestATransactionWaitsForAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		take := func() *claims.Claim {
			held, err := g.Claims.Take(t.Context(), claims.ByPush, project, []refdb.Update{{Ref: ref}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return held
		}
		held := take()
		start := time.Now()
		a := g.announcement(value, ref)
		a.Until = start.Add(time.Minute)
		if _, _, err := g.Announce(t.Context(), g.config, a); refusal.ReasonOf(err) != refusal.Locked || time.Since(start) != time.Minute {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		a.Until = time.Now().Add(time.Minute)
		time.AfterFunc(time.Second, func() { g.Claims.Release(held) })
		if _, _, err := g.Announce(t.Context(), g.config, a); err != nil || time.Since(start) != time.Minute+time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestWhoeverHoldsLockFilesWaitsForLocksInTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		lock, err := g.DB.TryLock(t.Context(), project, ref)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release(context.WithoutCancel(t.Context()))
		claimed := 0
		announce := func(until time.Time) (took time.Duration, err error) {
			start := time.Now()
			a := g.announcement(value, ref)
			a.Until = until
			a.Recheck = func(context.Context) error { claimed++; return nil }
			_, claim, err := g.Announce(t.Context(), g.config, a)
			if claim != nil {
				t.Error("it has a claim after its refusal")
			}
			return time.Since(start), err
		}
		if took, err := announce(time.Time{}); refusal.ReasonOf(err) != refusal.Locked || took < g.config.LockWait || took > g.config.LockWait+time.Second {
			t.Errorf("a git process waited %s: %v", took, err)
		}
		// It waits with nothing claimed.
		if took, err := announce(time.Now().Add(time.Hour)); refusal.ReasonOf(err) != refusal.Locked || took >= time.Second {
			t.Errorf("a transaction waited %s: %v", took, err)
		}
		if claimed != 2 {
			t.Errorf("the refs were compared %d times", claimed)
		}
	})
}
