package smarthttp

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

func TestMain(m *testing.M) { os.Exit(sitetest.Main(m)) }

const (
	project = "team/app"
	main    = "refs/heads/main"
	refsURL = "/" + project + ".git/info/refs?service=git-upload-pack"
)

// A rig is a server with one guarded repository, a database in memory, and a daemon of the test's.
type rig struct {
	*testing.T
	*Server
	db     *refdb.DB
	driver *counting
	dir    string // of the repository
	config *config.Config
	daemon moves
	a, b   string // commits
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root := t.TempDir()
	r := &rig{T: t, dir: filepath.Join(root, project+".git"), config: sitetest.SiteConfig(t, root, ""), driver: &counting{Driver: memory.New().Open()}}
	r.git("/", "init", "--quiet", "--bare", "--initial-branch=main", r.dir)
	tree := r.git(r.dir, "hash-object", "-t", "tree", "-w", "/dev/null")
	r.a = r.git(r.dir, "commit-tree", "-m", "a", tree)
	r.b = r.git(r.dir, "commit-tree", "-m", "b", "-p", r.a, tree)
	db, err := refdb.New(r.driver, refdb.Options{Site: "b"})
	r.must(err)
	t.Cleanup(func() { db.Close() })
	r.db = db
	p, err := db.PutProject(t.Context(), refdb.Project{Project: project, ID: "id", Rules: r.config.Rules().String(), Mode: config.Enforce})
	r.must(err)
	r.git(r.dir, "config", "refdb.projectid", p.ID)
	old := time.Now().Add(-time.Hour) // what has just changed may change again
	r.must(os.Chtimes(filepath.Join(r.dir, "config"), old, old))
	r.must(os.MkdirAll(filepath.Join(r.dir, "refdb"), 0o755))
	r.must(os.Symlink(r.config.Socket, filepath.Join(r.dir, "refdb", "socket")))
	r.daemon.serve(t, r.config.Socket)
	r.Server, err = New(t.Context(), Options{Config: r.config, DB: db})
	r.must(err)
	t.Cleanup(r.Wait)
	r.push(main, "", r.a)
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) git(dir string, args ...string) string {
	r.Helper()
	return strings.TrimSpace(sitetest.GitIn(r, dir, args...))
}

// push moves a ref here and in the database.
func (r *rig) push(ref, from, to string) {
	r.Helper()
	r.git(r.dir, "update-ref", ref, to)
	r.must(r.db.Update(r.Context(), project, []refdb.Update{{Ref: ref, Old: refdb.Value(from), New: refdb.Value(to)}}))
	r.daemon.count.Add(1)
}

func (r *rig) get(ctx context.Context, url string, header ...string) *httptest.ResponseRecorder {
	q := httptest.NewRequestWithContext(ctx, "GET", url, nil)
	for i := 0; i < len(header); i += 2 {
		q.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	return w
}

// want gets the list of refs, which must show a commit, and be a hit or not.
func (r *rig) want(what, commit string, hit bool) {
	r.Helper()
	before := valueOf(r.counts.hits)
	if w := r.get(r.Context(), refsURL); w.Code != 200 || !strings.Contains(w.Body.String(), commit+" "+main) {
		r.Errorf("%s: %d: %s", what, w.Code, w.Body)
	}
	if got := valueOf(r.counts.hits) - before; (got == 1) != hit {
		r.Errorf("%s: %v hits", what, got)
	}
}

func valueOf(c prometheus.Counter) float64 {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, _ := registry.Gather()
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

func (r *rig) wantCount(c prometheus.Counter, want float64) {
	r.Helper()
	if got := valueOf(c); got != want {
		r.Errorf("%v, want %v", got, want)
	}
}

// A moves is a daemon that answers with how often the test says that refs have moved.
type moves struct {
	count, starts atomic.Int64
	hangs         atomic.Bool
}

func (d *moves) serve(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	boot := rand.Text()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			if d.hangs.Load() {
				t.Cleanup(func() { conn.Close() })
				continue
			}
			p := wire.Response{}
			if q, err := wire.ReadRequest(conn); err == nil && q.State == wire.StateRead {
				p = wire.Response{OK: true, Lines: []string{fmt.Sprint(boot, d.starts.Load(), " ", d.count.Load())}}
			}
			p.Write(conn)
			conn.Close()
		}
	}()
}

