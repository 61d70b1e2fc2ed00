package site

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// refs compares the guarded refs with the database, both ways.
func (k *check) refs(ctx context.Context) error {
	warn := func(complaint string) { k.find(RefBroken, "", "git says: "+complaint, nil) }
	var differ []string
	for p, err := range pairs(ctx, k.Config, k.db, k.repo, k.Project, warn) {
		if err != nil {
			return err
		}
		if !k.storable(p) || p.same() {
			continue
		}
		if differ = append(differ, p.ref); len(differ) == syncChunk {
			if err := k.second(ctx, differ); err != nil {
				return err
			}
			differ = differ[:0]
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return k.second(ctx, differ)
}

// storable tells of refs that the database can't hold, or must not.
func (k *check) storable(p pair) bool {
	if p.local == refdb.Unknown {
		return true
	}
	if target, symbolic := p.local.Target(); symbolic {
		k.find(Symref, p.ref, fmt.Sprintf("it is a symbolic ref, to %s: a guarded ref can't be one; remove it with git symbolic-ref --delete", target), nil)
		return false
	}
	if err := refdb.CheckKey(k.Project, p.ref); err != nil {
		k.find(RefBroken, p.ref, err.Error()+": pushes to it are refused; remove or rename it", nil)
		return false
	}
	return true
}

// second looks again at refs that differed: what has moved since, or is
// locked, is on its way.
func (k *check) second(ctx context.Context, refs []string) error {
	now, err := lookAgain(ctx, k.db, k.repo, k.Project, refs)
	if err != nil {
		return err
	}
	for _, p := range now {
		if p.lock != nil || p.same() {
			continue
		}
		here, global := short(p.local), short(p.global)
		switch {
		case p.broken != "":
			k.find(RefBroken, p.ref, p.broken, nil)
		case p.global == refdb.Unknown:
			k.find(LocalUnknown, p.ref, fmt.Sprintf("it is %s here, and the database does not know it: pushes to it are refused; "+
				"refdbctl refs import brings it in, git update-ref -d with hooks off removes it", here), nil)
		case p.local == refdb.Unknown:
			k.find(GlobalMissingHere, p.ref, fmt.Sprintf("it is %s in the database, and not here: refdbctl site sync", global), nil)
		case p.global.IsDeleted():
			k.find(LocalDiffers, p.ref, fmt.Sprintf("it is %s here, and deleted in the database: refdbctl site sync", here), nil)
		default:
			k.find(LocalDiffers, p.ref, fmt.Sprintf("it is %s here, and %s in the database: refdbctl site sync", here, global), nil)
		}
	}
	return nil
}
