package site_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func (g *guard) project() driver.Project {
	g.tb.Helper()
	row, ok, err := g.db.Projects().Get(g.tb.Context(), "team/app")
	if err != nil || !ok {
		g.tb.Fatal(ok, err)
	}
	return row
}

// logs sets the project's mode to Log, and waits until all sites go by it.
func logs(sites ...*guard) {
	sites[0].tb.Helper()
	row := sites[0].project()
	row.Mode = config.Log
	if _, err := sites[0].db.Projects().Put(sites[0].tb.Context(), row); err != nil {
		sites[0].tb.Fatal(err)
	}
	for _, g := range sites {
		g.logging()
	}
}

func (g *guard) logging() {
	g.tb.Helper()
	sitetest.Eventually(g.tb, g.name+" refuses nothing", func() bool {
		u := g.status().Unguarded
		return len(u) == 1 && u[0].Mode == config.Log
	})
}

// enforce sets the mode to Enforce, and returns what came of it.
func (g *guard) enforce(without ...string) error {
	g.tb.Helper()
	_, err := projects.SetEnforce(g.tb.Context(), g.db, g.project(), without, func([]string) {})
	return err
}

func TestInModeLogNothingIsRefused(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	east, west := newGuard(t, shared, "east"), newGuard(t, shared, "west")
	a, b, c := east.commit[0], east.commit[1], east.commit[2]
	east.git("update-ref", "refs/heads/x", a)
	logs(east, west)

	west.git("update-ref", "refs/heads/x", b) // it has not followed the other site
	sitetest.Eventually(t, "the database follows", func() bool { return west.global("refs/heads/x") == b })
	u := west.status().Unguarded[0]
	if u.Refusals != 1 || len(u.Recent) != 1 {
		t.Fatalf("%+v", u)
	}
	sitetest.Contains(t, u.Recent[0].Reason, "refs/heads/x: this site is behind")

	east.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/y", a)
	s := east.session()
	if err := s.prepare("update refs/heads/x "+c+" "+a, "update refs/heads/y "+b+" "+a); err != nil {
		t.Fatal(err)
	}
	s.must("abort")
	s.close()
	sitetest.Eventually(t, "it is taken note of", func() bool { return east.status().Unguarded[0].Refusals == 1 })

	west.git("update-ref", "refs/heads/x", c)
	west.has("refs/heads/x", c, c)
	if u := west.status().Unguarded[0]; u.Refusals != 1 {
		t.Errorf("what would not have been refused was counted: %+v", u)
	}
	west.git("update-ref", "-d", "refs/heads/x")
	east.git("update-ref", "-d", "refs/heads/x")
	sitetest.Eventually(t, "the database follows", func() bool { return refdb.Value(west.global("refs/heads/x")).IsAbsent() })
	for _, g := range []*guard{east, west} {
		g.halt()
		if log := g.log.String(); g == west && !strings.Contains(log, "accepted what would have been refused") {
			t.Errorf("the log: %s", log)
		}
	}
}

func TestInModeLogTheDatabaseMayBeDown(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	down := g.unplug()
	g.start()
	a, b := g.commit[0], g.commit[1]
	g.git("update-ref", "refs/heads/x", a)
	logs(g)
	s := g.session()
	if err := s.prepare("update refs/heads/x " + b + " " + a); err != nil { // announced
		t.Fatal(err)
	}
	down.Store(true)
	s.must("commit")
	s.close()
	g.git("update-ref", "refs/heads/x", g.commit[2])
	g.git("update-ref", "refs/heads/y", b)
	g.clock.Advance(time.Hour)
	g.git("update-ref", "refs/heads/z", b)
	down.Store(false)
	for ref, value := range map[string]string{"refs/heads/x": g.commit[2], "refs/heads/y": b, "refs/heads/z": b} {
		sitetest.Eventually(t, "the database follows", func() bool { return g.global(ref) == value })
	}
	g.resolved()
	if s := g.status(); len(s.Stuck) > 0 {
		t.Errorf("stuck: %+v", s.Stuck)
	}
}

