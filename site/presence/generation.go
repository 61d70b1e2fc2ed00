package presence

import (
	"context"
	"errors"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// A generation is one start of a site's daemon, with a random ID. The database has the ID of the
// latest one, as the value of the ref that the lock on the site's name is on; it changes only
// under that lock. The state directory has the ID that it last saw in the database and, before
// the database gets it, the next one. If the database's ID is neither of the two, then either
// another state directory has served the site since, or this is another database.
type generation struct {
	// Current is "" before the first start: then the database has none either.
	Current string `json:"current"`
	// Next is "" unless the database was about to get it.
	Next string `json:"next,omitempty"`
	location
}

var (
	// errMoved says that the state directory was copied or moved here.
	errMoved = errors.New("site.state was copied or moved")
	// ErrGeneration says that the state directory and the database don't belong together.
	ErrGeneration = errors.New("the database and site.state don't have the same generation of the site")
)

const takeOverHint = "if the site is to run here from now on, with the repositories that are here, and nowhere else: refdbctl site take-over"

func generationFile(state string) durable.State { return durable.In(state, "generation") }

// readGeneration returns the zero generation if the state has none: this is the first start,
// or an earlier version wrote the state.
func readGeneration(state string) (g generation, err error) {
	_, err = generationFile(state).Load(&g)
	return g, err
}

// is reports whether the database got the ID that it has, "" for none, from this state directory.
func (g generation) is(held string) bool {
	return held == g.Current || held == g.Next && held != ""
}

// CheckLocation returns an error if the state directory was copied or moved here.
func CheckLocation(c *config.Config) error {
	g, err := readGeneration(c.State)
	if err != nil {
		return err
	}
	now, err := currentLocation(c)
	if err != nil {
		return err
	}
	if differs := now.movedFrom(g.location); differs != "" {
		return fmt.Errorf("%w: %s has %s than it recorded; a second daemon of site %q would settle the first one's pushes by the wrong disk: %s",
			errMoved, c.State, differs, c.Site, takeOverHint)
	}
	return nil
}

// held returns the ID that the database has; "" if none.
func (p *Presence) held(ctx context.Context, c *config.Config) (string, error) {
	v, err := p.db.Get(ctx, Project, refPrefix+c.Site)
	if err != nil || v.IsAbsent() {
		return "", err
	}
	return string(v), nil
}

// recorded returns the generation of the state directory, and an error if the database has another one.
func (p *Presence) recorded(ctx context.Context, c *config.Config) (g generation, held string, err error) {
	g, err = readGeneration(c.State)
	if err != nil {
		return g, "", err
	}
	held, err = p.held(ctx, c)
	switch {
	case err != nil:
		return g, "", err
	case g.is(held):
		return g, held, nil
	case held == "":
		err = fmt.Errorf("%w: the database has none of site %q: the site was retired (refdbctl audit list), or the database was restored from a backup, or is another one; "+
			"see OPERATIONS.md, \"Losing a site for good\" and \"The database went back in time\"; then: %s", ErrGeneration, c.Site, takeOverHint)
	case g.Current == "" && g.Next == "":
		err = fmt.Errorf("%w: %s has none, and so did not serve site %q last: use the state directory that did, or give this site another name; %s",
			ErrGeneration, c.State, c.Site, takeOverHint)
	default:
		err = fmt.Errorf("%w: another state directory has served site %q since %s did, or this one was set back, or the database was "+
			"(see OPERATIONS.md, \"The database went back in time\"); %s", ErrGeneration, c.Site, c.State, takeOverHint)
	}
	return g, held, err
}

// advance makes this start the latest generation, after the one that the database has. Nobody
// else can change it, not even by an earlier request that arrives late, because it changes under
// the lock. The state has what the database has whenever the process ends.
func (p *Presence) advance(ctx context.Context, c *config.Config, lock *refdb.Lock, was location, held string) error {
	here, err := currentLocation(c)
	if err != nil {
		return err
	}
	here = here.with(was)
	if held != p.id {
		if err := generationFile(c.State).Save(generation{Current: held, Next: p.id, location: here}); err != nil {
			return err
		}
		ref := refPrefix + c.Site
		if err := lock.Update(ctx, []refdb.Update{{Ref: ref, Old: refdb.Value(held), New: refdb.Value(p.id)}}); err != nil {
			return err
		}
	}
	return generationFile(c.State).Save(generation{Current: p.id, location: here})
}
