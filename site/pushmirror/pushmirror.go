// Package pushmirror pushes what projects hold in the database to external servers. Of the sites
// that configure a mirror one at a time pushes to it: the site that has its grant.
//
// A push names, for each ref, the value that the mirror was seen to have. So a push that is late, as
// of a site whose grant has ended, moves no ref that has moved meanwhile.
package pushmirror

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

// refPrefix begins the refs, in [presence.Project], that mirrors' grants are on. The value of such a
// ref is the cursor up to which changes have been queued.
const refPrefix = "refs/push-mirrors/"

const (
	// staleAfter is how long a site that has died keeps a mirror's grant.
	staleAfter = 20 * time.Second
	// extendEvery is how often a grant is extended, and how often another site tries to get it.
	extendEvery = 5 * time.Second
	// lastsFor is how long a grant that was not extended is relied on: less than staleAfter, as clocks
	// may run at different speeds.
	lastsFor = 15 * time.Second
)

// Mirrors runs the push mirrors of a site.
type Mirrors struct {
	State    *serving.State
	DB       *refdb.DB
	Projects *projects.Cache
	Logger   *slog.Logger
	// Copy returns this site's copy of a project, and the configuration with the project's rules.
	Copy func(ctx context.Context, project string) (*config.Config, config.Repository, error)
	// MayAct returns an error while the contents of the database must not be acted on, as at a server
	// that is not admitted.
	MayAct func(ctx context.Context) error

	mu      sync.Mutex
	mirrors map[string]*mirror
}

// A mirror is a push mirror of the site's configuration.
type mirror struct {
	*Mirrors
	config config.PushMirror
	end    context.CancelFunc // called once the configuration no longer has the mirror

	mu     sync.Mutex
	term   *term     // nil unless this site pushes
	holder string    // the other site that pushes; "" if none is known
	err    error     // of the last attempt to get the grant
	since  time.Time // when a site began or ceased to push
}

// Run pushes to the mirrors that are configured, until ctx ends.
func (m *Mirrors) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		for _, started := range m.configure(m.State.Config().PushMirrors) {
			own, end := context.WithCancel(ctx)
			started.end = end
			running.Go(func() { defer end(); started.run(own) })
		}
		if !pause.For(ctx, extendEvery) {
			return
		}
	}
}

// configure ends the mirrors that are configured differently now, and returns those to be run.
func (m *Mirrors) configure(all []config.PushMirror) (start []*mirror) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, x := range m.mirrors {
		if !slices.ContainsFunc(all, x.config.IsLike) {
			x.end()
			delete(m.mirrors, name)
		}
	}
	for _, c := range all {
		if m.mirrors[c.Name] == nil {
			x := &mirror{Mirrors: m, config: c, since: time.Now()}
			if m.mirrors == nil {
				m.mirrors = map[string]*mirror{}
			}
			m.mirrors[c.Name] = x
			start = append(start, x)
		}
	}
	return start
}

// Status describes the mirrors, in the order of their names.
func (m *Mirrors) Status() (all []client.PushMirror) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.mirrors {
		all = append(all, x.status())
	}
	slices.SortFunc(all, func(a, b client.PushMirror) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (x *mirror) status() client.PushMirror {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := client.PushMirror{Name: x.config.Name, Site: x.holder, Age: time.Since(x.since).Seconds(), Behind: []client.Behind{}}
	if x.err != nil {
		s.Error = x.err.Error()
	}
	if x.term != nil {
		s.Site, s.Pushes, s.Waiting, s.Behind = x.State.Config().Site, true, x.term.changed.Len()+x.term.swept.Len(), x.term.behind()
	}
	return s
}

// run takes the mirror's grant whenever it is free, and pushes for as long as it has it.
func (x *mirror) run(ctx context.Context) {
	ref := refPrefix + x.config.Name
	for ctx.Err() == nil {
		owner := x.State.Config().Site + "/push-mirror/" + rand.Text()
		asked := time.Now()
		got, err := x.DB.Grants().Acquire(ctx, owner, staleAfter, presence.Project, ref)
		if err == nil {
			t := newTerm(x, got, asked)
			x.record(t, "", nil)
			t.run(ctx)
			x.record(nil, "", t.failure())
			continue
		}
		holder := ""
		if locked := (*refdb.LockedError)(nil); errors.As(err, &locked) && len(locked.Holders) > 0 {
			holder, _, _ = strings.Cut(locked.Holders[0].Owner, "/")
			err = nil
		}
		if ctx.Err() == nil {
			x.record(nil, holder, err)
		}
		pause.For(ctx, extendEvery)
	}
}

// record records who pushes to the mirror now.
func (x *mirror) record(t *term, holder string, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if (t == nil) != (x.term == nil) || holder != x.holder {
		x.since = time.Now()
	}
	x.term, x.holder, x.err = t, holder, err
}
