package lifecycle

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// deletions are the projects whose repositories guards have deleted, until the database has
// recorded that. PROTOCOL.md, M23, has the rules.
type deletions struct {
	mu      sync.Mutex // also held while a deletion is recorded
	noted   map[deletion]bool
	failed  map[deletion]failedDeletion // why a project could not be removed yet
	working sync.Mutex                  // held while projects are removed
}

// A failedDeletion is the reason why a project could not be removed yet.
type failedDeletion struct {
	reason string
	since  time.Time
}

// A deletion names a project, and the ID that its repository recorded. Revision is the revision of
// the project's row when the repository had been deleted, as far as the daemon knew it, or else 0.
// A row that was written later may belong to a project that was brought back.
type deletion struct {
	Project  string `json:"project"`
	ID       string `json:"id"`
	Revision int64  `json:"revision"`
}

func deletionsFile(state string) durable.State { return durable.In(state, "deletions") }

// LoadDeletions loads the deletions that earlier daemons recorded.
func (k *Lifecycle) LoadDeletions(state string) error {
	var all []deletion
	_, err := deletionsFile(state).Load(&all)
	k.deletions.noted = map[deletion]bool{}
	for _, one := range all {
		k.deletions.noted[one] = true
	}
	return err
}

// change changes the recorded deletions durably. After an error nothing has changed.
func (ds *deletions) change(state string, change func(map[deletion]bool)) error {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	next := maps.Clone(ds.noted)
	change(next)
	if maps.Equal(next, ds.noted) {
		return nil
	}
	all := slices.AppendSeq([]deletion{}, maps.Keys(next))
	err := deletionsFile(state).Save(all)
	if err == nil {
		ds.noted = next
	}
	return err
}

func (ds *deletions) all() []deletion {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	return slices.Collect(maps.Keys(ds.noted))
}

// has reports whether a project's repository was deleted, and the database may not have recorded it
// yet.
func (ds *deletions) has(project string) bool {
	return slices.ContainsFunc(ds.all(), func(one deletion) bool { return one.Project == project })
}

// NoteDeletion records durably that the project of a repository is to be removed, provided that the
// repository is gone.
func (k *Lifecycle) NoteDeletion(m wire.Deleted) error {
	c := k.State.Config()
	r, err := c.NewRepository(m.Dir)
	if err == nil {
		err = isGone(m.Dir)
	}
	if err != nil {
		return refusal.Because(refusal.NotConfigured, err)
	}
	row, _ := k.Projects.Get(r.Project)
	return k.deletions.change(c.State, func(noted map[deletion]bool) {
		for one := range noted {
			if one.Project == r.Project && one.ID == m.ID {
				return // the guard repeats its message
			}
		}
		noted[deletion{r.Project, m.ID, row.Revision}] = true
	})
}

// isGone returns an error unless there is nothing at path.
func isGone(path string) error {
	switch _, err := os.Lstat(path); {
	case err == nil:
		return errors.New(wire.PathTaken(path))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// RemoveDeleted removes the projects whose repositories guards have deleted. reconcile retries
// whatever fails here.
func (k *Lifecycle) RemoveDeleted(ctx context.Context) {
	ds := &k.deletions
	ds.working.Lock()
	defer ds.working.Unlock()
	for _, one := range ds.all() {
		err := k.removeProject(ctx, one)
		if err == nil {
			err = ds.change(k.State.Config().State, func(noted map[deletion]bool) { delete(noted, one) })
		}
		if ctx.Err() == nil && ds.recordResult(one, err) {
			k.Logger.WarnContext(ctx, "a project whose repository was deleted can't be removed yet; trying again: see `refdbctl site status`",
				"project", k.State.Digest(one.Project, ""), "class", refdb.ClassOf(err).String())
		}
	}
}

// recordResult records the result of removing a project, and reports whether this is its first
// failure.
func (ds *deletions) recordResult(one deletion, err error) (first bool) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if err == nil {
		delete(ds.failed, one)
		return false
	}
	if _, known := ds.failed[one]; known {
		return false
	}
	if ds.failed == nil {
		ds.failed = map[deletion]failedDeletion{}
	}
	ds.failed[one] = failedDeletion{wire.OneLine(err.Error()), time.Now()}
	return true
}

// failures returns the projects that could not be removed yet, sorted by name.
func (ds *deletions) failures() (all []client.Behind) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	for one, f := range ds.failed {
		all = append(all, client.Behind{
			Project: one.Project, Reason: "its repository was deleted here, and the project can't be removed yet: " + f.reason, Age: time.Since(f.since).Seconds(),
		})
	}
	slices.SortFunc(all, func(a, b client.Behind) int { return strings.Compare(a.Project, b.Project) })
	return all
}

