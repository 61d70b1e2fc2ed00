package catchup_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

func TestSyncBringsWhatHappenedElsewhere(t *testing.T) {
	t.Parallel()
	formats := map[string]string{"sha1": "--object-format=sha1", "sha256": "--object-format=sha256"}
	if exec.Command("git", "init", "--quiet", "--bare", "--ref-format=reftable", filepath.Join(t.TempDir(), "r")).Run() == nil {
		formats["reftable"] = "--ref-format=reftable"
	}
	for format, option := range formats {
		for _, c := range []struct {
			name string
			do   func(tb testing.TB, r *sitetest.Replicas, old string)
			want string
		}{
			{"nothing", func(testing.TB, *sitetest.Replicas, string) {}, ""},
			{"a new branch", func(tb testing.TB, r *sitetest.Replicas, old string) {
				r.Both(tb, "refs/heads/x", r.A.Commit(tb, "x", old))
			}, "created heads/x"},
			{"a fast-forward", func(tb testing.TB, r *sitetest.Replicas, old string) {
				r.Both(tb, sitetest.MainRef, r.A.Commit(tb, "x", old))
			}, "updated heads/main"},
			{"a force push", func(tb testing.TB, r *sitetest.Replicas, _ string) {
				r.Both(tb, sitetest.MainRef, r.A.Commit(tb, "x"))
			}, "updated heads/main"},
			{"a deletion", func(tb testing.TB, r *sitetest.Replicas, _ string) { r.Both(tb, "refs/heads/old", "") }, "deleted heads/old"},
			{"a tag", func(tb testing.TB, r *sitetest.Replicas, old string) { r.Both(tb, "refs/tags/v1", old) }, "created tags/v1"},
			{"an annotated tag", func(tb testing.TB, r *sitetest.Replicas, old string) {
				sitetest.GitIn(tb, r.A.Dir, "tag", "-a", "-m", "m", "v1", r.A.Commit(tb, "x", old))
				r.Put(tb, "refs/tags/v1", r.A.Refs(tb)["refs/tags/v1"])
			}, "created tags/v1"},
			{"a branch in the place of a directory", func(tb testing.TB, r *sitetest.Replicas, old string) {
				r.Both(tb, "refs/heads/dir/a", "")
				r.Both(tb, "refs/heads/dir", r.A.Commit(tb, "x", old))
			}, "created heads/dir, deleted heads/dir/a"},
			{"a directory in the place of a branch", func(tb testing.TB, r *sitetest.Replicas, old string) {
				r.Both(tb, "refs/heads/old", "")
				r.Both(tb, "refs/heads/old/er", r.A.Commit(tb, "x", old))
			}, "deleted heads/old, created heads/old/er"},
			{"odd names", func(tb testing.TB, r *sitetest.Replicas, old string) {
				r.Both(tb, `refs/heads/"quoted"`, old)
				r.Both(tb, "refs/heads/größe", old)
				r.Both(tb, "refs/heads/o'brien", old)
			}, `created heads/"quoted", created heads/größe, created heads/o'brien`},
		} {
			t.Run(format+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				r := sitetest.NewReplicas(t, option)
				old := r.A.Commit(t, "old")
				for _, ref := range []string{sitetest.MainRef, "refs/heads/old", "refs/heads/dir/a"} {
					r.Both(t, ref, old)
				}
				if got := r.Sync(t).Summary(); got != "created heads/dir/a, created heads/main, created heads/old" {
					t.Fatalf("at first: %s", got)
				}
				c.do(t, r, old)
				if got := r.Sync(t).Summary(); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
				r.AreEqual(t)
				if again := r.Sync(t); len(again.Each) != 0 || again.Equal < 2 {
					t.Errorf("again: %s, %d equal", again.Summary(), again.Equal)
				}
			})
		}
	}
}

func TestSyncLeavesAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(tb testing.TB, r *sitetest.Replicas, old string)
		want string
	}{
		{"a ref that the database does not know", func(tb testing.TB, r *sitetest.Replicas, old string) {
			r.A.Set(tb, "refs/heads/x", r.A.Commit(tb, "x"))
			r.B.Set(tb, "refs/heads/x", old)
		}, ""},
		{"a ref that the database does not guard", func(tb testing.TB, r *sitetest.Replicas, old string) {
			r.Both(tb, "refs/changes/01/1/1", old)
		}, ""},
		{"a ref that this site has locked", func(tb testing.TB, r *sitetest.Replicas, old string) {
			r.Both(tb, sitetest.MainRef, r.A.Commit(tb, "x", old))
			r.InsertLock(tb, refdb.LockInfo{Project: sitetest.Project, Ref: sitetest.MainRef, Owner: "b/1"})
		}, "locked heads/main"},
		{"a ref with an intent of this site, and not its neighbour", func(tb testing.TB, r *sitetest.Replicas, old string) {
			next := r.A.Commit(tb, "x", old)
			r.A.Set(tb, sitetest.MainRef, next)
			r.Put(tb, sitetest.MainRef, r.A.Commit(tb, "y"))
			u := refdb.Update{Ref: sitetest.MainRef, Old: r.Get(tb, sitetest.MainRef), New: refdb.Value(next)}
			db, err := refdb.New(r.Open(tb), refdb.Options{Site: "b"})
			if err != nil {
				tb.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Intents().Prepare(tb.Context(), sitetest.Project, []refdb.Update{u}, "x"); err != nil {
				tb.Fatal(err)
			}
			r.Both(tb, "refs/heads/other", next)
		}, "locked heads/main, created heads/other"},
		{"a ref whose objects the peer does not have yet", func(tb testing.TB, r *sitetest.Replicas, old string) {
			r.Put(tb, sitetest.MainRef, strings.Repeat("1", 40))
			r.Both(tb, "refs/heads/other", r.A.Commit(tb, "x", old))
		}, "missing heads/main, created heads/other"},
		{"a ref whose history is not whole", func(tb testing.TB, r *sitetest.Replicas, old string) {
			parent := r.A.Commit(tb, "parent")
			next := r.A.Commit(tb, "child", parent)
			// Only the commit's own object gets here.
			sitetest.CopyObject(tb, r.A, r.B, next)
			r.Put(tb, sitetest.MainRef, next)
			r.Both(tb, "refs/heads/other", r.A.Commit(tb, "x", old))
		}, "missing heads/main, created heads/other"},
		{"a symbolic ref", func(tb testing.TB, r *sitetest.Replicas, old string) {
			sitetest.GitIn(tb, r.B.Dir, "symbolic-ref", "refs/heads/alias", sitetest.MainRef)
			r.Both(tb, "refs/heads/alias", r.A.Commit(tb, "x"))
		}, "failed heads/alias"},
		{"a ref that git can't hold beside another one in the database", func(tb testing.TB, r *sitetest.Replicas, old string) {
			r.Put(tb, sitetest.MainRef+"/x", old)
			r.Both(tb, "refs/heads/other", old)
		}, "failed heads/main/x, created heads/other"},
		{"a ref that git has a lock file on", func(tb testing.TB, r *sitetest.Replicas, old string) {
			sitetest.GitIn(tb, r.B.Dir, "config", "core.filesRefLockTimeout", "0")
			sitetest.LockFile(tb, r.B, sitetest.MainRef+".lock")
			r.Both(tb, sitetest.MainRef, r.A.Commit(tb, "x", old))
			r.Both(tb, "refs/heads/other", old)
		}, "failed heads/main, created heads/other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewReplicas(t)
			old := r.A.Commit(t, "old")
			r.Both(t, sitetest.MainRef, old)
			r.Sync(t)
			c.do(t, r, old)
			before := r.B.File(t, sitetest.MainRef)
			got := r.Sync(t)
			if got.Summary() != c.want {
				t.Errorf("got  %s\nwant %s", got.Summary(), c.want)
			}
			if after := r.B.File(t, sitetest.MainRef); after != before {
				t.Errorf("main was %q, is %q", before, after)
			}
			for ref, one := range got.Each {
				if strings.HasPrefix(string(one.Result), "failed") && one.Detail == "" {
					t.Errorf("%s: nothing says why", ref)
				}
			}
		})
	}
}

// between is a driver that does something before or after values and locks are read.
type between struct {
	refdb.Driver
	before, after func(n int)
	mu            sync.Mutex
	n             int
}

func (d *between) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n++
	if d.before != nil {
		d.before(d.n)
	}
	states, err := d.Driver.States(ctx, project, refs)
	if d.after != nil {
		d.after(d.n)
	}
	return states, err
}

