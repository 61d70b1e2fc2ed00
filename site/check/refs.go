package check

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// local returns the repository's refs, and reports refs that are in the way of a peer's. Warn
// receives git's complaints.
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
	var complaints []string
	warn := func(complaint string) { complaints = append(complaints, complaint) }
	defer func() { k.complained(complaints) }()
	var err error
	if k.dangling, err = k.repo.Dangling(ctx); err != nil {
		return err
	}
	for _, ref := range slices.Sorted(maps.Keys(k.dangling)) {
		if k.Guards(k.Project, ref) {
			k.symref(ref, k.dangling[ref])
		}
	}
	var differ []string
	var pairs namePairs
	for p, err := range compare.PairsOf(ctx, k.Config, k.db, k.local(ctx, warn), k.Project) {
		if err != nil {
			return err
		}
		if !p.Global.IsAbsent() {
			pairs.see(p.Ref)
		}
		if !k.storable(p) || p.Agree() {
			continue
		}
		if differ = append(differ, p.Ref); len(differ) == compare.Chunk {
			if err := k.recheck(ctx, differ, &pairs); err != nil {
				return err
			}
			differ = differ[:0]
		}
	}
	return k.recheck(ctx, differ, &pairs)
}

// symref reports a guarded ref that is symbolic.
func (k *repositoryCheck) symref(ref, target string) {
	k.find(Symref, ref, fmt.Sprintf("it is a symbolic ref, to %s: a guarded ref can't be one; `%s` removes it", target, wire.RemoveSymbolicRef(k.Path, ref)), nil)
}

// synced returns the advice for updating a ref from the database.
func (k *repositoryCheck) synced() string {
	if k.follows() {
		return fmt.Sprintf("`refdbctl site check %s --repair` asks the daemon to update it", k.Project)
	}
	return fmt.Sprintf("`refdbctl site sync --from URL %s` updates it, where URL is another site's copy", k.Project)
}

// follows reports whether the daemon keeps the repository up to date with the database.
func (k *repositoryCheck) follows() bool { return packs.Stored(k.rules[k.Project]) }

// bringPatience is how long the daemon may take to update the differing refs.
const bringPatience = 10 * time.Second

