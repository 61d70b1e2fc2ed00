// Package projects knows the projects of the database: their rules, which all sites share, their
// IDs, which repositories record, and their modes. A change of the mode to enforce is made here, too.
package projects

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

const (
	// RefreshEvery is how often a daemon asks which projects have changed.
	RefreshEvery = 2 * time.Second
	// rulesValid is for how long it uses an answer, from when it asked.
	rulesValid = 10 * time.Second
	// RulesSettle is for how long all sites refuse pushes to a project after a change of it: until no site
	// lets a push through by the old rules. It is rulesValid, the longest time that an answer may come
	// after a look at the rules, and a margin for clocks that run at different speeds. Each site measures it from when it
	// learned of the change.
	RulesSettle = 20 * time.Second
	// rulesOld is the age from which a daemon that starts assumes that all sites know a change. The
	// age is by the database's clock, which may be set, and counts from before the commit, which may
	// wait for a standby.
	rulesOld = 10 * time.Minute
)

// A Cache is what a daemon knows of the database's projects.
type Cache struct {
	Settle time.Duration // for how long pushes are refused after a change; 0: [RulesSettle]
	// Clock measures the age of the database's latest answer; nil for [Uptime].
	Clock func() (time.Duration, error)

	mu     sync.Mutex
	turn   chan struct{} // has an item while the database is asked for changes
	known  map[string]Known
	last   driver.Project // the latest change that was read
	asOf   time.Duration  // when that was asked, by Clock; 0: never
	failed bool           // the database has not answered since

	changed map[string]bool // projects of which another row was learned since Changed was called

	IDs      RepositoryIDs
	Creating Names // projects whose repository a guard is creating here, which may come to nothing
}

// Known is a project as a daemon knows it.
type Known struct {
	driver.Project
	Rules   config.Rules
	Err     error         // of its rules
	Settled time.Duration // no push is decided on before
	adopted bool          // what this site does about the mode is in the database
}

// Validate is Refresh unless the cache is fresh enough to be used, perhaps because of another caller meanwhile.
func (k *Cache) Validate(ctx context.Context, db *refdb.DB) error {
	if valid, err := k.valid(); valid || err != nil {
		return err
	}
	if err := k.enter(ctx); err != nil {
		return err
	}
	defer k.leave()
	if valid, err := k.valid(); valid || err != nil {
		return err
	}
	return k.refresh(ctx, db)
}

// Refresh asks the database for what has changed, for one caller after the other.
//
// It asks again for the latest change that it knows. If the database no longer has that one, the database was set
// back, as by a restore from a backup, and gives the same revisions to other changes. Then Refresh reads everything
// again, and also after an outage, during which the database may have been set back. If the database then lacks what is
// known, only an admitted server is believed: another one may be half restored.
func (k *Cache) Refresh(ctx context.Context, db *refdb.DB) error {
	if err := k.enter(ctx); err != nil {
		return err
	}
	defer k.leave()
	return k.refresh(ctx, db)
}

// enter waits until no other caller asks the database, at most until ctx ends.
func (k *Cache) enter(ctx context.Context) error {
	k.mu.Lock()
	if k.turn == nil {
		k.turn = make(chan struct{}, 1)
	}
	k.mu.Unlock()
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for others that read the projects: %w", ctx.Err())
	}
}

func (k *Cache) leave() { <-k.turn }

func (k *Cache) refresh(ctx context.Context, db *refdb.DB) error {
	asked, err := k.clock()
	if err != nil {
		return err
	}
	k.mu.Lock()
	last, whole := k.last, k.failed
	k.mu.Unlock()
	var changed []driver.Project
	if !whole {
		changed, err = db.Projects().After(ctx, max(last.Revision-1, 0))
		whole = err == nil && last.Revision > 0 && !slices.ContainsFunc(changed, func(p driver.Project) bool {
			return p.Project == last.Project && (p.Op == last.Op || p.Revision > last.Revision)
		})
	}
	if whole && err == nil {
		changed, err = db.Projects().After(ctx, 0)
		if err == nil && k.wentBack(changed) {
			changed, err = readAdmitted(ctx, db)
		}
	}
	if err != nil {
		k.mu.Lock()
		k.failed = true
		k.mu.Unlock()
		return err
	}
	readAt, err := Uptime()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	before, first := k.known, k.asOf == 0
	k.asOf, k.failed = asked, false
	if whole {
		k.known, k.last = nil, driver.Project{}
	}
	for _, p := range changed {
		k.learn(p, k.settlesAt(p, before, readAt, first))
		k.last = p
	}
	return nil
}