// counting counts the requests that lists of refs make of the database.
type counting struct {
	refdb.Driver
	tips, others, lists atomic.Int64
	// onTip, unless nil, runs before the next tip is read, once.
	onTip atomic.Pointer[func()]
}

func (c *counting) Tip(ctx context.Context, project string) (refdb.Tip, error) {
	c.tips.Add(1)
	if do := c.onTip.Swap(nil); do != nil {
		(*do)()
	}
	return c.Driver.Tip(ctx, project)
}

func (c *counting) List(ctx context.Context, q refdb.RefQuery) (refdb.RefPage, error) {
	c.others.Add(1)
	c.lists.Add(1)
	return c.Driver.List(ctx, q)
}

func (c *counting) Intents(ctx context.Context, q refdb.IntentQuery) (refdb.IntentPage, error) {
	c.others.Add(1)
	return c.Driver.Intents(ctx, q)
}

func (c *counting) Projects(ctx context.Context, q refdb.ProjectQuery) ([]refdb.Project, error) {
	c.others.Add(1)
	return c.Driver.Projects(ctx, q)
}

func TestAHitAsksTheDatabaseOnceAndRunsNoGit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want("the first", r.a, false)
	r.backend.program = "/nowhere"
	tips, others := r.driver.tips.Load(), r.driver.others.Load()
	for range 3 {
		r.want("the next", r.a, true)
	}
	if tips, others := r.driver.tips.Load()-tips, r.driver.others.Load()-others; tips != 3 || others != 0 {
		t.Errorf("three hits made %d and %d requests of the database", tips, others)
	}
}

func TestEachChangeOfWhatIsListedMakesAnotherList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want("the first", r.a, false)
	r.want("unchanged", r.a, true)
	r.push(main, r.a, r.b)
	r.want("after a push", r.b, false)
	r.want("after a push, again", r.b, true)

	r.daemon.count.Add(1)
	r.want("after a move of a ref that is not guarded", r.b, false)
	r.want("after that, again", r.b, true)
	r.git(r.dir, "symbolic-ref", "HEAD", "refs/heads/other")
	r.want("after a change of HEAD", r.b, false)
	r.git(r.dir, "config", "transfer.hideRefs", "refs/tags")
	r.want("after a change of the configuration", r.b, false)
	r.git(r.dir, "pack-refs", "--all")
	r.want("after its refs were packed", r.b, false)
	p, ok, err := r.db.Project(t.Context(), project)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, err := r.db.PutProject(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	r.want("after a change of the rules", r.b, false)
	r.want("at last", r.b, true)
}

// After a push only what has changed is compared, in a repository that had everything before.
func TestOnlyWhatHasChangedIsComparedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lists := func() int64 { return r.driver.lists.Load() }
	before := lists()
	r.want("the first", r.a, false)
	if lists() == before {
		t.Error("the repository was not compared at first")
	}
	before = lists()
	r.push(main, r.a, r.b)
	r.want("after a push", r.b, false)
	if n := lists() - before; n != 0 {
		t.Errorf("after a push all refs were listed %d times", n)
	}
	// What is not here yet is waited for.
	r.must(r.db.Update(t.Context(), project, []refdb.Update{{Ref: main, Old: refdb.Value(r.b), New: refdb.Value(r.a)}}))
	if w := r.get(t.Context(), refsURL); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "behind by one ref") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		exec.Command("git", "--git-dir", r.dir, "update-ref", main, r.a).Run()
		r.daemon.count.Add(1)
	}()
	if w := r.get(t.Context(), refsURL); w.Code != 200 || !strings.Contains(w.Body.String(), r.a+" "+main) {
		t.Errorf("once it has come: %d: %s", w.Code, w.Body)
	}
	if n := lists() - before; n != 0 {
		t.Errorf("all refs were listed %d times", n)
	}
	// Another repository in the place of this one may have anything.
	r.git(r.dir, "config", "other.setting", "x")
	r.git(r.dir, "-c", "core.hooksPath=/dev/null", "update-ref", main, r.b)
	if w := r.get(t.Context(), refsURL); w.Code != http.StatusServiceUnavailable {
		t.Errorf("in a repository that was replaced: %d: %s", w.Code, w.Body)
	}
}

