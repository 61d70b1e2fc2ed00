package suite

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// KeepsPacks reports whether d is a PackStore. A pair has the methods in any case.
func KeepsPacks(d driver.Driver) bool {
	_, ok := instances(d)[0].(driver.PackStore)
	return ok
}

// IfPacks returns rows that run only if the driver keeps packs.
func IfPacks(rows []Row) []Row {
	for i, r := range rows {
		rows[i].Run = func(e *Env) {
			if !KeepsPacks(e.A.Driver) {
				e.Skip("the driver keeps no packs")
			}
			r.Run(e)
		}
	}
	return rows
}

// PackStore returns the role of a driver that keeps packs.
func (p Process) PackStore() driver.PackStore { return p.Driver.(driver.PackStore) }

// A Pack is one to be stored, in parts.
type Pack struct {
	driver.Pack
	Contents [][]byte
	large    bool // it says that it has parts of driver.MaxPackPart
	carried  bool // the preparation that uses it stores it
}

// NewPack makes a pack of the row's project, with parts of these sizes.
func (e *Env) NewPack(sizes ...int) Pack {
	p := Pack{Pack: driver.Pack{
		ID: rand.Text(), Project: e.Project, Owner: e.A.Owner,
		Prerequisites: []string{string(V1), string(V2)}, Tips: []string{string(V3)},
	}}
	for _, size := range sizes {
		data := make([]byte, size)
		rand.Read(data)
		p.Contents = append(p.Contents, data)
	}
	return p
}

// NewBase is NewPack for a base that has everything up to a position.
func (e *Env) NewBase(at driver.Position, sizes ...int) Pack {
	p := e.NewPack(sizes...)
	p.Full, p.Position, p.Prerequisites, p.Tips = true, at, nil, nil
	return p
}

// NewCarried makes a pack that is stored by the preparation that uses it.
func (e *Env) NewCarried() Pack {
	p := e.NewPack(10)
	p.carried = true
	return p
}

// NewLarge makes a pack that one transaction does not delete, as no part could be larger than its
// parts say they are.
func (e *Env) NewLarge() Pack {
	p := e.NewPack(slices.Repeat([]int{1}, 130)...)
	p.large = true
	return p
}

// ReadWhole reads all parts of a pack in turn, again and again, until ctx ends. Once a part is
// gone, all others must be, too.
func (e *Env) ReadWhole(ctx context.Context, p Pack) error {
	gone := false
	for ctx.Err() == nil {
		for number := range p.Contents {
			_, err := e.B.PackStore().PackPart(e.Context(), p.ID, number)
			switch {
			case err == nil && gone:
				return fmt.Errorf("part %d can be read, and others can't any more", number)
			case errors.Is(err, driver.ErrNoPack):
				gone = true
			case err != nil:
				return err
			}
		}
	}
	return nil
}

func (p Pack) data() []byte { return bytes.Join(p.Contents, nil) }

// Part returns a part as StorePart takes it.
func (p Pack) Part(number int) driver.PackPart {
	part := driver.PackPart{Pack: p.Pack, Number: number, Data: p.Contents[number], Last: number == len(p.Contents)-1}
	if part.Last {
		sum := sha256.Sum256(p.data())
		part.Pack.Size, part.Pack.Sum = int64(len(p.data())), hex.EncodeToString(sum[:])
		if p.large {
			part.Pack.Size = int64(len(p.Contents)) * driver.MaxPackPart
		}
	}
	return part
}

// TryStorePack stores some parts of a pack through a process, or all.
func (e *Env) TryStorePack(by Process, p Pack, numbers ...int) error {
	if numbers == nil {
		for number := range p.Contents {
			numbers = append(numbers, number)
		}
	}
	for _, number := range numbers {
		if err := Retry(func() error { return by.PackStore().StorePart(e.Context(), p.Part(number)) }); err != nil {
			return err
		}
	}
	return nil
}

// StorePack is a TryStorePack that succeeds.
func (e *Env) StorePack(by Process, p Pack, numbers ...int) {
	e.Helper()
	e.Must(e.TryStorePack(by, p, numbers...))
}

// Stored stores a whole new pack of one part.
func (e *Env) Stored() Pack {
	e.Helper()
	p := e.NewPack(10)
	e.StorePack(e.A, p)
	return p
}

// TryUse prepares updates through a process, and names packs.
func (e *Env) TryUse(by Process, packs []Pack, updates ...driver.Update) (Preparation, error) {
	r := e.PrepareRequest(by, updates...)
	for _, p := range packs {
		r.Packs = append(r.Packs, p.ID)
		if p.carried {
			r.Parts = append(r.Parts, p.Part(0))
		}
	}
	return e.SendPrepare(by, r)
}

// Use prepares a ref of its own with packs.
func (e *Env) Use(by Process, packs ...Pack) Preparation {
	e.Helper()
	l, err := e.TryUse(by, packs, Move("refs/heads/"+rand.Text(), "", V1))
	e.Must(err)
	return l
}

