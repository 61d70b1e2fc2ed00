package packs_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

// Git itself unpacks a pack whose bases are missing, and a pack that lacks objects.
func TestAPackCountsOnlyIfItIsWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	first := a.commit("first")
	second := a.commit("second", first)
	third := a.commit("third", second)
	a.push(move("main", "", first))
	for name, c := range map[string]struct {
		part func(*driver.PackPart)
		want error
	}{
		"without what it builds on": {func(p *driver.PackPart) { p.Pack.Prerequisites = []string{second} }, packs.ErrIncomplete},
		"without some of it":        {func(p *driver.PackPart) { p.Pack.Prerequisites = []string{first} }, packs.ErrIncomplete},
		"with another checksum":     {func(p *driver.PackPart) { p.Pack.Sum = strings.Repeat("0", 64) }, packs.ErrDamaged},
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
			part := driver.PackPart{Pack: driver.Pack{ID: "bad", Project: project, Owner: a2.db.Owner(), Tips: []string{third}, Size: int64(data.Len()),
				Sum: sum(data.String())}, Data: []byte(data.String()), Last: true}
			c.part(&part)
			if err := a2.db.Packs().Store(t.Context(), part); err != nil {
				t.Fatal(err)
			}
			if _, err := a2.db.Intents().Prepare(t.Context(), project, []refdb.Update{move("bad", "", third)}, "test", intents.WithPacks("bad")); err != nil {
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

// The site that stored a pack must be able to store a base that replaces it after the pack was
// damaged.
func TestADamagedPackCountsAtASiteThatHasItsObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	first := a.commit("first")
	part := driver.PackPart{Pack: driver.Pack{ID: "bad", Project: project, Owner: a.db.Owner(), Tips: []string{first}, Size: 3, Sum: strings.Repeat("0", 64)}, Data: []byte("bad"), Last: true}
	if err := a.db.Packs().Store(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	p, err := a.db.Intents().Prepare(t.Context(), project, []refdb.Update{move("main", "", first)}, "test", intents.WithPacks("bad"))
	if err == nil {
		err = a.db.Intents().Finish(t.Context(), p, []string{"refs/heads/main"}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.receive(); !errors.Is(err, packs.ErrDamaged) || !strings.Contains(err.Error(), "site store compact team/app") {
		t.Errorf("where they are not: %v", err)
	}
	if _, err := a.receive(); err != nil {
		t.Errorf("where they are: %v", err)
	}
	a.git("update-ref", "refs/heads/main", first)
	if _, err := a.source().StoreBase(t.Context(), func(context.Context) (*packs.Mark, error) { _, err := a.receive(); return a.mark, err }, packs.Limits{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.receive(); err != nil || !b.whole(first) {
		t.Errorf("after that: %v", err)
	}
}

// If only the object of a base is here, and not its history, the check of the tips would pass.
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
	// The database has second without a pack, as after a program has moved only refs.
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

func TestAPackOfSeveralPartsIsComparedWithItsChecksum(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	random := make([]byte, 3*driver.MaxPackPart/2)
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
	for i, part := range slices.Collect(slices.Chunk([]byte(data.String()), driver.MaxPackPart)) {
		p := driver.PackPart{Pack: driver.Pack{ID: "large", Project: project, Owner: a.db.Owner(), Tips: []string{commit}}, Number: i, Data: part}
		if p.Last = (i+1)*driver.MaxPackPart >= data.Len(); p.Last {
			p.Pack.Size, p.Pack.Sum = int64(data.Len()), sum("something else")
		}
		if err := a.db.Packs().Store(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.db.Intents().Prepare(t.Context(), project, []refdb.Update{move("main", "", commit)}, "test", intents.WithPacks("large")); err != nil {
		t.Fatal(err)
	}
	if unpacked, err := b.receive(); !errors.Is(err, packs.ErrDamaged) || len(unpacked) > 0 {
		t.Errorf("unpacked %v, %v", unpacked, err)
	}
}

// A pack that is used while a site reads page after page may precede the packs that the site has
// read.
func TestNoPackIsMissedBetweenPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	late := &lateDriver{Driver: w.driver, PackStore: w.driver.(driver.PackStore)}
	b.db = must(refdb.New(late, refdb.Options{Site: "b"}))
	last := ""
	var ids []string
	for i := range 5 {
		next := a.commit(fmt.Sprint(i), nonEmpty(last)...)
		a.push(move("main", last, next))
		ids, last = append(ids, next), next
	}
	// The third pack is not visible yet, as on PostgreSQL while a transaction is open.
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

func TestAMarkStaysWithinWhatWasCompleteWhenThePassBegan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	late := &lateDriver{Driver: w.driver, PackStore: w.driver.(driver.PackStore), page: 2}
	b.db = must(refdb.New(late, refdb.Options{Site: "b"}))
	var ids []string
	for i := range 5 {
		id := a.commit(fmt.Sprint(i))
		a.push(move(fmt.Sprint(i), "", id))
		ids = append(ids, id)
	}
	// The second pack appears after the first page was read, before the last key of that page.
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

func TestAMarkOfAnEarlierEpochGoesBack(t *testing.T) {
	t.Parallel()
	m := &packs.Mark{Epoch: "one", Key: driver.PackKey{Position: 100}}
	one, two, three := driver.Epoch{ID: "one"}, driver.Epoch{ID: "two", First: 50}, driver.Epoch{ID: "three", First: 70}
	m.Enter([]driver.Epoch{one, two, three})
	if m.Epoch != "three" || m.Key.Position != 50 {
		t.Errorf("%+v", m)
	}
	m.Enter([]driver.Epoch{one, two, three})
	if m.Key.Position != 50 {
		t.Errorf("%+v", m)
	}
	m.Enter([]driver.Epoch{{ID: "another database"}})
	if m.Key != (driver.PackKey{}) {
		t.Errorf("%+v", m)
	}
}

// A lateDriver hides one pack, as if its transaction had not ended.
type lateDriver struct {
	refdb.Driver
	driver.PackStore
	hide      int // the number of the pack, from 1; 0 for none
	showAfter int // the number of listings after which the pack appears; 0 for never
	page      int // the maximum number of packs in a page; 0 for the query's limit
}

func (d *lateDriver) Packs(ctx context.Context, q driver.PackQuery) (driver.PackPage, error) {
	all, err := d.PackStore.Packs(ctx, driver.PackQuery{Project: q.Project, Limit: 1000, Inline: q.Inline})
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
	all.Packs = slices.DeleteFunc(all.Packs, func(p driver.Pack) bool { return p.Key().Compare(q.After) <= 0 })
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

func sum(data string) string {
	s := sha256.Sum256([]byte(data))
	return hex.EncodeToString(s[:])
}

// Each attempt may take git minutes. So a pack that exceeded a limit is not retried every time, and
// it counts once its objects have arrived in another way.
func TestAPackThatExceedsALimitIsNotRetriedEveryTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.site("a"), w.site("b")
	first := a.commit("first")
	a.push(move("main", "", first))
	state, err := b.db.HistoryState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.mark.Enter(state.Epochs)
	limits := gitrepo.DefaultUnpackLimits()
	receive := func() error {
		return packs.Receiver{DB: b.db, Repo: b.repo, Project: project, Mark: b.mark, Limits: limits}.Receive(t.Context())
	}
	limits.Loose, limits.Added = 1, 0 // there is no room for an index
	var held *packs.HeldError
	if err := receive(); !errors.As(err, &held) || !errors.Is(err, gitrepo.ErrUnpackLimit) || held.Pack.Owner != a.db.Owner() || packs.HeldBy(err) != held.Pack.ID {
		t.Fatalf("%v", err)
	}
	limits = gitrepo.DefaultUnpackLimits()
	if err := receive(); !errors.Is(err, gitrepo.ErrUnpackLimit) || b.whole(first) {
		t.Errorf("it was tried again: %v", err)
	}
	b.git("fetch", "--quiet", a.Dir, first)
	if err := receive(); err != nil {
		t.Errorf("its objects are here: %v", err)
	}
}
