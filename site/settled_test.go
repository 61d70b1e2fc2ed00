package site_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// row has the database hold a value of a ref, "" for no row, written that long after now.
func (g *guard) row(ref, value string, after time.Duration) {
	g.tb.Helper()
	if value == "" {
		g.shared.Exec(g.tb, "DELETE FROM refs WHERE ref = ?", ref)
		return
	}
	g.shared.InsertRef(g.tb, "team/app", ref, refdb.Value(value))
	g.shared.Exec(g.tb, "UPDATE refs SET time = ? WHERE ref = ?", time.Now().Add(after).UnixMicro(), ref)
}

// sync catches up from the site's own copy: all objects are here.
func (g *guard) sync(o catchup.Options) catchup.Report {
	g.tb.Helper()
	c, err := config.Load(g.tb.Context(), g.config)
	if err != nil {
		g.tb.Fatal(err)
	}
	o.From, o.Peer = g.repo, "peer"
	r, err := catchup.Sync(g.tb.Context(), c, g.db, config.Repository{Project: "team/app", Path: g.repo}, o)
	if err != nil {
		g.tb.Fatal(err)
	}
	return r
}

// finds says which codes the check of the site has about a ref.
func (g *guard) finds(ref string) (codes []string) {
	g.tb.Helper()
	c, err := config.Load(g.tb.Context(), g.config)
	if err != nil {
		g.tb.Fatal(err)
	}
	err = check.Run(g.tb.Context(), c, g.db, []config.Repository{{Project: "team/app", Path: g.repo}}, check.Options{}, func(f check.Finding) {
		if f.Subject == ref {
			codes = append(codes, f.Code)
		}
	})
	if err != nil {
		g.tb.Fatal(err)
	}
	return codes
}

const earlier, later = -time.Hour, time.Minute

// What this site has acknowledged, or brought here, is not moved back because the database forgot it.
func TestADatabaseThatWasSetBackMovesNothingBack(t *testing.T) {
	t.Parallel()
	const ref = "refs/heads/x"
	for name, c := range map[string]struct {
		here     func(g *guard)
		database int // a commit, -1 for deleted, -2 for no row
		when     time.Duration
		left     bool
		check    string
	}{
		"a push here": {(*guard).pushed, 0, earlier, true, "database-behind"},
		"a push here, of what the database never had": {(*guard).pushed, -2, earlier, true, "database-behind"},
		"a push here, of what was deleted before":     {(*guard).pushed, -1, earlier, true, "database-behind"},
		"a deletion here":                                  {(*guard).pushedDeletion, 0, earlier, true, "database-behind"},
		"what a sync brought":                              {(*guard).synced, 0, earlier, true, "database-behind"},
		"a push elsewhere that moves a push here back":     {(*guard).pushed, 0, later, false, "local-differs"},
		"a push elsewhere that moves what was synced back": {(*guard).synced, 0, later, false, "local-differs"},
		"a push elsewhere that deletes":                    {(*guard).pushed, -1, later, false, "local-differs"},
		"a push elsewhere that creates again":              {(*guard).pushedDeletion, 0, later, false, "global-missing-here"},
		"a push elsewhere, at the same moment":             {(*guard).pushed, 3, 0, false, "local-differs"},
		"a push elsewhere, while tokens are ahead":         {(*guard).pushedAhead, 0, time.Second, false, "local-differs"},
		"what was moved past the hook":                     {(*guard).unguarded, 0, earlier, false, "local-differs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, local.SQLite(t), "eu-1")
			c.here(g)
			g.resolved()
			before := g.local(ref)
			value := map[int]string{-2: "", -1: zero}[c.database]
			if c.database >= 0 {
				value = g.commit[c.database]
			}
			g.row(ref, value, c.when)
			if codes := g.finds(ref); len(codes) != 1 || codes[0] != c.check {
				t.Errorf("check finds %v, want %s", codes, c.check)
			}
			r := g.sync(catchup.Options{})
			want := strings.TrimPrefix(value, zero)
			if c.left {
				want = before
			}
			if got := g.local(ref); got != want || (r.Results[catchup.Ahead] > 0) != (c.left && c.database != -2) {
				t.Errorf("it is %q after a sync, want %q; %+v", got, want, r)
			}
			if c.database == -2 {
				return
			}
			g.sync(catchup.Options{Force: true})
			if got := g.local(ref); got != strings.TrimPrefix(value, zero) {
				t.Errorf("it is %q after a forced sync, want %q", got, value)
			}
		})
	}
}

