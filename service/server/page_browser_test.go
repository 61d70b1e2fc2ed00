package server_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/globalrefdb/globalrefdb/internal/testbrowser"
	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

// logIn logs a subject in.
func logIn(tab *testbrowser.Tab, s *serving, subject string) {
	tab.Go(s.url + "/ui/")
	tab.Await(`location.pathname === "/ui/login" && document.querySelector("input[name=token]") !== null`)
	tab.Run(fmt.Sprintf(`document.querySelector("input[name=token]").value = %q; document.querySelector("form.login").requestSubmit(); true`, s.rig.tokens[subject]))
	tab.Await(`location.pathname === "/ui/" && document.querySelector("main h1") !== null`)
}

func TestThePageInABrowser(t *testing.T) {
	t.Parallel()
	tab := testbrowser.Open(t)
	r := inMemory(t)
	r.page = "/ui"
	hostile := `"'><img/src=x/onerror=pwned=1><script>pwned=2</script>`
	r.put(t, hostile, "refs/heads/"+hostile, refdb.Value(hostile))
	if _, err := r.db.TryLock(t.Context(), hostile, "refs/heads/"+hostile); err != nil {
		t.Fatal(err)
	}
	r.allow(t, "ada", access.Administer, "*", "*")
	r.allow(t, "ada", access.Read, access.Pattern(hostile), "*")
	s := r.serve(t, server.DefaultLimits, nil)
	s.loggedIn(t, "ada") // the key is there
	logIn(tab, s, "ada")
	if !tab.Run(`document.cookie === ""`) {
		t.Error("scripts can read the cookie")
	}
	for _, path := range []string{"locks", "projects", "sites", "audit"} {
		tab.Run(fmt.Sprintf(`document.querySelector("nav a[href$=%s]").click(); true`, path))
		tab.Await(fmt.Sprintf(`location.pathname === "/ui/%s" && document.readyState === "complete"`, path))
	}

	tab.Run(`document.querySelector("nav a[href$=projects]").click(); true`)
	tab.Await(`location.pathname === "/ui/projects" && document.querySelector("ul.names a") !== null`)
	tab.Run(`document.querySelector("ul.names a").click(); true`)
	tab.Await(`location.pathname === "/ui/project" && document.querySelector(".live").textContent === "Live"`)
	live := "refs/heads/live" + hostile
	if err := r.db.Update(t.Context(), hostile, []refdb.Update{{Ref: live, New: refdb.Value(hostile)}}, refdb.By(hostile)); err != nil {
		t.Fatal(err)
	}
	tab.Await(fmt.Sprintf(`document.querySelector("table.changes tbody tr.new td:nth-child(2)").textContent === %q`, live))
	if !tab.Run(fmt.Sprintf(`document.querySelector("tr.new td:nth-child(5)").textContent === %q && document.querySelectorAll("main img, main script").length === 0 && typeof pwned === "undefined"`, hostile)) {
		t.Error("the change is not shown as text")
	}
	tab.Run(`document.querySelector("tr.new a").click(); true`)
	tab.Await(fmt.Sprintf(`location.pathname === "/ui/history" && document.querySelector("h1").textContent === %q && document.querySelectorAll("tbody tr").length === 1`, hostile+" "+live))
	if faults := tab.Faults(); len(faults) > 0 {
		t.Errorf("the console has %q", faults)
	}

	// The console tells of a script that the policy keeps from running.
	tab.Run(`document.querySelector("main").insertAdjacentHTML("beforeend", "<img src=/ui/none onerror=pwned=3>"); true`)
	eventually(t, "the policy is reported", func() bool { return strings.Contains(strings.Join(tab.Faults(), ""), "Content Security Policy") })
	if !tab.Run(`typeof pwned === "undefined"`) {
		t.Error("the script has run")
	}

	tab.Run(`document.querySelector("form[action$=logout]").requestSubmit(); true`)
	tab.Await(`location.pathname === "/ui/login"`)
}

// REFDB_TEST_PICTURE=docs/page.png names the file that gets the picture of the manual.
func TestThePicture(t *testing.T) {
	file := os.Getenv("REFDB_TEST_PICTURE")
	if file == "" {
		t.Skip("left out: the picture of docs/SERVICE.md; REFDB_TEST_PICTURE=FILE makes it")
	}
	tab := testbrowser.Open(t)
	r := inMemory(t)
	r.page = "/ui"
	ctx := t.Context()
	for i, project := range []string{"team/app", "team/infra", "docs"} {
		if _, err := r.db.Projects().Put(ctx, driver.Project{Project: project, ID: fmt.Sprintf("p%d", i), Rules: "+refs/heads/*", Mode: "enforce", Store: "none"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, site := range []string{"eu", "us"} {
		db := r.process(t, r.open(), site)
		if _, err := presence.Hold(ctx, db, site); err != nil {
			t.Fatal(err)
		}
		if err := presence.Tell(ctx, db, site, presence.About{Version: "v0.9.0", Schema: 12, Followed: 3}); err != nil {
			t.Fatal(err)
		}
		if err := db.Followers().Put(ctx, presence.FollowerName(site), must(db.HistoryEnd(ctx))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		r.put(t, "team/app", fmt.Sprintf("refs/heads/feature-%d", i), one)
	}
	if err := r.db.Followers().Put(ctx, presence.FollowerName("eu"), must(r.db.HistoryEnd(ctx))); err != nil {
		t.Fatal(err)
	}
	p, _, err := r.db.Projects().Get(ctx, "docs")
	if err != nil {
		t.Fatal(err)
	}
	p.Freeze = driver.Freeze{Reason: "the repository moves to another host", By: "ada"}
	if _, err := r.db.Projects().Put(ctx, p); err != nil {
		t.Fatal(err)
	}
	r.allow(t, "ada", access.Administer, "*", "*")
	r.allow(t, "ci-deploy", access.Lock, "team/app", "refs/locks/*")
	s := r.serve(t, server.DefaultLimits, nil)
	const ref = "refs/locks/deploy"
	r.acquire(t, s.plain("ci-deploy"), &refdbv1.AcquireRequest{Project: "team/app", Refs: []string{ref}, LeaseTime: durationpb.New(time.Minute)})
	waiting, give := context.WithCancel(ctx)
	var waiter sync.WaitGroup
	defer waiter.Wait()
	defer give()
	waiter.Go(func() { r.process(t, r.open(), "us").Lock(waiting, "team/app", ref) })
	eventually(t, "a process waits", func() bool {
		for l, err := range r.db.Locks(ctx, refdb.LockFilter{Project: "team/app", Ref: ref}) {
			return err == nil && l.Waiters > 0
		}
		return false
	})
	s.loggedIn(t, "ada")
	logIn(tab, s, "ada")
	tab.Await(`document.querySelectorAll("h2").length === 3`)
	if err := os.WriteFile(file, tab.Picture(), 0o644); err != nil {
		t.Fatal(err)
	}
}
