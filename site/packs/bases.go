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

// largeStep is the number of objects above which Store looks for bases among all refs of the
// project.
const largeStep = 1000

// maxCarriedBases is the maximum number of bases of a pack that a preparation carries. The
// preparation compares each base with the database's value.
const maxCarriedBases = 100

// A Source is a repository from which packs are made.
type Source struct {
	DB      *refdb.DB
	Repo    *gitrepo.Repo
	Project string
	Recent  *Recent // nil: no base is remembered
}

// newObjects returns the object IDs among the new values of moves, each once.
func newObjects(moves []refdb.Update) (ids []string) {
	for _, m := range moves {
		if m.New.IsObjectID() && !m.New.IsDeleted() {
			ids = append(ids, string(m.New))
		}
	}
	return sortedSet(ids)
}

// oldValues returns the object IDs among the old values of moves, with their refs.
func oldValues(moves []refdb.Update) (bases []driver.RefValue) {
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

// likelyBases returns bases that are cheap to find: the old values of moves, which the preparation
// compares with the database's values. If a move creates a ref, the value of HEAD's branch here
// follows them, unless it is among them.
func (s Source) likelyBases(ctx context.Context, moves []refdb.Update) (bases []driver.RefValue, err error) {
	bases = oldValues(moves)
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

// certify returns nil if the database has the base now, and errUncertified if it does not.
func (s Source) certify(ctx context.Context, base driver.RefValue) error {
	began := time.Now()
	certified, err := s.certified(ctx, []string{base.Ref})
	if err == nil && !slices.Contains(certified, string(base.Value)) {
		err = errUncertified
	}
	if err == nil {
		s.Recent.record(s.Project, base, began)
	}
	return err
}

// allBases returns the old values of moves, and the value of each ref that has the same value in
// the database and here.
func (s Source) allBases(ctx context.Context, moves []refdb.Update) ([]string, error) {
	bases := valuesOf(oldValues(moves))
	const page = 1000
	var names []string
	flush := func() error {
		certified, err := s.certified(ctx, names)
		bases, names = append(bases, certified...), names[:0]
		return err
	}
	for ref, err := range s.DB.Refs(ctx, s.Project, "refs/") {
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDatabase, err)
		}
		if names = append(names, ref.Name); len(names) == page {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return sortedSet(bases), nil
}

// certified returns the object IDs that the named refs hold both in the database and here.
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
