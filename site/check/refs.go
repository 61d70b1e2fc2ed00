package check

import (
	"context"
	"fmt"
	"iter"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/compare"
)

// local returns the repository's refs. It finds refs that are in the way of a peer's. Warn gets git's complaints.
func (k *repositoryCheck) local(ctx context.Context, warn func(string)) iter.Seq2[gitrepo.Ref, error] {
	return func(yield func(gitrepo.Ref, error) bool) {
		for ref, err := range k.repo.Refs(ctx, warn) {
			if err == nil {
				k.peer(ref.Name)
			}
			if !yield(ref, err) {
				return
			}
		}
	}
}

// refs compares the guarded refs with the database, in both directions. Without a database it only
// reads those of the repository.
func (k *repositoryCheck) refs(ctx context.Context) error {
	if k.db == nil {
		for _, err := range k.local(ctx, func(string) {}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	warn := func(complaint string) { k.find(RefBroken, "", "git says: "+complaint, nil) }
	var differ []string
	for p, err := range compare.PairsOf(ctx, k.Config, k.db, k.local(ctx, warn), k.Project) {
		if err != nil {
			return err
		}
		if !k.storable(p) || p.Agree() {
			continue
		}
		if differ = append(differ, p.Ref); len(differ) == compare.Chunk {
			if err := k.recheck(ctx, differ); err != nil {
				return err
			}
			differ = differ[:0]
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return k.recheck(ctx, differ)
}

// storable finds refs that the database can't hold, or must not.
func (k *repositoryCheck) storable(p compare.Pair) bool {
	if p.Local == refdb.Unknown {
		return true
	}
	if target, symbolic := p.Local.Target(); symbolic {
		k.find(Symref, p.Ref, fmt.Sprintf("it is a symbolic ref, to %s: a guarded ref can't be one; remove it with git symbolic-ref --delete", target), nil)
		return false
	}
	if err := refdb.CheckKey(k.Project, p.Ref); err != nil {
		k.find(RefBroken, p.Ref, err.Error()+": pushes to it are refused; remove or rename it", nil)
		return false
	}
	return true
}

// recheck reads refs again that differed. It leaves out those that have moved since, or are
// locked: a push is under way.
func (k *repositoryCheck) recheck(ctx context.Context, refs []string) error {
	now, err := compare.LookAgain(ctx, k.db, k.repo, k.Project, refs)
	if err != nil {
		return err
	}
	older, err := compare.SetBack(ctx, k.db, k.repo, k.Project, now)
	if err != nil {
		return err
	}
	for _, p := range now {
		if p.Lock != nil || p.Agree() {
			continue
		}
		here, global := p.Local.Abbrev(), p.Global.Abbrev()
		switch {
		case older[p.Ref]:
			k.find(DatabaseBehind, p.Ref, fmt.Sprintf("it is %s here, and %s in the database, which once had what is here: the database seems to have been set back; "+
				`see OPERATIONS.md, "The database went back in time"`, here, global), nil)
		case p.Broken != "":
			k.find(RefBroken, p.Ref, p.Broken, nil)
		case p.Global == refdb.Unknown:
			k.find(LocalUnknown, p.Ref, fmt.Sprintf("it is %s here, and the database does not know it: pushes to it are refused; "+
				"refdbctl refs import brings it in, git update-ref -d with hooks off removes it", here), nil)
		case p.Local == refdb.Unknown:
			k.find(GlobalMissingHere, p.Ref, fmt.Sprintf("it is %s in the database, and not here: refdbctl site sync", global), nil)
		case p.Global.IsDeleted():
			k.find(LocalDiffers, p.Ref, fmt.Sprintf("it is %s here, and deleted in the database: refdbctl site sync", here), nil)
		default:
			k.find(LocalDiffers, p.Ref, fmt.Sprintf("it is %s here, and %s in the database: refdbctl site sync", here, global), nil)
		}
	}
	return nil
}
