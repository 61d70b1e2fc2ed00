// Package policy decides which refs of a repository are guarded, by the rules that the database has
// for its project, and lets transactions of projects in mode log through.
package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/failure"
	"github.com/globalrefdb/globalrefdb/site/modes"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A Policy applies the projects' rules.
type Policy struct {
	State    *serving.State
	DB       *refdb.DB
	Projects *projects.Cache
	Logged   *modes.Logged
	Logger   *slog.Logger
	// Decision is how long a transaction may rely on one look at its project's rules (G4).
	Decision time.Duration

	registering chan struct{}     // has an element while a push makes the database or a repository record a project
	unrecorded  map[string]string // by path, the IDs of projects made for a repository that could not record it yet; guarded by registering
}

// New returns p, ready to be used.
func New(p Policy) *Policy {
	p.Decision, p.registering, p.unrecorded = wire.DefaultLimit, make(chan struct{}, 1), map[string]string{}
	return &p
}

// Refresh reads the projects that have changed.
func (p *Policy) Refresh(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, p.State.Config().Timeout)
	defer cancel()
	failure.Log(ctx, p.Logger, "the projects' rules could not be read", p.Projects.Refresh(limited, p.DB))
}

// ask refreshes the projects if the last answer is too old, as after an outage.
func (p *Policy) ask(ctx context.Context, c *config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := p.Projects.Validate(ctx, p.DB); err != nil {
		return refusal.DatabaseFailed(err)
	}
	return nil
}

// Ruled returns the configuration with the rules that the database has for r's project. The error
// says why the daemon can't decide about pushes to it now.
func (p *Policy) Ruled(ctx context.Context, c *config.Config, r config.Repository) (*config.Config, error) {
	if err := p.State.AwaitInheritance(ctx); err != nil {
		return nil, err
	}
	if _, free := p.Projects.Logs(r.Project); !free {
		if err := p.ask(ctx, c); err != nil {
			return nil, err
		}
	}
	now, err := projects.Uptime()
	if err != nil {
		return nil, err
	}
	k := p.Projects
	known, ok := k.Get(r.Project)
	if !ok && !c.GuardsProject(r.Project) {
		return c, nil
	}
	id, err := k.IDs.Of(ctx, r)
	if err != nil {
		return nil, err
	}
	if !ok || id == "" {
		row, err := p.register(ctx, c, r, id)
		if err != nil {
			return nil, err
		}
		if now, err = projects.Uptime(); err != nil {
			return nil, err
		}
		known = k.Read(row, now)
		id = row.ID
	}
	switch {
	case known.Err != nil:
		return nil, fmt.Errorf("project %s: %w: %s", r.Project, known.Err, wire.NothingWasChanged)
	case id != known.ID:
		return nil, projects.OtherID(r, k.NameOf(id))
	case known.Mode == config.Removed:
		return nil, refusal.Lines{wire.RemovedProject(r.Project)}
	case known.Mode == config.Comparing:
		return nil, errors.New(wire.Comparing(r.Project))
	case now < known.Settled && known.Freeze != (refdb.Freeze{}):
		return nil, refusal.FrozenBy(known.Freeze)
	case now < known.Settled:
		return nil, errors.New(wire.RulesChanged(r.Project, known.Settled-now))
	}
	return c.Under(known.Rules), nil
}

// RefuseFrozen refuses moves of a project that is frozen as far as this site knows, before objects are
// stored for them. The database refuses those of which the site does not know it yet.
func (p *Policy) RefuseFrozen(project string, moves []refdb.Update) error {
	if known, ok := p.Projects.Get(project); ok && known.Freeze != (refdb.Freeze{}) && len(moves) > 0 {
		return refusal.FrozenBy(known.Freeze)
	}
	return nil
}

// register finds or creates the project of a repository that no command has registered: its hooks
// are from before there were projects, or came with git's template.
func (p *Policy) register(ctx context.Context, c *config.Config, r config.Repository, id string) (row driver.Project, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	// One of several first pushes makes the project. The others find its ID in the repository.
	select {
	case p.registering <- struct{}{}:
		defer func() { <-p.registering }()
	case <-ctx.Done():
		return row, refusal.DatabaseFailed(context.Cause(ctx))
	}
	if id == "" {
		if id, err = p.Projects.IDs.Of(ctx, r); err != nil {
			return row, err
		}
	}
	if id == "" {
		id = p.unrecorded[r.Path]
	}
	empty, failed := projects.HasNoRefs(ctx, r)
	first := *c
	if failed != nil || !empty || packs.CheckSource(ctx, r.Path) != nil {
		first.NewProjectStore = "" // nobody stores a base here, which an empty repository does not need
	}
	row, created, err := projects.FindOrCreate(ctx, &first, p.DB, r, id, projects.NoClaim, func() (bool, error) {
		if failed != nil {
			return false, refusal.Lines{wire.OneLine(failed.Error())}
		}
		return empty, nil
	})
	if err != nil {
		return row, projects.NotRegistered(err)
	}
	if err = p.Projects.IDs.Record(ctx, r, row.ID); err == nil {
		delete(p.unrecorded, r.Path)
	} else if created {
		p.unrecorded[r.Path] = row.ID
	}
	return row, err
}

// LetThrough reports whether a transaction goes on in spite of err, because its project is in mode
// log. It records the refusal and who pushed, and does not ask the database. Names that are refused
// whatever the database holds are refused in mode log, too, as are all moves of a frozen project.
func (p *Policy) LetThrough(project string, lines []wire.Line, err error, pushedBy func() string) bool {
	rules, logs := p.Projects.Logs(project)
	if !logs || refusal.InAllModes(err) {
		return false
	}
	c := p.State.Config().Under(rules)
	guarded := slices.DeleteFunc(slices.Clone(lines), func(l wire.Line) bool { return !c.Guards(project, l.Ref) })
	p.Logged.Add(project, pushedBy(), guarded, err)
	p.Logger.Info("accepted what would have been refused: the project's mode is log", "reason", string(refusal.ReasonOf(err)),
		"project", p.State.Digest(project, ""), "refs", len(guarded))
	return true
}
