package overview

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

const (
	// atOnce is how many requests are made to the database at a time.
	atOnce = 4
	// MostRows is how many locks, and how many intents, are counted for each project, or of all
	// projects together if none is named.
	MostRows = 10_000
	// mostPassed is how many locks that are not counted are read to find those that are: each overview
	// reads them.
	mostPassed = 5 * MostRows
	// MostChanges is how many changes of the last minute are counted.
	MostChanges = 10_000
	// window is the time in which changes are counted.
	window = time.Minute
	// listed is how many intents and how many locks an overview lists.
	listed = 5
)

// Options say what to gather.
type Options struct {
	// Projects are the projects whose intents, locks and changes count; none means all. Sites are
	// always gathered.
	Projects []string
	// Schema, unless nil, returns the version of the database's schema.
	Schema func(context.Context) (int, error)
}

// Gather reads the state of an installation in about a dozen requests, and one or more for each
// site that follows; a long list takes a request for each thousand rows. What can't be read is in
// Overview.Unread: missing privileges and a database that does not answer are no errors. The limit
// on the time is ctx's.
func Gather(ctx context.Context, db *refdb.DB, o Options) Overview {
	g := gatherer{db: db, room: make(chan struct{}, atOnce)}
	if len(o.Projects) == 0 {
		o.Projects = []string{""}
	}
	var (
		state   refdb.HistoryState
		sites   presence.Records
		asked   driver.Admission
		schema  int
		locks   = make([]rows[refdb.LockInfo], len(o.Projects))
		intents = make([]rows[driver.Intent], len(o.Projects))
		changes = make([]counted, len(o.Projects))
		frozen  []driver.Project
		now     time.Time
	)
	ok := g.run(ctx, []source{
		{clock, func(ctx context.Context) (err error) { now, err = db.Now(ctx); return err }},
		{admission, func(ctx context.Context) (err error) { asked, err = db.Recovery().Admission(ctx); return err }},
		{schemaVersion, func(ctx context.Context) (err error) {
			if o.Schema != nil {
				schema, err = o.Schema(ctx)
			}
			return err
		}},
		{history, func(ctx context.Context) (err error) { state, err = db.HistoryState(ctx); return err }},
		{siteNames, func(ctx context.Context) (err error) { sites.Served, err = presence.Sites(ctx, db); return err }},
		{siteReports, func(ctx context.Context) (err error) { sites.Abouts, err = presence.Abouts(ctx, db); return err }},
		{followers, func(ctx context.Context) (err error) { sites.Followers, err = db.Followers().All(ctx); return err }},
		{siteLocks, func(ctx context.Context) (err error) { sites.Locks, err = presence.NameLocks(ctx, db); return err }},
		{projectRows, func(ctx context.Context) (err error) { frozen, err = frozenAmong(ctx, db, o.Projects); return err }},
		{lockRows, func(ctx context.Context) error {
			return each(o.Projects, locks, func(project string) (rows[refdb.LockInfo], error) {
				return locksOnRefs(db.Locks(ctx, refdb.LockFilter{Project: project}))
			})
		}},
		{intentRows, func(ctx context.Context) error {
			return each(o.Projects, intents, func(project string) (rows[driver.Intent], error) {
				pending, err := atMost(MostRows, db.Intents().All(ctx, driver.IntentFilter{Project: project}))
				if err != nil {
					return pending, err
				}
				// No index has the decisions: to find them, the database reads all intents of the project.
				decided, err := atMost(MostRows, db.Intents().All(ctx, driver.IntentFilter{Project: project, Decided: true}))
				return rows[driver.Intent]{append(pending.all, decided.all...), pending.more || decided.more}, err
			})
		}},
	})
	v := Overview{Time: now, Problems: []Problem{}, Unread: []Unread{}}
	sites.Witnesses = asked.Witnesses
	all := sites.Sites()
	lags := make([]*presence.Lag, len(all))
	// The changes of a server that is not admitted may not be those that the database had.
	readable := ok(clock) && ok(history) && ok(admission) && asked.Admitted
	var more []source
	if readable {
		for i, s := range all {
			if s.Follower != nil {
				more = append(more, source{lag, func(ctx context.Context) (err error) {
					lags[i], err = presence.LagBehind(ctx, db, *s.Follower, state, now)
					return err
				}})
			}
		}
		more = append(more, source{changeRows, func(ctx context.Context) error {
			return each(o.Projects, changes, func(project string) (counted, error) {
				return countChanges(ctx, db, project, state, now)
			})
		}})
	}
	ok = g.run(ctx, more)
	if ok(siteNames) || ok(followers) || ok(admission) {
		v.Sites = []Site{}
	}
	for i, s := range all {
		one := siteOf(s, lags[i], now)
		if ok(siteLocks) {
			alive := s.Alive()
			one.Alive = &alive
		}
		v.Sites = append(v.Sites, one)
	}
	if ok(admission) {
		v.Database = &Database{Server: asked.Server, Writable: asked.Admitted, Lost: asked.Lost, Waiting: append([]string{}, asked.Waiting()...), Schema: schema}
	}
	// A site of which nothing is known counts as alive.
	alive := func(site string) bool {
		i := slices.IndexFunc(v.Sites, func(s Site) bool { return s.Name == site })
		return !ok(siteLocks) || i >= 0 && *v.Sites[i].Alive
	}
	if ok(lockRows) {
		v.Locks = summarizeLocks(locks)
	}
	var stuck []stuckAt
	if ok(intentRows) {
		v.Intents, stuck = summarizeIntents(intents, alive)
	}
	if readable && ok(changeRows) {
		v.Changes = rate(changes)
	}
	v.Unread = append(v.Unread, g.unread()...)
	v.Problems = append(v.Problems, v.problems(asked, all, stuck, ok(siteLocks), frozen)...)
	return v
}

