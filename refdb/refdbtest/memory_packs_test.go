package refdbtest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

var _ driver.PackStore = (*connection)(nil)

// A packRow is a pack with its parts.
type packRow struct {
	driver.Pack
	used  bool
	began time.Time
	time  time.Time // of the latest part
	parts map[int][]byte
}

func (p *packRow) complete() bool { return p.Parts > 0 }

func (d *connection) StorePart(ctx context.Context, p driver.PackPart) error {
	end, err := d.beginWrite(ctx, "StorePart")
	if err != nil {
		return err
	}
	defer end()
	row := d.packs[p.Pack.ID]
	refused := fmt.Errorf("storing part %d: %w", p.Number, driver.ErrNoPack)
	if row == nil {
		if p.Number > 0 && d.bug != "any part begins a pack" {
			return refused
		}
		row = &packRow{Pack: p.Pack, parts: make(map[int][]byte), began: now(), used: p.Pack.Full && d.bug == "bases are used at once"}
		row.Size, row.Sum = 0, ""
		if d.bug == "parts outlive their pack" {
			maps.Copy(row.parts, d.orphans[p.Pack.ID])
		}
		d.packs[p.Pack.ID] = row
	}
	if row.parts[p.Number] != nil && d.bug != "parts are stored over" {
		return nil
	}
	if row.complete() && d.bug != "complete packs take parts" && d.bug != "parts are stored over" {
		return refused
	}
	if p.Last && d.bug != "the last part comes first" {
		for number := range p.Number {
			if row.parts[number] == nil {
				return refused
			}
		}
	}
	d.pause("stores after looking")
	row.parts[p.Number], row.time = p.Data, now()
	row.Size += int64(len(p.Data))
	if !p.Last {
		return nil
	}
	row.Parts, row.Size, row.Sum = p.Number+1, p.Pack.Size, p.Pack.Sum
	if row.Full && d.bug != "bases are not used" {
		row.used = true
		if d.bug == "bases have positions of their own" {
			d.position++
			row.Position = d.position
		}
	}
	return nil
}

// usePacks marks r's packs as used, or refuses.
func (d *connection) usePacks(r driver.PrepareRequest) error {
	missing := false
	var rows []*packRow
	carried := make(map[string]*packRow)
	for _, p := range r.Parts {
		if d.packs[p.Pack.ID] != nil && d.bug != "packs that come with a preparation are stored over" {
			continue
		}
		row := &packRow{Pack: p.Pack, began: now(), time: now(), parts: map[int][]byte{0: p.Data}}
		if row.Parts = 1; d.bug == "packs that come with a preparation are not complete" {
			row.Parts = 0
		}
		carried[p.Pack.ID] = row
		if d.bug == "packs that come with a preparation are used at once" {
			d.packs[p.Pack.ID] = row
			d.position++
			row.Position, row.used = d.position, true
		}
	}
	for _, id := range r.Packs {
		row := d.packs[id]
		if row == nil || carried[id] != nil {
			row = carried[id]
		}
		switch {
		case row == nil && d.bug != "packs that are not there are ignored",
			row != nil && !row.complete() && d.bug != "incomplete packs are used",
			row != nil && row.Project != r.Project && d.bug != "packs of any project are used":
			missing = true
		case row != nil:
			rows = append(rows, row)
		}
	}
	for _, b := range r.RequiredValues {
		if d.refs[key{r.Project, b.Ref}].Value != b.Value && d.bug != "bases of packs are not compared" {
			missing = true
		}
	}
	if missing && d.bug != "uses what it can" {
		return fmt.Errorf("preparing: %w", driver.ErrNoPack)
	}
	if d.bug != "packs that come with a preparation are lost" {
		maps.Copy(d.packs, carried)
	}
	d.pause("uses packs after looking")
	raised := false
	for _, row := range rows {
		if row.used && d.bug != "packs have the position of the last use" {
			continue
		}
		if !raised && d.bug != "positions are not raised" || d.bug == "a position per pack" {
			d.position++
			raised = true
		}
		position := d.position
		d.pause("packs get positions before their turn")
		row.Position, row.used = position, true
	}
	if missing {
		return fmt.Errorf("preparing: %w", driver.ErrNoPack)
	}
	return nil
}