func TestEnforceIsRefusedUntilAllSitesHaveWhatTheDatabaseHas(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	east, west := newGuard(t, shared, "east"), newGuard(t, shared, "west")
	a, b := east.commit[0], east.commit[1]
	east.git("update-ref", "refs/heads/x", a)
	logs(east, west)
	if err := east.enforce(); err == nil || !strings.Contains(err.Error(), "not those of the database at west:") {
		t.Fatalf("with a ref that is missing: %v", err)
	}
	if m := east.project().Mode; m != config.Log {
		t.Fatalf("the mode is %s", m)
	}
	west.logging()
	west.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/x", a)
	if err := east.enforce(); err != nil {
		t.Fatal(err)
	}
	shared.Exec(t, `UPDATE projects SET time = time - 700000000`)
	for _, g := range []*guard{east, west} {
		g.halt()
		g.start()
	}
	east.git("update-ref", "refs/heads/x", b)
	sitetest.Contains(t, west.fails("update-ref", "refs/heads/x", east.commit[2]), "this site is behind")
}

// A site that is cut off may let pushes through: without it nothing is enforced.
func TestEnforceWaitsForEverySite(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	east, west := newGuard(t, shared, "east"), idleGuard(t, shared, "west")
	down := west.unplug()
	west.start()
	east.git("update-ref", "refs/heads/x", east.commit[0])
	west.set("refs/heads/x", east.commit[0])
	logs(east, west)
	if err := east.enforce("west"); err == nil || !strings.Contains(err.Error(), "west is not gone") {
		t.Fatalf("while its daemon runs: %v", err)
	}
	east.logging()
	west.logging()
	down.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := projects.SetEnforce(ctx, east.db, east.project(), nil, func(sites []string) {
		if slices.Equal(sites, []string{"west"}) { // only for that one
			cancel()
		}
	})
	if err == nil || !strings.Contains(err.Error(), "site west has not answered") {
		t.Fatalf("without it: %v", err)
	}
	sitetest.Eventually(t, "its lock is stale", func() bool {
		shared.Age(t, presence.Project, "refs/sites/west", time.Hour)
		l, err := presence.LockOf(t.Context(), east.db, "west")
		return l == nil && err == nil
	})
	east.logging()
	if err := east.enforce("west"); err != nil {
		t.Fatal(err)
	}
}

// What was let through may still move refs, also if the daemon is another one by then.
func TestEnforceWaitsForPushesThatWereLetThrough(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		t.Run(map[bool]string{false: "the same daemon", true: "a later one"}[restarted], func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, local.SQLite(t), "eu-1")
			a, b := g.commit[0], g.commit[1]
			g.git("update-ref", "refs/heads/x", a)
			logs(g)
			g.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/x", b)
			s := g.session()
			if err := s.prepare("update refs/heads/x " + g.commit[2] + " " + b); err != nil { // the database has another value
				t.Fatal(err)
			}
			if restarted {
				g.halt()
				g.start()
			}
			done := make(chan error, 1)
			go func() { done <- g.enforce() }()
			sitetest.Eventually(t, "the sites are compared", func() bool { return g.project().Mode == config.Comparing })
			select {
			case err := <-done:
				t.Fatalf("it did not wait: %v", err)
			case <-time.After(3 * time.Second): // some looks of the daemon; if it is slower this test sees less
			}
			s.must("commit")
			s.close()
			if err := <-done; err == nil || !strings.Contains(err.Error(), "not those of the database at eu-1") {
				t.Fatal(err)
			}
		})
	}
}

// ending ends mode Log between a site's grant and its look at the row.
type ending struct {
	refdb.Driver
	end func()
}

func (e *ending) Update(ctx context.Context, r driver.UpdateRequest) error {
	err := e.Driver.Update(ctx, r)
	if strings.HasPrefix(r.Updates[0].Ref, "refs/modes/") && e.end != nil {
		e.end()
	}
	return err
}

func TestAGrantThatCameTooLateIsNotUsed(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	var ended atomic.Bool
	g.driver = func(d refdb.Driver) refdb.Driver {
		return &ending{d, func() {
			row := g.project()
			if row.Mode != config.Log {
				return
			}
			row.Mode = config.Comparing
			if _, err := g.db.Projects().Put(context.WithoutCancel(t.Context()), row); err != nil {
				t.Error(err)
			}
			ended.Store(true)
		}}
	}
	g.start()
	g.git("update-ref", "refs/heads/x", g.commit[0])
	g.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/x", g.commit[1])
	row := g.project()
	row.Mode = config.Log
	if _, err := g.db.Projects().Put(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	sitetest.Eventually(t, "the mode has ended", ended.Load)
	sitetest.Eventually(t, "the site reports", func() bool { return len(g.status().Unguarded) == 1 })
	sitetest.Contains(t, g.fails("update-ref", "refs/heads/x", g.commit[2]), "being compared")
}