// frozenAmong returns those of the projects, or of all for "", that are frozen, in the order of their names.
func frozenAmong(ctx context.Context, db *refdb.DB, projects []string) ([]driver.Project, error) {
	rows, err := db.Projects().After(ctx, 0)
	rows = slices.DeleteFunc(rows, func(p driver.Project) bool {
		return p.Freeze == (driver.Freeze{}) || projects[0] != "" && !slices.Contains(projects, p.Project)
	})
	slices.SortFunc(rows, func(a, b driver.Project) int { return strings.Compare(a.Project, b.Project) })
	return rows, err
}

// Down returns the overview of a database that can't be opened.
func Down(err error) Overview {
	return Overview{Problems: []Problem{}, Unread: []Unread{{What: "database", Error: err.Error()}}}
}

// What is read: names for [Unread].
const (
	clock         = "clock"
	admission     = "admission"
	schemaVersion = "schema"
	history       = "history"
	siteNames     = "sites"
	siteReports   = "sites' reports"
	followers     = "followers"
	siteLocks     = "locks on sites' names"
	projectRows   = "projects"
	lockRows      = "locks"
	intentRows    = "intents"
	lag           = "lag"
	changeRows    = "changes"
)

// A source is a part to be read.
type source struct {
	what string
	read func(context.Context) error
}

// A gatherer reads sources, a few at a time.
type gatherer struct {
	db   *refdb.DB
	room chan struct{}

	mu     sync.Mutex
	failed []failure
}

type failure struct {
	what string
	err  error
}

// run reads sources, and waits for all of them. It returns a function that reports whether all
// sources of a name that were read so far could be.
func (g *gatherer) run(ctx context.Context, sources []source) (ok func(what string) bool) {
	var running sync.WaitGroup
	for _, s := range sources {
		running.Go(func() {
			g.room <- struct{}{}
			defer func() { <-g.room }()
			if err := s.read(ctx); err != nil {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.failed = append(g.failed, failure{s.what, err})
			}
		})
	}
	running.Wait()
	return func(what string) bool {
		return !slices.ContainsFunc(g.failed, func(f failure) bool { return f.what == what })
	}
}

// unread returns what could not be read. A database that does not answer is one line.
func (g *gatherer) unread() (all []Unread) {
	down := func(f failure) bool {
		return refdb.ClassOf(f.err) == refdb.Retryable || errors.Is(f.err, context.DeadlineExceeded) || errors.Is(f.err, context.Canceled)
	}
	slices.SortFunc(g.failed, func(a, b failure) int { return strings.Compare(a.what, b.what) })
	for i, f := range g.failed {
		what := f.what
		if down(f) {
			if slices.ContainsFunc(g.failed[:i], down) {
				continue
			}
			what = "database"
		} else if i > 0 && g.failed[i-1].what == f.what {
			continue
		}
		all = append(all, Unread{What: what, Error: f.err.Error()})
	}
	return all
}

// rows are the first rows of a list.
type rows[T any] struct {
	all  []T
	more bool
}

// atMost reads the first rows of a list.
func atMost[T any](most int, list iter.Seq2[T, error]) (r rows[T], err error) {
	for row, err := range list {
		switch {
		case err != nil:
			return r, err
		case len(r.all) == most:
			r.more = true
			return r, nil
		}
		r.all = append(r.all, row)
	}
	return r, nil
}

