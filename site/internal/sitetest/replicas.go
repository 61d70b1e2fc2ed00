package sitetest

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
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

const MainRef = "refs/heads/main"

// Replicas are two bare repositories of one project at two sites, a and b, and their database. They
// are not guarded: the test itself tells the database what is pushed.
type Replicas struct {
	*local.Database
	DB   *refdb.DB
	A, B Bare
	// Config is that of site b.
	Config *config.Config
}

const Project = "team/app"

// NewReplicas returns two empty repositories; init are options of git init.
func NewReplicas(tb testing.TB, init ...string) *Replicas {
	tb.Helper()
	r := &Replicas{Database: local.SQLite(tb)}
	r.DB = r.OpenDB(tb, r.Open(tb))
	dir := tb.TempDir()
	for name, b := range map[string]*Bare{"a": &r.A, "b": &r.B} {
		b.Dir = filepath.Join(dir, name, Project+".git")
		// Without sample hooks: to copy them would be most of what making a repository takes.
		template := "--template=" + filepath.Join(os.Getenv("HOME"), "template")
		GitIn(tb, "/", append(append([]string{"init", "--quiet", "--bare", "--initial-branch=main", template}, init...), b.Dir)...)
	}
	r.Config = SiteConfig(tb, filepath.Join(dir, "b"), "")
	return r
}