// What moves refs past the hooks shows in most cases, or after a while: then all refs are compared again.
func TestWhatMovedPastTheHooksIsNotTakenForFresh(t *testing.T) {
	t.Parallel()
	for name, shows := range map[string]func(*rig){
		"the refs are packed":     func(r *rig) { r.git(r.dir, "pack-refs", "--all") },
		"the daemon is restarted": func(r *rig) { r.daemon.starts.Add(1) },
		"the daemon hangs":        func(r *rig) { r.daemon.hangs.Store(true) },
		"it was long ago": func(r *rig) {
			r.daemon.count.Add(1)
			p := r.known(project)
			p.applied.full = p.applied.full.Add(-fullEvery)
			r.projects[project] = p
		},
	} {
		r := newRig(t)
		r.want("the first", r.a, false)
		r.push(main, r.a, r.b)
		r.want("after a push", r.b, false)
		r.git(r.dir, "update-ref", main, r.a)
		shows(r)
		if w := r.get(t.Context(), refsURL); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "behind by one ref") {
			t.Errorf("%s: %d: %s", name, w.Code, w.Body)
		}
		r.git(r.dir, "update-ref", main, r.b)
		if w := r.get(t.Context(), refsURL); w.Code != 200 || !strings.Contains(w.Body.String(), r.b) {
			t.Errorf("%s, and the ref is back: %d: %s", name, w.Code, w.Body)
		}
	}
}

// The rules may change while a reader waits for a key that is settled.
func TestAListIsMadeUnderTheRulesOfItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	put := func(rules string) {
		t.Helper()
		p, _, err := r.db.Project(t.Context(), project)
		r.must(err)
		p.Rules = rules
		_, err = r.db.PutProject(t.Context(), p)
		r.must(err)
	}
	put("ref refs/heads/*")
	r.want("before", r.a, false)
	const tag = "refs/tags/v1"
	l, err := r.db.Prepare(t.Context(), project, []refdb.Update{{Ref: tag, New: refdb.Value(r.a)}}, "agent")
	r.must(err)
	asked := r.driver.tips.Load()
	var each func()
	each = func() {
		if r.driver.tips.Load() == asked+2 { // the reader was told of the intent
			r.must(r.db.Finish(t.Context(), l, []string{tag}, nil))
			put("ref *")
		}
		r.driver.onTip.Store(&each)
	}
	r.driver.onTip.Store(&each)
	for range 2 {
		if w := r.get(t.Context(), refsURL); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "behind by one ref") {
			t.Errorf("without the tag: %d: %s", w.Code, w.Body)
		}
	}
}

// A daemon that hangs holds nobody up for long.
func TestADaemonThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want("before", r.a, false)
	r.daemon.hangs.Store(true)
	for range 2 {
		r.want("while it hangs", r.a, false)
	}
	r.daemon.hangs.Store(false)
	r.want("after that", r.a, true)
}

// While a push may be acknowledged that is not recorded yet, nothing is kept, and nothing that was kept is used.
func TestNothingIsKeptWhileAnIntentIsPending(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want("before", r.a, false)
	p, err := r.db.Prepare(t.Context(), project, []refdb.Update{{Ref: main, Old: refdb.Value(r.a), New: refdb.Value(r.b)}}, "agent")
	r.must(err)
	if w := r.get(t.Context(), refsURL); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "behind by one ref") || w.Header().Get("Retry-After") == "" {
		t.Errorf("while the push is pending: %d: %s", w.Code, w.Body)
	}
	r.git(r.dir, "update-ref", main, r.b)
	r.must(r.db.Finish(t.Context(), p, []string{main}, nil))
	r.daemon.count.Add(1)
	r.want("after the push", r.b, false)
	r.want("after the push, again", r.b, true)
}

func TestAListThatWasMadeDuringAChangeIsNotKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	asked := r.driver.tips.Load()
	change := func() {
		if r.driver.tips.Load() == asked+2 { // the look after git has answered
			r.must(r.db.Update(t.Context(), project, []refdb.Update{{Ref: "refs/heads/other", New: refdb.Value(r.a)}}))
			r.git(r.dir, "update-ref", "refs/heads/other", r.a)
		}
	}
	var each func()
	each = func() { change(); r.driver.onTip.Store(&each) }
	r.driver.onTip.Store(&each)
	r.want("the first", r.a, false)
	if _, answers := r.cache.size(); answers != 0 {
		t.Errorf("%d lists were kept", answers)
	}
	r.want("the second", r.a, false)
	r.want("the third", r.a, true)
}