// locksOnRefs reads the first locks on refs. It passes over the locks that stand for intents and those
// on sites' names, up to mostPassed.
func locksOnRefs(list iter.Seq2[refdb.LockInfo, error]) (r rows[refdb.LockInfo], err error) {
	passed := 0
	for l, err := range list {
		switch {
		case err != nil:
			return r, err
		case passed == mostPassed || len(r.all) == MostRows:
			r.more = true
			return r, nil
		case l.Intended() || l.Project == presence.Project:
			passed++
		default:
			r.all = append(r.all, l)
		}
	}
	return r, nil
}

// each reads what there is of each project.
func each[T any](projects []string, into []T, read func(project string) (T, error)) (err error) {
	for i, project := range projects {
		if into[i], err = read(project); err != nil {
			return err
		}
	}
	return nil
}

// counted are the changes of a project within the window, as far as they were read.
type counted struct {
	n    int
	more bool
	span time.Duration // of those that were read
}

// countChanges counts the changes of a project, or of all, in the window that ends now, up to the end
// of state. Sites' reports about themselves do not count.
func countChanges(ctx context.Context, db *refdb.DB, project string, state refdb.HistoryState, now time.Time) (c counted, err error) {
	c.span = window
	from := now.Add(-window)
	at, err := db.PositionAt(ctx, from)
	var after refdb.Cursor
	switch {
	case errors.Is(err, refdb.ErrPruned): // the history begins later
	case err != nil || at >= state.Upto:
		return c, err
	default:
		after = refdb.Cursor{Mark: driver.ChangeKey{Position: at + 1}, Durable: true}
	}
	for page, err := range db.Changes(ctx, refdb.ChangeQuery{Project: project, After: after}) {
		if err != nil {
			return c, err
		}
		for _, change := range page.Changes {
			switch {
			case change.Project == presence.Project || change.Position > state.Upto || change.Time.Before(from):
				continue
			case c.n == MostChanges:
				c.more = true
				c.span = min(max(change.Time.Sub(from), time.Second), window)
				return c, nil
			}
			c.n++
		}
		if page.Cursor.Position() >= state.Upto {
			break
		}
	}
	return c, ctx.Err()
}

func rate(projects []counted) *Changes {
	r := &Changes{}
	for _, c := range projects {
		r.Count += c.n
		r.More = r.More || c.more
		r.PerSecond += float64(c.n) / c.span.Seconds()
	}
	return r
}

// siteOf returns what is known of a site, apart from whether it is alive.
func siteOf(s presence.Site, lag *presence.Lag, now time.Time) Site {
	v := Site{Name: s.Name, Awaited: s.Awaited(), Testified: s.Testified(), Seen: s.Seen()}
	if lag != nil {
		v.Lag = &Lag{Changes: max(0, lag.Changes), More: lag.More, Unreadable: lag.Unreadable, Seconds: lag.Age.Seconds()}
	}
	if a := s.About; a != nil {
		v.Version, v.Schema, v.Followed, v.Behind, v.BehindProjects, v.Alarms = a.Version, a.Schema, a.Followed, a.Behind, a.Projects, a.Alarms
		v.BehindSeconds = a.Behindness(now).Seconds()
	}
	return v
}

func summarizeLocks(projects []rows[refdb.LockInfo]) *Locks {
	v := &Locks{Busiest: []Lock{}}
	for _, r := range projects {
		v.More = v.More || r.more
		for _, l := range r.all {
			waiters := l.Waiters
			switch {
			case l.Reserved() && !l.Stale():
				waiters++ // the row is kept for it
			case l.Reserved():
			case l.Stale():
				v.Stale++
			default:
				v.Held++
			}
			if waiters == 0 {
				continue
			}
			v.Awaited++
			v.Waiters += waiters
			one := Lock{Project: l.Project, Ref: l.Ref, Owner: l.Owner, Waiters: waiters, Reserved: l.Reserved(), Stale: l.Stale()}
			if !l.Reserved() {
				one.Seconds = l.HeldFor().Seconds()
			}
			v.Busiest = append(v.Busiest, one)
		}
	}
	slices.SortFunc(v.Busiest, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(b.Waiters, a.Waiters), strings.Compare(a.Project, b.Project), strings.Compare(a.Ref, b.Ref))
	})
	v.Busiest = v.Busiest[:min(len(v.Busiest), listed)]
	return v
}
