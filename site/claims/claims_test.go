package claims_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
)

const project = "team/app"

func moves(refs ...string) (all []refdb.Update) {
	for _, ref := range refs {
		all = append(all, refdb.Update{Ref: ref})
	}
	return all
}

// A hook has git's lock file, for which a follower's git does not wait. So the hook may wait for the
// follower, but for nobody else.
func TestAPushWaitsForAFollowerAlone(t *testing.T) {
	for _, row := range []struct {
		name  string
		take  func(ctx context.Context, c *claims.Claims) *claims.Claim // on ref a
		waits bool
	}{
		{"a follower", func(ctx context.Context, c *claims.Claims) *claims.Claim {
			claim, _ := c.Follow(ctx, project, []string{"a"})
			return claim
		}, true},
		{"another push", func(ctx context.Context, c *claims.Claims) *claims.Claim {
			claim, _ := c.Take(ctx, claims.ByPush, project, moves("a"), nil)
			return claim
		}, false},
		{"an operator's decision", func(ctx context.Context, c *claims.Claims) *claims.Claim {
			claim, _ := c.Take(ctx, claims.ByDecision, project, moves("a"), nil)
			return claim
		}, false},
		{"a guard's transaction", func(ctx context.Context, c *claims.Claims) *claims.Claim {
			claim, _ := c.Await(ctx, project, moves("a"), time.Now())
			return claim
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var c claims.Claims
				held := row.take(t.Context(), &c)
				if held == nil {
					t.Fatal("nothing is claimed")
				}
				done := make(chan error, 1)
				go func() {
					claim, err := c.Take(t.Context(), claims.ByPush, project, moves("a", "b"), nil)
					c.Release(claim)
					done <- err
				}()
				synctest.Wait()
				select {
				case err := <-done:
					if row.waits || err == nil {
						t.Fatalf("the push does not wait: %v", err)
					}
				default:
					if !row.waits {
						t.Fatal("the push waits")
					}
					c.Release(held)
					if err := <-done; err != nil {
						t.Errorf("after the follower: %v", err)
					}
				}
			})
		})
	}
}

func TestAPushWaitsForAFollowerNoLongerThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c claims.Claims
		c.Follow(t.Context(), project, []string{"a"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Take(ctx, claims.ByPush, project, moves("a"), nil); err == nil || ctx.Err() == nil {
			t.Errorf("%v, %v", err, ctx.Err())
		}
	})
}

// One ref that a push or a session has does not hold up the others.
func TestAFollowerClaimsWhatNobodyHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c claims.Claims
		push, _ := c.Take(t.Context(), claims.ByPush, project, moves("a"), nil)
		session, _ := c.Await(t.Context(), project, moves("b"), time.Now())
		if c.Followed(project) {
			t.Error("a push and a session are taken for a follower")
		}
		claim, others := c.Follow(t.Context(), project, []string{"a", "b", "c", "d"})
		if !c.Followed(project) || c.Followed("another") {
			t.Error("the follower's project is not followed, or another is")
		}
		if len(claim.Refs) != 2 || len(others) != 2 || others["a"] == nil || others["b"] == nil {
			t.Fatalf("claimed %v, not %v", claim.Refs, others)
		}
		if _, err := c.Await(t.Context(), project, moves("c"), time.Now()); err == nil {
			t.Error("a session has what the follower has")
		}
		c.Release(push)
		c.Release(session)
		if claim, others := c.Follow(t.Context(), "another", []string{"c"}); len(claim.Refs) != 1 || len(others) != 0 {
			t.Errorf("of another project: %v, not %v", claim.Refs, others)
		}

		second := make(chan int, 1)
		go func() {
			claim, _ := c.Follow(t.Context(), project, []string{"b", "c"})
			second <- len(claim.Refs)
		}()
		synctest.Wait()
		select {
		case n := <-second:
			t.Errorf("a follower has claimed %d refs beside another", n)
		default:
		}
		c.Release(claim)
		if n := <-second; n != 2 {
			t.Errorf("after the other it has %d refs", n)
		}
	})
}

// While a follower waits for another one, a push may claim what the follower does not have to wait for.
func TestAFollowerThatMayWaitNoLongerClaimsWhatNobodyHasThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c claims.Claims
		c.Follow(t.Context(), project, []string{"a"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan []string, 1)
		go func() {
			claim, _ := c.Follow(ctx, project, []string{"a", "b", "c"})
			done <- claim.Refs
		}()
		synctest.Wait()
		if _, err := c.Take(t.Context(), claims.ByPush, project, moves("b"), nil); err != nil {
			t.Fatal(err)
		}
		cancel()
		if refs := <-done; len(refs) != 1 || refs[0] != "c" {
			t.Errorf("claimed %v", refs)
		}
	})
}
