package smarthttp

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
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

// A rig is a server with one guarded repository, a database in memory, and a fake daemon.
type rig struct {
	*testing.T
	*Server
	db     *refdb.DB
	driver *countingDriver
	dir    string // of the repository
	config *config.Config
	daemon fakeDaemon
	a, b   string // commits
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root := t.TempDir()
	r := &rig{T: t, dir: filepath.Join(root, project+".git"), config: sitetest.SiteConfig(t, root, ""), driver: &countingDriver{Driver: memory.New().Open()}}
	r.git("/", "init", "--quiet", "--bare", "--initial-branch=main", r.dir)
	tree := r.git(r.dir, "hash-object", "-t", "tree", "-w", "/dev/null")
	r.a = r.git(r.dir, "commit-tree", "-m", "a", tree)
	r.b = r.git(r.dir, "commit-tree", "-m", "b", "-p", r.a, tree)
	db, err := refdb.New(r.driver, refdb.Options{Site: "b"})
	r.must(err)
	t.Cleanup(func() { db.Close() })
	r.db = db
	p, err := db.Projects().Put(t.Context(), driver.Project{Project: project, ID: "id", Rules: r.config.Rules().String(), Mode: config.Enforce})
	r.must(err)
	r.git(r.dir, "config", "refdb.projectid", p.ID)
	old := time.Now().Add(-time.Hour) // IDs in a file that has just changed are not cached
	r.must(os.Chtimes(filepath.Join(r.dir, "config"), old, old))
	r.must(os.MkdirAll(filepath.Join(r.dir, "refdb"), 0o755))
	r.must(os.Symlink(r.config.Socket, filepath.Join(r.dir, "refdb", "socket")))
	r.daemon.serve(t, r.config.Socket)
	r.Server, err = New(t.Context(), Options{Config: r.config, DB: db})
	r.must(err)
	r.limits.wait, r.limits.compare, r.limits.daemon = sitetest.Patience, sitetest.Patience, sitetest.Patience
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

// push moves a ref in the repository and in the database.
func (r *rig) push(ref, from, to string) {
	r.Helper()
	r.git(r.dir, "update-ref", ref, to)
	r.must(r.db.Update(r.Context(), project, []refdb.Update{{Ref: ref, Old: refdb.Value(from), New: refdb.Value(to)}}))
	r.daemon.count.Add(1)
}

// cutOff is the status of a request whose connection was ended without a response.
const cutOff = -1

func (r *rig) get(ctx context.Context, url string, header ...string) (w *httptest.ResponseRecorder) {
	q := httptest.NewRequestWithContext(ctx, "GET", url, nil)
	for i := 0; i < len(header); i += 2 {
		q.Header.Add(header[i], header[i+1])
	}
	w = httptest.NewRecorder()
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			w.Code = cutOff
		} else if p != nil {
			panic(p)
		}
	}()
	r.ServeHTTP(w, q)
	return w
}

// want gets the list of refs, which must contain the commit as main, and come from the cache or
// not.
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

// behind gets the list of refs, which must be refused because one ref is behind.
func (r *rig) behind(what string) {
	r.Helper()
	r.limits.wait = time.Millisecond
	defer func() { r.limits.wait = sitetest.Patience }()
	if w := r.get(r.Context(), refsURL); w.Code != http.StatusServiceUnavailable || !regexp.MustCompile(`behind by one ref after 1ms, refs/\S+: try again in a moment; if it stays, `).MatchString(w.Body.String()) || w.Header().Get("Retry-After") == "" {
		r.Errorf("%s: %d: %s", what, w.Code, w.Body)
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

// A fakeDaemon answers with a mark: its start and the number of moves, both set by the test.
type fakeDaemon struct {
	count, starts atomic.Int64
	hangs         atomic.Bool
}

func (d *fakeDaemon) serve(t *testing.T, path string) {
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

// A countingDriver counts the requests that lists of refs make, and injects failures.
type countingDriver struct {
	refdb.Driver
	tips, others, lists atomic.Int64
	admissions          atomic.Int64 // which lists of refs do not request
	// onTip, unless nil, runs before the next tip is read, once.
	onTip atomic.Pointer[func()]
	// onList, unless nil, runs before refs are listed.
	onList func()
	// If away is set, requests fail; if noRows is set, those for projects do. If silent is set,
	// requests for tips and for the admission get no answer; fails, unless nil, is their error.
	away, noRows, silent atomic.Bool
	fails                atomic.Pointer[error]
}

func (c *countingDriver) answers() error {
	if c.away.Load() {
		return refdb.ErrUnavailable
	}
	return nil
}

func (c *countingDriver) Tip(ctx context.Context, project string) (driver.Tip, error) {
	c.tips.Add(1)
	if do := c.onTip.Swap(nil); do != nil {
		(*do)()
	}
	if err := c.fault(ctx); err != nil {
		return driver.Tip{}, err
	}
	return c.Driver.Tip(ctx, project)
}

// fault returns the error that a request for a tip or for the admission is to have.
func (c *countingDriver) fault(ctx context.Context) error {
	if c.silent.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := c.fails.Load(); err != nil {
		return *err
	}
	return c.answers()
}

func (c *countingDriver) Admission(ctx context.Context) (driver.Admission, error) {
	c.admissions.Add(1)
	if err := c.fault(ctx); err != nil {
		return driver.Admission{}, err
	}
	return c.Driver.Admission(ctx)
}

func (c *countingDriver) List(ctx context.Context, q driver.RefQuery) (driver.RefPage, error) {
	c.others.Add(1)
	c.lists.Add(1)
	if c.onList != nil {
		c.onList()
	}
	if err := c.answers(); err != nil {
		return driver.RefPage{}, err
	}
	return c.Driver.List(ctx, q)
}

func (c *countingDriver) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	c.others.Add(1)
	return c.Driver.Intents(ctx, q)
}

func (c *countingDriver) Projects(ctx context.Context, q driver.ProjectQuery) ([]driver.Project, error) {
	c.others.Add(1)
	if c.noRows.Load() {
		return nil, refdb.ErrUnavailable
	}
	return c.Driver.Projects(ctx, q)
}
