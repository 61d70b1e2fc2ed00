package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

var _ driver.PackStore = (*connection)(nil)

// A pack is a row of the table of packs, with its parts.
type pack struct {
	driver.Pack // without an age
	used        bool
	time        time.Time // of the latest part
	parts       map[int][]byte
}

func (p *pack) row() *rules.PackRow {
	if p == nil {
		return nil
	}
	return &rules.PackRow{Project: p.Project, Complete: p.Parts > 0}
}

func (d *connection) StorePart(ctx context.Context, p driver.PackPart) error {
	const doing = "store a part of a pack"
	return d.write(ctx, doing, func(t *tx) error {
		if err := t.storePart(p); err != nil {
			return fmt.Errorf("memory: %s: %w", doing, err)
		}
		return nil
	})
}

func (t *tx) storePart(p driver.PackPart) error {
	have := t.packs[p.Pack.ID]
	stored, below := false, 0
	if have != nil {
		for number := range have.parts {
			if number < p.Number {
				below++
			}
		}
		_, stored = have.parts[p.Number]
	}
	write, err := rules.StorePart(p, have.row(), stored, below)
	if err != nil || !write {
		return err
	}
	if have == nil {
		have = &pack{parts: make(map[int][]byte), Pack: driver.Pack{
			ID: p.Pack.ID, Project: p.Pack.Project, Owner: p.Pack.Owner, Full: p.Pack.Full,
			Prerequisites: slices.Clone(p.Pack.Prerequisites), Tips: slices.Clone(p.Pack.Tips),
		}}
		t.packs[p.Pack.ID] = have
	}
	have.parts[p.Number], have.time = slices.Clone(p.Data), t.now
	have.Size += int64(len(p.Data))
	if p.Last {
		have.Parts, have.Size, have.Sum = p.Number+1, p.Pack.Size, p.Pack.Sum
		if have.Full {
			have.Position, have.used = p.Pack.Position, true
		}
	}
	return nil
}

// usePacks marks the packs of r as used. It writes nothing if it refuses.
func (t *tx) usePacks(r driver.PrepareRequest) error {
	store, err := rules.UsePacks(r, func(id string) *rules.PackRow { return t.packs[id].row() }, t.rows(r.Project, rules.RequiredRefs(r.RequiredValues)))
	for i := 0; err == nil && i < len(store); i++ {
		err = t.storePart(store[i])
	}
	if err != nil {
		return fmt.Errorf("memory: prepare updates: %w", err)
	}
	position := t.history.position + 1
	for _, id := range r.Packs {
		if p := t.packs[id]; !p.used {
			p.Position, p.used = position, true
			t.history.position = position
		}
	}
	return nil
}

func (d *connection) Packs(ctx context.Context, q driver.PackQuery) (driver.PackPage, error) {
	return transact(ctx, d, "list packs", func(t *tx) (page driver.PackPage, _ error) {
		page = driver.PackPage{Upto: t.history.position}
		base := t.latestBase(q.Project)
		for _, p := range t.packsOf(q.Project) {
			if !p.used || p.Key().Compare(q.After) <= 0 || p.Key().Compare(base) < 0 {
				continue
			}
			if len(page.Packs) == q.Limit {
				page.More = true
				break
			}
			listed := p.Pack
			listed.Prerequisites, listed.Tips = slices.Clone(p.Prerequisites), slices.Clone(p.Tips)
			listed.Age = t.now.Sub(p.time)
			page.Packs = append(page.Packs, listed)
		}
		for _, i := range rules.Inlined(page.Packs, q.Inline) {
			page.Packs[i].Data = slices.Clone(t.packs[page.Packs[i].ID].parts[0])
		}
		return page, nil
	})
}

// latestBase returns the key of a project's latest complete base; zero if there is none.
func (t *tx) latestBase(project string) (latest driver.PackKey) {
	for _, p := range t.packsOf(project) {
		if p.Full && p.used {
			latest = p.Key()
		}
	}
	return latest
}

// packsOf returns the packs of a project, or of all for "", in the order of their keys.
func (t *tx) packsOf(project string) []*pack {
	all := slices.DeleteFunc(slices.Collect(maps.Values(t.packs)), func(p *pack) bool { return project != "" && p.Project != project })
	slices.SortFunc(all, func(a, b *pack) int { return a.Key().Compare(b.Key()) })
	return all
}

func (d *connection) PackPart(ctx context.Context, id string, number int) ([]byte, error) {
	const doing = "read a part of a pack"
	return transact(ctx, d, doing, func(t *tx) ([]byte, error) {
		p := t.packs[id]
		if p == nil || p.Parts == 0 || p.parts[number] == nil {
			return nil, fmt.Errorf("memory: %s: part %d of pack %s: %w", doing, number, id, driver.ErrNoPack)
		}
		return slices.Clone(p.parts[number]), nil
	})
}

func (d *connection) DropPack(ctx context.Context, id string) error {
	_, err := d.dropPacks(ctx, "drop a pack", 1, func(_ *tx, p *pack) bool { return p.ID == id && !p.used })
	return err
}

func (d *connection) DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	return d.dropPacks(ctx, "drop abandoned packs", limit, func(t *tx, p *pack) bool { return !p.used && t.now.Sub(p.time) > olderThan })
}

func (d *connection) DropSupersededPacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, "drop superseded packs", limit, func(t *tx, p *pack) bool {
		return p.Project == project && p.used && p.Key().Compare(t.latestBase(project)) < 0
	})
}

func (d *connection) RemovePacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, "remove packs", limit, func(_ *tx, p *pack) bool { return p.Project == project })
}

// dropPacks deletes at most limit packs.
func (d *connection) dropPacks(ctx context.Context, doing string, limit int, goes func(*tx, *pack) bool) (int, error) {
	return write(ctx, d, doing, func(t *tx) (int, error) {
		var gone []string
		for _, p := range slices.SortedFunc(maps.Values(t.packs), func(a, b *pack) int { return strings.Compare(a.ID, b.ID) }) {
			if len(gone) < limit && goes(t, p) {
				gone = append(gone, p.ID)
			}
		}
		for _, id := range gone {
			delete(t.packs, id)
		}
		return len(gone), nil
	})
}

func (d *connection) PackUsage(ctx context.Context, project string) (driver.PackUsage, error) {
	return transact(ctx, d, "count packs", func(t *tx) (u driver.PackUsage, _ error) {
		for _, p := range t.packsOf(project) {
			if !p.used {
				u.Unused++
				u.UnusedSize += p.Size
				continue
			}
			u.Packs++
			u.Size += p.Size
			if p.Full {
				u.FullPacks++
			}
		}
		return u, nil
	})
}
