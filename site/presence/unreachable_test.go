package presence_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

func TestASiteIsUnreachableIfItIsAwaitedAndHasNoFreshLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		database := memory.New()
		// witness registers a site, whose daemon runs if it has the lock on its name.
		witness := func(site string, runs bool) *refdb.DB {
			j := journal.New(t.TempDir())
			db, err := refdb.New(database.Open(), refdb.Options{Site: site, Journal: j})
			if err == nil {
				_, err = db.Recovery().Compare(t.Context())
			}
			if err == nil && runs {
				_, err = db.TryLock(t.Context(), presence.Project, "refs/sites/"+site)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				db.Close()
				j.Close()
			})
			return db
		}
		db := witness("alive", true)
		witness("dead", false)
		if err := witness("stopped", false).Recovery().Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		a, err := db.Recovery().Admission(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sites, err := presence.Witnesses(t.Context(), db, a)
		unreachable := presence.Unreachable(sites)
		if err != nil || len(unreachable) != 1 || unreachable[0].Name != "dead" || unreachable[0].Seen().After(began) || unreachable[0].Seen().Before(began.Add(-time.Minute)) {
			t.Errorf("%+v, %v", unreachable, err)
		}
	})
}

func TestTheCommandThatRetiresASite(t *testing.T) {
	t.Parallel()
	for site, want := range map[string]string{
		"eu-1":      "refdbctl sites retire eu-1 --reason TEXT",
		"$(reboot)": "refdbctl sites retire '$(reboot)' --reason TEXT",
		"-f":        "refdbctl sites retire --reason TEXT -- -f",
	} {
		if got := presence.RetireCommand(site); got != want || !strings.Contains(presence.UnreachableAdvice(presence.Site{Name: site}), "`"+want+"`") {
			t.Errorf("%s: %s", site, got)
		}
	}
}