func TestAListIsMadeOnceForAllWhoAskAtTheSameTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			if w := r.get(t.Context(), refsURL); w.Code != 200 || !strings.Contains(w.Body.String(), r.a) {
				t.Errorf("%d: %s", w.Code, w.Body)
			}
		})
	}
	asking.Wait()
	r.wantCount(r.counts.made, 1)
}

func TestProtocolsAndRequestsHaveListsOfTheirOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	post := func(body, encoding string) *httptest.ResponseRecorder {
		q := httptest.NewRequestWithContext(t.Context(), "POST", "/"+project+".git/git-upload-pack", strings.NewReader(body))
		q.Header.Set("Content-Type", "application/x-git-upload-pack-request")
		q.Header.Set("Git-Protocol", "version=2")
		if encoding != "" {
			q.Header.Set("Content-Encoding", encoding)
		}
		w := httptest.NewRecorder()
		r.ServeHTTP(w, q)
		return w
	}
	list := func(prefix string) string {
		return pkt("command=ls-refs\n", "agent=git/2", "object-format=sha1", "|", "peel\n", "ref-prefix "+prefix+"\n", "")
	}
	for range 2 {
		for _, row := range []struct {
			got  *httptest.ResponseRecorder
			want string
		}{
			{r.get(t.Context(), refsURL), r.a + " " + main},
			{r.get(t.Context(), refsURL, "Git-Protocol", "version=1"), "version 1"},
			{r.get(t.Context(), refsURL, "Git-Protocol", "version=2"), "ls-refs"},
			{post(list("refs/heads/"), ""), pkt(r.a+" "+main+"\n", "")},
			{post(list("refs/tags/"), ""), "0000"},
			{post(gzipped(list("refs/heads/")), "gzip"), pkt(r.a+" "+main+"\n", "")},
		} {
			if row.got.Code != 200 || !strings.Contains(row.got.Body.String(), row.want) || row.got.Header().Get("Cache-Control") == "" {
				t.Errorf("%d %v: %q, want %q", row.got.Code, row.got.Header(), row.got.Body, row.want)
			}
		}
	}
	// The packed request is the same as the one that is not.
	r.wantCount(r.counts.made, 5)
	r.wantCount(r.counts.hits, 7)
	fetch := pkt("command=fetch", "object-format=sha1", "|", "want "+r.a+"\n", "done\n", "")
	if w := post(fetch, ""); w.Code != 200 || !strings.Contains(w.Body.String(), "PACK") {
		t.Errorf("%d: %q", w.Code, w.Body)
	}
	large := pkt("command=ls-refs\n", "object-format=sha1", "|") + strings.Repeat(pkt("ref-prefix refs/heads/\n"), 4000) + pkt("")
	if w := post(large, ""); w.Code != 200 || !strings.Contains(w.Body.String(), r.a) {
		t.Errorf("a request of %d bytes: %d: %q", len(large), w.Code, w.Body)
	}
	r.wantCount(r.counts.passed, 2)
}

func TestWhatIsTooLargeToKeepIsPassedOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.o.CacheBytes, r.cache = 200, newCache(200+overhead)
	for range 2 {
		if w := r.get(t.Context(), refsURL); w.Code != 200 || !strings.HasSuffix(w.Body.String(), r.a+" "+main+"\n0000") {
			t.Errorf("%d: %q", w.Code, w.Body)
		}
	}
	r.wantCount(r.counts.passed, 2)
}

func TestAFailureOfGitIsNotKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	program := r.backend.program
	r.backend.program = "/bin/false"
	if w := r.get(t.Context(), refsURL); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), r.dir) {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	r.backend.program = program
	r.git(r.dir, "config", "http.uploadpack", "false")
	for range 2 {
		if w := r.get(t.Context(), refsURL); w.Code != http.StatusForbidden {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
	}
	r.wantCount(r.counts.hits, 0)
}

// fake has another program in the place of git.
func (r *rig) fake(script string) {
	r.Helper()
	r.backend.program = filepath.Join(r.TempDir(), "backend")
	r.must(os.WriteFile(r.backend.program, []byte("#!/bin/sh\n"+script), 0o755))
}

// What git said before it failed is passed on, and the connection ends, so that nobody takes it for all.
func TestAnAnswerThatIsCutOffIsNotTakenForAWholeOne(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"a list": refsURL, "a push": "/" + project + ".git/info/refs?service=git-receive-pack"} {
		r := newRig(t)
		r.fake("printf 'Content-Type: x\\r\\n\\r\\nsaid'\nexit 1\n")
		server := httptest.NewServer(r)
		for range 2 {
			response, err := http.Get(server.URL + url)
			r.must(err)
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode != 200 || string(body) != "said" || err == nil {
				t.Errorf("%s: %d, %q, %v", name, response.StatusCode, body, err)
			}
		}
		r.wantCount(r.counts.hits, 0)
		server.Close()
	}
}

