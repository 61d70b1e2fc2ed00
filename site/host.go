package site

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// host is the daemon's API for guards.
type host struct{ *Daemon }

// GuardedLines is part of [guards.Site].
func (d host) GuardedLines(ctx context.Context, c *config.Config, r config.Repository, body []byte) (*config.Config, []wire.Line, error) {
	return d.guardedLines(ctx, c, r, body)
}

// UnderWay is part of [guards.Site].
func (d host) UnderWay(project string, moves []refdb.Update) error {
	for _, p := range d.pushes.all() {
		for _, u := range moves {
			if m := p.find(project, u.Ref); m != nil {
				return claims.UnderWay(u.Ref, m.Since)
			}
		}
	}
	return nil
}

// LetThrough is part of [guards.Site].
func (d host) LetThrough(project, by string, lines []wire.Line, err error) {
	d.noteLetThrough(project, by, lines, err)
}

// Resolve is part of [guards.Site].
func (d host) Resolve(ctx context.Context, moves []*moving.Move) (ended []*moving.Move, err error) {
	return d.resolve(ctx, moves)
}

// StillPending is part of [guards.Site].
func (d host) StillPending(ctx context.Context, moves []*moving.Move) ([]*moving.Move, error) {
	return d.stillPending(ctx, moves)
}

// ClearAlarms is part of [guards.Site].
func (d host) ClearAlarms(moves []*moving.Move) { d.clearAlarms(moves) }