// wentBack reports whether the database, whose rows are all, lacks a row that is known, and a later one of its project.
func (k *Cache) wentBack(all []driver.Project) bool {
	revisions := make(map[string]int64, len(all))
	for _, p := range all {
		revisions[p.Project] = p.Revision
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, p := range k.known {
		if revisions[name] < p.Revision {
			return true
		}
	}
	return false
}

// readAdmitted reads all projects from one server, which is admitted before and after.
func readAdmitted(ctx context.Context, db *refdb.DB) ([]driver.Project, error) {
	before, err := admittedServer(ctx, db)
	if err != nil {
		return nil, err
	}
	all, err := db.Projects().After(ctx, 0)
	if err != nil {
		return nil, err
	}
	after, err := admittedServer(ctx, db)
	if err == nil && after != before {
		err = fmt.Errorf("%w: its server has just changed", refdb.ErrUnavailable)
	}
	return all, err
}

// admittedServer returns the database's server, or an error if it is not admitted.
func admittedServer(ctx context.Context, db *refdb.DB) (string, error) {
	a, err := db.Recovery().Admission(ctx)
	if err == nil {
		err = a.Err()
	}
	return a.Server, err
}

// settlesAt returns when the rules of p, read at the time readAt, may be used. Before is what was known.
func (k *Cache) settlesAt(p driver.Project, before map[string]Known, readAt time.Duration, first bool) time.Duration {
	known, ok := before[p.Project]
	switch {
	case ok && known.Op == p.Op:
		return known.Settled
	case ok && known.Mode == config.Removed:
		return known.Settled // no push was let through since
	case !ok && p.IsNew(), first && p.Age >= rulesOld:
		return 0
	}
	return readAt + cmp.Or(k.Settle, RulesSettle)
}

// learn adds a row. k.mu is held.
func (k *Cache) learn(p driver.Project, settled time.Duration) {
	if k.known == nil {
		k.known = map[string]Known{}
	}
	if p.Revision <= k.known[p.Project].Revision {
		return
	}
	rules, err := config.ParseRules(p.Rules)
	if err == nil && !config.KnownMode(p.Mode) {
		err = fmt.Errorf("its mode %q is not known: upgrade the program", p.Mode)
	}
	if p.Mode == config.Log {
		settled = 0
	}
	if k.changed == nil {
		k.changed = map[string]bool{}
	}
	k.changed[p.Project] = true
	k.known[p.Project] = Known{Project: p, Rules: rules, Err: err, Settled: settled}
}

// Changed returns the projects of which another row was learned since it was called last.
func (k *Cache) Changed() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := k.changed
	k.changed = nil
	return slices.Sorted(maps.Keys(changed))
}

// All returns all projects.
func (k *Cache) All() []Known { return k.filter(func(Known) bool { return true }) }

// NameOf returns the name of the project with an ID; "" if there is none.
func (k *Cache) NameOf(id string) string {
	for _, p := range k.filter(func(p Known) bool { return p.ID == id }) {
		return p.Project.Project
	}
	return ""
}

// Unadopted returns the projects whose mode this site has not yet acted on in the database.
func (k *Cache) Unadopted() (some []Known) {
	return k.filter(func(p Known) bool { return p.isUnenforced() && !p.adopted })
}

// Unenforced returns the projects that are not in mode enforce here.
func (k *Cache) Unenforced() []Known {
	return k.filter(func(p Known) bool { return p.isUnenforced() && p.adopted })
}

func (p Known) isUnenforced() bool {
	return p.Err == nil && p.Mode != config.Enforce && p.Mode != config.Removed
}

func (k *Cache) filter(match func(Known) bool) (some []Known) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.known {
		if match(p) {
			some = append(some, p)
		}
	}
	slices.SortFunc(some, func(a, b Known) int { return strings.Compare(a.Project.Project, b.Project.Project) })
	return some
}

// Adopted records that this site has acted on these rows, unless newer ones have come since.
func (k *Cache) Adopted(some []Known) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range some {
		now := k.known[p.Project.Project]
		if now.Revision == p.Revision {
			now.adopted = true
			k.known[p.Project.Project] = now
		}
	}
}

// Logs reports whether a project is in mode log here, and returns its rules.
func (k *Cache) Logs(project string) (config.Rules, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.known[project]
	return p.Rules, p.adopted && p.Mode == config.Log
}

// Get returns what is known of a project.
func (k *Cache) Get(project string) (p Known, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok = k.known[project]
	return p, ok
}

// valid reports whether the cache is fresh enough to be used.
func (k *Cache) valid() (bool, error) {
	now, err := k.clock()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asOf != 0 && now-k.asOf <= rulesValid, err
}

// Read adds a row that was read or written for a push, and returns what is known: newer rows may have come first.
func (k *Cache) Read(row driver.Project, readAt time.Duration) Known {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.learn(row, k.settlesAt(row, k.known, readAt, false))
	return k.known[row.Project]
}

func (k *Cache) clock() (time.Duration, error) {
	if k.Clock == nil {
		return Uptime()
	}
	return k.Clock()
}
