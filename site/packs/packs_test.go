package packs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

const project = "team/app"

// A site is a repository of a project with its mark.
type site struct {
	testing.TB
	db *refdb.DB
	sitetest.Bare
	repo *gitrepo.Repo
	mark *packs.Mark
}

// A world is a database that its sites share.
type world struct {
	testing.TB
	driver refdb.Driver
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, memory.New().Open())
}

func newWorldOn(t *testing.T, d refdb.Driver) *world {
	t.Helper()
	w := &world{TB: t, driver: d}
	db := w.open("test")
	if _, err := db.Projects().Put(t.Context(), driver.Project{Project: project, ID: "id", Rules: "ref *", Mode: "enforce", Store: "all"}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) open(name string) *refdb.DB {
	w.Helper()
	db, err := refdb.New(w.driver, refdb.Options{Site: name})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { db.Close() })
	return db
}

func (w *world) site(name string) *site {
	w.Helper()
	s := &site{TB: w, db: w.open(name), Bare: sitetest.Bare{Dir: filepath.Join(w.TempDir(), name+".git")}}
	sitetest.GitIn(w, w.TempDir(), "init", "--quiet", "--bare", s.Dir)
	repo, err := gitrepo.OpenDir(s.Dir)
	if err == nil {
		s.repo = repo
		s.mark, err = packs.ReadMark(s.Dir)
	}
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func (s *site) git(args ...string) string {
	s.Helper()
	return sitetest.GitIn(s, s.Dir, args...)
}

func (s *site) commit(message string, parents ...string) string {
	s.Helper()
	return s.Commit(s, message, parents...)
}

func (s *site) source() packs.Source { return packs.Source{DB: s.db, Repo: s.repo, Project: project} }

func (s *site) store(moves ...refdb.Update) string {
	s.Helper()
	made, err := s.source().Store(s.Context(), moves, packs.Limits{})
	if err != nil {
		s.Fatal(err)
	}
	return made.ID
}

// prepare stores the objects of the moves and prepares the moves.
func (s *site) prepare(moves ...refdb.Update) intents.Preparation {
	s.Helper()
	var ids []string
	if id := s.store(moves...); id != "" {
		ids = append(ids, id)
	}
	p, err := s.db.Intents().Prepare(s.Context(), project, moves, "test", intents.WithPacks(ids...))
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// push moves refs in the site's repository and in the database.
func (s *site) push(moves ...refdb.Update) {
	s.Helper()
	p := s.prepare(moves...)
	var done []string
	for _, m := range moves {
		if m.New.IsDeleted() {
			s.git("update-ref", "-d", m.Ref)
		} else {
			s.git("update-ref", m.Ref, string(m.New))
		}
		done = append(done, m.Ref)
	}
	if err := s.db.Intents().Finish(s.Context(), p, done, nil); err != nil {
		s.Fatal(err)
	}
}

func (s *site) receive() (unpacked []string, err error) {
	s.Helper()
	state, err := s.db.HistoryState(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	s.mark.Enter(state.Epochs)
	err = packs.Receiver{DB: s.db, Repo: s.repo, Project: project, Mark: s.mark, Each: func(p driver.Pack) { unpacked = append(unpacked, p.ID) }}.Receive(s.Context())
	return unpacked, err
}

func (s *site) received(want int) {
	s.Helper()
	if got, err := s.receive(); err != nil || len(got) != want {
		s.Fatalf("unpacked %v, %v, want %d", got, err, want)
	}
}

func (s *site) whole(id string) bool {
	s.Helper()
	whole, err := s.repo.IsConnected(s.Context(), []string{id}, nil)
	if err != nil {
		s.Fatal(err)
	}
	return whole
}

func move(ref, old, new string) refdb.Update {
	return refdb.Update{Ref: "refs/heads/" + ref, Old: refdb.Value(old), New: refdb.Value(new)}
}

func TestAnotherSiteReceivesAllObjectsOfAPush(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	a.git("symbolic-ref", "HEAD", "refs/heads/main")
	first := a.commit("first")
	a.push(move("main", "", first))
	second := a.commit("second", first)
	a.push(move("main", first, second), move("side", "", first))
	b.received(2)
	if !b.whole(second) {
		t.Error("not all objects came")
	}
	b.received(0)
	a.push(move("side", first, second)) // the old value does not reach second
	b.received(1)
	a.push(move("same", "", first)) // HEAD's branch reaches first
	b.received(0)
	a.push(move("side", second, string(refdb.Deleted)))
	b.received(0)
	b.git("update-ref", "refs/heads/main", second)
	third := b.commit("third", second)
	b.push(move("main", second, third))
	page, err := a.db.Packs().Page(t.Context(), driver.PackQuery{Project: project, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range page.Packs[:len(page.Packs)-1] {
		a.mark.Made([]string{p.ID})
	}
	a.received(1) // only b's pack
}

// Other sites may never get objects that came into a repository without a guarded push.
func TestAPackBuildsOnlyOnValuesThatTheDatabaseHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	first := a.commit("first")
	a.push(move("main", "", first))
	private := a.commit("private", first)
	a.git("update-ref", "refs/peer/x/heads/main", private)
	a.git("update-ref", "refs/heads/unguarded", private)
	a.push(move("topic", "", a.commit("topic", private)))
	b.received(2)
	if !b.whole(private) {
		t.Error("the pack builds on a value that only this site has")
	}
	// A value that the database does not have is no base, even if the database has its ref.
	a.git("update-ref", "refs/heads/main", private)
	topic := a.commit("another", private)
	if id := a.store(move("new", "", topic)); id == "" {
		t.Error("nothing was packed")
	}
	// Nor is a value of the database that this repository does not have.
	a.git("symbolic-ref", "HEAD", "refs/heads/main")
	b.git("update-ref", "refs/heads/main", first)
	b.push(move("main", first, b.commit("ahead", first)))
	if id := a.store(move("newest", "", a.commit("newest", first))); id == "" {
		t.Error("nothing was packed")
	}
}

// A ref far from HEAD's branch costs only its new objects, not its whole history.
func TestALargePackBuildsOnAllRefsOfTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	var in strings.Builder
	for i := range 400 {
		fmt.Fprintf(&in, "commit refs/heads/long\ncommitter n <e> %d +0000\ndata 1\nx\nM 644 inline f%d\ndata 4\n%04d\n", 1_700_000_000+i, i, i)
	}
	fastImport := exec.Command("git", "-C", a.Dir, "fast-import", "--quiet")
	fastImport.Stdin = strings.NewReader(in.String())
	if out, err := fastImport.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	long := a.git("rev-parse", "refs/heads/long")
	a.push(move("long", "", long))
	main := a.commit("main")
	a.git("symbolic-ref", "HEAD", "refs/heads/main")
	a.push(move("main", "", main))
	topic := a.commit("topic", long)
	a.push(move("topic", "", topic))
	b.received(3)
	page, err := a.db.Packs().Page(t.Context(), driver.PackQuery{Project: project, Limit: 10})
	if err != nil || len(page.Packs) != 3 || page.Packs[2].Size > 2000 {
		t.Errorf("%+v, %v", page.Packs, err)
	}
	if !b.whole(topic) {
		t.Error("not all objects came")
	}
}

func TestALimitRefusesALargePack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.site("a")
	commit := a.commit(strings.Repeat("x", 100))
	_, err := a.source().Store(t.Context(), []refdb.Update{move("main", "", commit)}, packs.Limits{Bytes: 10})
	if !errors.Is(err, packs.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	shallow := w.site("shallow")
	if err := os.WriteFile(filepath.Join(shallow.Dir, "shallow"), []byte(commit+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := shallow.source().Store(t.Context(), []refdb.Update{move("main", "", commit)}, packs.Limits{}); !errors.Is(err, packs.ErrShallow) {
		t.Errorf("%v", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
