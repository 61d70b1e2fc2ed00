package site_test

import (
	"os"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// Once an operator has decided there is nothing left to do for a repository that is gone.
func TestAPushToARepositoryThatIsGoneIsStuckUntilItIsDecided(t *testing.T) {
	t.Parallel()
	for _, configured := range []bool{false, true} {
		name := "below the root"
		if configured {
			name = "with a path of its own"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := idleGuard(t, local.SQLite(t), "eu-1")
			if configured {
				text, err := os.ReadFile(g.config)
				if err == nil {
					err = os.WriteFile(g.config, []byte(string(text)+"[repository \"team/app\"]\n\tpath = "+g.repo+"\n"), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			g.start()
			s := g.session()
			if err := s.prepare("create refs/heads/x " + g.commit[0]); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(g.repo); err != nil {
				t.Fatal(err)
			}
			s.kill()
			sitetest.Eventually(t, "the ref is stuck", func() bool { return len(g.status().Stuck) == 1 })
			if x := g.status().Stuck[0]; x.Ref != "refs/heads/x" || !strings.Contains(x.Reason, "refdbctl locks resolve") {
				t.Errorf("%+v", x)
			}
			g.decide("refs/heads/x", driver.KeepOld)
			g.reload()
			sitetest.Eventually(t, "nothing is stuck", func() bool { return len(g.status().Stuck) == 0 && g.decided() == 0 })
		})
	}
}
