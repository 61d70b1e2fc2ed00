// Package modes acts on the modes of projects that are not enforced: it keeps what was let through although the database did not agree,
// has the database follow that, and tells the other sites what this one does.
package modes

import (
	"context"
	"errors"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

// refsPerRequest bounds the refs in a request to the database.
const refsPerRequest = 1000

// A Keeper lets the database know what this site does about projects that are not in mode enforce.
type Keeper struct {
	DB       *refdb.DB
	Projects *projects.Cache
	Logged   *Logged
	State    *serving.State
	// Unsettled returns an error while a push or a guard's transaction in a repository may still move refs, or is not settled.
	Unsettled func(config.Repository) error
}

// Adopt tells the database what this site does about projects that are not in mode enforce. Only one
// goroutine calls it.
//
// In mode log the site first writes its grant, and then reads the project's row again. The operator who ends the
// mode first writes the row, and then reads the grants: so one of the two sees the other. From then on the daemon
// lets pushes through, whether or not the database answers, until it reads another row.
func (k *Keeper) Adopt(ctx context.Context) error {
	c := k.State.Config()
	var granting []projects.Known
	var failures []error
	for _, p := range k.Projects.Unadopted() {
		r, err := c.Repository(p.Project.Project)
		switch none := errors.Is(err, config.ErrNotConfigured); {
		case none && p.Mode == config.Log:
			continue
		case none:
			err = k.write(ctx, c, p, projects.NoRepository)
		case err != nil:
		case p.Mode == config.Log:
			granting = append(granting, p)
		default:
			err = k.report(ctx, c, r, p)
		}
		failures = append(failures, err)
	}
	for some := range slices.Chunk(granting, refsPerRequest) {
		failures = append(failures, k.grant(ctx, c, some))
	}
	return errors.Join(failures...)
}

// grant tells the database that this site refuses nothing of some projects.
func (k *Keeper) grant(ctx context.Context, c *config.Config, granting []projects.Known) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var refs []string
	want := map[string]refdb.Value{}
	for _, p := range granting {
		ref := projects.RecordRef(p.ID, c.Site)
		refs, want[ref] = append(refs, ref), projects.Record{Revision: p.Revision}.Value()
	}
	have, err := k.DB.Intents().States(ctx, presence.Project, refs)
	if err != nil {
		return err
	}
	var updates []refdb.Update
	for _, s := range have {
		if s.Value != want[s.Ref] {
			updates = append(updates, refdb.Update{Ref: s.Ref, Old: s.Value, New: want[s.Ref]})
		}
	}
	if len(updates) > 0 {
		if err := k.DB.Update(ctx, presence.Project, updates); err != nil {
			return err
		}
	}
	if err = k.Projects.Refresh(ctx, k.DB); err == nil {
		k.Projects.Adopted(granting)
	}
	return err
}

// report tells the database that this site lets nothing of a project through any more, and the
// digest of its refs. Before, it waits for transactions that were let through, by this daemon or an
// earlier one, which have lock files, and for the follower, which has claims.
func (k *Keeper) report(ctx context.Context, c *config.Config, r config.Repository, p projects.Known) error {
	if err := install.AwaitLocks(ctx, r.Path); err != nil {
		return err
	}
	if err := k.Unsettled(r); err != nil {
		return err
	}
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return err
	}
	digest, err := projects.LocalDigest(ctx, c.Under(p.Rules), repo, r.Project)
	if err != nil {
		return err
	}
	return k.write(ctx, c, p, digest)
}

// write writes a report to the database.
func (k *Keeper) write(ctx context.Context, c *config.Config, p projects.Known, digest string) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	_, err := k.DB.Put(ctx, presence.Project, projects.RecordRef(p.ID, c.Site), projects.Record{Revision: p.Revision, Digest: digest}.Value())
	if err == nil {
		k.Projects.Adopted([]projects.Known{p})
	}
	return err
}

// WriteBack writes the values of refs to the database that moved although it had not agreed. What fails is tried
// again.
func (k *Keeper) WriteBack(ctx context.Context) error {
	c := k.State.Config()
	var failures []error
	for of, refs := range k.Logged.ended() {
		err := config.ErrNotConfigured
		if _, logs := k.Projects.Logs(of.project); logs {
			err = k.writeBackRefs(ctx, c, of, refs)
		}
		if err == nil || errors.Is(err, config.ErrNotConfigured) {
			k.Logged.forget(of.project, refs)
			continue
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// writeBackRefs writes under a lock. The operator who ends the mode waits until there are no locks: so no late
// request writes after that.
func (k *Keeper) writeBackRefs(ctx context.Context, c *config.Config, of pushedBy, refs []loggedMove) error {
	r, err := c.Repository(of.project)
	if err != nil {
		return err
	}
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var failures []error
	for some := range slices.Chunk(refs, refsPerRequest) {
		to := make(map[string]refdb.Value, len(some))
		names := make([]string, len(some))
		for i, s := range some {
			names[i], to[s.ref] = s.ref, s.to
		}
		lock, err := k.DB.TryLock(ctx, of.project, names...)
		if held := (*refdb.LockedError)(nil); errors.As(err, &held) {
			failures = append(failures, err)
			// The others need not wait.
			names = slices.DeleteFunc(names, func(ref string) bool {
				return slices.ContainsFunc(held.Holders, func(l refdb.LockInfo) bool { return l.Ref == ref })
			})
			if len(names) == 0 {
				continue
			}
			lock, err = k.DB.TryLock(ctx, of.project, names...)
		}
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		if err := writeBackUnder(ctx, lock, repo, to, of.by); err != nil {
			return errors.Join(append(failures, err, lock.Release(ctx))...)
		}
	}
	return errors.Join(failures...)
}

// writeBackUnder writes the repository's values of the locked refs, if they are the ones that were let through.
func writeBackUnder(ctx context.Context, lock *refdb.Lock, repo *gitrepo.Repo, to map[string]refdb.Value, by string) error {
	names := lock.Refs()
	local, err := repo.Values(ctx, names)
	if err != nil {
		return err
	}
	var updates []refdb.Update
	for _, ref := range names {
		have, err := lock.Value(ref)
		if err != nil {
			return err
		}
		here := refdb.Value(local[ref])
		if !here.Equivalent(to[ref]) || have.Equivalent(here) {
			continue
		}
		if here.IsAbsent() {
			here = refdb.Deleted
		}
		updates = append(updates, refdb.Update{Ref: ref, Old: have, New: here})
	}
	if len(updates) == 0 {
		return lock.Release(ctx)
	}
	if err := repo.Sync(names); err != nil {
		return err
	}
	return lock.UpdateAndRelease(ctx, updates, refdb.By(by))
}
