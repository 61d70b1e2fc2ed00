//go:build linux

package sites

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
)

// userHeader is where the tests' clients, which are their own web server in front, say who they are.
const userHeader = "X-Remote-User"

var asAlice = []string{"-c", "http.extraHeader=" + userHeader + ": alice"}

// A front is a `site http` of a site.
type front struct {
	*server
	url, metrics string
	process      *child
}

// http starts `site http`, and waits until it serves.
func (s *server) http(args ...string) *front {
	s.c.Helper()
	// Without a user nobody pushes; the other tests' repositories let everybody.
	s.git("config", "--unset-all", "http.receivepack")
	var ports [2]string
	for i := range ports {
		port, err := testserver.FreePort()
		ports[i] = fmt.Sprint("127.0.0.1:", must(s.c.TB, port, err))
	}
	f := &front{server: s, url: "http://" + ports[0], metrics: "http://" + ports[1] + "/metrics"}
	f.process = launch(s.life, s.command(append([]string{"site", "http", "--listen", ports[0], "--metrics", ports[1], "--user-header", userHeader, "--log-level", "debug"}, args...)...))
	s.life.Cleanup(func() {
		if strings.Contains(f.process.out.String(), "DATA RACE") {
			s.life.Errorf("site http of %s has a data race", s.name)
		}
		if s.life.Failed() {
			s.life.Logf("site http of %s says\n%s", s.name, f.process.out)
		}
	})
	eventually(s.c, "site http of "+s.name, func() error {
		conn, err := net.Dial("tcp", ports[0])
		if err == nil {
			conn.Close()
		}
		return err
	})
	return f
}

// globalRefs returns the refs in the database that are no site's own.
func (c *cluster) globalRefs() map[string]string {
	c.Helper()
	refs := c.global(project)
	delete(refs, "HEAD")
	return refs
}

func (f *front) repoURL() string { return f.url + "/" + project + ".git" }

// count returns how many requests had that result.
func (f *front) count(result string) int {
	f.c.Helper()
	response, err := http.Get(f.metrics)
	if err != nil {
		f.c.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(f.c.TB, text, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, `refdb_http_requests_total{result="`+result+`"} `); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			return must(f.c.TB, n, err)
		}
	}
	f.c.Fatalf("no counter for %q: %s", result, text)
	return 0
}

// listsFromCache reads a list until it comes from the cache: on a busy machine an answer may come too late to be kept, or to be used.
func (f *front) listsFromCache() {
	f.c.Helper()
	before := f.count("hit")
	eventually(f.c, "a list from the cache of "+f.name, func() error {
		if _, err := f.c.h.lists(f.c, f.repoURL()); err != nil {
			return err
		}
		if f.count("hit") == before {
			return errPending
		}
		return nil
	})
}

// reads is get for a client that comes again while the site is behind.
func (f *front) reads(path string) (status int, text string) {
	f.c.Helper()
	eventually(f.c, "an answer of "+f.name, func() error {
		if status, text = f.get(path); status == http.StatusServiceUnavailable {
			return errors.New(text)
		}
		return nil
	})
	return status, text
}

