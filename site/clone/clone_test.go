package clone_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/clone"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

const project = "team/app"

// A source is site a's repository of a project whose objects the database keeps.
type source struct {
	testing.TB
	database *memory.Database
	db       *refdb.DB
	sitetest.Bare
	repo *gitrepo.Repo
}

func newSource(t *testing.T, store string) *source {
	t.Helper()
	s := &source{TB: t, database: memory.New(), Bare: sitetest.Bare{Dir: filepath.Join(t.TempDir(), "a.git")}}
	s.db = s.open("a")
	if _, err := s.db.Projects().Put(t.Context(), driver.Project{Project: project, ID: "id", Rules: "ref *", Mode: "enforce", Store: store}); err != nil {
		t.Fatal(err)
	}
	sitetest.GitIn(t, t.TempDir(), "init", "--quiet", "--bare", s.Dir)
	repo, err := gitrepo.OpenDir(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	s.repo = repo
	return s
}

func (s *source) open(site string) *refdb.DB {
	s.Helper()
	db, err := refdb.New(s.database.Open(), refdb.Options{Site: site})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { db.Close() })
	return db
}

// prepare prepares a push of main, with its objects unless withoutPack.
func (s *source) prepare(old, new string, withoutPack bool) intents.Preparation {
	s.Helper()
	moves := []refdb.Update{{Ref: "refs/heads/main", Old: refdb.Value(old), New: refdb.Value(new)}}
	var ids []string
	if !withoutPack {
		made, err := packs.Source{DB: s.db, Repo: s.repo, Project: project}.Store(s.Context(), moves, packs.Limits{})
		if err != nil {
			s.Fatal(err)
		}
		ids = append(ids, made.ID)
	}
	p, err := s.db.Intents().Prepare(s.Context(), project, moves, "git", intents.WithPacks(ids...))
	if err != nil {
		s.Fatal(err)
	}
	return p
}

func (s *source) push(old, new string) {
	s.Helper()
	if err := s.db.Intents().Finish(s.Context(), s.prepare(old, new, false), []string{"refs/heads/main"}, nil); err != nil {
		s.Fatal(err)
	}
	s.Set(s, "refs/heads/main", new)
}

// clone clones the project for a site; "" for none.
func (s *source) clone(site string) (clone.Report, error) {
	s.Helper()
	dir := s.TempDir()
	c := sitetest.SiteConfig(s, dir, "")
	return clone.Clone(s.Context(), c, s.open("b"), clone.Options{Project: project, Path: filepath.Join(dir, "copy.git"), Site: site, By: "alice@host", Hook: sitetest.Hook()})
}

func TestACloneHasAllRefsAndObjects(t *testing.T) {
	t.Parallel()
	s := newSource(t, "all")
	first := s.Commit(s, "first")
	s.push("", first)
	second := s.Commit(s, "second", first)
	s.push(first, second)
	rep, err := s.clone("b")
	if err != nil || rep.Refs != 1 || rep.Packs != 2 || len(rep.Resolved) != 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if got := sitetest.GitIn(t, rep.Path, "rev-parse", "refs/heads/main"); got != second {
		t.Errorf("main is %s", got)
	}
	sitetest.GitIn(t, rep.Path, "fsck", "--connectivity-only", "--no-dangling")
	if id := sitetest.GitIn(t, rep.Path, "config", "refdb.projectid"); id != "id" {
		t.Errorf("it records the ID %s", id)
	}
}

// A push may have been acknowledged although its intent stands. The new repository has the old value, which would say that
// the move was never made.
func TestWhatTheLostRepositoryHadLetThroughCountsAsMade(t *testing.T) {
	t.Parallel()
	s := newSource(t, "all")
	first := s.Commit(s, "first")
	s.push("", first)
	second := s.Commit(s, "second", first)
	s.prepare(first, second, false)
	rep, err := s.clone("a")
	if err != nil || len(rep.Resolved) != 1 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if got := sitetest.GitIn(t, rep.Path, "rev-parse", "refs/heads/main"); got != second {
		t.Errorf("main is %s", got)
	}
	if v, err := s.db.Get(t.Context(), project, "refs/heads/main"); err != nil || v != refdb.Value(second) {
		t.Errorf("the database has %s, %v", v, err)
	}
}

