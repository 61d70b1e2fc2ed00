package maintenance

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPruneExcludesAllOtherUsesOfARepository(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pruning
		try := func(enter func(context.Context, string) (func(), error), path string) (func(), error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return enter(ctx, path)
		}
		must := func(release func(), err error) func() {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return release
		}
		first, second := must(try(p.Share, "a")), must(try(p.Share, "a"))
		first()
		first() // a second call does nothing
		if _, err := try(p.Exclusive, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("exclusive beside a push: %v", err)
		}
		must(try(p.Share, "a"))() // no caller of Exclusive waits any more

		var release func()
		done := make(chan struct{})
		go func() {
			defer close(done)
			release, _ = p.Exclusive(t.Context(), "a")
		}()
		synctest.Wait()
		if _, err := try(p.Share, "a"); err == nil {
			t.Error("a push overtakes a prune that waits")
		}
		second()
		<-done
		for name, enter := range map[string]func(context.Context, string) (func(), error){"share": p.Share, "exclusive": p.Exclusive} {
			if _, err := try(enter, "a"); err == nil {
				t.Errorf("%s beside a prune", name)
			}
		}
		must(try(p.Share, "b"))()
		release()
		must(try(p.Exclusive, "a"))()
		if len(p.repos) != 0 {
			t.Errorf("%d repositories are left", len(p.repos))
		}
	})
}
