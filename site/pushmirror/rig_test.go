package pushmirror_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pushmirror"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

const app, x, y = "team/app", "refs/heads/x", "refs/heads/y"

// A world has a database and a server outside.
type world struct {
	*testing.T
	shared  *memory.Database
	outside string // the directory of the mirror's repositories
	at      int64  // time of the next commit
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, shared: memory.New(), outside: filepath.Join(t.TempDir(), "outside")}
	w.init(w.mirrored(app))
	return w
}

// mirrored returns the mirror's repository of a project.
func (w *world) mirrored(project string) string { return filepath.Join(w.outside, project+".git") }

func (w *world) init(dir string) {
	w.Helper()
	sitetest.GitIn(w, "/", "init", "--quiet", "--bare", dir)
}

// A site has copies, and pushes to the mirror.
type site struct {
	*world
	name   string
	root   string
	keys   string // of its configuration
	db     *refdb.DB
	state  *serving.State
	mayAct func(context.Context) error
	*pushmirror.Mirrors
	stop func()
}

// site makes a site whose copies are whole. Keys are more of its configuration of the mirror.
func (w *world) site(name string, keys ...string) *site {
	w.Helper()
	db, err := refdb.New(w.shared.Open(), refdb.Options{Site: name})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { db.Close() })
	s := &site{world: w, name: name, mayAct: func(context.Context) error { return nil }, root: filepath.Join(w.TempDir(), "git"), db: db}
	s.init(s.copy(app))
	s.keys = strings.Join(keys, "\n\t")
	c := s.configured()
	s.state = serving.New(c, presence.New(db, discard))
	return s
}

// configured returns the site's configuration.
func (s *site) configured() *config.Config {
	s.Helper()
	file := filepath.Join(s.TempDir(), "site.config")
	text := fmt.Sprintf("[site]\n\tname = %s\n\troot = %s\n[pushMirror \"out\"]\n\turl = %s/{project}.git\n\t%s\n", s.name, s.root, s.outside, s.keys)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
	c, err := config.Load(s.Context(), file)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

func (s *site) copy(project string) string { return filepath.Join(s.root, project+".git") }

var discard = slog.New(slog.DiscardHandler)

// mirrors returns the mirrors of a daemon that starts.
func (s *site) mirrors() *pushmirror.Mirrors {
	return &pushmirror.Mirrors{
		State: s.state, DB: s.db, Projects: &projects.Cache{}, Logger: discard,
		Copy: func(_ context.Context, project string) (*config.Config, config.Repository, error) {
			r, err := s.state.Config().Repository(project)
			return s.state.Config(), r, err
		},
		MayAct: s.mayAct,
	}
}

// start begins to push, until the test ends or stop is called.
func (s *site) start() {
	s.Helper()
	s.Mirrors = s.mirrors()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	s.stop = func() { cancel(); <-done }
	s.Cleanup(s.stop)
}

// project gives the database a row of a project.
func (s *site) project(name string) {
	s.Helper()
	if _, err := s.db.Projects().Put(s.Context(), driver.Project{Project: name, ID: "id of " + name, Rules: "ref refs/*", Mode: config.Enforce, Store: config.StoreAll}); err != nil {
		s.Fatal(err)
	}
}

// commit makes a commit in the copies of a project at all sites.
func commit(project string, sites ...*site) (id string) {
	w := sites[0].world
	w.Helper()
	w.at++
	for _, s := range sites {
		tree := strings.TrimSpace(sitetest.GitIn(s, s.copy(project), "hash-object", "-t", "tree", "-w", "/dev/null"))
		id = strings.TrimSpace(sitetest.GitIn(s, s.copy(project), "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", fmt.Sprint(w.at), tree))
	}
	return id
}

// put moves a ref in the database.
func (s *site) put(project, ref, value string) {
	s.Helper()
	if _, err := s.db.Put(s.Context(), project, ref, refdb.Value(value)); err != nil {
		s.Fatal(err)
	}
}

// follow moves a ref of the site's copy.
func (s *site) follow(project, ref, value string) {
	s.Helper()
	sitetest.GitIn(s, s.copy(project), "update-ref", ref, value)
}

// moves moves a ref in the database and in the site's copy.
func (s *site) moves(project, ref, value string) {
	s.Helper()
	s.follow(project, ref, value)
	s.put(project, ref, value)
}

// has waits until the mirror's repository of a project has these refs.
func (w *world) has(project string, refs ...string) {
	w.Helper()
	want := strings.Join(refs, " ")
	sitetest.Eventually(w, "the mirror has "+want, func() bool { return w.refs(project) == want })
}

// refs returns the mirror's refs of a project, and their values.
func (w *world) refs(project string) string {
	w.Helper()
	return strings.Join(strings.Fields(sitetest.GitIn(w, w.mirrored(project), "for-each-ref", "--format=%(refname) %(objectname)")), " ")
}

// says waits until the status says of one project why the mirror is behind.
func (s *site) says(reason string) {
	s.Helper()
	sitetest.Eventually(s, "the status says "+reason, func() bool {
		all := s.Status()
		return len(all) == 1 && len(all[0].Behind) == 1 && strings.Contains(all[0].Behind[0].Reason, reason)
	})
}
