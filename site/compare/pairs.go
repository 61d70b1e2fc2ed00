// Package compare finds where a repository's refs differ from the database, without holding all
// refs in memory. It also tells a ref that moved from a database that was set back.
package compare

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// Chunk is how many refs are compared with one query and moved in one
// transaction of git's.
const Chunk = 1000

// A Pair is a guarded ref as the repository and the database have it.
type Pair struct {
	Ref string
	// Local is an object ID, "ref: " and a target, or Unknown if it isn't there.
	Local  refdb.Value
	Global refdb.Value
}

// Agree reports whether both sides have the same value. A ref that the database does not know
// and one that was deleted in it are both absent.
func (p Pair) Agree() bool { return p.Local.Equivalent(p.Global) }

// Pairs iterates over the guarded refs that either side has, in byte order, without holding all
// of them in memory. The two sides are not read at the same moment: refs that differ must be read
// again ([LookAgain]). Warn gets git's complaints, such as about a broken ref.
func Pairs(ctx context.Context, c *config.Config, db *refdb.DB, repo *gitrepo.Repo, project string, warn func(string)) iter.Seq2[Pair, error] {
	return PairsOf(ctx, c, db, repo.Refs(ctx, warn), project)
}

// PairsOf is [Pairs] for a repository whose refs are already being read.
func PairsOf(ctx context.Context, c *config.Config, db *refdb.DB, local iter.Seq2[gitrepo.Ref, error], project string) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		nextLocal, stopLocal := iter.Pull2(local)
		defer stopLocal()
		nextGlobal, stopGlobal := iter.Pull2(db.Refs(ctx, project, "refs/", refdb.IncludeDeleted()))
		defer stopGlobal()
		l, lerr, lok := nextLocal()
		g, gerr, gok := nextGlobal()
		for lok || gok {
			if err := firstError(lerr, gerr); err != nil {
				yield(Pair{}, err)
				return
			}
			var p Pair
			takeLocal := lok && (!gok || l.Name <= g.Name)
			takeGlobal := gok && (!lok || g.Name <= l.Name)
			if takeLocal {
				p.Ref, p.Local = l.Name, refdb.Value(l.Value)
				l, lerr, lok = nextLocal()
			}
			if takeGlobal {
				p.Ref, p.Global = g.Name, g.Value
				g, gerr, gok = nextGlobal()
			}
			if c.Guards(project, p.Ref) && !yield(p, nil) {
				return
			}
		}
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A Look is a ref that was read again.
type Look struct {
	Pair
	Lock   *refdb.LockInfo // nil if there is none, or a stale one, under which no push is under way
	Broken string          // why the repository's value can't be read
}

// LookAgain reads refs in the repository, and then in the database. The order matters: if a push
// has moved a ref here by then, the database has either a lock on the ref or its new value.
func LookAgain(ctx context.Context, db *refdb.DB, repo *gitrepo.Repo, project string, refs []string) ([]Look, error) {
	broken := map[string]string{}
	readable := slices.Clone(refs)
	local, err := repo.Values(ctx, readable)
	for b := (*gitrepo.BrokenError)(nil); errors.As(err, &b) && broken[b.Ref] == ""; local, err = repo.Values(ctx, readable) {
		broken[b.Ref] = b.Error()
		readable = slices.DeleteFunc(readable, func(ref string) bool { return ref == b.Ref })
	}
	if err != nil {
		return nil, err
	}
	states, err := db.Intents().States(ctx, project, refs)
	if err != nil {
		return nil, err
	}
	looks := make([]Look, len(refs))
	for i, s := range states {
		looks[i] = Look{Pair: Pair{s.Ref, refdb.Value(local[s.Ref]), s.Value}, Broken: broken[s.Ref]}
		if s.Lock != nil && !s.Lock.Stale() {
			looks[i].Lock = s.Lock
		}
	}
	return looks, nil
}
