package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// MaxReasonBytes is the maximum length of an operator's name, and of a reason.
	MaxReasonBytes = 1000

	maxByBytes    = 200
	minStaleAfter = 100 * time.Millisecond
)

// SortedUpdates returns updates in the order that drivers require, or an error if they are invalid.
func SortedUpdates(project string, updates []driver.Update) ([]driver.Update, error) {
	names := make([]string, len(updates))
	for i, u := range updates {
		names[i] = u.Ref
	}
	if _, err := CheckRefs(project, names, driver.MaxUpdateRefs); err != nil {
		return nil, err
	}
	sorted := slices.Clone(updates)
	for i, u := range sorted {
		if err := errors.Join(driver.CheckValue(u.Old), CheckNew(u.New)); err != nil {
			return nil, fmt.Errorf("ref %q: %w", u.Ref, err)
		}
		sorted[i].New = Tombstone(u.Old, u.New)
	}
	slices.SortFunc(sorted, func(a, b driver.Update) int { return strings.Compare(a.Ref, b.Ref) })
	return sorted, nil
}

// CheckNew is driver.CheckValue for the new value of a ref, which can't be driver.Unknown.
func CheckNew(v driver.Value) error {
	if v == driver.Unknown {
		return fmt.Errorf("%w value \"\": an empty value can't be stored; Deleted, a zero ID, deletes a ref", driver.ErrInvalid)
	}
	return driver.CheckValue(v)
}

// Tombstone returns the value to store if v replaces old: v itself or, if v is a zero ID and old an
// object ID, the zero ID of old's length.
func Tombstone(old, v driver.Value) driver.Value {
	switch {
	case !v.IsDeleted() || !old.IsObjectID():
		return v
	case len(old) == len(driver.Deleted256):
		return driver.Deleted256
	default:
		return driver.Deleted
	}
}

// creates reports whether u creates its ref, provided that the ref holds the value that u expects.
func creates(u driver.Update) bool { return u.Old.IsAbsent() && !u.New.IsAbsent() }

// CheckRefs returns refs sorted, or an error if they are invalid.
func CheckRefs(project string, refs []string, most int) ([]string, error) {
	if len(refs) == 0 {
		return nil, fmt.Errorf("%w request: no refs given", driver.ErrInvalid)
	}
	if len(refs) > most {
		return nil, fmt.Errorf("%w: %d refs, at most %d are allowed", driver.ErrTooMany, len(refs), most)
	}
	refs = slices.Sorted(slices.Values(refs))
	for i, ref := range refs {
		if err := driver.CheckKey(project, ref); err != nil {
			return nil, err
		}
		if i > 0 && ref == refs[i-1] {
			return nil, fmt.Errorf("%w request: ref %q is given twice", driver.ErrInvalid, ref)
		}
	}
	return refs, nil
}

// CheckGitNames refuses names that git can't place, and sorted updates whose resulting refs git
// can't store beside each other.
func CheckGitNames(project string, updates []driver.Update) error {
	isNew := make(map[string]bool, len(updates)) // for each ref that will hold a value, whether it is new
	for _, u := range updates {
		if u.New.IsAbsent() {
			continue
		}
		isNew[u.Ref] = creates(u)
		if creates(u) {
			if err := driver.CheckPlaceable(u.Ref); err != nil {
				return err
			}
		}
	}
	e := &driver.NameConflictError{Project: project}
	for _, u := range updates {
		if u.New.IsAbsent() {
			continue
		}
		for above := range driver.RefsAbove(u.Ref) {
			switch aboveIsNew, holds := isNew[above]; {
			case holds && creates(u):
				e.Conflicts = append(e.Conflicts, driver.NameConflict{Ref: u.Ref, With: above})
			case holds && aboveIsNew:
				e.Conflicts = append(e.Conflicts, driver.NameConflict{Ref: above, With: u.Ref})
			}
		}
	}
	if len(e.Conflicts) > 0 {
		return e
	}
	return nil
}

// CheckPrefix returns an error wrapping driver.ErrInvalid if no name can start with prefix.
func CheckPrefix(prefix string) error {
	if !utf8.ValidString(prefix) || len(prefix) > driver.MaxNameBytes {
		return fmt.Errorf("%w prefix %q: not UTF-8, or over %d bytes", driver.ErrInvalid, prefix, driver.MaxNameBytes)
	}
	if strings.Contains(prefix, "\x00") {
		return fmt.Errorf("%w prefix %q: holds a NUL byte", driver.ErrInvalid, prefix)
	}
	return nil
}

// CheckBy returns an error wrapping driver.ErrInvalid if a name can't be recorded in the history.
func CheckBy(name string) error {
	if len(name) > maxByBytes || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("%w requester %.100q: give at most %d bytes of UTF-8 without control characters", driver.ErrInvalid, name, maxByBytes)
	}
	return nil
}

// CheckNote returns an error wrapping driver.ErrInvalid if s can't be recorded.
func CheckNote(what, s string, most int) error {
	if len(s) > most || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return fmt.Errorf("%w %s %.100q: give at most %d bytes of UTF-8 without NUL", driver.ErrInvalid, what, s, most)
	}
	return nil
}

// CheckLockFilter returns an error wrapping driver.ErrInvalid if f can't match any lock.
func CheckLockFilter(f driver.LockFilter) error {
	if f.Project != "" {
		if err := driver.CheckProject(f.Project); err != nil {
			return err
		}
	}
	if f.Ref != "" {
		if err := driver.CheckRef(f.Ref); err != nil {
			return err
		}
	}
	if fault := driver.TextFault(f.Owner); f.Owner != "" && fault != "" {
		return fmt.Errorf("%w owner %q: %s", driver.ErrInvalid, f.Owner, fault)
	}
	if f.OlderThan < 0 {
		return fmt.Errorf("%w age %s: it can't be negative", driver.ErrInvalid, f.OlderThan)
	}
	return CheckPrefix(f.Prefix)
}

// Without returns the refs that are not in others, which is sorted.
func Without(refs, others []string) []string {
	return slices.DeleteFunc(slices.Clone(refs), func(ref string) bool {
		_, found := slices.BinarySearch(others, ref)
		return found
	})
}

// CheckStaleAfter returns an error wrapping ErrInvalid if locks can't be recorded with that
// stale-after.
func CheckStaleAfter(d time.Duration) error {
	switch {
	case d < minStaleAfter:
		return fmt.Errorf("%w stale-after %s: at least %s is needed", driver.ErrInvalid, d, minStaleAfter)
	case d >= driver.NeverStale:
		return fmt.Errorf("%w stale-after %s: less than %s is needed", driver.ErrInvalid, d, driver.NeverStale)
	}
	return nil
}

// CheckOwner returns an error wrapping ErrInvalid if no lock can have the given owner.
func CheckOwner(name string) error {
	if fault := driver.TextFault(name); fault != "" {
		return fmt.Errorf("%w owner %q of the lock: %s", driver.ErrInvalid, name, fault)
	}
	return nil
}
