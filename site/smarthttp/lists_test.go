package smarthttp

import (
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

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

func TestEachChangeThatAffectsAListMakesANewList(t *testing.T) {
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
	p, ok, err := r.db.Projects().Get(t.Context(), project)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, err := r.db.Projects().Put(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	r.want("after a change of the rules", r.b, false)
	r.want("at last", r.b, true)
}

// After a push, only the changed refs of a repository are compared if it had everything before.
func TestOnlyChangedRefsAreComparedAgain(t *testing.T) {
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
	// A reader waits for a change that has not arrived yet.
	r.must(r.db.Update(t.Context(), project, []refdb.Update{{Ref: main, Old: refdb.Value(r.b), New: refdb.Value(r.a)}}))
	r.behind("the change has not arrived")
	waits := valueOf(r.counts.waits)
	got := make(chan *httptest.ResponseRecorder, 1)
	go func() { got <- r.get(t.Context(), refsURL) }()
	sitetest.Eventually(t, "the reader waits", func() bool { return valueOf(r.counts.waits) > waits })
	r.git(r.dir, "update-ref", main, r.a)
	r.daemon.count.Add(1)
	if w := <-got; w.Code != 200 || !strings.Contains(w.Body.String(), r.a+" "+main) {
		t.Errorf("once the change has arrived: %d: %s", w.Code, w.Body)
	}
	if n := lists() - before; n != 0 {
		t.Errorf("all refs were listed %d times", n)
	}
	// A repository that has replaced this one may have any refs.
	r.git(r.dir, "config", "other.setting", "x")
	r.git(r.dir, "-c", "core.hooksPath=/dev/null", "update-ref", main, r.b)
	r.behind("in a repository that was replaced")
}

// A move past the hooks is noticed in most cases, or after a while. Then all refs are compared
// again.
func TestRefsMovedPastTheHooksAreNotTakenForFresh(t *testing.T) {
	t.Parallel()
	for name, shows := range map[string]func(*rig){
		"the refs are packed":     func(r *rig) { r.git(r.dir, "pack-refs", "--all") },
		"the daemon is restarted": func(r *rig) { r.daemon.starts.Add(1) },
		"the daemon hangs":        func(r *rig) { r.limits.daemon = time.Millisecond; r.daemon.hangs.Store(true) },
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
		r.behind(name)
		r.git(r.dir, "update-ref", main, r.b)
		if w := r.get(t.Context(), refsURL); w.Code != 200 || !strings.Contains(w.Body.String(), r.b) {
			t.Errorf("%s, and the ref is back: %d: %s", name, w.Code, w.Body)
		}
	}
}

// The rules may change while a reader waits for a settled key.
func TestAListIsMadeUnderTheRulesOfItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.limits.settle = sitetest.Patience
	put := func(rules string) {
		t.Helper()
		p, _, err := r.db.Projects().Get(t.Context(), project)
		r.must(err)
		p.Rules = rules
		_, err = r.db.Projects().Put(t.Context(), p)
		r.must(err)
	}
	put("ref refs/heads/*")
	r.want("before", r.a, false)
	const tag = "refs/tags/v1"
	l, err := r.db.Intents().Prepare(t.Context(), project, []refdb.Update{{Ref: tag, New: refdb.Value(r.a)}}, "agent")
	r.must(err)
	asked := r.driver.tips.Load()
	var each func()
	each = func() {
		if r.driver.tips.Load() == asked+2 { // the reader has seen the intent
			r.must(r.db.Intents().Finish(t.Context(), l, []string{tag}, nil))
			put("ref *")
		}
		r.driver.onTip.Store(&each)
	}
	r.driver.onTip.Store(&each)
	for range 2 {
		r.behind("without the tag")
	}
}

// A daemon that hangs delays a request only briefly.
func TestADaemonThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want("before", r.a, false)
	r.limits.daemon = time.Millisecond
	r.daemon.hangs.Store(true)
	for range 2 {
		r.want("while it hangs", r.a, false)
	}
	r.limits.daemon = sitetest.Patience
	r.daemon.hangs.Store(false)
	r.want("after that", r.a, true)
}

// While a push may have been acknowledged without being recorded, no answer is cached, and no
// cached answer is used.
func TestTheCacheIsNotUsedWhileAnIntentIsPending(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want("before", r.a, false)
	p, err := r.db.Intents().Prepare(t.Context(), project, []refdb.Update{{Ref: main, Old: refdb.Value(r.a), New: refdb.Value(r.b)}}, "agent")
	r.must(err)
	r.behind("while the push is pending")
	r.git(r.dir, "update-ref", main, r.b)
	r.must(r.db.Intents().Finish(t.Context(), p, []string{main}, nil))
	r.daemon.count.Add(1)
	r.want("after the push", r.b, false)
	r.want("after the push, again", r.b, true)
}

func TestAListThatWasMadeDuringAChangeIsNotCached(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	asked := r.driver.tips.Load()
	change := func() {
		if r.driver.tips.Load() == asked+2 { // the request after git has answered
			r.must(r.db.Update(t.Context(), project, []refdb.Update{{Ref: "refs/heads/other", New: refdb.Value(r.a)}}))
			r.git(r.dir, "update-ref", "refs/heads/other", r.a)
		}
	}
	var each func()
	each = func() { change(); r.driver.onTip.Store(&each) }
	r.driver.onTip.Store(&each)
	r.want("the first", r.a, false)
	if _, answers := r.cache.size(); answers != 0 {
		t.Errorf("%d lists were cached", answers)
	}
	r.want("the second", r.a, false)
	r.want("the third", r.a, true)
}

func TestConcurrentReadersShareOneList(t *testing.T) {
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

func TestProtocolsAndRequestsHaveSeparateLists(t *testing.T) {
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
	// The compressed request has the same list as the uncompressed one.
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

func TestAnAnswerThatIsTooLargeForTheCacheIsPassedOn(t *testing.T) {
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
