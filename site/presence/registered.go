package presence

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// followerPrefix begins the names under which daemons are registered as readers of changes.
const followerPrefix = "site/"

// FollowerName is the name under which a site's daemon is registered as a reader of changes.
func FollowerName(site string) string { return followerPrefix + site }

// A Site is what the database has about one.
type Site struct {
	Name     string
	Lock     *refdb.LockInfo  // on its name, fresh or stale; nil if there is none
	Follower *driver.Follower // nil if its daemon has not followed changes
	Witness  *driver.Witness  // nil if its daemon has not compared the database with its journal
	About    *About           // nil if its daemon has not said anything
}

// Alive reports whether a daemon serves the site, or did so until moments ago.
func (s Site) Alive() bool { return s.Lock != nil && !s.Lock.Stale() }

// Registered returns all sites in the order of their names: see [Records.Sites].
func Registered(ctx context.Context, db *refdb.DB) (all []Site, err error) {
	var r Records
	if r.Served, err = Sites(ctx, db); err != nil {
		return nil, err
	}
	if r.Followers, err = db.Followers().All(ctx); err != nil {
		return nil, err
	}
	admission, err := db.Recovery().Admission(ctx)
	if err != nil {
		return nil, err
	}
	r.Witnesses = admission.Witnesses
	if r.Abouts, err = Abouts(ctx, db); err != nil {
		return nil, err
	}
	if r.Locks, err = NameLocks(ctx, db); err != nil {
		return nil, err
	}
	return r.Sites(), nil
}

// Records are what the database has about the sites, as far as it was read: each field is from another table, or from
// other refs.
type Records struct {
	Served    []string // those that have ever served: see [Sites]
	Followers []driver.Follower
	Witnesses []driver.Witness
	Abouts    map[string]About
	Locks     map[string]refdb.LockInfo // on the sites' names: see [NameLocks]
}

// Sites returns the sites in the order of their names: those that have ever served, those whose daemons follow
// changes, and those that admission waits for if the database's server is replaced.
func (r Records) Sites() (all []Site) {
	sites := map[string]*Site{}
	of := func(name string) *Site {
		if sites[name] == nil {
			sites[name] = &Site{Name: name}
		}
		return sites[name]
	}
	for _, name := range r.Served {
		of(name)
	}
	for _, f := range r.Followers {
		if name, ok := strings.CutPrefix(f.Name, followerPrefix); ok && driver.CheckRef(refPrefix+name) == nil {
			of(name).Follower = &f
		}
	}
	for _, w := range r.Witnesses {
		// One that is away or left out may be a site that was retired.
		if sites[w.Name] != nil || !w.Away && !w.Without {
			of(w.Name).Witness = &w
		}
	}
	for name, a := range r.Abouts {
		if s := sites[name]; s != nil {
			s.About = &a
		}
	}
	for name, l := range r.Locks {
		if s := sites[name]; s != nil {
			s.Lock = &l
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		all = append(all, *sites[name])
	}
	return all
}

// NameLocks returns the locks on the sites' names, fresh and stale, by the names.
func NameLocks(ctx context.Context, db *refdb.DB) (map[string]refdb.LockInfo, error) {
	locks := map[string]refdb.LockInfo{}
	for l, err := range db.Locks(ctx, refdb.LockFilter{Project: Project, Prefix: refPrefix}) {
		if err != nil {
			return nil, err
		}
		locks[strings.TrimPrefix(l.Ref, refPrefix)] = l
	}
	return locks, nil
}

// Seen returns when the site's daemon was last heard of, by the database's clock; zero if that is not known.
func (s Site) Seen() (latest time.Time) {
	var times []time.Time
	if s.Lock != nil {
		times = append(times, s.Lock.Heartbeat)
	}
	if s.Follower != nil {
		times = append(times, s.Follower.Seen)
	}
	if s.Witness != nil {
		times = append(times, s.Witness.Seen)
	}
	return slices.MaxFunc(append(times, latest), time.Time.Compare)
}

// removeAtOnce is how many records are removed in one transaction.
const removeAtOnce = 1000

// RemoveRecords removes what a site has recorded about projects, as refs/WHAT/PROJECT-ID/SITE. Its generation stays: see [Forget].
func RemoveRecords(ctx context.Context, db *refdb.DB, site string) error {
	var records []refdb.Update
	for ref, err := range db.Refs(ctx, Project, "refs/") {
		if err != nil {
			return err
		}
		if strings.HasSuffix(ref.Name, "/"+site) && !strings.HasPrefix(ref.Name, refPrefix) {
			records = append(records, refdb.Update{Ref: ref.Name, Old: ref.Value, New: refdb.Deleted})
		}
	}
	for some := range slices.Chunk(records, removeAtOnce) {
		if err := db.Update(ctx, Project, some); err != nil {
			return err
		}
	}
	return nil
}