// bring returns a repair that asks the daemon to compare the repository, and waits until a ref has
// the database's value.
func (k *repositoryCheck) bring(ctx context.Context, ref string) func() (string, error) {
	if !k.follows() {
		return nil
	}
	return func() (string, error) {
		if k.brought.IsZero() {
			if err := client.Follow(ctx, k.Socket, k.repo.Dir()); err != nil {
				return "", err
			}
			k.brought = time.Now().Add(bringPatience)
		}
		for {
			looks, err := compare.LookAgain(ctx, k.db, k.repo, k.Project, []string{ref})
			switch {
			case err != nil:
				return "", err
			case looks[0].Agree():
				return "the daemon has updated it", nil
			case time.Now().After(k.brought):
				return "", errors.New("the daemon has not updated it yet: `refdbctl site status` says why")
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
	}
}

// complained reports git's complaints, except for those about refs already found to be broken.
func (k *repositoryCheck) complained(complaints []string) {
	for _, complaint := range complaints {
		if !slices.ContainsFunc(strings.Fields(complaint), func(word string) bool { return slices.Contains(k.broken, word) }) {
			ref, advice := k.brokenFile(complaint)
			k.find(RefBroken, ref, "git says: "+complaint+advice, nil)
		}
	}
}

// brokenFile returns the ref that git complains about and, if the ref's file has no value and the
// database does not know the ref, the advice.
func (k *repositoryCheck) brokenFile(complaint string) (ref, advice string) {
	ref, ok := strings.CutPrefix(complaint, "warning: ignoring broken ref ")
	if !ok || !filepath.IsLocal(ref) {
		return "", ""
	}
	path := filepath.Join(k.Path, ref)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return ref, ""
	}
	return ref, "; " + removal(path)
}

func removal(path string) string {
	return fmt.Sprintf("the database has no value for it: `rm '%s'` removes it", strings.ReplaceAll(path, "'", `'\''`))
}

// findBroken reports a ref whose file has no value. The repair sets the database's value.
func (k *repositoryCheck) findBroken(ctx context.Context, p compare.Look) {
	if !p.Global.IsObjectID() || p.Global.IsDeleted() {
		k.find(RefBroken, p.Ref, p.Broken+"; "+removal(filepath.Join(k.Path, p.Ref)), nil)
		return
	}
	k.find(RefBroken, p.Ref, fmt.Sprintf("%s; the database has %s: `refdbctl site check %s --repair` sets this value", p.Broken, p.Global.Abbrev(), k.Project), func() (string, error) {
		release, err := maintenance.Share(ctx, k.repo.Dir())
		if err != nil {
			return "", err
		}
		defer release()
		failure := errors.New("another process has moved the ref meanwhile: run the command again")
		err = catchup.SyncRefs(ctx, k.Config, k.db, k.repo, k.Project, []string{p.Ref}, func(s catchup.Synced) {
			// Without the file that hid it, the value among the packed refs may be that of the database.
			if failure = nil; s.Result != catchup.Created && s.Result != catchup.Updated && s.Local != s.Global {
				failure = errors.New(s.Detail)
			}
		})
		return "it has the database's value again: " + p.Global.Abbrev(), errors.Join(err, failure)
	})
}

// storable reports refs that the database can't or must not hold.
func (k *repositoryCheck) storable(p compare.Pair) bool {
	if p.Local == refdb.Unknown {
		return true
	}
	if target, symbolic := p.Local.Target(); symbolic {
		k.symref(p.Ref, target)
		return false
	}
	if err := driver.CheckKey(k.Project, p.Ref); err != nil {
		k.find(RefBroken, p.Ref, fmt.Sprintf("%s: pushes to it are refused; `%s` removes it", err, wire.PastTheHook(k.Path, "update-ref", "-d", p.Ref)), nil)
		return false
	}
	return true
}

// recheck reads differing refs again. It skips refs that have moved since, or are locked because a
// push is in progress.
//
// It first handles the pairs of names found so far, because the daemon can't create the ref that
// this copy lacks.
func (k *repositoryCheck) recheck(ctx context.Context, refs []string, pairs *namePairs) error {
	if err := k.excluded(ctx, pairs); err != nil || len(refs) == 0 {
		return err
	}
	now, err := compare.LookAgain(ctx, k.db, k.repo, k.Project, refs)
	if err != nil {
		return err
	}
	older, err := compare.SetBack(ctx, k.repo, now, func(refs []string) ([]refdb.Ref, error) { return k.db.GetAll(ctx, k.Project, refs...) })
	if err != nil {
		return err
	}
	for _, p := range now {
		if p.Lock != nil || p.Agree() || pairs.stands[p.Ref] && p.Local == refdb.Unknown {
			continue
		}
		here, global := p.Local.Abbrev(), p.Global.Abbrev()
		target, symbolic := p.Local.Target()
		switch {
		case symbolic && k.dangling[p.Ref] != "": // already reported
		case symbolic:
			k.symref(p.Ref, target)
		case older[p.Ref]:
			k.find(DatabaseBehind, p.Ref, fmt.Sprintf("it is %s here, and %s in the database, which once had the value from here: the database seems to have been set back; "+
				`see OPERATIONS.md, "The database went back in time"`, here, global), nil)
		case p.Broken != "":
			k.broken = append(k.broken, p.Ref)
			k.findBroken(ctx, p)
		case p.Global == refdb.Unknown:
			k.find(LocalUnknown, p.Ref, fmt.Sprintf("it is %s here, but the database does not know it: pushes to it are refused; "+
				"`refdbctl refs import %s --repo %s` imports it, `%s` removes it", here, k.Project, k.Path, wire.PastTheHook(k.Path, "update-ref", "-d", p.Ref)), nil)
		case p.Local == refdb.Unknown:
			k.find(GlobalMissingHere, p.Ref, fmt.Sprintf("it is %s in the database, but missing here: %s", global, k.synced()), k.bring(ctx, p.Ref))
		case p.Global.IsDeleted():
			k.find(LocalDiffers, p.Ref, fmt.Sprintf("it is %s here, but deleted in the database: %s", here, k.synced()), k.bring(ctx, p.Ref))
		default:
			k.find(LocalDiffers, p.Ref, fmt.Sprintf("it is %s here, but %s in the database: %s", here, global, k.synced()), k.bring(ctx, p.Ref))
		}
	}
	return nil
}
