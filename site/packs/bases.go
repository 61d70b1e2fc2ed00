package packs

import (
	"context"
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// largeStep is the number of objects above which all refs are looked at for what the database has already.
const largeStep = 1000

// A Source is a repository that packs are made of.
type Source struct {
	DB      *refdb.DB
	Repo    *gitrepo.Repo
	Project string
}

// valuesOf returns the object IDs that moves lead to, and those that they leave, each once.
func valuesOf(moves []refdb.Update) (news, olds []string) {
	for _, m := range moves {
		if m.New.IsObjectID() && !m.New.IsDeleted() {
			news = append(news, string(m.New))
		}
		if m.Old.IsObjectID() && !m.Old.IsAbsent() {
			olds = append(olds, string(m.Old))
		}
	}
	slices.Sort(news)
	slices.Sort(olds)
	return slices.Compact(news), slices.Compact(olds)
}

// likelyBases returns bases that cost little to find: the values that the refs leave, which the preparation compares with the
// database's, and what HEAD points to if a ref is new.
func (s Source) likelyBases(ctx context.Context, moves []refdb.Update) ([]string, error) {
	_, bases := valuesOf(moves)
	if !slices.ContainsFunc(moves, func(m refdb.Update) bool { return m.Old.IsAbsent() }) {
		return bases, nil
	}
	head, ok, err := s.Repo.Head(ctx)
	if err != nil || !ok {
		return bases, err
	}
	branch, ok := refdb.Value(head.Value).Target()
	if !ok {
		return bases, nil
	}
	certified, err := s.certified(ctx, []string{branch})
	if err != nil {
		return nil, err
	}
	return sortedSet(append(bases, certified...)), nil
}

// allBases returns every value that the database has of a ref which is the same here.
func (s Source) allBases(ctx context.Context, moves []refdb.Update) ([]string, error) {
	_, bases := valuesOf(moves)
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
	states, err := s.DB.States(ctx, s.Project, refs)
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