func (d *connection) Packs(ctx context.Context, q driver.PackQuery) (page driver.PackPage, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return page, err
	}
	defer end()
	page.Upto = d.position
	rows := slices.SortedFunc(maps.Values(d.packs), func(a, b *packRow) int {
		if d.bug == "packs are listed by ID" {
			return strings.Compare(a.ID, b.ID)
		}
		return a.Key().Compare(b.Key())
	})
	left, full := q.Inline, false
	for _, row := range rows {
		of := row.Project == q.Project || d.bug == "packs of projects by prefix" && strings.HasPrefix(row.Project, q.Project)
		after := row.Key().Compare(q.After) > 0
		switch d.bug {
		case "a page ends a position of packs":
			after = row.Position > q.After.Position
		case "a page begins with the last pack":
			after = row.Key().Compare(q.After) >= 0
		}
		if base := d.latestBase(q.Project); base != nil && row.Key().Compare(base.Key()) < 0 && d.bug != "superseded packs are listed" || row == base && d.bug == "the base is not listed" {
			continue
		}
		if !of || !row.used && d.bug != "all packs are listed" || !after {
			continue
		}
		if len(page.Packs) == q.Limit {
			page.More = d.bug != "pages of packs are the last"
			break
		}
		p := row.Pack
		p.Age = now().Sub(row.time)
		if d.bug == "packs are as old as their first part" {
			p.Age = now().Sub(row.began)
		}
		if p.Parts == 1 || d.bug == "data of packs of many parts" {
			fits := int(p.Size) <= left && !full
			if full = !fits && d.bug != "data of all that fit"; fits {
				p.Data = row.parts[0]
				left -= int(p.Size)
			}
			if d.bug == "data of one more" && !fits && left > 0 {
				p.Data, left = row.parts[0], 0
			}
		}
		page.Packs = append(page.Packs, p)
	}
	switch d.bug {
	case "packs are complete too early":
		page.Upto += 1 << 40 // beyond whatever the rows beside this one can write meanwhile
	case "packs are complete up to the last pack":
		page.Upto = 0
		for _, p := range page.Packs {
			page.Upto = max(page.Upto, p.Position)
		}
	}
	return page, nil
}

func (d *connection) PackPart(ctx context.Context, id string, number int) ([]byte, error) {
	end, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	row := d.packs[id]
	if row == nil || row.parts[number] == nil || !row.complete() && d.bug != "incomplete packs are read" {
		return nil, fmt.Errorf("reading: %w", driver.ErrNoPack)
	}
	return row.parts[number], nil
}

func (d *connection) DropPack(ctx context.Context, id string) error {
	_, err := d.dropPacks(ctx, "DropPack", 1, func(row *packRow) bool {
		return row.ID == id && (!row.used || d.bug == "used packs are dropped") && (row.complete() || d.bug != "incomplete packs are not dropped")
	})
	return err
}

func (d *connection) DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	return d.dropPacks(ctx, "DropAbandonedPacks", limit, func(row *packRow) bool {
		at := row.time
		if d.bug == "packs are abandoned by their first part" {
			at = row.began
		}
		return (!row.used || d.bug == "used packs are abandoned") && (now().Sub(at) > olderThan || d.bug == "packs are abandoned at once") &&
			(row.complete() || d.bug != "incomplete packs are not abandoned") && (!row.complete() || d.bug != "complete packs are not abandoned") &&
			(!row.Full || d.bug != "bases are not abandoned")
	})
}

func (d *connection) DropSupersededPacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, "DropSupersededPacks", limit, func(row *packRow) bool {
		base := d.latestBase(project)
		if base == nil || row.Project != project && d.bug != "packs of all projects are superseded" || !row.used && d.bug != "unused packs are superseded" {
			return false
		}
		order := row.Key().Compare(base.Key())
		return order < 0 || d.bug == "packs after the base are superseded" && order > 0 || d.bug == "the base is superseded" && order == 0
	})
}

// latestBase returns the base that supersedes what comes before, or nil.
func (d *connection) latestBase(project string) (base *packRow) {
	for _, b := range d.packs {
		if b.Full && (b.used || d.bug == "incomplete bases supersede") && b.Project == project && (base == nil ||
			(b.Key().Compare(base.Key()) > 0) != (d.bug == "the first base supersedes")) {
			base = b
		}
	}
	return base
}

func (d *connection) RemovePacks(ctx context.Context, project string, limit int) (int, error) {
	return d.dropPacks(ctx, "RemovePacks", limit, func(row *packRow) bool {
		return (row.Project == project || d.bug == "removes packs by prefix" && strings.HasPrefix(row.Project, project)) &&
			(row.used || d.bug != "unused packs are not removed") && (!row.used || d.bug != "used packs are not removed")
	})
}

func (d *connection) dropPacks(ctx context.Context, method string, limit int, goes func(*packRow) bool) (int, error) {
	end, err := d.beginWrite(ctx, method)
	if err != nil {
		return 0, err
	}
	defer end()
	var gone []string
	for id, row := range d.packs {
		if goes(row) && (len(gone) < limit || d.bug == "packs go without a limit") {
			gone = append(gone, id)
		}
	}
	d.pause("drops packs after looking")
	for _, id := range gone {
		if row := d.packs[id]; row != nil {
			d.orphans[id] = row.parts
		}
		delete(d.packs, id)
	}
	if d.bug == "nobody counts the packs that go" {
		return 0, nil
	}
	return len(gone), nil
}

func (d *connection) PackUsage(ctx context.Context, project string) (u driver.PackUsage, err error) {
	end, err := d.begin(ctx)
	if err != nil {
		return u, err
	}
	defer end()
	for _, row := range d.packs {
		if row.Project != project && (project != "" || d.bug == "no packs of all") && !(d.bug == "packs of projects by prefix" && strings.HasPrefix(row.Project, project)) {
			continue
		}
		switch {
		case row.used || d.bug == "all packs count as used":
			u.Packs++
			u.Size += row.Size
			if row.Full {
				u.FullPacks++
			}
		case row.complete() || d.bug != "incomplete packs do not count":
			u.Unused++
			u.UnusedSize += row.Size
		}
	}
	return u, nil
}
