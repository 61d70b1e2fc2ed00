package packs_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

const project = "team/app"

// A site is a repository of a project, and what a daemon knows of it.
type site struct {
	testing.TB
	db *refdb.DB
	sitetest.Bare
	repo *gitrepo.Repo
	mark *packs.Mark
}

// A world is a database and what its sites' clients push.
type world struct {
	testing.TB
	driver refdb.Driver
}

func newWorld(t *testing.T) *world {
	w := &world{TB: t, driver: memory.New().Open()}
	db := w.open("test")
	if _, err := db.PutProject(t.Context(), refdb.Project{Project: project, ID: "id", Rules: "ref *", Mode: "enforce", Store: "all"}); err != nil {
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
	id, err := s.source().Store(s.Context(), moves, packs.Limits{})
	if err != nil {
		s.Fatal(err)
	}
	return id
}

// prepare stores what the moves need and prepares them.
func (s *site) prepare(moves ...refdb.Update) refdb.Preparation {
	s.Helper()
	var ids []string
	if id := s.store(moves...); id != "" {
		ids = append(ids, id)
	}
	p, err := s.db.Prepare(s.Context(), project, moves, "test", refdb.WithPacks(ids...))
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// push moves refs here and in the database.
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
	if err := s.db.Finish(s.Context(), p, done, nil); err != nil {
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
	err = packs.Receiver{DB: s.db, Repo: s.repo, Project: project, Mark: s.mark, Each: func(p refdb.Pack) { unpacked = append(unpacked, p.ID) }}.Receive(s.Context())
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
	whole, err := s.repo.Whole(s.Context(), []string{id}, nil)
	if err != nil {
		s.Fatal(err)
	}
	return whole
}

func move(ref, old, new string) refdb.Update {
	return refdb.Update{Ref: "refs/heads/" + ref, Old: refdb.Value(old), New: refdb.Value(new)}
}

func TestWhatIsPushedAtOneSiteIsWholeAtTheOther(t *testing.T) {
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
	a.push(move("side", first, second)) // what the old value does not reach
	b.received(1)
	a.push(move("same", "", first)) // HEAD's branch reaches it
	b.received(0)
	a.push(move("side", second, string(refdb.Deleted)))
	b.received(0)
	b.git("update-ref", "refs/heads/main", second)
	third := b.commit("third", second)
	b.push(move("main", second, third))
	page, err := a.db.Packs(t.Context(), refdb.PackQuery{Project: project, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range page.Packs[:len(page.Packs)-1] {
		a.mark.Made([]string{p.ID})
	}
	a.received(1) // and none of its own
}

// Other sites may never have what a repository got in another way than by guarded pushes.
func TestAPackBuildsOnNothingButWhatTheDatabaseHas(t *testing.T) {
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
		t.Error("the pack builds on what only this site has")
	}
	// A ref whose value the database does not have is no base, even if the database knows the ref.
	a.git("update-ref", "refs/heads/main", private)
	topic := a.commit("another", private)
	if id := a.store(move("new", "", topic)); id == "" {
		t.Error("nothing was packed")
	}
	// Nor is a value that is not here.
	a.git("symbolic-ref", "HEAD", "refs/heads/main")
	b.git("update-ref", "refs/heads/main", first)
	b.push(move("main", first, b.commit("ahead", first)))
	if id := a.store(move("newest", "", a.commit("newest", first))); id == "" {
		t.Error("nothing was packed")
	}
}

// A ref far from all that moves costs what it brings, not its whole history.
func TestALargeStepBuildsOnAllThatTheDatabaseHas(t *testing.T) {
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
	page, err := a.db.Packs(t.Context(), refdb.PackQuery{Project: project, Limit: 10})
	if err != nil || len(page.Packs) != 3 || page.Packs[2].Size > 2000 {
		t.Errorf("%+v, %v", page.Packs, err)
	}
	if !b.whole(topic) {
		t.Error("not all objects came")
	}
}

// Git unpacks a pack without what it builds on, and one that lacks something.
func TestAPackCountsOnlyIfItIsWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	first := a.commit("first")
	second := a.commit("second", first)
	third := a.commit("third", second)
	a.push(move("main", "", first))
	for name, c := range map[string]struct {
		part func(*refdb.PackPart)
		want error
	}{
		"without what it builds on": {func(p *refdb.PackPart) { p.Pack.Bases = []string{second} }, packs.ErrIncomplete},
		"without some of it":        {func(p *refdb.PackPart) { p.Pack.Bases = []string{first} }, packs.ErrIncomplete},
		"with another checksum":     {func(p *refdb.PackPart) { p.Pack.Sum = strings.Repeat("0", 64) }, packs.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a2, b := w.site("a"), w.site("b")
			a2.git("fetch", "--quiet", a.Dir, first, third)
			a2.push(move("main", "", first))
			var data strings.Builder
			if err := a2.repo.Pack(t.Context(), &data, []string{third}, []string{second}); err != nil {
				t.Fatal(err)
			}
			part := refdb.PackPart{Pack: refdb.Pack{ID: "bad", Project: project, Owner: a2.db.Owner(), Tips: []string{third}, Size: int64(data.Len()),
				Sum: sum(data.String())}, Data: []byte(data.String()), Last: true}
			c.part(&part)
			if err := a2.db.StorePackPart(t.Context(), part); err != nil {
				t.Fatal(err)
			}
			if _, err := a2.db.Prepare(t.Context(), project, []refdb.Update{move("bad", "", third)}, "test", refdb.WithPacks("bad")); err != nil {
				t.Fatal(err)
			}
			_, err := b.receive()
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), a2.db.Owner()) {
				t.Errorf("%v", err)
			}
			if !b.whole(first) {
				t.Error("what came before is not here")
			}
		})
	}
	_ = b
}

