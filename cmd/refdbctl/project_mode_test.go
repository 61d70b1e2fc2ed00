package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	sitecheck "github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

// A roll-out in stages: nothing is refused until the sites agree.
func TestAProjectIsEnforcedOnceTheSitesAgree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.newSite(t, "a", mainRef), w.newSite(t, "b")
	var stopB func()
	for _, s := range []*gitSite{a, b} {
		config, err := os.ReadFile(s.config)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.config, append(config, "[guard]\nmode = log\n"...), 0o644); err != nil {
			t.Fatal(err)
		}
		stopB = s.serve(t)
	}
	git(t, b.repo.path, "fetch", "--quiet", a.repo.path, "+refs/*:refs/*")
	b.repo.commit = git(t, b.repo.path, "rev-parse", mainRef)
	for i, s := range []*gitSite{a, b} {
		s.site(t, "enable", []string{"--new", "--copy"}[i], "team/app", "--hook", s.hook).is(t, exit.OK, "not guarded yet: its mode is log")
		eventually(t, "the daemon refuses nothing", func() bool {
			return strings.Contains(s.site(t, "status").out, "not guarded  team/app: mode log: 0 transactions")
		})
	}
	if _, err := a.push(t, mainRef); err != nil {
		t.Fatal(err)
	}
	latest := ""
	for range 2 { // two commits: the first may be the very one of the other site
		commit, err := b.push(t, mainRef)
		if err != nil {
			t.Fatal(err)
		}
		b.repo.commit, latest = commit, commit
	}
	r := b.site(t, "status")
	r.is(t, exit.OK, "")
	if !strings.Contains(r.out, "transactions would have been refused; the last") || !strings.Contains(r.out, "this site is behind") {
		t.Errorf("status: %s", r.out)
	}
	if r := b.site(t, "check", "team/app"); r.code != exit.Failed || !strings.Contains(r.out, sitecheck.NotEnforced) {
		t.Errorf("check: %d, %s", r.code, r.out)
	}
	eventually(t, "the database follows", func() bool { return strings.Contains(w.do(t, "refs", "list", "team/app"), latest) })

	w.run(t, "project", "set", "team/app", "--mode", "loud").is(t, exit.Misuse, "enforce or log")
	w.run(t, "project", "set", "team/app", "--mode", "enforce", "--ref", "refs/heads/*").is(t, exit.Misuse, "change the rules first")
	w.run(t, "project", "set", "team/app", "--mode", "enforce").is(t, exit.Failed, "not those of the database at a:")
	git(t, a.repo.path, "-c", "core.hooksPath=/dev/null", "fetch", "--quiet", b.repo.path, "+refs/*:refs/*")
	repeats := 0
	for ; ; repeats++ {
		stopB()
		var said screen
		set := w.app(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: &said})
		ended := make(chan int, 1)
		go func() {
			ended <- set.Report(set.run(t.Context(), patient([]string{"project", "set", "team/app", "--mode", "enforce", "--reason", "they agree"})))
		}()
		eventually(t, "site a has reported", func() bool { return strings.Contains(said.String(), "waiting for the report of site b") })
		if _, err := a.push(t, mainRef); err == nil {
			t.Error("a push is not refused while the sites are compared")
		}
		enforced := time.Now() // or later
		stopB = b.serve(t)
		if code := <-ended; code != exit.OK {
			t.Fatalf("status %d: %s", code, said.String())
		}
		_, err := a.push(t, mainRef)
		if err != nil {
			break
		}
		if took := time.Since(enforced); took < projects.RulesSettle {
			t.Fatalf("the push is not refused, %s after", took)
		}
		// The machine was too slow. The push is at one site only.
		git(t, b.repo.path, "-c", "core.hooksPath=/dev/null", "fetch", "--quiet", a.repo.path, "+refs/*:refs/*")
		w.run(t, "project", "set", "team/app", "--mode", "log").is(t, exit.OK, "")
	}
	if r := b.site(t, "check", "team/app"); strings.Contains(r.out, sitecheck.NotEnforced) {
		t.Errorf("check: %s", r.out)
	}
	w.run(t, "project", "set", "team/app", "--mode", "log").is(t, exit.OK, "")
	eventually(t, "pushes are let through", func() bool { _, err := a.push(t, mainRef); return err == nil })

	all := w.audit(t)
	if len(all) != 3+2*repeats || !strings.Contains(text(all[0].Outcome), "mode log") || !strings.Contains(text(all[0].Outcome), "not those of the database") {
		t.Errorf("%+v", all)
	}
}
