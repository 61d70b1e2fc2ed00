package policy_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/modes"
	"github.com/globalrefdb/globalrefdb/site/policy"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	project = "team/app"
	one     = "1111111111111111111111111111111111111111"
	zero    = "0000000000000000000000000000000000000000"
)

// A counter counts the requests for projects.
type counter struct {
	refdb.Driver
	n        atomic.Int64
	replaced atomic.Bool // by a server that is not admitted
	empty    atomic.Bool // of which no more than the tables are restored
}

func (c *counter) Projects(ctx context.Context, q driver.ProjectQuery) ([]driver.Project, error) {
	c.n.Add(1)
	if c.empty.Load() {
		return nil, nil
	}
	return c.Driver.Projects(ctx, q)
}

func (c *counter) Admission(ctx context.Context) (driver.Admission, error) {
	a, err := c.Driver.Admission(ctx)
	if c.replaced.Load() {
		a.Admitted = false
	}
	return a, err
}

// A rig is a policy with an empty repository, whose project the database in memory may have.
type rig struct {
	*policy.Policy
	t      *testing.T
	driver *counter
	config *config.Config
	repo   config.Repository
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root := t.TempDir()
	g := &rig{
		t: t, driver: &counter{Driver: memory.New().Open()}, config: sitetest.SiteConfig(t, root, ""),
		repo: config.Repository{Project: project, Path: filepath.Join(root, project+".git")},
	}
	sitetest.GitIn(t, root, "init", "--quiet", "--bare", g.repo.Path)
	db, err := refdb.New(g.driver, refdb.Options{Site: "b"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	state := serving.New(g.config, nil)
	state.Inherit()
	state.Start()
	logged := modes.NewLogged()
	g.Policy = policy.New(policy.Policy{
		State: state, DB: db, Projects: &projects.Cache{}, Logged: &logged, Logger: slog.New(slog.DiscardHandler),
	})
	return g
}

// put writes the project's row, and has the repository record its ID.
func (g *rig) put(row driver.Project) driver.Project {
	g.t.Helper()
	if row.ID == "" {
		row.ID = "AN-ID"
	}
	row.Project, row.Mode, row.Rules = project, cmp.Or(row.Mode, config.Enforce), cmp.Or(row.Rules, "ref *")
	row, err := g.DB.Projects().Put(g.t.Context(), row)
	if err == nil {
		err = projects.RecordID(g.t.Context(), g.repo, row.ID)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return row
}

// guarded returns the names in lines that are guarded.
func (g *rig) guarded(body string) (names []string, err error) {
	_, lines, err := g.GuardedLines(g.t.Context(), g.config, g.repo, []byte(body))
	for _, l := range lines {
		names = append(names, l.Ref)
	}
	return names, err
}

const body = zero + " " + one + " refs/heads/main\n" + zero + " " + one + " refs/tags/v1\n" + zero + " " + one + " HEAD\n"

// anHourLater is the clock of a site whose last answer of the database is old.
func anHourLater() (time.Duration, error) {
	now, err := projects.Uptime()
	return now + time.Hour, err
}

func TestTheDatabasesRulesSayWhatIsGuarded(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.put(driver.Project{Rules: "ref refs/tags/*"})
	if got, err := g.guarded(body); err != nil || !slices.Equal(got, []string{"refs/tags/v1"}) {
		t.Errorf("guarded: %v, %v", got, err)
	}
	// What no rules may guard needs no database.
	before := g.driver.n.Load()
	if got, err := g.guarded(zero + " " + one + " HEAD\n"); err != nil || len(got) > 0 || g.driver.n.Load() != before {
		t.Errorf("guarded: %v, %v, after %d requests", got, err, g.driver.n.Load()-before)
	}
	if _, err := g.guarded("ref:refs/heads/main ref:refs/heads/x refs/tags/s\n"); refusal.ReasonOf(err) != refusal.Unguardable {
		t.Errorf("a symbolic ref: %v", err)
	}
}

func TestNothingIsDecidedWithoutRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		row  driver.Project
		want string
	}{
		"a removed project":             {driver.Project{Mode: config.Removed}, wire.RemovedProject(project)},
		"one that is compared":          {driver.Project{Mode: config.Comparing}, wire.Comparing(project)},
		"rules of a later program":      {driver.Project{Rules: "later x"}, wire.NothingWasChanged},
		"a repository of another's":     {driver.Project{}, "not a copy of the project " + project},
		"rules that others may not use": {driver.Project{}, "rules"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			row := g.put(c.row)
			switch name {
			case "a repository of another's":
				sitetest.GitIn(t, g.repo.Path, "config", "refdb.projectid", "ANOTHER")
			case "rules that others may not use":
				g.guarded(body) // it has seen the first row
				row.Rules = "ref refs/tags/*"
				g.put(row)
				g.Projects.Clock = anHourLater
			}
			if got, err := g.guarded(body); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("guarded: %v, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestRulesAreReadAgainOnceALookHasExpired(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.Projects.Settle = -time.Hour // all sites know a change at once
	row := g.put(driver.Project{})
	_, lines, err := g.GuardedLines(t.Context(), g.config, g.repo, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	looked, err := projects.Uptime()
	if err != nil {
		t.Fatal(err)
	}
	row.Rules = "ref refs/tags/*"
	g.put(row)
	g.Projects.Clock = anHourLater
	before := g.driver.n.Load()
	g.Decision = time.Hour
	if err := g.RulesStand(t.Context(), g.repo, []byte(body), lines, looked); err != nil || g.driver.n.Load() != before {
		t.Errorf("within the limit: %v, after %d requests", err, g.driver.n.Load()-before)
	}
	g.Decision = 0
	if err := g.RulesStand(t.Context(), g.repo, []byte(body), lines, looked); err == nil || !strings.Contains(err.Error(), wire.RulesChanged(project, 0)) {
		t.Errorf("after the limit: %v, after %d requests", err, g.driver.n.Load()-before)
	}
}

func TestModeLogLetsThroughWhatIsRefused(t *testing.T) {
	t.Parallel()
	lines, err := wire.ParseLines([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	refused := refusal.Because(refusal.Behind, errors.New("it is behind"))
	for name, c := range map[string]struct {
		mode    string
		adopted bool
		err     error
		want    bool
	}{
		"in mode log":                      {config.Log, true, refused, true},
		"before the other sites know":      {config.Log, false, refused, false},
		"in mode enforce":                  {config.Enforce, true, refused, false},
		"a name that is no project's ever": {config.Log, true, refusal.Because(refusal.ReservedName, errors.New("reserved")), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			g.put(driver.Project{Mode: c.mode, Rules: "ref refs/heads/*"})
			g.Refresh(t.Context())
			if c.adopted {
				g.Projects.Adopted(g.Projects.All())
			}
			asked := 0
			got := g.LetThrough(project, lines, c.err, func() string { asked++; return "jo" })
			counted := g.Logged.Total()
			if got != c.want || counted != map[bool]uint64{true: 1}[c.want] || asked != int(counted) {
				t.Errorf("let through: %t; %d are counted; asked %d times who pushed", got, counted, asked)
			}
		})
	}
}

// Their absence says nothing: the administrator must not be told to create them again.
func TestProjectsAreNotReadFromADatabaseThatIsBeingRestored(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"known before": true, "not known before": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			if !known {
				g.Refresh(t.Context())
			}
			g.put(driver.Project{})
			if known {
				g.Refresh(t.Context())
			}
			g.driver.replaced.Store(true)
			g.driver.empty.Store(true)
			if known {
				g.Refresh(t.Context())
				if _, ok := g.Projects.Get(project); !ok {
					t.Error("the project is forgotten")
				}
				g.Projects.Clock = anHourLater
			}
			if got, err := g.guarded(body); err == nil || !strings.Contains(err.Error(), wire.DatabaseNotCompared) {
				t.Errorf("guarded: %v, %v", got, err)
			}
			// Restored, but not admitted yet. What no rule guards can be pushed.
			g.driver.empty.Store(false)
			if got, err := g.guarded(body); err != nil || len(got) != 2 {
				t.Errorf("once it is restored: %v, %v", got, err)
			}
		})
	}
}

func TestOfSeveralFirstPushesOneMakesTheProject(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	var pushes sync.WaitGroup
	for range 60 {
		pushes.Go(func() {
			if got, err := g.guarded(body); err != nil || !slices.Equal(got, []string{"refs/heads/main", "refs/tags/v1"}) {
				t.Errorf("guarded: %v, %v", got, err)
			}
		})
	}
	pushes.Wait()
	row, ok, err := g.DB.Projects().Get(t.Context(), project)
	recorded := sitetest.GitIn(t, g.repo.Path, "config", "refdb.projectid")
	if err != nil || !ok || row.ID != recorded || !row.IsNew() {
		t.Errorf("the database has %+v, %v; the repository records %q", row, err, recorded)
	}
}

func TestMovesAreReadInTheRepository(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	bare := sitetest.Bare{Dir: g.repo.Path}
	first, second := bare.Commit(t, "first"), bare.Commit(t, "second")
	bare.Set(t, "refs/heads/there", first)
	bare.Set(t, "refs/heads/packed", first)
	sitetest.GitIn(t, g.repo.Path, "pack-refs", "--all")
	bare.Set(t, "refs/heads/loose", first)
	sitetest.GitIn(t, g.repo.Path, "symbolic-ref", "refs/heads/symbolic", "refs/heads/there")
	for name, c := range map[string]struct {
		line   string
		locked bool
		want   []refdb.Update
	}{
		"a creation":                           {zero + " " + first + " refs/heads/new", true, []refdb.Update{{Ref: "refs/heads/new", New: refdb.Value(first)}}},
		"whatever the ref held":                {zero + " " + second + " refs/heads/there", true, []refdb.Update{{Ref: "refs/heads/there", Old: refdb.Value(first), New: refdb.Value(second)}}},
		"no change":                            {first + " " + first + " refs/heads/there", true, nil},
		"a deletion of nothing":                {zero + " " + zero + " refs/heads/none", true, nil},
		"a deletion":                           {first + " " + zero + " refs/heads/loose", true, []refdb.Update{{Ref: "refs/heads/loose", Old: refdb.Value(first), New: refdb.Value(zero)}}},
		"the removal of a file after packing":  {first + " " + zero + " refs/heads/packed", true, nil},
		"a deletion before git locks anything": {first + " " + zero + " refs/heads/packed", false, []refdb.Update{{Ref: "refs/heads/packed", Old: refdb.Value(first), New: refdb.Value(zero)}}},
	} {
		lines, err := wire.ParseLines([]byte(c.line + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := policy.MovesOf(t.Context(), g.repo, lines, c.locked); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	lines, err := wire.ParseLines([]byte(zero + " " + second + " refs/heads/symbolic\n"))
	if err == nil {
		_, err = policy.MovesOf(t.Context(), g.repo, lines, true)
	}
	if refusal.ReasonOf(err) != refusal.Unguardable {
		t.Errorf("a symbolic ref: %v", err)
	}
}

func TestMovesFromOtherValuesThanTheRepositoryHoldsAreRefused(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	bare := sitetest.Bare{Dir: g.repo.Path}
	first, second := refdb.Value(bare.Commit(t, "first")), refdb.Value(bare.Commit(t, "second"))
	bare.Set(t, "refs/heads/there", string(first))
	sitetest.GitIn(t, g.repo.Path, "symbolic-ref", "refs/heads/symbolic", "refs/heads/there")
	for name, c := range map[string]struct {
		move refdb.Update
		want refusal.Reason
	}{
		"what it holds":                 {refdb.Update{Ref: "refs/heads/there", Old: first, New: second}, ""},
		"nothing, and there is none":    {refdb.Update{Ref: "refs/heads/none", New: second}, ""},
		"another value":                 {refdb.Update{Ref: "refs/heads/there", Old: second, New: first}, refusal.Changed},
		"nothing, and there is a value": {refdb.Update{Ref: "refs/heads/there", New: second}, refusal.Changed},
		"a symbolic ref":                {refdb.Update{Ref: "refs/heads/symbolic", Old: first, New: second}, refusal.Unguardable},
	} {
		err := policy.Compare(t.Context(), g.repo, []refdb.Update{c.move})
		if (err != nil) != (c.want != "") || err != nil && refusal.ReasonOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	worktree := config.Repository{Project: project, Path: filepath.Join(t.TempDir(), "tree")}
	sitetest.GitIn(t, filepath.Dir(worktree.Path), "init", "--quiet", worktree.Path)
	if err := policy.Compare(t.Context(), worktree, nil); err == nil || !strings.Contains(err.Error(), worktree.Path) {
		t.Errorf("in a work tree: %v", err)
	}
}

func TestAFrozenProjectIsRefusedForItsReason(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	row := g.put(driver.Project{})
	g.Refresh(t.Context())
	moves := []refdb.Update{{Ref: "refs/heads/main", New: one}}
	if err := g.RefuseFrozen(project, moves); err != nil {
		t.Errorf("a project that is not frozen: %v", err)
	}
	row.Freeze = refdb.Freeze{Reason: "a move"}
	g.put(row)
	g.Refresh(t.Context())
	// While the change of the row settles.
	if _, err := g.guarded(body); refusal.ReasonOf(err) != refusal.Frozen || !strings.Contains(err.Error(), wire.Frozen("a move")) {
		t.Errorf("right after the freeze: %v", err)
	}
	if err := g.RefuseFrozen(project, moves); refusal.ReasonOf(err) != refusal.Frozen || refusal.KindOf(err) != wire.Final {
		t.Errorf("moves: %v", err)
	}
	if err := g.RefuseFrozen(project, nil); err != nil {
		t.Errorf("what moves nothing: %v", err)
	}
	if err := g.RefuseFrozen("another", moves); err != nil {
		t.Errorf("another project: %v", err)
	}
}
