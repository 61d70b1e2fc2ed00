package refdbtest

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// keepsPacks reports whether d is a PackStore. A pair has the methods in any case.
func keepsPacks(d refdb.Driver) bool {
	_, ok := instances(d)[0].(refdb.PackStore)
	return ok
}

// ifPacks returns rows that run only if the driver keeps packs.
func ifPacks(rows []row) []row {
	for i, r := range rows {
		rows[i].run = func(e *env) {
			if !keepsPacks(e.a.Driver) {
				e.Skip("the driver keeps no packs")
			}
			r.run(e)
		}
	}
	return rows
}

// packs returns the role of a driver that keeps packs.
func (p process) packs() refdb.PackStore { return p.Driver.(refdb.PackStore) }

// A pack is one to be stored, in parts.
type pack struct {
	refdb.Pack
	parts [][]byte
}

// newPack makes a pack of the row's project, with parts of these sizes.
func (e *env) newPack(sizes ...int) pack {
	p := pack{Pack: refdb.Pack{
		ID: rand.Text(), Project: e.project, Owner: e.a.owner,
		Bases: []string{string(v1), string(v2)}, Tips: []string{string(v3)},
	}}
	for _, size := range sizes {
		data := make([]byte, size)
		rand.Read(data)
		p.parts = append(p.parts, data)
	}
	return p
}

// newBase is newPack for a base that has everything up to a position.
func (e *env) newBase(at refdb.Position, sizes ...int) pack {
	p := e.newPack(sizes...)
	p.Base, p.Position, p.Bases, p.Tips = true, at, nil, nil
	return p
}

func (p pack) data() []byte { return bytes.Join(p.parts, nil) }

// part returns a part as StorePart takes it.
func (p pack) part(number int) refdb.PackPart {
	part := refdb.PackPart{Pack: p.Pack, Number: number, Data: p.parts[number], Last: number == len(p.parts)-1}
	if part.Last {
		sum := sha256.Sum256(p.data())
		part.Pack.Size, part.Pack.Sum = int64(len(p.data())), hex.EncodeToString(sum[:])
	}
	return part
}

// tryStorePack stores some parts of a pack through a process, or all.
func (e *env) tryStorePack(by process, p pack, numbers ...int) error {
	if numbers == nil {
		for number := range p.parts {
			numbers = append(numbers, number)
		}
	}
	for _, number := range numbers {
		if err := retry(func() error { return by.packs().StorePart(e.Context(), p.part(number)) }); err != nil {
			return err
		}
	}
	return nil
}

// storePack is a tryStorePack that succeeds.
func (e *env) storePack(by process, p pack, numbers ...int) {
	e.Helper()
	e.must(e.tryStorePack(by, p, numbers...))
}

// stored stores a whole new pack of one part.
func (e *env) stored() pack {
	e.Helper()
	p := e.newPack(10)
	e.storePack(e.a, p)
	return p
}

// tryUse prepares updates through a process, and names packs.
func (e *env) tryUse(by process, packs []pack, updates ...refdb.Update) (preparation, error) {
	r := e.prepareRequest(by, updates...)
	for _, p := range packs {
		r.Packs = append(r.Packs, p.ID)
	}
	return e.sendPrepare(by, r)
}

// use prepares a ref of its own with packs.
func (e *env) use(by process, packs ...pack) preparation {
	e.Helper()
	l, err := e.tryUse(by, packs, move("refs/heads/"+rand.Text(), "", v1))
	e.must(err)
	return l
}

// used stores and uses a new pack, and returns it as it is listed.
func (e *env) used() pack {
	e.Helper()
	p := e.stored()
	e.use(e.b, p)
	p.Pack = e.listed(p)
	return p
}

// listed returns a used pack as it is listed.
func (e *env) listed(p pack) refdb.Pack {
	e.Helper()
	for _, l := range e.packList() {
		if l.ID == p.ID {
			return l
		}
	}
	e.Fatalf("pack %s is not among those that were used", p.ID)
	return refdb.Pack{}
}

// packPage reads a page of the row's project.
func (e *env) packPage(q refdb.PackQuery) refdb.PackPage {
	e.Helper()
	q.Project = e.project
	page, err := e.b.packs().Packs(e.Context(), q)
	e.must(err)
	return page
}

