package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A PackRow is what the tables hold of a pack, as far as decisions need it.
type PackRow struct {
	Project  string
	Complete bool
}

// DropBytes is how much of the packs one transaction deletes, unless a single pack is larger: readers of changes
// wait for long transactions, and on SQLite so do writers.
const DropBytes = 64 << 20

// StorePart decides about p. row is nil if the pack was not begun. stored says whether this part is there, and below how many of
// those before it are.
func StorePart(p refdb.PackPart, row *PackRow, stored bool, below int) (write bool, refused error) {
	switch {
	case stored:
		return false, nil
	case row == nil && p.Number > 0:
		return false, fmt.Errorf("part %d of pack %s: it was not begun, or was dropped: %w", p.Number, p.Pack.ID, refdb.ErrNoPack)
	case row != nil && row.Complete:
		return false, fmt.Errorf("part %d of pack %s: it is complete without that: %w", p.Number, p.Pack.ID, refdb.ErrNoPack)
	case p.Last && below < p.Number:
		return false, fmt.Errorf("the last part of pack %s: %d before it are missing: %w", p.Pack.ID, p.Number-below, refdb.ErrNoPack)
	}
	return true, nil
}

// UsePacks returns an error that wraps refdb.ErrNoPack unless r may use its packs. pack returns the row of one, or nil.
func UsePacks(r refdb.PrepareRequest, pack func(id string) *PackRow) error {
	missing := slices.DeleteFunc(slices.Clone(r.Packs), func(id string) bool {
		row := pack(id)
		return row != nil && row.Complete && row.Project == r.Project
	})
	return MissingPacks(missing)
}

// MissingPacks returns an error that wraps refdb.ErrNoPack if there are packs.
func MissingPacks(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", strings.Join(ids, ", "), refdb.ErrNoPack)
}

// JoinIDs and SplitIDs are how a column holds object IDs: a line each.
func JoinIDs(ids []string) string { return strings.Join(ids, "\n") }

func SplitIDs(lines string) []string {
	if lines == "" {
		return nil
	}
	return strings.Split(lines, "\n")
}

// Inlined returns the places of packs whose data a page has: those with a single part, from the first one on, until
// one does not fit into what is left of the budget.
func Inlined(packs []refdb.Pack, budget int) (places []int) {
	left := int64(budget)
	for i, p := range packs {
		if p.Parts != 1 {
			continue
		}
		if left -= p.Size; left < 0 {
			break
		}
		places = append(places, i)
	}
	return places
}
