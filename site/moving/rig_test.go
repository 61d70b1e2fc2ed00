package moving_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/modes"
	"github.com/globalrefdb/globalrefdb/site/mover"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/serving"
)

const (
	project = "team/app"
	ref     = "refs/heads/a"
	agent   = "a process"
)

// A flaky driver loses the replies to preparations while lost is set, and counts what a push asks.
type flaky struct {
	refdb.Driver
	lost  atomic.Bool
	asked atomic.Int64
}

func (f *flaky) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	f.asked.Add(1)
	return f.Driver.States(ctx, project, refs)
}

func (f *flaky) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	f.asked.Add(1)
	return f.Driver.Intents(ctx, q)
}

func (f *flaky) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	f.asked.Add(1)
	reply, err := f.Driver.Prepare(ctx, r)
	if err == nil && f.lost.Load() {
		return reply, refdb.ErrOutcomeUnknown
	}
	return reply, err
}

// A rig is a coordinator with a repository of a project. Its database is in memory.
type rig struct {
	*moving.Coordinator
	t      *testing.T
	driver *flaky
	config *config.Config
	repo   config.Repository
	bare   sitetest.Bare
	made   []string // the projects of which packs were used
	began  time.Time
	under  *claims.Claim
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root := t.TempDir()
	path := filepath.Join(root, project+".git")
	sitetest.GitIn(t, root, "init", "--quiet", "--bare", path)
	g := &rig{
		t: t, driver: &flaky{Driver: memory.New().Open()}, config: sitetest.SiteConfig(t, root, ""),
		repo: config.Repository{Project: project, Path: path}, bare: sitetest.Bare{Dir: path}, began: time.Now(),
	}
	if err := os.Mkdir(filepath.Join(path, "refdb"), 0o755); err != nil {
		t.Fatal(err)
	}
	g.config.Timeout, g.config.LockWait = time.Minute, 10*time.Second
	db, err := refdb.New(g.driver, refdb.Options{Site: "b"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	state := serving.New(g.config, nil)
	state.Outage, state.Upkeep = 0, t.Context()
	logged, cache, logger := modes.NewLogged(), &projects.Cache{}, slog.New(slog.DiscardHandler)
	var list moves.List
	list.Open(t.Context(), t.TempDir(), "boot", filepath.Join(t.TempDir(), "note"), logger)
	t.Cleanup(list.Close)
	g.Coordinator = &moving.Coordinator{Deps: moving.Deps{
		State: state, DB: db, Projects: cache, Logged: &logged, Claims: &claims.Claims{}, Pruning: &maintenance.Pruning{}, List: &list,
		Mover: &mover.Mover{}, Logger: logger,
		Storage: &objects.Storage{DB: db, Projects: cache, State: state, Logger: logger},
		Made:    func(project, _ string, _ []string) { g.made = append(g.made, project) },
	}}
	return g
}

// announcement asks for leave to create refs with a value.
func (g *rig) announcement(value refdb.Value, refs ...string) moving.Announcement {
	a := moving.Announcement{
		Announcement: objects.Announcement{Repo: g.repo, Agent: agent}, Objects: &objects.Pushed{},
		Recheck: func(context.Context) error { return nil },
	}
	for _, ref := range refs {
		a.Moves = append(a.Moves, refdb.Update{Ref: ref, New: value})
	}
	return a
}

// announce announces that refs are created.
func (g *rig) announce(value refdb.Value, refs ...string) []*moving.Move {
	g.t.Helper()
	announced, claim, err := g.Announce(g.t.Context(), g.config, g.announcement(value, refs...))
	if err != nil {
		g.t.Fatal(err)
	}
	g.Claims.Release(claim)
	return announced
}

// pending returns the refs that have pending intents.
func (g *rig) pending() (refs []string) {
	g.t.Helper()
	for i, err := range g.DB.Intents().All(g.t.Context(), driver.IntentFilter{Project: project}) {
		if err != nil {
			g.t.Fatal(err)
		}
		refs = append(refs, i.Ref)
	}
	slices.Sort(refs)
	return refs
}

// global returns the database's value of a ref.
func (g *rig) global(ref string) refdb.Value {
	g.t.Helper()
	value, err := g.DB.Get(g.t.Context(), project, ref)
	if err != nil {
		g.t.Fatal(err)
	}
	return value
}

// isClaimed reports whether somebody has a claim on the ref.
func (g *rig) isClaimed(ref string) bool {
	claim, err := g.Claims.Take(g.t.Context(), claims.ByPush, project, []refdb.Update{{Ref: ref}}, nil)
	g.Claims.Release(claim)
	return err != nil
}

var errRefused = errors.New("refused")
