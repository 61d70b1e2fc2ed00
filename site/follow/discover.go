package follow

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// discoverEvery is how often all directories are looked at for new repositories. Those that the daemon is told of, and those
// of projects whose row has changed, don't wait for it: see [Follower.Found].
const discoverEvery = time.Minute

// identity tells a repository from one that took its place.
func identity(path string) string {
	info, err := os.Stat(filepath.Join(path, "config"))
	if err != nil {
		return ""
	}
	node := uint64(0)
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		node = s.Ino
	}
	return fmt.Sprintf("%d-%d", node, info.ModTime().UnixNano())
}

// Found compares a repository as a whole if it is new here, or took the place of another. It is to be followed.
func (f *Follower) Found(r config.Repository) {
	which := identity(r.Path)
	if which == "" {
		return // it has gone meanwhile
	}
	f.watchHead(r)
	f.mu.Lock()
	known := f.known[r.Project] == which
	f.mu.Unlock()
	if known {
		return
	}
	f.o.Appeared(r)
	f.mu.Lock()
	f.known[r.Project] = which
	f.mu.Unlock()
	f.queue.addAll(r.Project)
}

// Compare compares a followed repository as a whole: something may have moved its refs unseen.
func (f *Follower) Compare(project string) {
	if f.Knows(project) {
		f.queue.addAll(project)
	}
}

// Knows reports whether the project's repository has been followed here, by this daemon or an earlier one. It waits for [Follower.Run]
// to begin.
func (f *Follower) Knows(project string) bool {
	<-f.loaded
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.known[project]
	return ok
}

// Known returns the projects whose repositories have been followed here, by this daemon or an earlier one. It waits for [Follower.Run] to begin.
func (f *Follower) Known() []string {
	<-f.loaded
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.known))
}

// Forget is called after a project's repository has gone for good: one that comes to its place is new here.
func (f *Follower) Forget(ctx context.Context, project string) {
	f.mu.Lock()
	delete(f.known, project)
	delete(f.marks, project)
	delete(f.heads, project)
	f.mu.Unlock()
	f.save(ctx)
}

// discover finds repositories that are new here, until ctx ends.
func (f *Follower) discover(ctx context.Context) {
	for {
		repositories, err := f.followed()
		if err != nil {
			f.log(ctx, "the repositories can't be listed", err)
		}
		for _, r := range repositories {
			f.Found(r)
		}
		select {
		case <-time.After(discoverEvery):
		case <-f.again:
		case <-ctx.Done():
			return
		}
	}
}

// forgetIdentity has a repository compared that comes to a project's place, also the one that was there. That one was here stays known.
func (f *Follower) forgetIdentity(project string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.known[project]; ok {
		f.known[project] = ""
	}
}

// forgetAll lets all repositories be compared again, at once. That they were here stays known.
func (f *Follower) forgetAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for project := range f.known {
		f.known[project] = ""
	}
	select {
	case f.again <- struct{}{}:
	default:
	}
}
