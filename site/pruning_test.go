package site

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPruneHasARepositoryAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pruning
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
		first, second := must(try(p.share, "a")), must(try(p.share, "a"))
		first()
		first() // twice is once
		if _, err := try(p.alone, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("alone beside a push: %v", err)
		}
		must(try(p.share, "a"))() // nobody waits any more

		var release func()
		done := make(chan struct{})
		go func() {
			defer close(done)
			release, _ = p.alone(t.Context(), "a")
		}()
		synctest.Wait()
		if _, err := try(p.share, "a"); err == nil {
			t.Error("a push overtakes a prune that waits")
		}
		must(try(p.join, "a"))() // what the second one may wait for
		second()
		<-done
		for name, enter := range map[string]func(context.Context, string) (func(), error){"share": p.share, "join": p.join, "alone": p.alone} {
			if _, err := try(enter, "a"); err == nil {
				t.Errorf("%s beside a prune", name)
			}
		}
		must(try(p.share, "b"))()
		release()
		must(try(p.alone, "a"))()
		if len(p.repos) != 0 {
			t.Errorf("%d repositories are left", len(p.repos))
		}
	})
}