// packList returns all used packs of the row's project.
func (e *env) packList() []refdb.Pack {
	e.Helper()
	return e.packPage(refdb.PackQuery{Limit: 10_000}).Packs
}

// wantPacks checks which packs are listed, in what order.
func (e *env) wantPacks(want ...pack) {
	e.Helper()
	e.wantListed(e.packList(), want...)
}

func (e *env) wantListed(got []refdb.Pack, want ...pack) {
	e.Helper()
	if !slices.EqualFunc(got, want, func(g refdb.Pack, w pack) bool { return g.ID == w.ID }) {
		e.Errorf("got packs %s, want %s", keysOf(got), keysOf(packsOf(want)))
	}
}

func packsOf(all []pack) (packs []refdb.Pack) {
	for _, p := range all {
		packs = append(packs, p.Pack)
	}
	return packs
}

func keysOf(packs []refdb.Pack) string {
	var keys []string
	for _, p := range packs {
		keys = append(keys, fmt.Sprint(p.Key()))
	}
	return strings.Join(keys, " ")
}

// wantStored checks what a complete pack has in each of its parts.
func (e *env) wantStored(p pack) {
	e.Helper()
	for number, data := range p.parts {
		got, err := e.b.packs().PackPart(e.Context(), p.ID, number)
		if err != nil || !bytes.Equal(got, data) {
			e.Errorf("part %d has %d bytes (%v), want the %d that were stored", number, len(got), err, len(data))
		}
	}
	_, err := e.b.packs().PackPart(e.Context(), p.ID, len(p.parts))
	e.wantIs(err, refdb.ErrNoPack)
}

// wantGone checks that nothing of a pack can be read, nor used.
func (e *env) wantGone(packs ...pack) {
	e.Helper()
	for _, p := range packs {
		for number := range p.parts {
			_, err := e.a.packs().PackPart(e.Context(), p.ID, number)
			e.wantIs(err, refdb.ErrNoPack)
		}
		if slices.ContainsFunc(e.packList(), func(l refdb.Pack) bool { return l.ID == p.ID }) {
			e.Errorf("pack %s is listed", p.ID)
		}
	}
}

// usage returns what PackUsage counts in the row's project.
func (e *env) usage() refdb.PackUsage {
	e.Helper()
	u, err := e.b.packs().PackUsage(e.Context(), e.project)
	e.must(err)
	return u
}

func (e *env) wantUsage(want refdb.PackUsage) {
	e.Helper()
	if got := e.usage(); got != want {
		e.Errorf("got %+v, want %+v", got, want)
	}
}

// dropping calls a method that drops packs and returns how many.
func dropping(drop func() (int, error)) (n int, err error) {
	err = retry(func() error {
		n, err = drop()
		return err
	})
	return n, err
}

func (e *env) dropPack(p pack) error {
	return retry(func() error { return e.b.packs().DropPack(e.Context(), p.ID) })
}

func (e *env) dropAbandoned(olderThan time.Duration, limit int) (int, error) {
	return dropping(func() (int, error) { return e.b.packs().DropAbandonedPacks(e.Context(), olderThan, limit) })
}

func (e *env) dropSuperseded(limit int) (int, error) {
	return dropping(func() (int, error) { return e.b.packs().DropSupersededPacks(e.Context(), e.project, limit) })
}

func (e *env) removePacks(limit int) (int, error) {
	return dropping(func() (int, error) { return e.b.packs().RemovePacks(e.Context(), e.project, limit) })
}

// wantDropped checks how many packs a drop deletes, all chunks together.
func (e *env) wantDropped(want int, drop func(limit int) (int, error), limit int) {
	e.Helper()
	total := 0
	for {
		n, err := drop(limit)
		e.must(err)
		if n > limit {
			e.Fatalf("%d packs went, at most %d may", n, limit)
		}
		if total += n; n == 0 {
			break
		}
	}
	if total != want {
		e.Errorf("%d packs went, want %d", total, want)
	}
}

// noPack is true for an ErrNoPack and false for nil; any other error fails the row.
func (e *env) noPack(err error) bool {
	e.Helper()
	if err != nil && !errors.Is(err, refdb.ErrNoPack) {
		e.Fatal(err)
	}
	return err != nil
}
