package policy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// GuardedLines returns the lines of a transaction whose refs are guarded, and the configuration
// with the project's rules.
func (p *Policy) GuardedLines(ctx context.Context, c *config.Config, r config.Repository, body []byte) (*config.Config, []wire.Line, error) {
	lines, err := wire.ParseLines(body)
	if err != nil || !slices.ContainsFunc(lines, func(l wire.Line) bool { return config.Guardable(l.Ref) }) {
		return c, nil, err
	}
	if c, err = p.Ruled(ctx, c, r); err != nil {
		return c, nil, err
	}
	lines, err = parseGuarded(c, r.Project, body)
	return c, lines, err
}

// RulesStand returns an error if the rules under which these lines are guarded may have expired. It
// reads the rules again if more time has passed since looked, the machine's uptime when they were
// read, than G4 allows for a decision.
func (p *Policy) RulesStand(ctx context.Context, r config.Repository, body []byte, lines []wire.Line, looked time.Duration) error {
	now, err := projects.Uptime()
	if err != nil || now-looked < p.Decision {
		return err
	}
	_, again, err := p.GuardedLines(ctx, p.State.Config(), r, body)
	if err == nil && !slices.Equal(again, lines) {
		err = errors.New(wire.RulesChanged(r.Project, 0))
	}
	return err
}

// parseGuarded returns the lines whose refs are guarded by c.
func parseGuarded(c *config.Config, project string, body []byte) ([]wire.Line, error) {
	lines, err := wire.ParseLines(body)
	if err != nil {
		return nil, err
	}
	var kept []wire.Line
	var why refusal.Lines
	for _, l := range lines {
		if !c.Guards(project, l.Ref) {
			continue
		}
		if reason := Unfit(project, l); reason != "" {
			why = append(why, reason)
		}
		kept = append(kept, l)
	}
	return kept, refusal.Because(refusal.Unguardable, why.OrNil())
}

// Unfit returns why a line can't be guarded, or "".
func Unfit(project string, l wire.Line) string {
	if err := driver.CheckKey(project, l.Ref); err != nil {
		return wire.UnguardableName(l.Ref, err.Error())
	}
	if l.Symbolic() {
		return wire.SymbolicRef(l.Ref)
	}
	return ""
}

// MovesOf returns the moves that the lines make. It reads the old values in the repository: a zero
// old value of a line means either that the ref is created, or that its value does not matter.
// Lines that change nothing are left out. Locked says that git holds the locks of the refs: then a
// deletion can be told from the removal of a loose file after packing.
func MovesOf(ctx context.Context, r config.Repository, lines []wire.Line, locked bool) ([]refdb.Update, error) {
	names := make([]string, len(lines))
	for i, l := range lines {
		names[i] = l.Ref
	}
	repo, values, err := read(ctx, r, names)
	if err != nil {
		return nil, err
	}
	var moves []refdb.Update
	var why refusal.Lines
	for _, l := range lines {
		local := values[l.Ref]
		switch {
		case strings.HasPrefix(local, "ref: "):
			why = append(why, wire.IsSymbolicRef(l.Ref, local[len("ref: "):]))
			continue
		case l.New == local, l.NewZero() && local == "":
			continue
		case locked && l.NewZero() && l.Old == local:
			// Packing refs removes the loose ones in the guise of deleting them.
			packing, err := repo.IsPackingRef(l.Ref, local)
			if err != nil {
				return nil, err
			}
			if packing {
				continue
			}
		}
		moves = append(moves, refdb.Update{Ref: l.Ref, Old: refdb.Value(local), New: refdb.Value(l.New)})
	}
	return moves, refusal.Because(refusal.Unguardable, why.OrNil())
}

// Compare returns the refusal of moves whose old values the repository does not hold.
func Compare(ctx context.Context, r config.Repository, moves []refdb.Update) error {
	names := make([]string, len(moves))
	for i, u := range moves {
		names[i] = u.Ref
	}
	_, values, err := read(ctx, r, names)
	if err != nil {
		return err
	}
	var symbolic, changed refusal.Lines
	for _, u := range moves {
		local := values[u.Ref]
		if target, is := strings.CutPrefix(local, "ref: "); is {
			symbolic = append(symbolic, wire.IsSymbolicRef(u.Ref, target))
		} else if !u.Old.Equivalent(refdb.Value(local)) {
			changed = append(changed, wire.ChangedHere(u.Ref, u.Old.Abbrev(), refdb.Value(local).Abbrev()))
		}
	}
	if err := refusal.Because(refusal.Unguardable, symbolic.OrNil()); err != nil {
		return err
	}
	return refusal.Because(refusal.Changed, changed.OrNil())
}

// read returns a repository and the values that it holds of refs. It refuses a work tree's directory.
func read(ctx context.Context, r config.Repository, refs []string) (*gitrepo.Repo, map[string]string, error) {
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return nil, nil, err
	}
	if repo.Dir() != r.Path {
		return nil, nil, errors.New(wire.WorkTree(r.Path, repo.Dir()))
	}
	values, err := repo.Values(ctx, refs)
	return repo, values, err
}