// Used stores and uses a new pack, and returns it as it is listed.
func (e *Env) Used() Pack {
	e.Helper()
	p := e.Stored()
	e.Use(e.B, p)
	p.Pack = e.Listed(p)
	return p
}

// Listed returns a used pack as it is listed.
func (e *Env) Listed(p Pack) driver.Pack {
	e.Helper()
	for _, l := range e.PackList() {
		if l.ID == p.ID {
			return l
		}
	}
	e.Fatalf("pack %s is not among those that were used", p.ID)
	return driver.Pack{}
}

// PackPage reads a page of the row's project.
func (e *Env) PackPage(q driver.PackQuery) driver.PackPage {
	e.Helper()
	q.Project = e.Project
	page, err := e.B.PackStore().Packs(e.Context(), q)
	e.Must(err)
	return page
}

// PackList returns all used packs of the row's project.
func (e *Env) PackList() []driver.Pack {
	e.Helper()
	return e.PackPage(driver.PackQuery{Limit: 10_000}).Packs
}

// WantPacks checks which packs are listed, in what order.
func (e *Env) WantPacks(want ...Pack) {
	e.Helper()
	e.WantListed(e.PackList(), want...)
}

func (e *Env) WantListed(got []driver.Pack, want ...Pack) {
	e.Helper()
	if !slices.EqualFunc(got, want, func(g driver.Pack, w Pack) bool { return g.ID == w.ID }) {
		e.Errorf("got packs %s, want %s", KeysOf(got), KeysOf(packsOf(want)))
	}
}

func packsOf(all []Pack) (packs []driver.Pack) {
	for _, p := range all {
		packs = append(packs, p.Pack)
	}
	return packs
}

func KeysOf(packs []driver.Pack) string {
	var keys []string
	for _, p := range packs {
		keys = append(keys, fmt.Sprint(p.Key()))
	}
	return strings.Join(keys, " ")
}

// WantStored checks what a complete pack has in each of its parts.
func (e *Env) WantStored(p Pack) {
	e.Helper()
	for number, data := range p.Contents {
		got, err := e.B.PackStore().PackPart(e.Context(), p.ID, number)
		if err != nil || !bytes.Equal(got, data) {
			e.Errorf("part %d has %d bytes (%v), want the %d that were stored", number, len(got), err, len(data))
		}
	}
	_, err := e.B.PackStore().PackPart(e.Context(), p.ID, len(p.Contents))
	e.WantIs(err, driver.ErrNoPack)
}

// WantGone checks that nothing of a pack can be read, nor used.
func (e *Env) WantGone(packs ...Pack) {
	e.Helper()
	for _, p := range packs {
		for number := range p.Contents {
			_, err := e.A.PackStore().PackPart(e.Context(), p.ID, number)
			e.WantIs(err, driver.ErrNoPack)
		}
		if slices.ContainsFunc(e.PackList(), func(l driver.Pack) bool { return l.ID == p.ID }) {
			e.Errorf("pack %s is listed", p.ID)
		}
	}
}

// Usage returns what PackUsage counts in the row's project.
func (e *Env) Usage() driver.PackUsage {
	e.Helper()
	u, err := e.B.PackStore().PackUsage(e.Context(), e.Project)
	e.Must(err)
	return u
}

func (e *Env) WantUsage(want driver.PackUsage) {
	e.Helper()
	if got := e.Usage(); got != want {
		e.Errorf("got %+v, want %+v", got, want)
	}
}

// dropping calls a method that drops packs and returns how many.
func dropping(drop func() (int, error)) (n int, err error) {
	err = Retry(func() error {
		n, err = drop()
		return err
	})
	return n, err
}

func (e *Env) DropPack(p Pack) error {
	return Retry(func() error { return e.B.PackStore().DropPack(e.Context(), p.ID) })
}

func (e *Env) DropAbandoned(olderThan time.Duration, limit int) (int, error) {
	return dropping(func() (int, error) { return e.B.PackStore().DropAbandonedPacks(e.Context(), olderThan, limit) })
}

func (e *Env) DropSuperseded(limit int) (int, error) {
	return dropping(func() (int, error) { return e.B.PackStore().DropSupersededPacks(e.Context(), e.Project, limit) })
}

func (e *Env) RemovePacks(limit int) (int, error) {
	return dropping(func() (int, error) { return e.B.PackStore().RemovePacks(e.Context(), e.Project, limit) })
}

// WantDropped checks how many packs a drop deletes, all chunks together.
func (e *Env) WantDropped(want int, drop func(limit int) (int, error), limit int) {
	e.Helper()
	total := 0
	for {
		n, err := drop(limit)
		e.Must(err)
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

// NoPack is true for an ErrNoPack and false for nil; any other error fails the row.
func (e *Env) NoPack(err error) bool {
	e.Helper()
	if err != nil && !errors.Is(err, driver.ErrNoPack) {
		e.Fatal(err)
	}
	return err != nil
}