// get asks for a path, and returns the status and the body.
func (f *front) get(path string) (int, string) {
	f.c.Helper()
	response, err := http.Get(f.url + path)
	if err != nil {
		f.c.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(must(f.c.TB, text, err))
}

// reads is try for a client that comes again, as it is told to, while the site is behind: on a busy machine that may take longer than a
// server waits.
func (g *git) reads(dir string, args ...string) (out string, err error) {
	for deadline := time.Now().Add(patience); ; {
		out, err = g.try(dir, args...)
		if err == nil || !strings.Contains(err.Error(), "error: 503") || time.Now().After(deadline) {
			return out, err
		}
	}
}

// lists returns what a client is told that a front's repository has.
func (h *history) lists(t testing.TB, url string, options ...string) (map[string]string, error) {
	out, err := h.g.client(t, url).reads(h.dir, append(options, "ls-remote", url)...)
	refs := map[string]string{}
	for line := range strings.Lines(out) {
		value, ref, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if strings.HasPrefix(ref, "refs/") && !strings.HasSuffix(ref, "^{}") {
			refs[ref] = value
		}
	}
	return refs, err
}

func TestClientsOfSiteHTTP(t *testing.T) {
	eachStorage(t, func(t *testing.T, g *git, s storage) {
		c := newCluster(t, g, design{storage: s, h: newHistory(t, g, s.objects, 4, 2), extra: storing})
		eu, us := c.eu.http(), c.us.http()
		client := g.client(t, eu.url)
		for i, version := range []string{"0", "1", "2"} {
			if testing.Short() && version == "1" {
				continue // version 0 with a line more
			}
			protocol := []string{"-c", "protocol.version=" + version}
			alice := slices.Concat(protocol, asAlice)
			push := func(to *front, args ...string) {
				t.Helper()
				if out, err := client.try(c.h.dir, slices.Concat(alice, []string{"push", "--quiet", "--force", to.repoURL()}, args)...); err != nil {
					t.Fatal(out, err)
				}
			}
			lists := func(from *front) {
				t.Helper()
				for range 2 {
					got, err := c.h.lists(t, from.repoURL(), protocol...)
					sameRefs(t, "version "+version+" at "+from.name, must(t, got, err), c.globalRefs())
				}
			}
			push(eu, c.h.leaves[i]+":refs/heads/main", c.h.tag+":refs/tags/annotated-"+version)
			lists(us)
			lists(eu)
			push(us, c.h.children[i][0]+":refs/heads/main")
			lists(eu)

			dir := shortDir(t)
			clone := func(name string, args ...string) string {
				t.Helper()
				out, err := client.reads(dir, slices.Concat(protocol, []string{"clone", "--quiet"}, args, []string{eu.repoURL(), name})...)
				must(t, out, err)
				return filepath.Join(dir, name)
			}
			whole, shallow := clone("whole"), clone("shallow", "--depth=1")
			bare := clone("bare", "--bare", "--filter=tree:0")
			for _, copied := range []string{whole, shallow, bare} {
				if got := client.run(t, copied, "rev-parse", "HEAD"); got != c.h.children[i][0] {
					t.Errorf("the clone %s has %s", copied, got)
				}
			}
			if n := client.run(t, shallow, "rev-list", "--count", "HEAD"); n != "1" {
				t.Errorf("the shallow clone has %s commits", n)
			}
			push(us, c.h.children[i][1]+":refs/heads/main")
			out, err := client.reads(whole, slices.Concat(protocol, []string{"fetch", "--quiet"})...)
			must(t, out, err)
			if got := client.run(t, whole, "rev-parse", "refs/remotes/origin/main"); got != c.h.children[i][1] {
				t.Errorf("a fetch brought %s", got)
			}
			out, err = client.reads(shallow, slices.Concat(protocol, []string{"fetch", "--quiet", "--unshallow"})...)
			must(t, out, err)
		}
		for change, err := range c.db.History(t.Context(), project, "refs/heads/main") {
			if err != nil || change.By != "alice" {
				t.Errorf("%+v, %v", change, err)
			}
		}
		for _, f := range []*front{eu, us} {
			f.listsFromCache()
			if n := f.count("failed"); n > 0 {
				t.Errorf("%d requests failed at %s", n, f.name)
			}
		}
	})
}

func TestWhoIsNobodyDoesNotPush(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing})
	eu := c.eu.http()
	client := g.client(t, eu.url)
	push := func(ref string, headers ...string) error {
		args := []string{}
		for _, h := range headers {
			args = append(args, "-c", "http.extraHeader="+h)
		}
		_, err := client.try(c.h.dir, append(args, "push", eu.repoURL(), c.h.a+":"+ref)...)
		return err
	}
	if err := push("refs/heads/nobody"); err == nil {
		t.Error("without a user a push was accepted")
	}
	if err := push("refs/heads/two", userHeader+": alice", userHeader+": mallory"); err == nil || !strings.Contains(err.Error(), "400") {
		t.Errorf("with two users: %v", err)
	}
	if err := push("refs/heads/alice", userHeader+": alice"); err != nil {
		t.Error(err)
	}
	if refs := c.globalRefs(); len(refs) != 1 || refs["refs/heads/alice"] != c.h.a {
		t.Errorf("%v", refs)
	}
	// A push of more than git sends in one piece.
	big := commitOfSize(t, c, 3<<20, c.h.a)
	if out, err := client.try(c.h.dir, slices.Concat(asAlice, []string{"push", eu.repoURL(), big + ":refs/heads/big"})...); err != nil {
		t.Error(out, err)
	}
}