// A base of which only the object itself is here would let the check of the tips pass.
func TestAPackThatBuildsOnHalfAHistoryIsNotUnpacked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	first := a.commit("first")
	second := a.commit("second", first)
	third := a.commit("third", second)
	object := filepath.Join("objects", second[:2], second[2:])
	if err := os.MkdirAll(filepath.Dir(filepath.Join(b.Dir, object)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.Dir, object), must(os.ReadFile(filepath.Join(a.Dir, object))), 0o444); err != nil {
		t.Fatal(err)
	}
	// The database has second without a pack, as by a program that moves refs only.
	if err := a.db.Update(t.Context(), project, []refdb.Update{move("main", "", second)}); err != nil {
		t.Fatal(err)
	}
	a.push(move("main", second, third))
	if unpacked, err := b.receive(); !errors.Is(err, packs.ErrIncomplete) || len(unpacked) > 0 {
		t.Errorf("unpacked %v, %v", unpacked, err)
	}
	if here, err := b.repo.Present(t.Context(), []string{third}); err != nil || len(here) > 0 {
		t.Errorf("its objects are here: %v, %v", here, err)
	}
}

func TestALargePackIsComparedWithItsChecksum(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	random := make([]byte, 3*refdb.MaxPackPart/2)
	rand.Read(random)
	file := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(file, random, 0o644); err != nil {
		t.Fatal(err)
	}
	commit := a.git("hash-object", "-w", file) // a ref may hold any object
	var data strings.Builder
	if err := a.repo.Pack(t.Context(), &data, []string{commit}, nil); err != nil {
		t.Fatal(err)
	}
	for i, part := range slices.Collect(slices.Chunk([]byte(data.String()), refdb.MaxPackPart)) {
		p := refdb.PackPart{Pack: refdb.Pack{ID: "large", Project: project, Owner: a.db.Owner(), Tips: []string{commit}}, Number: i, Data: part}
		if p.Last = (i+1)*refdb.MaxPackPart >= data.Len(); p.Last {
			p.Pack.Size, p.Pack.Sum = int64(data.Len()), sum("something else")
		}
		if err := a.db.StorePackPart(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.db.Prepare(t.Context(), project, []refdb.Update{move("main", "", commit)}, "test", refdb.WithPacks("large")); err != nil {
		t.Fatal(err)
	}
	if unpacked, err := b.receive(); !errors.Is(err, packs.ErrDamaged) || len(unpacked) > 0 {
		t.Errorf("unpacked %v, %v", unpacked, err)
	}
}

// A pack that is used while a site reads page after page may stand before what was read already.
func TestNoPackIsMissedBetweenPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	late := &lateDriver{Driver: w.driver, PackStore: w.driver.(refdb.PackStore)}
	b.db = must(refdb.New(late, refdb.Options{Site: "b"}))
	last := ""
	var ids []string
	for i := range 5 {
		next := a.commit(fmt.Sprint(i), nonEmpty(last)...)
		a.push(move("main", last, next))
		ids, last = append(ids, next), next
	}
	// As on PostgreSQL while a transaction is open: the third pack can't be seen yet.
	late.hide = 3
	if _, err := b.receive(); !errors.Is(err, packs.ErrIncomplete) {
		t.Fatalf("the fourth builds on the third: %v", err)
	}
	late.hide = 0
	b.received(3)
	if !b.whole(ids[4]) {
		t.Error("not all objects came")
	}
}

func TestWhatIsCompleteWhenAPassBeginsCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	late := &lateDriver{Driver: w.driver, PackStore: w.driver.(refdb.PackStore), page: 2}
	b.db = must(refdb.New(late, refdb.Options{Site: "b"}))
	var ids []string
	for i := range 5 {
		id := a.commit(fmt.Sprint(i))
		a.push(move(fmt.Sprint(i), "", id))
		ids = append(ids, id)
	}
	// The second pack is hidden while the first page is read, and there when the next one is: after what was read.
	late.hide, late.showAfter = 2, 1
	if _, err := b.receive(); err != nil {
		t.Fatal(err)
	}
	b.received(1)
	for _, id := range ids {
		if !b.whole(id) {
			t.Errorf("%s is not here", id)
		}
	}
}