// SiteConfig is that of a site b with its repositories below root. Only a hang reaches its limits, unless more sets others.
func SiteConfig(tb testing.TB, root, more string) *config.Config {
	tb.Helper()
	path := filepath.Join(root, "site.config")
	text := fmt.Sprintf("[site]\nname = b\nroot = %s\nsocket = %s\nstate = %s\nstore = none\ntimeout = %s\nlockWait = %[4]s\n%s",
		root, filepath.Join(root, "s"), root, Patience, more)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	c, err := config.Load(tb.Context(), path)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// OpenDB opens the database through a driver.
func (r *Replicas) OpenDB(tb testing.TB, d refdb.Driver) *refdb.DB {
	tb.Helper()
	db, err := refdb.New(d, refdb.Options{Site: "a"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

// A Bare is a repository.
type Bare struct{ Dir string }

// GitIn runs git in a directory. It must succeed.
func GitIn(tb testing.TB, dir string, args ...string) string {
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

// Commit makes a commit of its own, on top of parents, with a file in it.
func (b Bare) Commit(tb testing.TB, message string, parents ...string) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "f")
	if err := os.WriteFile(file, []byte(message), 0o644); err != nil {
		tb.Fatal(err)
	}
	blob := GitIn(tb, b.Dir, "hash-object", "-w", file)
	in := fmt.Sprintf("100644 blob %s\tf\n", blob)
	cmd := exec.Command("git", "-C", b.Dir, "mktree")
	cmd.Stdin = strings.NewReader(in)
	tree, err := cmd.Output()
	if err != nil {
		tb.Fatal(err)
	}
	args := []string{"commit-tree", "-m", message, strings.TrimSpace(string(tree))}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return GitIn(tb, b.Dir, args...)
}

// Set moves a ref.
func (b Bare) Set(tb testing.TB, ref, value string) {
	tb.Helper()
	GitIn(tb, b.Dir, "update-ref", ref, value)
}

// Refs are all but what was fetched from peers.
func (b Bare) Refs(tb testing.TB) map[string]string {
	tb.Helper()
	refs := map[string]string{}
	for line := range strings.Lines(GitIn(tb, b.Dir, "for-each-ref", "--format=%(refname) %(objectname)")) {
		ref, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(ref, "refs/peer/") {
			refs[ref] = value
		}
	}
	return refs
}

// Put tells the database what a ref holds; "" deletes it.
func (r *Replicas) Put(tb testing.TB, ref, value string) {
	tb.Helper()
	if value == "" {
		value = string(refdb.Deleted)
	}
	if _, err := r.DB.Put(tb.Context(), Project, ref, refdb.Value(value)); err != nil {
		tb.Fatal(err)
	}
}

// Both sets a ref at site a and in the database, as a push does.
func (r *Replicas) Both(tb testing.TB, ref, value string) {
	tb.Helper()
	if value == "" {
		GitIn(tb, r.A.Dir, "update-ref", "-d", ref)
	} else {
		r.A.Set(tb, ref, value)
	}
	r.Put(tb, ref, value)
}

// Synced is what a sync of site b from a said.
type Synced struct {
	catchup.Report
	Each map[string]catchup.Synced
}

// Summary returns the result for each ref.
func (s Synced) Summary() string {
	var all []string
	for _, ref := range slices.Sorted(maps.Keys(s.Each)) {
		_, short, _ := strings.Cut(ref, "/")
		all = append(all, fmt.Sprintf("%s %s", s.Each[ref].Result, short))
	}
	return strings.Join(all, ", ")
}

// TrySync syncs site b from a.
func (r *Replicas) TrySync(ctx context.Context, db *refdb.DB, o catchup.Options) (s Synced, err error) {
	s.Each = map[string]catchup.Synced{}
	o.From = r.A.Dir
	o.Each = func(one catchup.Synced) { s.Each[one.Ref] = one }
	s.Report, err = catchup.Sync(ctx, r.Config, db, config.Repository{Project: Project, Path: r.B.Dir}, o)
	return s, err
}

// Sync is [Replicas.TrySync] that must succeed.
func (r *Replicas) Sync(tb testing.TB) Synced {
	tb.Helper()
	s, err := r.TrySync(tb.Context(), r.DB, catchup.Options{Peer: "a"})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// AreEqual checks that both repositories have the same refs.
func (r *Replicas) AreEqual(tb testing.TB) {
	tb.Helper()
	if a, b := r.A.Refs(tb), r.B.Refs(tb); !maps.Equal(a, b) {
		tb.Errorf("a has %v\nb has %v", a, b)
	}
}

// File is what a ref's own file holds.
func (b Bare) File(tb testing.TB, ref string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(b.Dir, ref))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// LockFile makes an empty file in the repository, and returns its path.
func LockFile(tb testing.TB, b Bare, name string) string {
	tb.Helper()
	path := filepath.Join(b.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

// CopyObject copies a loose object.
func CopyObject(tb testing.TB, from, to Bare, id string) {
	tb.Helper()
	name := filepath.Join("objects", id[:2], id[2:])
	content, err := os.ReadFile(filepath.Join(from.Dir, name))
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(to.Dir, filepath.Dir(name)), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to.Dir, name), content, 0o444); err != nil {
		tb.Fatal(err)
	}
}

// Get returns what the database has.
func (r *Replicas) Get(tb testing.TB, ref string) refdb.Value {
	tb.Helper()
	v, err := r.DB.Get(tb.Context(), Project, ref)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// ForeignHook writes a hook of somebody else.
func ForeignHook(tb testing.TB, b Bare, name, script string) {
	tb.Helper()
	path := filepath.Join(b.Dir, "hooks", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := testprogram.Write(path, []byte("#!/bin/sh\n"+script+"\n")); err != nil {
		tb.Fatal(err)
	}
}

// NewGuarded makes site b a guarded one that is in step: main and tags/v1.
func NewGuarded(tb testing.TB) *Replicas {
	tb.Helper()
	r := NewReplicas(tb)
	old := r.A.Commit(tb, "old")
	r.Both(tb, MainRef, old)
	r.Both(tb, "refs/tags/v1", old)
	r.Sync(tb)
	r.Serve(tb)
	if _, err := r.Enable(tb, Hook()); err != nil {
		tb.Fatal(err)
	}
	return r
}

// Check returns the findings as "CODE SUBJECT", with the directory of the
// repository left out, and "mended" where they are.
func (r *Replicas) Check(tb testing.TB, db *refdb.DB, repair bool) string {
	tb.Helper()
	var all []string
	err := check.Run(tb.Context(), r.Config, db, []config.Repository{r.RepositoryB()},
		check.Options{Hook: Hook(), Repair: repair}, func(f check.Finding) {
			s := f.Code + " " + strings.TrimPrefix(strings.Replace(f.Subject, r.Config.Hooks, "HOOKS", 1), r.B.Dir+"/")
			if f.Mended {
				s += " mended"
			}
			if f.Detail == "" {
				tb.Errorf("%s: nothing says what to do", s)
			}
			all = append(all, s)
		})
	if err != nil {
		tb.Fatal(err)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// Quietly runs git without the hooks.
func (b Bare) Quietly(tb testing.TB, args ...string) {
	tb.Helper()
	GitIn(tb, b.Dir, append([]string{"-c", "core.hooksPath=/dev/null"}, args...)...)
}

// HookFile returns the path of a copy of the hook's program; mark makes it of another version.
func HookFile(tb testing.TB, mark string) string {
	tb.Helper()
	program, err := os.ReadFile(Hook())
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "refdb-hook")
	if err := testprogram.Write(path, append(program[:len(program):len(program)], mark...)); err != nil {
		tb.Fatal(err)
	}
	return path
}

// RepositoryB is the repository of site b.
func (r *Replicas) RepositoryB() config.Repository {
	return config.Repository{Project: Project, Path: r.B.Dir}
}

// Enable returns what was done at site b, by the names of the steps.
func (r *Replicas) Enable(tb testing.TB, hook string) (map[string]string, error) {
	tb.Helper()
	steps := map[string]string{}
	err := install.Enable(tb.Context(), r.Config, r.RepositoryB(), hook, func(s install.Step) { steps[s.Name] = s.Detail })
	return steps, err
}

// Disable ends the guard of site b.
func (r *Replicas) Disable(tb testing.TB) error {
	tb.Helper()
	_, err := r.DisableSteps(tb)
	return err
}

// DisableSteps is Disable. It returns what was done, by the step's name.
func (r *Replicas) DisableSteps(tb testing.TB) (map[string]string, error) {
	tb.Helper()
	steps := map[string]string{}
	return steps, install.Disable(tb.Context(), r.Config, r.DB, r.RepositoryB(), func(s install.Step) { steps[s.Name] = s.Detail })
}

// Serve runs site b's daemon until stop is called, at the test's end at the latest. The daemon does not
// know the site's hooks: it would close a directory that a test damages, within a second.
func (r *Replicas) Serve(tb testing.TB) (stop func()) {
	tb.Helper()
	db, err := refdb.New(r.Open(tb), refdb.Options{Site: "b"})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	c := *r.Config
	c.Hooks = filepath.Join(tb.TempDir(), "hooks")
	go func() { ended <- site.New(&c, db, site.Options{}).Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
		testprogram.AwaitForks()
		db.Close()
	})
	tb.Cleanup(stop)
	for deadline := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		s, err := client.Query(tb.Context(), r.Config.Socket)
		if err == nil && s.Presence && s.Database {
			return stop
		}
		if time.Now().After(deadline) {
			tb.Fatalf("the daemon does not serve: %+v, %v", s, err)
		}
	}
}

// Files are a repository's hooks and configuration, as they are.
func (b Bare) Files(tb testing.TB) string {
	tb.Helper()
	var all strings.Builder
	all.WriteString(b.File(tb, "config"))
	for _, name := range []string{"refdb/own-hooks", "refdb/chained", "refdb/socket"} {
		if info, err := os.Lstat(filepath.Join(b.Dir, name)); err == nil {
			fmt.Fprintf(&all, "%s %s\n", name, info.Mode())
		}
	}
	var names []string
	for _, hook := range hookdir.Names {
		names = append(names, "hooks/"+hook, "hooks/"+hook+".chained")
	}
	for _, name := range names {
		path := filepath.Join(b.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintf(&all, "no %s\n", name)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			tb.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %s %.40q\n", name, info.Mode(), text)
	}
	return all.String()
}

// NewGuardedThatIsBehind is a site whose daemon does not run.
func NewGuardedThatIsBehind(t *testing.T) *Replicas {
	t.Helper()
	r := NewReplicas(t)
	stop := r.Serve(t)
	if _, err := r.Enable(t, Hook()); err != nil {
		t.Fatal(err)
	}
	stop()
	r.Both(t, MainRef, r.A.Commit(t, "x"))
	return r
}

// Run runs a program, which must succeed, and returns its output.
func Run(tb testing.TB, dir, name string, args ...string) string {
	tb.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// A Buffer may be read while it is written.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Eventually waits for a condition.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	pause := 5 * time.Millisecond
	for deadline := time.Now().Add(Patience); !ok(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %s: %s", Patience, what)
		}
		time.Sleep(pause)
	}
}

// Contains checks that text contains want.
func Contains(tb testing.TB, text, want string) {
	tb.Helper()
	if !strings.Contains(text, want) {
		tb.Errorf("got %q, want something with %q", text, want)
	}
}

// Patience bounds the wait for an event. Only a test that fails waits that long, however busy the machine is.
const Patience = 5 * time.Minute

// Hooks returns the paths of the site's hooks.
func (r *Replicas) Hooks() (paths []string) {
	for _, name := range hookdir.Names {
		paths = append(paths, filepath.Join(hookdir.Dir(r.Config.Hooks).HooksPath(), name))
	}
	return paths
}