// A push at site b that comes at any moment of a sync is never undone.
func TestSyncNeverUndoesAPushThatIsAcknowledgedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"between the local values and the global ones", "between the global values and the swap"} {
		for _, lagging := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, lagging %v", moment, lagging), func(t *testing.T) {
				t.Parallel()
				r := sitetest.NewReplicas(t)
				old := r.A.Commit(t, "old")
				r.Both(t, sitetest.MainRef, old)
				r.Sync(t)
				base := old
				if lagging { // main has moved elsewhere: the sync is about to bring that
					base = r.A.Commit(t, "elsewhere", old)
					r.Both(t, sitetest.MainRef, base)
				}
				r.Both(t, "refs/heads/other", old) // makes the sync look at least at one
				pushed := r.B.Commit(t, "pushed")
				push := func(n int) {
					if n == 1 {
						r.B.Set(t, sitetest.MainRef, pushed)
						r.Put(t, sitetest.MainRef, pushed)
					}
				}
				d := &between{Driver: r.Open(t)}
				if moment == "between the global values and the swap" {
					d.after = push
				} else {
					d.before = push
				}
				got, err := r.TrySync(t.Context(), r.OpenDB(t, d), catchup.Options{Peer: "a"})
				if err != nil {
					t.Fatal(err)
				}
				if now := r.B.Refs(t)[sitetest.MainRef]; now != pushed {
					t.Errorf("main is %s, pushed was %s: %s", now, pushed, got.Summary())
				}
				if r.B.Refs(t)["refs/heads/other"] != old {
					t.Errorf("other was not created: %s", got.Summary())
				}
			})
		}
	}
}

// With the real hook and daemon: whatever a sync from a peer that lags does
// meanwhile, a push that git has acknowledged stands.
func TestSyncBesidePushesThatAreGuarded(t *testing.T) {
	t.Parallel()
	r := sitetest.NewGuarded(t)
	waitForLocks(t, r.B)
	old := r.B.Refs(t)[sitetest.MainRef]
	ctx, stop := context.WithCancel(t.Context())
	var syncs sync.WaitGroup
	for range 2 {
		syncs.Go(func() {
			for ctx.Err() == nil {
				s, err := r.TrySync(ctx, r.DB, catchup.Patient(catchup.Options{Peer: "a"}))
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				if s.Results[catchup.Updated]+s.Results[catchup.Created]+s.Results[catchup.Deleted]+s.Results[catchup.Failed] > 0 {
					t.Errorf("there was nothing to do: %v", s.Each)
				}
			}
		})
	}
	refs := []string{sitetest.MainRef, "refs/heads/x", "refs/tags/v1"}
	accepted, rounds := 0, 15
	if testing.Short() {
		rounds = 6
	}
	for i := range rounds {
		next := r.B.Commit(t, fmt.Sprint(i), old)
		for _, ref := range refs {
			cmd := exec.Command("git", "push", r.B.Dir, "+"+next+":"+ref)
			cmd.Dir = r.B.Dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Logf("refused: %s", out)
				continue
			}
			accepted++
			if is := r.B.Refs(t)[ref]; is != next {
				t.Errorf("%s: %s was accepted, but it is %s", ref, next, is)
			}
			if global := r.Get(t, ref); string(global) != next {
				t.Errorf("%s: %s was accepted, but it is %s in the database", ref, next, global)
			}
		}
	}
	stop()
	syncs.Wait()
	if pushes := rounds * len(refs); accepted < pushes-rounds/3 {
		t.Errorf("only %d of %d pushes were accepted", accepted, pushes)
	}
}

// waitForLocks lets git wait for its locks as long as they are held.
func waitForLocks(t *testing.T, b sitetest.Bare) {
	t.Helper()
	for _, key := range []string{"core.filesRefLockTimeout", "core.packedRefsTimeout"} {
		sitetest.GitIn(t, b.Dir, "config", key, "-1")
	}
}

func TestSyncOfManyRefsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	n := 5000 // several chunks
	if testing.Short() {
		n = 2500
	}
	r := sitetest.NewReplicas(t)
	old := r.A.Commit(t, "old")
	next := r.A.Commit(t, "next", old)
	var packed bytes.Buffer
	var updates []refdb.Update
	packed.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for i := range n {
		ref := fmt.Sprintf("refs/heads/b%05d", i)
		fmt.Fprintf(&packed, "%s %s\n", next, ref)
		updates = append(updates, refdb.Update{Ref: ref, New: refdb.Value(next)})
	}
	if err := os.WriteFile(filepath.Join(r.A.Dir, "packed-refs"), packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.DB.Update(t.Context(), sitetest.Project, updates); err != nil {
		t.Fatal(err)
	}
	waitForLocks(t, r.B)
	var both sync.WaitGroup
	results := make([]sitetest.Synced, 2)
	for i := range results {
		both.Go(func() {
			var err error
			if results[i], err = r.TrySync(t.Context(), r.DB, catchup.Patient(catchup.Options{Peer: "a"})); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	created := 0
	for _, s := range results {
		created += s.Results[catchup.Created]
		if s.Results[catchup.Failed]+s.Results[catchup.Missing]+s.Results[catchup.Locked] > 0 {
			t.Errorf("%v", s.Results)
		}
	}
	if created != n {
		t.Errorf("%d were created, want %d: %v, %v", created, n, results[0].Results, results[1].Results)
	}
	r.AreEqual(t)
	if again := r.Sync(t); len(again.Each) != 0 || again.Equal != n {
		t.Errorf("again: %d differ, %d equal", len(again.Each), again.Equal)
	}
}

func TestADryRunOfASyncMovesNothing(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	old := r.A.Commit(t, "old")
	r.Both(t, sitetest.MainRef, old)
	r.Both(t, "refs/heads/gone", old)
	r.Sync(t)
	r.Both(t, sitetest.MainRef, r.A.Commit(t, "x", old))
	r.Both(t, "refs/heads/gone", "")
	r.Both(t, "refs/heads/new", old)
	before := r.B.Refs(t)
	s, err := r.TrySync(t.Context(), r.DB, catchup.Options{Peer: "a", DryRun: true})
	if err != nil || s.Summary() != "deleted heads/gone, updated heads/main, created heads/new" {
		t.Errorf("%s, %v", s.Summary(), err)
	}
	if after := r.B.Refs(t); !maps.Equal(before, after) {
		t.Errorf("before %v\nafter %v", before, after)
	}
}

func TestSyncRunsNoHookAndNeverWritesToTheDatabase(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Both(t, sitetest.MainRef, r.A.Commit(t, "x"))
	seen := filepath.Join(t.TempDir(), "seen")
	sitetest.ForeignHook(t, r.B, "reference-transaction", "touch "+seen)
	op := func() (rows []refdb.Ref) {
		for ref, err := range r.DB.Refs(t.Context(), sitetest.Project, "") {
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, ref)
		}
		return rows
	}
	before := op()
	r.Sync(t)
	if _, err := os.Lstat(seen); err == nil {
		t.Error("the repository's hook was run")
	}
	r.AreEqual(t)
	if after := op(); !slices.Equal(before, after) {
		t.Errorf("before %v\nafter %v", before, after)
	}
}

// A git that refuses everything must not be run 5,000 times.
func TestSyncGivesUpWhenAllIsRefused(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	blob := strings.TrimSpace(sitetest.GitIn(t, r.A.Dir, "hash-object", "-w", "/dev/null"))
	sitetest.GitIn(t, r.A.Dir, "update-ref", "refs/tags/blob", blob)
	for i := range 40 {
		r.Put(t, fmt.Sprintf("refs/heads/b%02d", i), blob)
	}
	s, err := r.TrySync(t.Context(), r.DB, catchup.Options{Peer: "a"})
	if err == nil || !strings.Contains(err.Error(), "10 refs in a row were refused, the last with: ") {
		t.Errorf("got %v", err)
	}
	if len(s.Each) != 10 || len(r.B.Refs(t)) != 0 {
		t.Errorf("%d were tried", len(s.Each))
	}
}

func TestSyncOfAGuardedRepositoryNeedsTheDaemon(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	stop := r.Serve(t)
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	stop()
	r.Both(t, sitetest.MainRef, r.A.Commit(t, "x"))
	if s, err := r.TrySync(t.Context(), r.DB, catchup.Options{Peer: "a"}); err == nil || !strings.Contains(err.Error(), "site daemon") {
		t.Errorf("%s, %v", s.Summary(), err)
	}
	r.Serve(t)
	r.Sync(t)
	r.AreEqual(t)
}

func TestSyncFollowsWhatThePeerDeletes(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	old := r.A.Commit(t, "x")
	r.Both(t, "refs/heads/dir", old)
	r.Sync(t)
	sitetest.GitIn(t, r.B.Dir, "update-ref", "refs/peer/other/heads/x", old)
	sitetest.GitIn(t, r.A.Dir, "update-ref", "refs/peer/b/heads/x", old)
	r.Both(t, "refs/heads/dir", "")
	r.Both(t, "refs/heads/dir/a", old)
	r.Sync(t)
	got := sitetest.GitIn(t, r.B.Dir, "for-each-ref", "--format=%(refname)", "refs/peer")
	if got != "refs/peer/a/heads/dir/a\nrefs/peer/other/heads/x" {
		t.Errorf("peers' refs: %s", got)
	}
}

func TestSyncMendsARefThatIsBroken(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	old := r.A.Commit(t, "x")
	r.Both(t, sitetest.MainRef, old)
	r.Sync(t)
	// As a crash of the machine leaves it.
	if err := os.WriteFile(filepath.Join(r.B.Dir, sitetest.MainRef), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.Both(t, "refs/heads/other", r.A.Commit(t, "y", old))
	if got := r.Sync(t).Summary(); got != "created heads/main, created heads/other" {
		t.Errorf("got %s", got)
	}
	r.AreEqual(t)
}

func TestSyncSaysWhatIsWrongWithThePeer(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Put(t, sitetest.MainRef, r.A.Commit(t, "x")) // so that the peer is needed
	for _, c := range []struct{ from, peer, says string }{
		{r.A.Dir, "a/b", `peer "a/b"`},
		{r.A.Dir, "..", `peer ".."`},
		{"--upload-pack=x", "", "give the URL"},
		{"", "", "give the URL"},
		{r.A.Dir + "/nowhere", "", "does not appear to be a git repository"},
		{"http://user:secret@127.0.0.1:1/x.git", "", "127.0.0.1"},
	} {
		_, err := catchup.Sync(t.Context(), r.Config, r.DB, config.Repository{Project: sitetest.Project, Path: r.B.Dir}, catchup.Options{From: c.from, Peer: c.peer})
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q as %q: got %v, want %q", c.from, c.peer, err, c.says)
		}
	}
}

func TestSyncGoesOnWithoutThePeerIfNothingIsMissing(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	old := r.A.Commit(t, "x")
	r.Both(t, sitetest.MainRef, old)
	r.Sync(t)
	next := r.B.Commit(t, "y", old)
	r.Put(t, sitetest.MainRef, next)
	o := catchup.Options{From: r.A.Dir + "/nowhere", Peer: "a"}
	s, err := catchup.Sync(t.Context(), r.Config, r.DB, r.RepositoryB(), o)
	if err != nil || s.Results[catchup.Updated] != 1 || s.Unreachable == nil || !strings.Contains(s.Unreachable.Error(), "nowhere") {
		t.Errorf("%+v, %v", s, err)
	}
	if got := r.B.Refs(t)[sitetest.MainRef]; got != next {
		t.Errorf("main is %s, not %s", got, next)
	}
	// What is here goes on all the same; for what is not, the peer is needed.
	r.Put(t, "refs/heads/far", r.A.Commit(t, "z", old))
	r.Put(t, sitetest.MainRef, old)
	s, err = catchup.Sync(t.Context(), r.Config, r.DB, r.RepositoryB(), o)
	if err == nil || !strings.Contains(err.Error(), "nowhere") || s.Results[catchup.Updated] != 1 || s.Results[catchup.Missing] != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// What the message says to do lets the next sync place the ref.
func TestSyncSaysWhichRefIsInTheWayOfAName(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"refs/heads/t", "refs/heads/t/x"}, {"refs/heads/t/x/y", "refs/heads/t"}} {
		there, missing := names[0], names[1]
		r := sitetest.NewReplicas(t)
		old := r.A.Commit(t, "old")
		r.Both(t, there, old)
		r.Sync(t)
		r.Put(t, missing, old)
		got := r.Sync(t).Each[missing]
		if got.Result != catchup.Failed || !strings.Contains(got.Detail, "the database also holds "+there+",") ||
			!strings.HasSuffix(got.Detail, "or "+there+" with refdbctl refs delete "+sitetest.Project+" "+there+" --force") {
			t.Errorf("%s: %+v", missing, got)
		}
		r.Put(t, there, "")
		if got := r.Sync(t).Each[missing]; got.Result != catchup.Created {
			t.Errorf("%s, afterwards: %+v", missing, got)
		}
	}
}