func TestOnlyGuardedRepositoriesAreServed(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	const other = "team/other"
	c := newCluster(t, g, design{projects: []string{project, other}, extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.settled() // readers wait for a push that has not ended
	eu := c.eu.http()
	if status, text := eu.reads("/" + other + ".git/info/refs?service=git-upload-pack"); status != 200 {
		t.Errorf("another repository: %d: %s", status, text)
	}
	g.run(t, c.h.dir, "clone", "--quiet", "--bare", c.h.dir, filepath.Join(c.eu.root, "unguarded.git"))
	g.run(t, c.h.dir, "clone", "--quiet", "--bare", c.h.dir, filepath.Join(c.eu.dir, "outside.git"))
	// A copy has the hooks and everything else of what it was copied from.
	c.eu.losesRepository(other)
	if out, err := exec.Command("cp", "-a", c.eu.repo(project), c.eu.repo(other)).CombinedOutput(); err != nil {
		t.Fatal(string(out), err)
	}
	const refs = "/info/refs?service=git-upload-pack"
	for path, want := range map[string]int{
		"/" + project + ".git" + refs:                                200,
		"/" + project + refs:                                         200,
		"/unguarded.git" + refs:                                      404,
		"/" + other + ".git" + refs:                                  404,
		"/unknown.git" + refs:                                        404,
		"/../outside.git" + refs:                                     404,
		"/%2e%2e/outside.git" + refs:                                 404,
		"/" + project + ".git/../../unguarded.git" + refs:            404,
		"//etc/passwd" + refs:                                        404,
		refs:                                                         404,
		"/" + project + ".git/HEAD":                                  404,
		"/" + project + ".git/objects/info/packs":                    404,
		"/" + project + ".git/info/refs":                             403,
		"/" + project + ".git/info/refs?service=git-upload-archive":  403,
		"/" + project + ".git/info/refs?service=git-upload-pack&x=y": 403,
		"/" + project + ".git/git-upload-pack":                       405,
		"/" + project + "%00.git" + refs:                             404,
	} {
		status := ""
		eventually(t, "an answer to "+path, func() error {
			conn, err := net.Dial("tcp", strings.TrimPrefix(eu.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// A client of Go's would tidy the path up.
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path)
			text, err := io.ReadAll(conn)
			status, _, _ = strings.Cut(string(must(t, text, err)), "\r\n")
			if strings.Contains(status, " 503 ") {
				return errors.New(string(text)) // it is behind
			}
			return nil
		})
		if !strings.Contains(status, fmt.Sprint(" ", want, " ")) {
			t.Errorf("%s: %q, want %d", path, status, want)
		}
	}
	c.eu.must("site", "disable", c.eu.repo(project))
	if status, text := eu.get("/" + project + ".git" + refs); status != 404 {
		t.Errorf("a repository that is not guarded any more: %d: %s", status, text)
	}
}

// Whatever was acknowledged at either site before a list was asked for is in the list, or something later.
func TestListsOverHTTPAreNeverOlderThanWhatWasAcknowledged(t *testing.T) {
	for _, database := range []struct {
		name string
		on   func(testing.TB) database
	}{{"sqlite", onSQLite}, {"postgres", onPostgres}} {
		t.Run(database.name, func(t *testing.T) {
			if testing.Short() && database.name == "postgres" {
				t.Skip("left out by -short: the same on PostgreSQL, half a minute; make test-all runs it")
			}
			t.Parallel()
			all, err := gits()
			g := must(t, all, err)[0]
			pushes := 24
			if testing.Short() {
				pushes = 6
			}
			c := newCluster(t, g, design{database: database.on, h: newHistory(t, g, "sha1", 0, 0), extra: storing})
			fronts := []*front{c.eu.http(), c.us.http()}
			// A line of commits: later ones have larger numbers.
			number := map[string]int{}
			var line []string
			parent := c.h.a
			tree := g.run(t, c.h.dir, "rev-parse", c.h.a+"^{tree}")
			for i := range pushes {
				parent = g.run(t, c.h.dir, "commit-tree", "-m", fmt.Sprint(i), "-p", parent, tree)
				line = append(line, parent)
				number[parent] = i + 1
			}
			client := g.client(t, fronts[0].url)
			var acknowledged atomic.Int64 // the number of the last push
			var done atomic.Bool
			var failed atomic.Pointer[string]
			fail := func(text string, args ...any) {
				said := fmt.Sprintf(text, args...)
				failed.CompareAndSwap(nil, &said)
			}
			var clients sync.WaitGroup
			clients.Go(func() {
				defer done.Store(true)
				for i, commit := range line {
					// A site that is behind refuses a push: its client tries again.
					var err error
					for deadline := time.Now().Add(patience); ; {
						_, err = client.try(c.h.dir, slices.Concat(asAlice, []string{"push", "--quiet", fronts[i%2].repoURL(), commit + ":refs/heads/main"})...)
						if err == nil || time.Now().After(deadline) {
							break
						}
					}
					if err != nil {
						fail("push %d: %v", i+1, err)
						return
					}
					acknowledged.Store(int64(i + 1))
				}
			})
			lists := make([]int, 4)
			for i := range lists {
				if testing.Short() && i%3 > 0 {
					continue // one client with each version, each at another site
				}
				clients.Go(func() {
					for last := false; !last && failed.Load() == nil; lists[i]++ {
						last = done.Load()
						before := acknowledged.Load()
						version := fmt.Sprint("protocol.version=", []int{2, 0}[i/2])
						got, err := c.h.lists(t, fronts[i%2].repoURL(), "-c", version)
						// On a busy machine a site may need more than a second to follow.
						for deadline := time.Now().Add(patience); err != nil && strings.Contains(err.Error(), "try again in a moment") && time.Now().Before(deadline); {
							got, err = c.h.lists(t, fronts[i%2].repoURL(), "-c", version)
						}
						if err != nil {
							fail("a list: %v", err)
						} else if n := number[got["refs/heads/main"]]; int64(n) < before {
							fail("push %d was acknowledged, and %s lists push %d", before, fronts[i%2].name, n)
						}
					}
				})
			}
			clients.Wait()
			if said := failed.Load(); said != nil {
				t.Fatal(*said)
			}
			t.Logf("%v lists, %d from the cache", lists, fronts[0].count("hit")+fronts[1].count("hit"))
			for _, f := range fronts {
				f.listsFromCache()
			}
		})
	}
}

// Refs that the database does not have are a site's own. The daemon says when they may have moved.
func TestListsHaveTheRefsThatAreNotGuarded(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	pushes := 20
	if testing.Short() {
		pushes = 5
	}
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", pushes, 0), extra: storing + "[guard]\n\tskipRef = refs/own/*\n"})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	eu := c.eu.http()
	for i, leaf := range c.h.leaves {
		c.eu.pushed("--force", leaf+":refs/own/x")
		for range 2 {
			got, err := c.h.lists(t, eu.repoURL())
			if must(t, got, err)["refs/own/x"] != leaf {
				t.Fatalf("after push %d: %v", i, got)
			}
		}
	}
	eu.listsFromCache()
	c.eu.git("symbolic-ref", "HEAD", "refs/heads/other")
	c.eu.pushed(c.h.b + ":refs/heads/other")
	head, err := g.client(t, eu.url).reads(c.h.dir, "ls-remote", eu.repoURL(), "HEAD")
	if !strings.HasPrefix(must(t, head, err), c.h.b) {
		t.Errorf("HEAD is %s", head)
	}
	// Hidden refs are those of the configuration.
	c.eu.git("config", "--add", "transfer.hideRefs", "refs/own")
	got, err := c.h.lists(t, eu.repoURL())
	if _, shown := must(t, got, err)["refs/own/x"]; shown {
		t.Errorf("a hidden ref is listed: %v", got)
	}
	// Without the daemon nothing is kept, and everything is read.
	c.eu.kill()
	before := eu.count("hit")
	got, err = c.h.lists(t, eu.repoURL())
	if must(t, got, err)["refs/heads/main"] != c.h.a || eu.count("hit") != before {
		t.Errorf("without the daemon: %v, %d hits", got, eu.count("hit")-before)
	}
}

// A site that can't follow says so.
func TestASiteThatIsBehindTellsReadersToComeAgain(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 1, 0), extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	us := c.us.http()
	const path = "/" + project + ".git/info/refs?service=git-upload-pack"
	if status, text := us.reads(path); status != 200 || !strings.Contains(text, c.h.a) {
		t.Fatal(status, text)
	}
	before := us.count("behind")
	c.us.kill()
	c.eu.pushed(c.h.b+":refs/heads/main", c.h.leaves[0]+":refs/heads/leaf")
	if status, text := us.get(path); status != 503 || text != "refdb: this site is behind by 2 refs after 1s, refs/heads/leaf among them: try again in a moment; if it stays, the site's operator runs `refdbctl site status`\n" {
		t.Errorf("%d: %s", status, text)
	}
	if n := us.count("behind") - before; n != 1 {
		t.Errorf("%d readers were told to come again", n)
	}
	c.us.start()
	c.us.follows(project)
	if status, text := us.reads(path); status != 200 || !strings.Contains(text, c.h.b) {
		t.Errorf("%d: %s", status, text)
	}
}

// SIGTERM lets a fetch under way end, and leaves no socket behind.
func TestSiteHTTPStopsInGoodOrder(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	eu := c.eu.http()
	body, feed := io.Pipe()
	request, err := http.NewRequest("POST", eu.repoURL()+"/git-upload-pack", body)
	must(t, request, err)
	request.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	// The server says 100 when it begins to read the body.
	request.Header.Set("Expect", "100-continue")
	reads := make(chan struct{})
	request = request.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reads) }}))
	transport := &http.Transport{ExpectContinueTimeout: patience}
	defer transport.CloseIdleConnections()
	answered := make(chan string, 1)
	go func() {
		response, err := transport.RoundTrip(request)
		if err != nil {
			answered <- err.Error()
			return
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		answered <- string(text)
	}()
	select {
	case <-reads:
	case <-time.After(patience):
		t.Fatal("the server does not read the request")
	}
	want := "0032want " + c.h.a + "\n"
	io.WriteString(feed, want)
	fed := time.Now()
	signal(t, eu.process.Process.Pid, 15)
	eventually(t, "no new request is taken", func() error {
		if time.Since(fed) > 10*time.Second { // the server gives up a client that takes a minute for 64 KiB
			io.WriteString(feed, strings.Repeat(want, 64<<10/len(want)+1))
			fed = time.Now()
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(eu.url, "http://"))
		if err != nil {
			return nil
		}
		conn.Close()
		return errPending
	})
	io.WriteString(feed, "00000009done\n")
	feed.Close()
	if text := <-answered; !strings.Contains(text, "NAK") || !strings.Contains(text, "PACK") {
		t.Errorf("the request under way got %q", text)
	}
	if !eu.process.wait(t) {
		t.Errorf("%s", eu.process.out)
	}
}

// Nothing is accepted of a push that uploads for longer than a stop takes.
func TestSiteHTTPBreaksOffAPushThatUploadsForTooLong(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing + "\tstopTimeout = 100ms\n"})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	eu := c.eu.http()
	text, body := rawRequest{service: "git-receive-pack", body: c.pushOf("refs/heads/x", c.h.b)}.bytes()
	conn, err := eu.begin(text[:body])
	must(t, conn, err)
	defer conn.Close()
	sent, err := conn.Write(text[body : len(text)-1])
	must(t, sent, err)
	signal(t, eu.process.Process.Pid, 15)
	if !eu.process.wait(t) {
		t.Errorf("%s", eu.process.out)
	}
	if answer, _ := io.ReadAll(conn); strings.Contains(string(answer), "unpack ok") {
		t.Errorf("the push got %q", answer)
	}
	if c.eu.refs(project)["refs/heads/x"] != "" || c.global(project)["refs/heads/x"] != "" {
		t.Error("the push was accepted")
	}
	c.eu.pushed(c.h.b + ":refs/heads/x")
	c.caughtUp()
}
