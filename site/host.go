package site

import (
	"context"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// host is the daemon's API for guards.
type host struct{ *Daemon }

// GuardedLines is part of [guards.Site].
func (d host) GuardedLines(ctx context.Context, c *config.Config, r config.Repository, body []byte) (*config.Config, []wire.Line, error) {
	return d.guardedLines(ctx, c, r, body)
}

// LetThrough is part of [guards.Site].
func (d host) LetThrough(project, by string, lines []wire.Line, err error) {
	d.noteLetThrough(project, by, lines, err)
}
