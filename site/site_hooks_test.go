package site_test

import (
	"context"
	"os"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// What git moves by itself is not held back while the hooks are gone, if the repository has a hook of its own in the place of the site's script. The daemon restores them, and finds what has moved.
func TestTheDaemonFindsWhatMovedWhileItsHooksWereGone(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	db, err := refdb.New(r.Open(t), refdb.Options{Site: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- site.New(r.Config, db, site.Options{Hook: sitetest.Hook()}).Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	status := func() client.Status {
		s, _ := client.Query(t.Context(), r.Config.Socket)
		return s
	}
	sitetest.Eventually(t, "the daemon serves", func() bool { s := status(); return s.Presence && s.Database })
	sitetest.Eventually(t, "it makes the site's hooks", func() bool { return len(hookdir.Dir(r.Config.Hooks).Faults(nil)) == 0 })
	sitetest.GitIn(t, r.B.Dir, "config", "transfer.hideRefs", "refs/secret") // for which the directory has a file of its own
	sitetest.ForeignHook(t, r.B, "reference-transaction", "exit 0")
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	tip := r.B.Commit(t, "x")
	sitetest.GitIn(t, r.B.Dir, "update-ref", "refs/heads/guarded", tip)
	if got := r.Get(t, "refs/heads/guarded"); got != refdb.Value(tip) {
		t.Fatalf("the database has %q", got)
	}
	if n := status().Counters.Alarms; n != 0 {
		t.Fatalf("%d alarms", n)
	}
	// Together with the directory: what comes later may find it restored.
	sitetest.Run(t, r.B.Dir, "sh", "-c", `mv "$1" "$1.gone" && git update-ref refs/heads/past `+tip, "sh", r.Config.Hooks)
	if r.Get(t, "refs/heads/past") != refdb.Unknown {
		t.Skip("left out: the daemon has restored the hooks before git moved the ref")
	}
	sitetest.Eventually(t, "alarms: the hooks, and what moved", func() bool { return status().Counters.Alarms == 2 })
	if s := status(); s.HooksError != "" {
		t.Errorf("after they were restored: %s", s.HooksError)
	}
	if _, err := os.Stat(hookdir.Dir(r.Config.Hooks).HooksPath() + "/update"); err != nil {
		t.Error(err)
	}
	if found := r.Check(t, r.DB, false); found != "local-unknown refs/heads/past" {
		t.Errorf("check finds %q", found)
	}
}