func TestAGitWhoseAnswerMakesNoSenseIsEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fake("printf 'no header\\n\\n'\nsleep 600\n")
	if w := r.get(t.Context(), refsURL); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// Clients may say that they speak any protocol: what they say is no name for what is kept.
func TestOnlyKnownProtocolsAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, protocol := range []string{"version=20", "version=2:x", "x"} {
		if w := r.get(t.Context(), refsURL, "Git-Protocol", protocol); w.Code != 200 || !strings.Contains(w.Body.String(), "service=git-upload-pack") && !strings.Contains(w.Body.String(), "ls-refs") {
			t.Errorf("%s: %d: %s", protocol, w.Code, w.Body)
		}
	}
	r.wantCount(r.counts.made, 0)
	r.wantCount(r.counts.passed, 3)
}

// A gate without room lets nobody in.
func TestReadersWaitForRoomAndPushesDont(t *testing.T) {
	t.Parallel()
	for name, shut := range map[string]func(*rig){
		"readers": func(r *rig) { r.readers = make(gate) },
		"makers":  func(r *rig) { r.makers = make(gate) },
	} {
		r := newRig(t)
		shut(r)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if w := r.get(ctx, refsURL); w.Body.Len() > 0 {
			t.Errorf("%s: %d: %s", name, w.Code, w.Body)
		}
		cancel()
		r.wantCount(r.counts.made, 0)
		if w := r.get(t.Context(), "/"+project+".git/info/refs?service=git-receive-pack"); w.Code != http.StatusForbidden { // by git: nobody asks
			t.Errorf("%s: a push: %d: %s", name, w.Code, w.Body)
		}
	}
}

// The fake git starts another program, as git does.
const fakeGit = "#!/bin/sh\nsleep 600 &\necho $! >%s\nprintf 'Content-Type: x\\r\\n\\r\\n'\nwait\n"

func TestAClientThatGoesAwayEndsAReadAndNoPush(t *testing.T) {
	t.Parallel()
	for service, ends := range map[string]bool{"git-upload-pack": true, "git-receive-pack": false} {
		r := newRig(t)
		dir := t.TempDir()
		r.backend.program = filepath.Join(dir, "backend")
		r.must(os.WriteFile(r.backend.program, fmt.Appendf(nil, fakeGit, filepath.Join(dir, "pid")), 0o755))
		served := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			defer close(served)
			r.ServeHTTP(w, q)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		q, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/"+project+".git/"+service, strings.NewReader(pkt("want "+r.a, "")))
		r.must(err)
		response, err := http.DefaultClient.Do(q)
		r.must(err)
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		r.must(err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		r.must(err)
		cancel()
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if !ends {
			select {
			case <-served:
				t.Errorf("%s ended with its client", service)
			case <-time.After(200 * time.Millisecond): // nothing can be waited for
			}
			r.must(syscall.Kill(pid, syscall.SIGKILL))
		}
		select {
		case <-served:
		case <-time.After(30 * time.Second):
			t.Errorf("%s goes on", service)
			syscall.Kill(pid, syscall.SIGKILL)
		}
		server.Close()
	}
}

func TestNoHeaderOfAClientReachesGit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.o.UserHeader = "X-User"
	said := filepath.Join(t.TempDir(), "said")
	r.backend.program = filepath.Join(t.TempDir(), "backend")
	r.must(os.WriteFile(r.backend.program, []byte("#!/bin/sh\nenv >"+said+"\nprintf 'Content-Type: x\\r\\n\\r\\n'\n"), 0o755))
	r.get(t.Context(), "/"+project+".git/info/refs?service=git-receive-pack", "X-User", "alice", "Proxy", "evil", "X-Evil", "evil", "Git-Protocol", "version=1", "Remote-User", "evil")
	text, err := os.ReadFile(said)
	r.must(err)
	for _, want := range []string{"REMOTE_USER=alice", "GIT_PROTOCOL=version=1", "GIT_PROJECT_ROOT=" + r.dir, "PATH_INFO=/info/refs"} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("git does not get %s:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "evil") {
		t.Errorf("git gets\n%s", text)
	}
}
