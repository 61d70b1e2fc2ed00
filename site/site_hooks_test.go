package site_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
	// The daemon may restore the hooks before git asks for them. Then nothing has moved past them, and it is tried again.
	past := ""
	for n := 1; past == ""; n++ {
		ref := fmt.Sprintf("refs/heads/past-%d", n)
		sitetest.Run(t, r.B.Dir, "sh", "-c", `mv "$1" "$1.gone-$2" && git update-ref "refs/heads/$2" `+tip, "sh", r.Config.Hooks, filepath.Base(ref))
		sitetest.Eventually(t, "the hooks are restored", func() bool { return len(hookdir.Dir(r.Config.Hooks).Faults(nil)) == 0 })
		if r.Get(t, ref) == refdb.Unknown {
			past = ref
			sitetest.Eventually(t, "alarms: each time the hooks, and what moved", func() bool { return status().Counters.Alarms >= uint64(n)+1 }) // the comparison of the time before may find it, too
		}
	}
	if s := status(); s.HooksError != "" {
		t.Errorf("after they were restored: %s", s.HooksError)
	}
	if _, err := os.Stat(hookdir.Dir(r.Config.Hooks).HooksPath() + "/update"); err != nil {
		t.Error(err)
	}
	if found := r.Check(t, r.DB, false); found != "local-unknown "+past {
		t.Errorf("check finds %q", found)
	}
}
