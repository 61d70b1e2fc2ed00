package site_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/metrics"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/journal"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// leases is for how long locks stand without a beat, which only a hang reaches. The test's own locks are made stale by the row.
const leases = sitetest.Patience

const zero = "0000000000000000000000000000000000000000"

// A guard is a site: a bare repository with the real hooks, and the daemon that they ask.
type guard struct {
	tb     testing.TB
	name   string
	dir    string // of everything
	repo   string // team/app
	config string
	shared *local.Database
	db     *refdb.DB // for the test's own questions
	commit []string  // IDs of a line of commits, the same on every site

	daemon *site.Daemon
	owner  string // the daemon, in the database
	stop   context.CancelFunc
	ended  chan error
	log    *sitetest.Buffer
	driver func(refdb.Driver) refdb.Driver // around the daemon's
	stale  time.Duration                   // of its locks
	clock  *site.Clock                     // the daemon's

	options func(*site.Options) // unless nil, changes the daemon's
	limits  func(*site.Daemon)  // unless nil, changes the daemon's limits, which only a hang reaches otherwise
}

// newGuard returns a site on the database whose daemon runs.
func newGuard(tb testing.TB, shared *local.Database, name string, settings ...string) *guard {
	tb.Helper()
	g := idleGuard(tb, shared, name, settings...)
	g.start()
	return g
}

