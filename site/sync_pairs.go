package site

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// A pair is a guarded ref as the repository and the database have it.
type pair struct {
	ref string
	// local is an object ID, "ref: " and a target, or Unknown if it isn't there.
	local  refdb.Value
	global refdb.Value
}

// same reports whether both sides agree. What the database does not know and what
// was deleted in it are both absent.
func (p pair) same() bool {
	return p.local == p.global || p.local.IsAbsent() && p.global.IsAbsent()
}

// pairs iterates over the guarded refs that either side has, in byte order,
// without holding them all. The two sides are not of the same moment: what
// differs must be looked at again. warn gets git's complaints, such as about a broken ref.
func pairs(ctx context.Context, c *Config, db *refdb.DB, repo *gitrepo.Repo, project string, warn func(string)) iter.Seq2[pair, error] {
	return func(yield func(pair, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		nextLocal, stopLocal := iter.Pull2(repo.Refs(ctx, warn))
		defer stopLocal()
		nextGlobal, stopGlobal := iter.Pull2(db.Refs(ctx, project, "refs/", refdb.IncludeDeleted()))
		defer stopGlobal()
		l, lerr, lok := nextLocal()
		g, gerr, gok := nextGlobal()
		for lok || gok {
			if err := firstError(lerr, gerr); err != nil {
				yield(pair{}, err)
				return
			}
			var p pair
			takeLocal := lok && (!gok || l.Name <= g.Name)
			takeGlobal := gok && (!lok || g.Name <= l.Name)
			if takeLocal {
				p.ref, p.local = l.Name, refdb.Value(l.Value)
				l, lerr, lok = nextLocal()
			}
			if takeGlobal {
				p.ref, p.global = g.Name, g.Value
				g, gerr, gok = nextGlobal()
			}
			if c.Guards(project, p.ref) && !yield(p, nil) {
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

// A second look at a ref.
type look struct {
	pair
	lock   *refdb.LockInfo // nil if there is none, or a stale one: nobody is in the middle of a push under that
	broken string          // why the repository's value can't be read
}

// lookAgain reads what the repository has of refs, and then what the database
// has, in this order: a value that a push has put here by then is either
// locked there or as new there.
func lookAgain(ctx context.Context, db *refdb.DB, repo *gitrepo.Repo, project string, refs []string) ([]look, error) {
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
	states, err := db.States(ctx, project, refs)
	if err != nil {
		return nil, err
	}
	looks := make([]look, len(refs))
	for i, s := range states {
		looks[i] = look{pair: pair{s.Ref, refdb.Value(local[s.Ref]), s.Value}, broken: broken[s.Ref]}
		if s.Lock != nil && !s.Lock.Stale() {
			looks[i].lock = s.Lock
		}
	}
	return looks, nil
}