// removeProject removes a project whose repository was deleted, as an operator would. It also
// completes a removal that was interrupted.
func (k *Lifecycle) removeProject(ctx context.Context, one deletion) error {
	if err := errors.Join(k.State.AwaitServing(ctx), k.Witness.MayAct(ctx)); err != nil {
		return err
	}
	which := k.State.Digest(one.Project, "")
	row, ok, err := k.DB.Projects().Get(ctx, one.Project)
	switch {
	case err != nil:
		return err
	case !ok || row.ID != one.ID: // a repository of an earlier project
		k.forgetDeleted(ctx, one)
		return nil
	case row.Mode != config.Removed && one.Revision != 0 && row.Revision != one.Revision:
		k.Logger.WarnContext(ctx, "a project has changed since its repository was deleted here: the project is not removed", "project", which)
		return nil
	case row.Freeze != (driver.Freeze{}) && one.Revision == 0:
		return k.deletions.change(k.State.Config().State, func(noted map[deletion]bool) { noted[deletion{one.Project, one.ID, row.Revision}] = true })
	case row.Freeze != (driver.Freeze{}): // its end changes the row: then the project stays
		return &driver.FrozenError{Project: row.Project, Freeze: row.Freeze}
	case row.Mode != config.Removed:
		// The repository may have been brought back.
		if r, err := k.State.Config().Repository(one.Project); err == nil {
			if id, err := k.Projects.IDs.Of(ctx, r); err != nil {
				return err
			} else if id == one.ID {
				k.Logger.WarnContext(ctx, "a deleted repository exists again: its project is not removed", "project", which)
				return nil
			}
		}
	}
	if row.Mode == config.Removed { // complete the removal
		_, _, err = projects.Remove(ctx, k.DB, row)
	} else {
		err = k.removeAudited(ctx, row)
	}
	if err != nil {
		return err
	}
	k.forgetDeleted(ctx, one)
	k.Logger.InfoContext(ctx, "a project was removed, because its repository was deleted here", "project", which)
	return nil
}

// removeAudited removes a project, and records the removal in the audit log.
func (k *Lifecycle) removeAudited(ctx context.Context, row driver.Project) error {
	c := k.State.Config()
	recording, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	entry, err := k.DB.Audit().Record(recording, driver.AuditEntry{
		Who: k.DB.Owner(), Action: "project remove", Project: row.Project, Detail: "all refs and locks", Reason: "its repository was deleted at " + c.Site,
	})
	if err != nil {
		return err
	}
	_, _, err = projects.Remove(ctx, k.DB, row)
	outcome := "done"
	if err != nil {
		outcome = "not ended: " + refdb.ClassOf(err).String()
	}
	concluding, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	k.logFailure(ctx, "the outcome of a removal could not be recorded", k.DB.Audit().Conclude(concluding, entry, outcome))
	return err
}

// forgetDeleted makes the follower forget the deleted repository, unless another one exists by now.
func (k *Lifecycle) forgetDeleted(ctx context.Context, one deletion) {
	if _, err := k.State.Config().Repository(one.Project); err != nil && k.Follower.Knows(one.Project) {
		k.Follower.Forget(ctx, one.Project)
	}
}
