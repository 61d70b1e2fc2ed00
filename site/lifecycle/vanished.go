package lifecycle

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// lookForVanished is the interval at which the followed repositories are checked.
	lookForVanished = 20 * time.Second
	// vanishedAfter is how long a repository may be missing before an alarm is raised: a guard that
	// deletes a repository reports that only after it has finished.
	vanishedAfter = time.Minute
)

// vanished are the followed repositories that are gone without a reported deletion. PROTOCOL.md,
// M24, has the rules.
type vanished struct {
	mu    sync.Mutex
	since map[string]time.Time // by project
	told  map[string]bool      // the alarm was raised
}

// RunVanished checks for repositories that are gone, until ctx ends.
func (k *Lifecycle) RunVanished(ctx context.Context) {
	tick := time.NewTicker(lookForVanished)
	defer tick.Stop()
	for {
		k.LookForVanished(ctx, time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// LookForVanished raises an alarm, once, for each repository that has been gone for too long at the
// given time.
func (k *Lifecycle) LookForVanished(ctx context.Context, now time.Time) {
	since := map[string]time.Time{}
	for _, project := range k.Follower.Known() {
		if k.isVanished(project) {
			since[project] = now
		}
	}
	v := &k.vanished
	v.mu.Lock()
	defer v.mu.Unlock()
	told := map[string]bool{}
	for project := range since {
		if first, ok := v.since[project]; ok {
			since[project] = first
		}
		if told[project] = v.told[project] || now.Sub(since[project]) >= vanishedAfter; told[project] && !v.told[project] {
			k.State.Counts.Alarms.Add(1)
			k.Logger.ErrorContext(ctx, "a repository has vanished: see `refdbctl site status`", "project", k.State.Digest(project, ""))
		}
	}
	v.since, v.told = since, told
}

// isVanished reports whether a followed project's repository is gone without a reported deletion.
func (k *Lifecycle) isVanished(project string) bool {
	if p, ok := k.Projects.Get(project); !ok || p.Mode == config.Removed || k.deletions.has(project) || k.Projects.Creating.Has(project) {
		return false
	}
	r, err := k.State.Config().Repository(project)
	if err == nil {
		_, err = os.Lstat(r.Path)
	}
	return errors.Is(err, config.ErrNotConfigured) || errors.Is(err, fs.ErrNotExist)
}

// failures returns the repositories for which an alarm was raised, sorted by project.
func (v *vanished) failures() (all []client.Behind) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for project := range v.told {
		if v.told[project] {
			all = append(all, client.Behind{Project: project, Reason: wire.ProjectVanished(project), Age: time.Since(v.since[project]).Seconds()})
		}
	}
	slices.SortFunc(all, func(a, b client.Behind) int { return strings.Compare(a.Project, b.Project) })
	return all
}
