package site_test

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
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

const mainRef = "refs/heads/main"

// replicas are two bare repositories of one project at two sites, a and b, and the
// database between them. Nothing guards them: what is pushed is told to the database by hand.
type replicas struct {
	*dbtest.Database
	db   *refdb.DB
	a, b bare
	// config is that of site b.
	config *site.Config
}

const project = "team/app"

func newReplicas(tb testing.TB, init ...string) *replicas {
	tb.Helper()
	r := &replicas{Database: dbtest.SQLite(tb)}
	r.db = r.open(tb, r.Open(tb))
	dir := tb.TempDir()
	for name, b := range map[string]*bare{"a": &r.a, "b": &r.b} {
		b.dir = filepath.Join(dir, name, project+".git")
		gitIn(tb, "/", append(append([]string{"init", "--quiet", "--bare", "--initial-branch=main"}, init...), b.dir)...)
	}
	r.config = siteConfig(tb, filepath.Join(dir, "b"), "")
	return r
}

// siteConfig is that of a site b with its repositories below root.
func siteConfig(tb testing.TB, root, more string) *site.Config {
	tb.Helper()
	path := filepath.Join(root, "site.config")
	text := fmt.Sprintf("[site]\nname = b\nroot = %s\nsocket = %s\nstate = %s\n%s", root, filepath.Join(root, "s"), root, more)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	c, err := site.LoadConfig(tb.Context(), path)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func (r *replicas) open(tb testing.TB, d refdb.Driver) *refdb.DB {
	tb.Helper()
	db, err := refdb.New(d, refdb.Options{Site: "a"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

// A bare is a repository.
type bare struct{ dir string }

func gitIn(tb testing.TB, dir string, args ...string) string {
	tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// commit makes a commit of its own, on top of parents, with a file in it.
func (b bare) commit(tb testing.TB, message string, parents ...string) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "f")
	if err := os.WriteFile(file, []byte(message), 0o644); err != nil {
		tb.Fatal(err)
	}
	blob := gitIn(tb, b.dir, "hash-object", "-w", file)
	in := fmt.Sprintf("100644 blob %s\tf\n", blob)
	cmd := exec.Command("git", "-C", b.dir, "mktree")
	cmd.Stdin = strings.NewReader(in)
	tree, err := cmd.Output()
	if err != nil {
		tb.Fatal(err)
	}
	args := []string{"commit-tree", "-m", message, strings.TrimSpace(string(tree))}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return gitIn(tb, b.dir, args...)
}

func (b bare) set(tb testing.TB, ref, value string) {
	tb.Helper()
	gitIn(tb, b.dir, "update-ref", ref, value)
}

// refs are all but what was fetched from peers.
func (b bare) refs(tb testing.TB) map[string]string {
	tb.Helper()
	refs := map[string]string{}
	for line := range strings.Lines(gitIn(tb, b.dir, "for-each-ref", "--format=%(refname) %(objectname)")) {
		ref, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(ref, "refs/peer/") {
			refs[ref] = value
		}
	}
	return refs
}

// put tells the database what a ref holds; "" deletes it.
func (r *replicas) put(tb testing.TB, ref, value string) {
	tb.Helper()
	if _, err := r.db.Put(tb.Context(), project, ref, refdb.Value(value)); err != nil {
		tb.Fatal(err)
	}
}

// both sets a ref at site a and in the database, as a push does.
func (r *replicas) both(tb testing.TB, ref, value string) {
	tb.Helper()
	if value == "" {
		gitIn(tb, r.a.dir, "update-ref", "-d", ref)
	} else {
		r.a.set(tb, ref, value)
	}
	r.put(tb, ref, value)
}

// synced is what a sync of site b from a said.
type synced struct {
	site.SyncReport
	each map[string]site.Synced
}

func (s synced) results() string {
	var all []string
	for _, ref := range slices.Sorted(maps.Keys(s.each)) {
		_, short, _ := strings.Cut(ref, "/")
		all = append(all, fmt.Sprintf("%s %s", s.each[ref].Result, short))
	}
	return strings.Join(all, ", ")
}

func (r *replicas) trySync(ctx context.Context, db *refdb.DB, o site.SyncOptions) (s synced, err error) {
	s.each = map[string]site.Synced{}
	o.From = r.a.dir
	o.Each = func(one site.Synced) { s.each[one.Ref] = one }
	s.SyncReport, err = site.Sync(ctx, r.config, db, site.Repository{Project: project, Path: r.b.dir}, o)
	return s, err
}

func (r *replicas) sync(tb testing.TB) synced {
	tb.Helper()
	s, err := r.trySync(tb.Context(), r.db, site.SyncOptions{Peer: "a"})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func (r *replicas) areEqual(tb testing.TB) {
	tb.Helper()
	if a, b := r.a.refs(tb), r.b.refs(tb); !maps.Equal(a, b) {
		tb.Errorf("a has %v\nb has %v", a, b)
	}
}

func TestSyncBringsWhatHappenedElsewhere(t *testing.T) {
	t.Parallel()
	formats := map[string]string{"sha1": "--object-format=sha1", "sha256": "--object-format=sha256"}
	if exec.Command("git", "init", "--quiet", "--bare", "--ref-format=reftable", filepath.Join(t.TempDir(), "r")).Run() == nil {
		formats["reftable"] = "--ref-format=reftable"
	}
	for format, option := range formats {
		for _, c := range []struct {
			name string
			do   func(tb testing.TB, r *replicas, old string)
			want string
		}{
			{"nothing", func(testing.TB, *replicas, string) {}, ""},
			{"a new branch", func(tb testing.TB, r *replicas, old string) {
				r.both(tb, "refs/heads/x", r.a.commit(tb, "x", old))
			}, "created heads/x"},
			{"a fast-forward", func(tb testing.TB, r *replicas, old string) {
				r.both(tb, mainRef, r.a.commit(tb, "x", old))
			}, "updated heads/main"},
			{"a force push", func(tb testing.TB, r *replicas, _ string) {
				r.both(tb, mainRef, r.a.commit(tb, "x"))
			}, "updated heads/main"},
			{"a deletion", func(tb testing.TB, r *replicas, _ string) { r.both(tb, "refs/heads/old", "") }, "deleted heads/old"},
			{"a tag", func(tb testing.TB, r *replicas, old string) { r.both(tb, "refs/tags/v1", old) }, "created tags/v1"},
			{"an annotated tag", func(tb testing.TB, r *replicas, old string) {
				gitIn(tb, r.a.dir, "tag", "-a", "-m", "m", "v1", r.a.commit(tb, "x", old))
				r.put(tb, "refs/tags/v1", r.a.refs(tb)["refs/tags/v1"])
			}, "created tags/v1"},
			{"a branch in the place of a directory", func(tb testing.TB, r *replicas, old string) {
				r.both(tb, "refs/heads/dir/a", "")
				r.both(tb, "refs/heads/dir", r.a.commit(tb, "x", old))
			}, "created heads/dir, deleted heads/dir/a"},
			{"a directory in the place of a branch", func(tb testing.TB, r *replicas, old string) {
				r.both(tb, "refs/heads/old", "")
				r.both(tb, "refs/heads/old/er", r.a.commit(tb, "x", old))
			}, "deleted heads/old, created heads/old/er"},
			{"odd names", func(tb testing.TB, r *replicas, old string) {
				r.both(tb, `refs/heads/"quoted"`, old)
				r.both(tb, "refs/heads/größe", old)
				r.both(tb, "refs/heads/o'brien", old)
			}, `created heads/"quoted", created heads/größe, created heads/o'brien`},
		} {
			t.Run(format+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				r := newReplicas(t, option)
				old := r.a.commit(t, "old")
				for _, ref := range []string{mainRef, "refs/heads/old", "refs/heads/dir/a"} {
					r.both(t, ref, old)
				}
				if got := r.sync(t).results(); got != "created heads/dir/a, created heads/main, created heads/old" {
					t.Fatalf("at first: %s", got)
				}
				c.do(t, r, old)
				if got := r.sync(t).results(); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
				r.areEqual(t)
				if again := r.sync(t); len(again.each) != 0 || again.Equal < 2 {
					t.Errorf("again: %s, %d equal", again.results(), again.Equal)
				}
			})
		}
	}
}

func TestSyncLeavesAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(tb testing.TB, r *replicas, old string)
		want string
	}{
		{"a ref that the database does not know", func(tb testing.TB, r *replicas, old string) {
			r.a.set(tb, "refs/heads/x", r.a.commit(tb, "x"))
			r.b.set(tb, "refs/heads/x", old)
		}, ""},
		{"a ref that the database does not guard", func(tb testing.TB, r *replicas, old string) {
			r.both(tb, "refs/changes/01/1/1", old)
		}, ""},
		{"a locked ref", func(tb testing.TB, r *replicas, old string) {
			r.both(tb, mainRef, r.a.commit(tb, "x", old))
			r.InsertLock(tb, refdb.LockInfo{Project: project, Ref: mainRef, Owner: "a/1"})
		}, "locked heads/main"},
		{"a ref with an intent, and not its neighbour", func(tb testing.TB, r *replicas, old string) {
			next := r.a.commit(tb, "x", old)
			r.a.set(tb, mainRef, next)
			r.put(tb, mainRef, r.a.commit(tb, "y"))
			u := refdb.Update{Ref: mainRef, Old: r.get(tb, mainRef), New: refdb.Value(next)}
			if _, err := r.db.Prepare(tb.Context(), project, []refdb.Update{u}, "x"); err != nil {
				tb.Fatal(err)
			}
			r.both(tb, "refs/heads/other", next)
		}, "locked heads/main, created heads/other"},
		{"a ref whose objects the peer does not have yet", func(tb testing.TB, r *replicas, old string) {
			r.put(tb, mainRef, strings.Repeat("1", 40))
			r.both(tb, "refs/heads/other", r.a.commit(tb, "x", old))
		}, "missing heads/main, created heads/other"},
		{"a ref whose history is not whole", func(tb testing.TB, r *replicas, old string) {
			parent := r.a.commit(tb, "parent")
			next := r.a.commit(tb, "child", parent)
			// Only the commit's own object gets here.
			copyObject(tb, r.a, r.b, next)
			r.put(tb, mainRef, next)
			r.both(tb, "refs/heads/other", r.a.commit(tb, "x", old))
		}, "missing heads/main, created heads/other"},
		{"a symbolic ref", func(tb testing.TB, r *replicas, old string) {
			gitIn(tb, r.b.dir, "symbolic-ref", "refs/heads/alias", mainRef)
			r.both(tb, "refs/heads/alias", r.a.commit(tb, "x"))
		}, "failed heads/alias"},
		{"a ref that git has a lock file on", func(tb testing.TB, r *replicas, old string) {
			gitIn(tb, r.b.dir, "config", "core.filesRefLockTimeout", "0")
			lockFile(tb, r.b, mainRef+".lock")
			r.both(tb, mainRef, r.a.commit(tb, "x", old))
			r.both(tb, "refs/heads/other", old)
		}, "failed heads/main, created heads/other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newReplicas(t)
			old := r.a.commit(t, "old")
			r.both(t, mainRef, old)
			r.sync(t)
			c.do(t, r, old)
			before := r.b.file(t, mainRef)
			got := r.sync(t)
			if got.results() != c.want {
				t.Errorf("got  %s\nwant %s", got.results(), c.want)
			}
			if after := r.b.file(t, mainRef); after != before {
				t.Errorf("main was %q, is %q", before, after)
			}
			for ref, one := range got.each {
				if strings.HasPrefix(string(one.Result), "failed") && one.Detail == "" {
					t.Errorf("%s: nothing says why", ref)
				}
			}
		})
	}
}

