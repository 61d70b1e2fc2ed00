package packs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// largeStep is the number of objects above which all refs are looked at for what the database has already.
const largeStep = 1000

// maxCarriedBases is how many bases a pack may have that its preparation carries, which compares them all.
const maxCarriedBases = 100

// A Source is a repository that packs are made of.
type Source struct {
	DB      *refdb.DB
	Repo    *gitrepo.Repo
	Project string
	Recent  *Recent // nil: nothing is remembered
}

// newsOf returns the object IDs that moves lead to, each once.
func newsOf(moves []refdb.Update) (ids []string) {
	for _, m := range moves {
		if m.New.IsObjectID() && !m.New.IsDeleted() {
			ids = append(ids, string(m.New))
		}
	}
	return sortedSet(ids)
}

// left returns the values that moves leave, and the refs that hold them.
func left(moves []refdb.Update) (bases []driver.RefValue) {
	for _, m := range moves {
		if m.Old.IsObjectID() && !m.Old.IsDeleted() {
			bases = append(bases, driver.RefValue{Ref: m.Ref, Value: m.Old})
		}
	}
	return bases
}

// valuesOf returns the values of bases, each once.
func valuesOf(bases []driver.RefValue) (ids []string) {
	for _, b := range bases {
		ids = append(ids, string(b.Value))
	}
	return sortedSet(ids)
}

// likelyBases returns bases that cost little to find: the values that the refs leave, which the preparation compares with the
// database's, and then what HEAD points to if a ref is new.
func (s Source) likelyBases(ctx context.Context, moves []refdb.Update) (bases []driver.RefValue, err error) {
	bases = left(moves)
	if !slices.ContainsFunc(moves, func(m refdb.Update) bool { return m.Old.IsAbsent() }) {
		return bases, nil
	}
	head, err := s.Repo.Head(ctx)
	if err != nil {
		return bases, err
	}
	branch, ok := refdb.Value(head.Value).Target()
	if !ok {
		return bases, nil
	}
	local, err := s.Repo.Values(ctx, []string{branch})
	v := refdb.Value(local[branch])
	if err == nil && v.IsObjectID() && !v.IsDeleted() && !slices.ContainsFunc(bases, func(b driver.RefValue) bool { return b.Value == v }) {
		bases = append(bases, driver.RefValue{Ref: branch, Value: v})
	}
	return bases, err
}

// certify reads whether the database has a base. If not, the error is errUncertain.
func (s Source) certify(ctx context.Context, base driver.RefValue) error {
	began := time.Now()
	certified, err := s.certified(ctx, []string{base.Ref})
	if err == nil && !slices.Contains(certified, string(base.Value)) {
		err = errUncertain
	}
	if err == nil {
		s.Recent.note(s.Project, base, began)
	}
	return err
}

// allBases returns every value that the database has of a ref which is the same here.
func (s Source) allBases(ctx context.Context, moves []refdb.Update) ([]string, error) {
	bases := valuesOf(left(moves))
	const page = 1000
	var names []string
	take := func() error {
		certified, err := s.certified(ctx, names)
		bases, names = append(bases, certified...), names[:0]
		return err
	}
	for ref, err := range s.DB.Refs(ctx, s.Project, "refs/") {
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDatabase, err)
		}
		if names = append(names, ref.Name); len(names) == page {
			if err := take(); err != nil {
				return nil, err
			}
		}
	}
	if err := take(); err != nil {
		return nil, err
	}
	return sortedSet(bases), nil
}

// certified returns the values of those refs that have the same value in the database and here.
func (s Source) certified(ctx context.Context, refs []string) (ids []string, err error) {
	if len(refs) == 0 {
		return nil, nil
	}
	local, err := s.Repo.Values(ctx, refs)
	if err != nil {
		return nil, err
	}
	states, err := s.DB.Intents().States(ctx, s.Project, refs)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDatabase, err)
	}
	for _, state := range states {
		if v := state.Value; v.IsObjectID() && !v.IsDeleted() && local[state.Ref] == string(v) {
			ids = append(ids, string(v))
		}
	}
	return ids, nil
}

func sortedSet(ids []string) []string {
	slices.Sort(ids)
	return slices.Compact(ids)
}