// A site that seems to have all that is in a base unpacks it once something turns out to be missing.
func TestWhatIsMissingIsInTheBase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	a.git("symbolic-ref", "HEAD", "refs/heads/main")
	first := a.commit("first")
	second := a.commit("second", first)
	left := a.commit("left", first)
	a.push(move("main", "", first))
	a.push(move("main", first, second))
	topic := move("topic", "", a.commit("topic", second))
	pack := a.store(topic) // it builds on second, which main is about to leave
	a.push(move("main", second, left))
	if _, err := a.receive(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.source().StoreBase(t.Context(), func(context.Context) (*packs.Mark, error) { return a.mark, nil }, packs.Limits{}); err != nil {
		t.Fatal(err)
	}
	b.git("fetch", "--quiet", a.Dir, left) // all that refs hold, and no more
	b.git("update-ref", "refs/heads/main", left)
	b.received(0)
	if _, err := a.db.Prepare(t.Context(), project, []refdb.Update{topic}, "test", refdb.WithPacks(pack)); err != nil {
		t.Fatal(err)
	}
	b.received(2)
	if !b.whole(second) {
		t.Error("what the pack builds on is not here")
	}
}

func TestABaseStandsForWhatComesBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b, c := w.site("a"), w.site("b"), w.site("c")
	first := a.commit("first")
	second := a.commit("second", first)
	a.push(move("main", "", first))
	a.push(move("main", first, second))
	left := a.commit("left", first)
	a.push(move("main", second, left)) // second is reached by no ref any more
	b.received(3)
	pending := a.commit("pending", left)
	intents := a.prepare(move("main", left, pending))
	if _, err := a.receive(); err != nil {
		t.Fatal(err)
	}

	base, err := a.source().StoreBase(t.Context(), func(context.Context) (*packs.Mark, error) { return a.mark, nil }, packs.Limits{})
	if err != nil || base.Dropped < 3 {
		t.Fatalf("%+v, %v", base, err)
	}
	if got, err := b.receive(); err != nil || slices.Contains(got, base.Pack.ID) {
		t.Errorf("it has what is in the base, and unpacked %v, %v", got, err)
	}
	if _, err := c.receive(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{left, second, pending} {
		if !c.whole(id) {
			t.Errorf("%s did not come with the base", id)
		}
	}
	// A push may build on what a ref held a moment ago.
	a.git("update-ref", "refs/heads/main", pending)
	if err := a.db.Finish(t.Context(), intents, []string{"refs/heads/main"}, nil); err != nil {
		t.Fatal(err)
	}
	a.push(move("old", "", a.commit("on second", second)))
	c.received(1)

	// Who lacks something can't make a base.
	if _, err := w.site("d").source().StoreBase(t.Context(), func(context.Context) (*packs.Mark, error) { return a.mark, nil }, packs.Limits{}); !errors.Is(err, packs.ErrIncomplete) {
		t.Errorf("a base of nothing: %v", err)
	}
}

func TestAMarkOfAnEarlierEpochGoesBack(t *testing.T) {
	t.Parallel()
	m := &packs.Mark{Epoch: "one", Key: refdb.PackKey{Position: 100}}
	one, two, three := refdb.Epoch{ID: "one"}, refdb.Epoch{ID: "two", First: 50}, refdb.Epoch{ID: "three", First: 70}
	m.Enter([]refdb.Epoch{one, two, three})
	if m.Epoch != "three" || m.Key.Position != 50 {
		t.Errorf("%+v", m)
	}
	m.Enter([]refdb.Epoch{one, two, three})
	if m.Key.Position != 50 {
		t.Errorf("%+v", m)
	}
	m.Enter([]refdb.Epoch{{ID: "another database"}})
	if m.Key != (refdb.PackKey{}) {
		t.Errorf("%+v", m)
	}
}

func TestALimitEndsALargePush(t *testing.T) {
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

// lateDriver hides the pack of a number, counted from 1, as if its transaction had not ended.
type lateDriver struct {
	refdb.Driver
	refdb.PackStore
	hide      int
	showAfter int // so many lists; 0 for never
	page      int // how many packs a list has at most; 0 for as many as asked for
}

func (d *lateDriver) Packs(ctx context.Context, q refdb.PackQuery) (refdb.PackPage, error) {
	all, err := d.PackStore.Packs(ctx, refdb.PackQuery{Project: q.Project, Limit: 1000, Inline: q.Inline})
	if err != nil {
		return all, err
	}
	if d.hide > 0 {
		all.Upto = min(all.Upto, all.Packs[d.hide-1].Position-1)
		all.Packs = slices.Delete(all.Packs, d.hide-1, d.hide)
	}
	if d.showAfter--; d.showAfter == 0 {
		d.hide = 0
	}
	all.Packs = slices.DeleteFunc(all.Packs, func(p refdb.Pack) bool { return p.Key().Compare(q.After) <= 0 })
	if d.page > 0 && len(all.Packs) > d.page {
		all.Packs, all.More = all.Packs[:d.page], true
	}
	return all, nil
}

func nonEmpty(id string) []string {
	if id == "" {
		return nil
	}
	return []string{id}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func sum(data string) string {
	s := sha256.Sum256([]byte(data))
	return hex.EncodeToString(s[:])
}