// file is what a ref's own file holds.
func (b bare) file(tb testing.TB, ref string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, ref))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

func lockFile(tb testing.TB, b bare, name string) string {
	tb.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

func copyObject(tb testing.TB, from, to bare, id string) {
	tb.Helper()
	name := filepath.Join("objects", id[:2], id[2:])
	content, err := os.ReadFile(filepath.Join(from.dir, name))
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(to.dir, filepath.Dir(name)), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to.dir, name), content, 0o444); err != nil {
		tb.Fatal(err)
	}
}

func (r *replicas) get(tb testing.TB, ref string) refdb.Value {
	tb.Helper()
	v, err := r.db.Get(tb.Context(), project, ref)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// between is a driver that does something before or after values and locks are read.
type between struct {
	refdb.Driver
	before, after func(n int)
	mu            sync.Mutex
	n             int
}

func (d *between) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
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
				r := newReplicas(t)
				old := r.a.commit(t, "old")
				r.both(t, mainRef, old)
				r.sync(t)
				base := old
				if lagging { // main has moved elsewhere: the sync is about to bring that
					base = r.a.commit(t, "elsewhere", old)
					r.both(t, mainRef, base)
				}
				r.both(t, "refs/heads/other", old) // makes the sync look at least at one
				pushed := r.b.commit(t, "pushed")
				push := func(n int) {
					if n == 1 {
						r.b.set(t, mainRef, pushed)
						r.put(t, mainRef, pushed)
					}
				}
				d := &between{Driver: r.Open(t)}
				if moment == "between the global values and the swap" {
					d.after = push
				} else {
					d.before = push
				}
				got, err := r.trySync(t.Context(), r.open(t, d), site.SyncOptions{Peer: "a"})
				if err != nil {
					t.Fatal(err)
				}
				if now := r.b.refs(t)[mainRef]; now != pushed {
					t.Errorf("main is %s, pushed was %s: %s", now, pushed, got.results())
				}
				if r.b.refs(t)["refs/heads/other"] != old {
					t.Errorf("other was not created: %s", got.results())
				}
			})
		}
	}
}