// idleGuard returns a site whose daemon doesn't run yet.
func idleGuard(tb testing.TB, shared *local.Database, name string, settings ...string) *guard {
	tb.Helper()
	dir := tb.TempDir()
	g := &guard{
		tb: tb, name: name, dir: dir, shared: shared,
		repo:   filepath.Join(dir, "git/team/app.git"),
		config: filepath.Join(dir, "site.config"),
		log:    &sitetest.Buffer{},
		stale:  leases,
		clock:  new(site.Clock),
	}
	db, err := refdb.New(shared.Open(tb), refdb.Options{Site: "test", StaleAfter: leases})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	g.db = db
	text := fmt.Sprintf("[site]\n\tname = %s\n\tsocket = %s\n\tstate = %s\n\troot = %s\n\tstopTimeout = %[5]s\n\ttimeout = %[5]s\n\tlockWait = %[5]s\n\tstore = none\n%[6]s\n", name,
		filepath.Join(dir, "sock"), filepath.Join(dir, "state"), filepath.Join(dir, "git"), sitetest.Patience, strings.Join(settings, "\n"))
	if err := os.WriteFile(g.config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	g.commit = g.copyTemplate("team/app")
	g.register("team/app")
	return g
}

// register has the database know the project, whose repository has refs that it does not know.
func (g *guard) register(project string) {
	g.tb.Helper()
	c, err := config.Load(g.tb.Context(), g.config)
	if err != nil {
		g.tb.Fatal(err)
	}
	r, err := c.Repository(project)
	row, known, failed := g.db.Projects().Get(g.tb.Context(), project)
	if err = errors.Join(err, failed); err == nil {
		claim := projects.New
		if known && row.Mode != config.Removed {
			claim = projects.Copy
		}
		_, err = projects.Register(g.tb.Context(), c, g.db, r, claim)
	}
	if err != nil {
		g.tb.Fatal(err)
	}
}

// template is a repository with a line of commits: to copy it takes a tenth of what making it takes.
var template struct {
	once   sync.Once
	commit []string
}

// copyTemplate makes a guarded repository with a line of commits, and returns these.
func (g *guard) copyTemplate(project string) (commits []string) {
	g.tb.Helper()
	dir := filepath.Join(os.Getenv("HOME"), "template.git")
	template.once.Do(func() {
		sitetest.Run(g.tb, "", "git", "init", "--quiet", "--bare", dir)
		template.commit = commitsIn(g.tb, dir, 8)
	})
	repo := filepath.Join(g.dir, "git", project+".git")
	if err := os.CopyFS(repo, os.DirFS(dir)); err != nil {
		g.tb.Fatal(err)
	}
	g.guardedNow(repo)
	return slices.Clone(template.commit)
}

// newRepository makes a guarded repository below the root.
func (g *guard) newRepository(project string, args ...string) string {
	g.tb.Helper()
	repo := filepath.Join(g.dir, "git", project+".git")
	sitetest.Run(g.tb, "", "git", append(append([]string{"init", "--quiet", "--bare"}, args...), repo)...)
	g.guardedNow(repo)
	return repo
}

// guardedNow puts a new repository under guard.
func (g *guard) guardedNow(repo string) {
	g.tb.Helper()
	if err := os.MkdirAll(filepath.Join(repo, "refdb"), 0o755); err != nil {
		g.tb.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(g.dir, "sock"), filepath.Join(repo, "refdb/socket")); err != nil {
		g.tb.Fatal(err)
	}
	g.hooks(repo, true)
}

// hooksPath returns where git finds the site's hooks of a repository.
func hooksPath(repo string) string {
	return filepath.Join(filepath.Dir(repo), ".hooks-of-"+filepath.Base(repo))
}

// hooks puts the hooks in place, or away.
func (g *guard) hooks(repo string, on bool) {
	g.tb.Helper()
	if !on {
		if err := os.RemoveAll(hooksPath(repo)); err != nil {
			g.tb.Fatal(err)
		}
		return
	}
	if err := os.Mkdir(hooksPath(repo), 0o755); err != nil {
		g.tb.Fatal(err)
	}
	for _, name := range hookdir.Names {
		if err := os.Link(sitetest.Hook(), filepath.Join(hooksPath(repo), name)); err != nil { // copies of it took a seventh of these tests' time
			g.tb.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(repo, "config"))
	if err != nil {
		g.tb.Fatal(err)
	}
	if lead := "[core]\n\thooksPath = " + hooksPath(repo) + "\n"; !strings.Contains(string(text), lead) {
		if err := os.WriteFile(filepath.Join(repo, "config"), append(text, lead...), 0o644); err != nil {
			g.tb.Fatal(err)
		}
	}
}

// commitsIn writes a line of n commits, which no ref names.
func commitsIn(tb testing.TB, repo string, n int) (ids []string) {
	tb.Helper()
	tree := sitetest.Run(tb, "", "git", "--git-dir="+repo, "hash-object", "-t", "tree", "-w", "/dev/null")
	parent := []string{}
	for i := range n {
		cmd := exec.Command("git", append([]string{"--git-dir=" + repo, "commit-tree", "-m", fmt.Sprint(i), tree}, parent...)...)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE=1700000000 +0000", "GIT_COMMITTER_DATE=1700000000 +0000")
		out, err := cmd.Output()
		if err != nil {
			tb.Fatal(err)
		}
		id := strings.TrimSpace(string(out))
		ids, parent = append(ids, id), []string{"-p", id}
	}
	return ids
}

// start runs a daemon until stopped, or the test's end.
func (g *guard) start() {
	g.tb.Helper()
	if err := g.tryStart(); err != nil {
		g.tb.Fatalf("the daemon of %s: %v", g.name, err)
	}
}

func (g *guard) tryStart() error {
	g.tb.Helper()
	c, err := config.Load(g.tb.Context(), g.config)
	if err != nil {
		return err
	}
	if g.stop != nil {
		g.ageName()
	}
	driver := g.shared.Open(g.tb)
	if g.driver != nil {
		driver = g.driver(driver)
	}
	before := strings.Count(g.log.String(), "msg=serving")
	log := slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	requests := metrics.New()
	known := journal.New(c.State)
	db, err := refdb.New(driver, refdb.Options{Site: g.name, Heartbeat: min(500*time.Millisecond, g.stale/5), StaleAfter: g.stale, Observe: requests.Observe, Journal: known})
	if err != nil {
		return err
	}
	requests.Watch(db)
	ctx, stop := context.WithCancel(context.WithoutCancel(g.tb.Context()))
	g.owner = db.Owner()
	options := site.Options{Logger: log, Version: "test", Journal: known, Collectors: []prometheus.Collector{requests}}
	if g.options != nil {
		g.options(&options)
	}
	g.daemon, g.stop, g.ended = site.New(c, db, options), stop, make(chan error, 1)
	g.daemon.BePatient(sitetest.Patience)
	g.daemon.UseClock(g.clock)
	if g.limits != nil {
		g.limits(g.daemon)
	}
	ended := g.ended
	go func() {
		err := g.daemon.Run(ctx)
		db.Close()
		known.Close()
		ended <- err
	}()
	g.tb.Cleanup(func() { g.halt() })
	for deadline := time.After(sitetest.Patience); ; {
		select {
		case err := <-ended:
			ended <- err
			return err
		case <-deadline:
			return errors.New("does not serve")
		case <-time.After(5 * time.Millisecond):
		}
		if strings.Count(g.log.String(), "msg=serving") > before {
			return nil
		}
	}
}

// ageName lets the lock on the site's name be stale if the daemon before this one left it, as one with pushes under way does. The start would
// wait for that: the process of the daemon before, the test's, lives.
func (g *guard) ageName() {
	g.tb.Helper()
	project, ref := "refdb/sites", "refs/sites/"+g.name
	if lock, ok := g.shared.RowLock(g.tb, project, ref); ok && lock.Owner == g.owner {
		g.shared.Age(g.tb, project, ref, time.Hour)
	}
}

// halt stops the daemon gracefully, and returns what it ended with. For what does not end without the test it does not wait long.
func (g *guard) halt() error {
	if g.stop == nil {
		return nil
	}
	g.explain()
	g.daemon.HurryStop(20 * time.Millisecond)
	g.stop()
	err := <-g.ended
	g.ended <- err
	testprogram.AwaitForks()
	for _, name := range append([]string{"refs/", "team/", g.owner}, g.commit...) { // P9
		if strings.Contains(g.log.String(), name) {
			g.tb.Errorf("the log names %s", name)
		}
	}
	if g.tb.Failed() {
		g.tb.Logf("log of %s:\n%s", g.name, g.log)
	}
	return err
}

// haltAway stops the daemon so that nobody waits for its site. On a busy machine a daemon that ends may give up telling
// the database so: then another one does.
func (g *guard) haltAway() {
	g.tb.Helper()
	untold := func() int {
		return strings.Count(g.log.String(), "the other sites could not be notified that this one stops")
	}
	for before := -1; before != untold(); g.halt() {
		if before >= 0 {
			g.start()
		}
		before = untold()
	}
}

// explain logs, of a test that has failed, what its daemon says of itself, and what is locked in the database.
func (g *guard) explain() {
	if !g.tb.Failed() || len(g.ended) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := client.Query(ctx, filepath.Join(g.dir, "sock"))
	g.tb.Logf("status of %s: %+v, %v", g.name, s, err)
	for l, err := range g.db.Locks(ctx, refdb.LockFilter{}) {
		g.tb.Logf("a lock: %+v, %v", l, err)
	}
	for i, err := range g.db.Intents().All(ctx, driver.IntentFilter{}) {
		g.tb.Logf("an intent: %+v, %v", i, err)
	}
}

// decide ends the one pending intent on a ref, as an operator.
func (g *guard) decide(ref string, d driver.Decision) {
	g.tb.Helper()
	var intents []driver.Intent
	for i, err := range g.db.Intents().All(g.tb.Context(), driver.IntentFilter{Ref: ref}) {
		if err != nil {
			g.tb.Fatal(err)
		}
		intents = append(intents, i)
	}
	if done, err := g.db.Intents().Resolve(g.tb.Context(), intents, d, "op", "why"); err != nil || len(done) != 1 {
		g.tb.Fatalf("%d intents were decided, %v", len(done), err)
	}
}

// status returns what the daemon says of itself.
func (g *guard) status() client.Status {
	g.tb.Helper()
	s, err := client.Query(g.tb.Context(), filepath.Join(g.dir, "sock"))
	if err != nil {
		g.tb.Fatal(err)
	}
	return s
}

// git runs git in the repository, which must succeed.
func (g *guard) git(args ...string) string {
	g.tb.Helper()
	return sitetest.Run(g.tb, "", "git", append([]string{"--git-dir=" + g.repo}, args...)...)
}

// fails runs git in the repository, which must not succeed, and returns what it says.
func (g *guard) fails(args ...string) string {
	g.tb.Helper()
	out, err := exec.Command("git", append([]string{"--git-dir=" + g.repo}, args...)...).CombinedOutput()
	if err == nil {
		g.tb.Fatalf("git %s succeeded: %s", strings.Join(args, " "), out)
	}
	return string(out)
}

// set moves a ref here and globally, as if it had been so from the beginning.
func (g *guard) set(ref, value string) {
	g.tb.Helper()
	g.git("-c", "core.hooksPath=/dev/null", "update-ref", ref, value)
	if _, err := g.db.Put(g.tb.Context(), "team/app", ref, refdb.Value(value)); err != nil {
		g.tb.Fatal(err)
	}
}

func (g *guard) global(ref string) string {
	g.tb.Helper()
	v, err := g.db.Get(g.tb.Context(), "team/app", ref)
	if err != nil {
		g.tb.Fatal(err)
	}
	return string(v)
}

func (g *guard) local(ref string) string {
	g.tb.Helper()
	out, err := exec.Command("git", "--git-dir="+g.repo, "rev-parse", "--verify", "--quiet", ref).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// intents counts the site's pending ones.
func (g *guard) intents() (n int) {
	g.tb.Helper()
	for _, err := range g.db.Intents().All(g.tb.Context(), driver.IntentFilter{Owner: g.name}) {
		if err != nil {
			g.tb.Fatal(err)
		}
		n++
	}
	return n
}

// has checks what a ref is here and globally ("" or zero: absent), and that nothing is pending.
func (g *guard) has(ref, local, global string) {
	g.tb.Helper()
	if got := g.local(ref); got != local {
		g.tb.Errorf("%s of %s is %q here, want %q", ref, g.name, got, local)
	}
	if got := g.global(ref); got != global {
		g.tb.Errorf("%s is %q globally, want %q", ref, got, global)
	}
	if n := g.intents(); n != 0 {
		g.tb.Errorf("%d intents of %s are left", n, g.name)
	}
}

// resolved waits until the site has no intent left.
func (g *guard) resolved() {
	g.tb.Helper()
	sitetest.Eventually(g.tb, "all intents are ended", func() bool { return g.intents() == 0 })
}

// A session is a transaction of git, step by step: `git update-ref --stdin`, whose hooks
// run when it is told to prepare, to commit and to abort.
type session struct {
	tb  testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err *sitetest.Buffer
}

func (g *guard) session(env ...string) *session {
	g.tb.Helper()
	return g.sessionOf(exec.Command("git", "--git-dir="+g.repo, "update-ref", "--stdin"), env...)
}

// sessionOf is session for a command line that starts git.
func (g *guard) sessionOf(cmd *exec.Cmd, env ...string) *session {
	g.tb.Helper()
	s := &session{tb: g.tb, cmd: cmd, err: &sitetest.Buffer{}}
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stderr = s.err
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		g.tb.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		g.tb.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		g.tb.Fatal(err)
	}
	g.tb.Cleanup(func() { s.kill() })
	return s
}

// say sends commands, the last of which git answers.
func (s *session) say(commands ...string) error {
	s.tb.Helper()
	if _, err := io.WriteString(s.in, strings.Join(commands, "\n")+"\n"); err != nil {
		return fmt.Errorf("%w: %s", err, s.err)
	}
	last := strings.Fields(commands[len(commands)-1])[0]
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.cmd.Wait()
			return fmt.Errorf("%w: %s", err, s.err)
		}
		if line == last+": ok\n" {
			return nil
		}
	}
}

func (s *session) must(commands ...string) {
	s.tb.Helper()
	if err := s.say(commands...); err != nil {
		s.tb.Fatal(err)
	}
}

// prepare begins a transaction and lets the daemon decide.
func (s *session) prepare(commands ...string) error {
	s.tb.Helper()
	return s.say(append(append([]string{"start"}, commands...), "prepare")...)
}

// kill is kill -9. It does not wait for a hook, which has git's standard error, too.
func (s *session) kill() {
	s.cmd.WaitDelay = time.Millisecond
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// close ends the session in good order.
func (s *session) close() {
	s.tb.Helper()
	s.in.Close()
	if err := s.cmd.Wait(); err != nil {
		s.tb.Errorf("git update-ref: %v: %s", err, s.err)
	}
}