// pushed moves the ref twice through the daemon.
func (g *guard) pushed() {
	g.git("update-ref", "refs/heads/x", g.commit[0])
	g.git("update-ref", "refs/heads/x", g.commit[2])
}

// pushedAhead is pushed while tokens are ahead of the clock, as they may be after a move to another server.
func (g *guard) pushedAhead() {
	g.shared.Exec(g.tb, "UPDATE token_mark SET mark = ?", time.Now().Add(later).UnixMicro())
	g.pushed()
}

func (g *guard) pushedDeletion() {
	g.pushed()
	g.git("update-ref", "-d", "refs/heads/x")
}

func (g *guard) synced() {
	g.git("update-ref", "refs/heads/x", g.commit[0])
	g.row("refs/heads/x", g.commit[2], 10*time.Second)
	g.sync(catchup.Options{})
}

func (g *guard) unguarded() {
	g.git("update-ref", "refs/heads/x", g.commit[0])
	g.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/x", g.commit[2])
}

// After a boot the daemon catches up by itself; it does not do what a sync would refuse.
func TestAfterABootADatabaseThatWasSetBackMovesNothingBack(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	g.pushed()
	g.halt()
	g.row("refs/heads/x", g.commit[0], earlier)
	g.rebooted()
	g.start()
	sitetest.Eventually(t, "the boot is recorded", func() bool {
		b, err := os.ReadFile(filepath.Join(g.dir, "state", "boot"))
		return err == nil && !strings.Contains(string(b), "another")
	})
	if got := g.local("refs/heads/x"); got != g.commit[2] {
		t.Errorf("it was moved back to %s", got)
	}
}

func TestTheRecordOfSettledValuesIsBoundedAndOutlastsWhatACrashLeaves(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	file := filepath.Join(g.repo, "refdb/settled")
	long := strings.Repeat(fmt.Sprintf("1700000000000000 %s refs/heads/y\n", g.commit[0]), 20_000) + "17000000 \x00\x00\x00"
	if err := os.WriteFile(file, []byte(long), 0o644); err != nil {
		t.Fatal(err)
	}
	g.pushed()
	sitetest.Eventually(t, "the record is short", func() bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() < 1000
	})
	g.row("refs/heads/x", g.commit[0], earlier)
	if codes := g.finds("refs/heads/x"); len(codes) != 1 || codes[0] != "database-behind" {
		t.Errorf("check finds %v", codes)
	}
}

// What an operator has ended, the database may have at the old value for good: it is not one of a database that was set back.
func TestOnlyWhatTheDatabaseHasIsRecordedAsSettled(t *testing.T) {
	t.Parallel()
	for decision, settled := range map[driver.Decision]bool{driver.KeepOld: false, driver.TakeNew: true} {
		t.Run(string(decision), func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, local.SQLite(t), "eu-1")
			g.git("update-ref", "refs/heads/x", g.commit[0])
			s := g.session()
			if err := s.prepare("update refs/heads/x " + g.commit[2] + " " + g.commit[0]); err != nil {
				t.Fatal(err)
			}
			g.decide("refs/heads/x", decision)
			s.must("commit")
			s.close()
			g.resolved()
			text, err := os.ReadFile(filepath.Join(g.repo, "refdb/settled"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), g.commit[2]+" refs/heads/x") != settled {
				t.Errorf("the record of settled values is\n%s", text)
			}
		})
	}
}