// With the real hook and daemon: whatever a sync from a peer that lags does
// meanwhile, a push that git has acknowledged stands.
func TestSyncBesidePushesThatAreGuarded(t *testing.T) {
	t.Parallel()
	r := newGuarded(t)
	old := r.b.refs(t)[mainRef]
	ctx, stop := context.WithCancel(t.Context())
	var syncs sync.WaitGroup
	for range 2 {
		syncs.Go(func() {
			for ctx.Err() == nil {
				s, err := r.trySync(ctx, r.db, site.SyncOptions{Peer: "a"})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				if s.Results[site.SyncUpdated]+s.Results[site.SyncCreated]+s.Results[site.SyncDeleted]+s.Results[site.SyncFailed] > 0 {
					t.Errorf("there was nothing to do: %v", s.each)
				}
			}
		})
	}
	refs := []string{mainRef, "refs/heads/x", "refs/tags/v1"}
	accepted := 0
	for i := range 15 {
		next := r.b.commit(t, fmt.Sprint(i), old)
		for _, ref := range refs {
			cmd := exec.Command("git", "push", r.b.dir, "+"+next+":"+ref)
			cmd.Dir = r.b.dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Logf("refused: %s", out)
				continue
			}
			accepted++
			if is := r.b.refs(t)[ref]; is != next {
				t.Errorf("%s: %s was accepted, but it is %s", ref, next, is)
			}
			if global := r.get(t, ref); string(global) != next {
				t.Errorf("%s: %s was accepted, but it is %s in the database", ref, next, global)
			}
		}
	}
	stop()
	syncs.Wait()
	if accepted < 40 {
		t.Errorf("only %d of 45 pushes were accepted", accepted)
	}
}

func TestSyncOfManyRefsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	const n = 5000
	r := newReplicas(t)
	old := r.a.commit(t, "old")
	next := r.a.commit(t, "next", old)
	var packed bytes.Buffer
	var updates []refdb.Update
	packed.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for i := range n {
		ref := fmt.Sprintf("refs/heads/b%05d", i)
		fmt.Fprintf(&packed, "%s %s\n", next, ref)
		updates = append(updates, refdb.Update{Ref: ref, New: refdb.Value(next)})
	}
	if err := os.WriteFile(filepath.Join(r.a.dir, "packed-refs"), packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.db.Update(t.Context(), project, updates); err != nil {
		t.Fatal(err)
	}
	gitIn(t, r.b.dir, "config", "core.filesRefLockTimeout", "10000")
	gitIn(t, r.b.dir, "config", "core.packedRefsTimeout", "10000")
	var both sync.WaitGroup
	results := make([]synced, 2)
	for i := range results {
		both.Go(func() {
			var err error
			if results[i], err = r.trySync(t.Context(), r.db, site.SyncOptions{Peer: "a"}); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	created := 0
	for _, s := range results {
		created += s.Results[site.SyncCreated]
		if s.Results[site.SyncFailed]+s.Results[site.SyncMissing]+s.Results[site.SyncLocked] > 0 {
			t.Errorf("%v", s.Results)
		}
	}
	if created != n {
		t.Errorf("%d were created, want %d: %v, %v", created, n, results[0].Results, results[1].Results)
	}
	r.areEqual(t)
	if again := r.sync(t); len(again.each) != 0 || again.Equal != n {
		t.Errorf("again: %d differ, %d equal", len(again.each), again.Equal)
	}
}

func TestADryRunOfASyncMovesNothing(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	old := r.a.commit(t, "old")
	r.both(t, mainRef, old)
	r.both(t, "refs/heads/gone", old)
	r.sync(t)
	r.both(t, mainRef, r.a.commit(t, "x", old))
	r.both(t, "refs/heads/gone", "")
	r.both(t, "refs/heads/new", old)
	before := r.b.refs(t)
	s, err := r.trySync(t.Context(), r.db, site.SyncOptions{Peer: "a", DryRun: true})
	if err != nil || s.results() != "deleted heads/gone, updated heads/main, created heads/new" {
		t.Errorf("%s, %v", s.results(), err)
	}
	if after := r.b.refs(t); !maps.Equal(before, after) {
		t.Errorf("before %v\nafter %v", before, after)
	}
}

func TestSyncIsMarkedAndNeverWritesToTheDatabase(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	r.both(t, mainRef, r.a.commit(t, "x"))
	seen := filepath.Join(t.TempDir(), "seen")
	hook(t, r.b, "reference-transaction", fmt.Sprintf(`[ "$1" = committed ] && while read old new ref; do echo "$ref $REFDB_REPLICA" >>%s; done; true`, seen))
	op := func() (rows []refdb.Ref) {
		for ref, err := range r.db.Refs(t.Context(), project, "") {
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, ref)
		}
		return rows
	}
	before := op()
	r.sync(t)
	got, err := os.ReadFile(seen)
	// Git 2.39 tells of HEAD, too, which points there.
	if called := strings.TrimSuffix(string(got), "HEAD 1\n"); err != nil || called != mainRef+" 1\n" {
		t.Errorf("the hook was called with %q, %v: only the ref itself is its business", got, err)
	}
	if after := op(); !slices.Equal(before, after) {
		t.Errorf("before %v\nafter %v", before, after)
	}
}

// hook writes a hook of somebody else.
func hook(tb testing.TB, b bare, name, script string) {
	tb.Helper()
	path := filepath.Join(b.dir, "hooks", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		tb.Fatal(err)
	}
}

// A hook that refuses everything must not be asked 5,000 times.
func TestSyncGivesUpWhenAllIsRefused(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	old := r.a.commit(t, "x")
	for i := range 40 {
		r.both(t, fmt.Sprintf("refs/heads/b%02d", i), old)
	}
	hook(t, r.b, "reference-transaction", `[ "$1" != prepared ] || { echo "the site daemon does not answer" >&2; exit 1; }`)
	s, err := r.trySync(t.Context(), r.db, site.SyncOptions{Peer: "a"})
	if err == nil || !strings.Contains(err.Error(), "the site daemon does not answer") {
		t.Errorf("got %v", err)
	}
	if len(s.each) != 10 || len(r.b.refs(t)) != 0 {
		t.Errorf("%d were tried", len(s.each))
	}
}

func TestSyncOfAGuardedRepositoryNeedsTheDaemon(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	stop := r.serve(t)
	if _, err := r.enable(t, hookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	stop()
	r.both(t, mainRef, r.a.commit(t, "x"))
	if s, err := r.trySync(t.Context(), r.db, site.SyncOptions{Peer: "a"}); err == nil || !strings.Contains(err.Error(), "site daemon") {
		t.Errorf("%s, %v", s.results(), err)
	}
	r.serve(t)
	r.sync(t)
	r.areEqual(t)
}

func TestSyncFollowsWhatThePeerDeletes(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	old := r.a.commit(t, "x")
	r.both(t, "refs/heads/dir", old)
	r.sync(t)
	gitIn(t, r.b.dir, "update-ref", "refs/peer/other/heads/x", old)
	gitIn(t, r.a.dir, "update-ref", "refs/peer/b/heads/x", old)
	r.both(t, "refs/heads/dir", "")
	r.both(t, "refs/heads/dir/a", old)
	r.sync(t)
	got := gitIn(t, r.b.dir, "for-each-ref", "--format=%(refname)", "refs/peer")
	if got != "refs/peer/a/heads/dir/a\nrefs/peer/other/heads/x" {
		t.Errorf("peers' refs: %s", got)
	}
}

func TestSyncNamesARefThatIsBroken(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	old := r.a.commit(t, "x")
	r.both(t, mainRef, old)
	r.sync(t)
	// As a crash of the machine leaves it.
	if err := os.WriteFile(filepath.Join(r.b.dir, mainRef), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.both(t, "refs/heads/other", r.a.commit(t, "y", old))
	if _, err := r.trySync(t.Context(), r.db, site.SyncOptions{}); err == nil || !strings.Contains(err.Error(), mainRef) {
		t.Errorf("got %v", err)
	}
}

func TestSyncSaysWhatIsWrongWithThePeer(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	r.put(t, mainRef, r.a.commit(t, "x")) // so that the peer is needed
	for _, c := range []struct{ from, peer, says string }{
		{r.a.dir, "a/b", `peer "a/b"`},
		{r.a.dir, "..", `peer ".."`},
		{"--upload-pack=x", "", "give the URL"},
		{"", "", "give the URL"},
		{r.a.dir + "/nowhere", "", "does not appear to be a git repository"},
		{"http://user:secret@127.0.0.1:1/x.git", "", "127.0.0.1"},
	} {
		_, err := site.Sync(t.Context(), r.config, r.db, site.Repository{Project: project, Path: r.b.dir}, site.SyncOptions{From: c.from, Peer: c.peer})
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q as %q: got %v, want %q", c.from, c.peer, err, c.says)
		}
	}
}

func TestSyncGoesOnWithoutThePeerIfNothingIsMissing(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	old := r.a.commit(t, "x")
	r.both(t, mainRef, old)
	r.sync(t)
	next := r.b.commit(t, "y", old)
	r.put(t, mainRef, next)
	o := site.SyncOptions{From: r.a.dir + "/nowhere", Peer: "a"}
	s, err := site.Sync(t.Context(), r.config, r.db, r.repositoryB(), o)
	if err != nil || s.Results[site.SyncUpdated] != 1 || s.Unreachable == nil || !strings.Contains(s.Unreachable.Error(), "nowhere") {
		t.Errorf("%+v, %v", s, err)
	}
	if got := r.b.refs(t)[mainRef]; got != next {
		t.Errorf("main is %s, not %s", got, next)
	}
	// What is here goes on all the same; for what is not, the peer is needed.
	r.put(t, "refs/heads/far", r.a.commit(t, "z", old))
	r.put(t, mainRef, old)
	s, err = site.Sync(t.Context(), r.config, r.db, r.repositoryB(), o)
	if err == nil || !strings.Contains(err.Error(), "nowhere") || s.Results[site.SyncUpdated] != 1 || s.Results[site.SyncMissing] != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}
