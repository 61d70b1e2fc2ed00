package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A PackRow contains the fields of a pack's row that decisions depend on.
type PackRow struct {
	Project  string
	Complete bool
}

// DropBytes is the maximum number of bytes of packs that one transaction deletes: readers of
// changes wait for long transactions, and on SQLite so do writers. A larger pack is deleted in
// steps of DropParts parts, from the first part on. The first step makes it an incomplete, unused
// pack. It never becomes complete again, because its first part is missing.
const (
	DropBytes = 64 << 20
	DropParts = DropBytes / driver.MaxPackPart
)

// StorePart decides whether p is written. row is nil if the pack was not begun; stored says whether
// this part is already stored; below is the number of earlier parts that are stored, which matters
// only for the last part.
func StorePart(p driver.PackPart, row *PackRow, stored bool, below int) (write bool, refused error) {
	switch {
	case stored:
		return false, nil
	case row == nil && p.Number > 0:
		return false, fmt.Errorf("part %d of pack %s: the pack was not begun, or was deleted: %w", p.Number, p.Pack.ID, driver.ErrNoPack)
	case row != nil && row.Complete:
		return false, fmt.Errorf("part %d of pack %s: the pack is complete without it: %w", p.Number, p.Pack.ID, driver.ErrNoPack)
	case p.Last && below < p.Number:
		return false, fmt.Errorf("the last part of pack %s: %d before it are missing: %w", p.Pack.ID, p.Number-below, driver.ErrNoPack)
	}
	return true, nil
}

// UsePacks returns the parts of r.Parts that have to be stored. If r can't use its packs even then,
// the error wraps driver.ErrNoPack. pack returns the row of a pack, or nil; required contains the
// rows of r.RequiredValues, in any order.
func UsePacks(r driver.PrepareRequest, pack func(id string) *PackRow, required []Row) (store []driver.PackPart, refused error) {
	store = slices.DeleteFunc(slices.Clone(r.Parts), func(p driver.PackPart) bool { return pack(p.Pack.ID) != nil })
	missing := slices.DeleteFunc(slices.Clone(r.Packs), func(id string) bool {
		if row := pack(id); row != nil {
			return row.Complete && row.Project == r.Project
		}
		return slices.ContainsFunc(store, func(p driver.PackPart) bool { return p.Pack.ID == id })
	})
	held := make(map[string]driver.Value, len(required))
	for _, row := range required {
		if row.Ref != nil {
			held[row.Name] = row.Ref.Value
		}
	}
	for _, b := range r.RequiredValues {
		if held[b.Ref] != b.Value {
			missing = append(missing, BaseMoved+b.Ref)
		}
	}
	return store, MissingPacks(missing)
}

// BaseMoved is the beginning of the error text about a ref that does not hold the value on which
// packs build; the ref follows.
const BaseMoved = "a pack builds on another value of "

// RequiredRefs returns the refs of values.
func RequiredRefs(values []driver.RefValue) (refs []string) {
	for _, v := range values {
		refs = append(refs, v.Ref)
	}
	return refs
}

// MissingPacks returns an error that wraps driver.ErrNoPack if there are packs.
func MissingPacks(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", strings.Join(ids, ", "), driver.ErrNoPack)
}

// JoinIDs and SplitIDs convert object IDs to and from the form in which a column stores them, one
// per line.
func JoinIDs(ids []string) string { return strings.Join(ids, "\n") }

func SplitIDs(lines string) []string {
	if lines == "" {
		return nil
	}
	return strings.Split(lines, "\n")
}

// Inlined returns the indices of the packs whose data a page contains: packs with a single part,
// beginning with the first one, until a pack exceeds the remaining budget.
func Inlined(packs []driver.Pack, budget int) (indices []int) {
	left := int64(budget)
	for i, p := range packs {
		if p.Parts != 1 {
			continue
		}
		if left -= p.Size; left < 0 {
			break
		}
		indices = append(indices, i)
	}
	return indices
}