// The intents of another site are for that site to end.
func TestACloneLeavesOtherSitesIntentsAlone(t *testing.T) {
	t.Parallel()
	s := newSource(t, "all")
	first := s.Commit(s, "first")
	s.push("", first)
	s.prepare(first, s.Commit(s, "second", first), false)
	rep, err := s.clone("b")
	if err != nil || len(rep.Resolved) != 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if got := sitetest.GitIn(t, rep.Path, "rev-parse", "refs/heads/main"); got != first {
		t.Errorf("main is %s", got)
	}
}

func TestACloneThatCanNotBeWholeLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		store, site, want string
		is                error
		do                func(*source, string)
	}{
		"no objects are kept": {"", "b", "site store start", clone.ErrNotStored, func(*source, string) {}},
		"a value that came without a push": {"all", "b", "site store compact", packs.ErrIncomplete, func(s *source, first string) {
			move := []refdb.Update{{Ref: "refs/heads/other", New: refdb.Value(s.Commit(s, "other"))}}
			if err := s.db.Update(s.Context(), project, move); err != nil {
				s.Fatal(err)
			}
		}},
		"a lost push without its objects": {"all", "a", "locks resolve", nil, func(s *source, first string) {
			s.prepare(first, s.Commit(s, "second", first), true)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, c.store)
			first := s.Commit(s, "first")
			s.push("", first)
			c.do(s, first)
			rep, err := s.clone(c.site)
			if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("%+v, %v", rep, err)
			}
			left, err := filepath.Glob(filepath.Join(s.TempDir(), "..", "*", "*.git"))
			if err != nil || len(left) != 1 {
				t.Errorf("left: %v, %v", left, err)
			}
			unfinished, err := filepath.Glob(filepath.Join(s.TempDir(), "..", "*", config.Unfinished+"*"))
			if err != nil || len(unfinished) > 0 {
				t.Errorf("left: %v, %v", unfinished, err)
			}
		})
	}
}

// Whoever clones a copy gets files, also if HEAD is detached where the project came from: then the database says nothing of it.
func TestTheHeadOfACopyIsABranchThatExists(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		head string   // in the database
		refs []string // beside refs/tags/v1
		want string
	}{
		{"ref: refs/heads/next", []string{"refs/heads/main"}, "refs/heads/next"}, // as somebody wanted it
		{"", []string{"refs/heads/a", "refs/heads/master"}, "refs/heads/master"},
		{"", []string{"refs/heads/a", "refs/heads/master", "refs/heads/main"}, "refs/heads/main"},
		{"", []string{"refs/heads/trunk", "refs/heads/side"}, "refs/heads/side"},
	} {
		s := newSource(t, "all")
		first := s.Commit(s, "first")
		s.push("", first)
		if _, err := s.db.Put(t.Context(), project, "refs/tags/v1", refdb.Value(first)); err != nil {
			t.Fatal(err)
		}
		if err := s.db.Update(t.Context(), project, []refdb.Update{{Ref: "refs/heads/main", Old: refdb.Value(first), New: refdb.Deleted}}); err != nil {
			t.Fatal(err)
		}
		for _, ref := range row.refs {
			if _, err := s.db.Put(t.Context(), project, ref, refdb.Value(first)); err != nil {
				t.Fatal(err)
			}
		}
		if row.head != "" {
			if _, err := s.db.Put(t.Context(), project, "HEAD", refdb.Value(row.head)); err != nil {
				t.Fatal(err)
			}
		}
		rep, err := s.clone("b")
		if err != nil {
			t.Fatal(err)
		}
		if got := sitetest.GitIn(t, rep.Path, "symbolic-ref", "HEAD"); got != row.want {
			t.Errorf("with %q: HEAD points to %s, want %s", row.refs, got, row.want)
		}
	}
}
