package site

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
)

var maintainedColumns = []output.Column[client.Maintained]{
	{Name: "project", Value: func(m client.Maintained) any { return m.Project }},
	{Name: "packed", Value: func(m client.Maintained) any { return m.Packed }},
	{Name: "kept", Value: func(m client.Maintained) any { return m.Kept }},
	{Name: "peers", Value: func(m client.Maintained) any { return m.Peers }},
	{Name: "pruned", Value: func(m client.Maintained) any { return m.Pruned }},
	{Name: "compacted", Value: func(m client.Maintained) any { return string(m.Compacted) }},
	{Name: "busy", Value: func(m client.Maintained) any { return m.Busy }},
	{Name: "left", Value: func(m client.Maintained) any { return m.Left }},
}

func (a *App) maintainCommand() *cobra.Command {
	var f Flags
	cmd := &cobra.Command{
		Use:   "maintain [REPO...]",
		Short: "Pack and prune repositories",
		Long: `Pack the refs and objects of each REPO, and prune objects that nothing needs. REPO is a project in this site's
configuration, or the path of its repository; without arguments all repositories that the daemon guards are
maintained. The daemon does the work, one repository at a time. Run the command daily from a timer, or set
site.maintain = daily; don't run git gc.

An object is pruned if no ref or reflog reaches it, it is older than two weeks, and no other site may build on it:
objects that refs have left are kept for 14 days, by refs below refs/refdb/kept/, which clients don't see. Pushes wait
during pruning, and are refused if it takes several seconds. Nothing is pruned if the database does not answer, if
this site lacks pushes of other sites, or if for half a minute a push or sync was always in progress: that is not a
failure, and "left" gives the reason.

For a project whose objects the database keeps, a new base is stored there when the packs after the latest base have
more bytes than the base, when there are very many of them, or when refs have values that no pack contains. For a
project in transit, packs older than a week are dropped.

Fields: ` + output.Names(maintainedColumns) + `
(packed: nothing, loose or all objects; kept: refs below refs/refdb/kept/; peers: refs below refs/peer/ that were
removed because nothing was fetched from that peer for 14 days; pruned: objects; compacted: nothing, base, or dropped;
left: why nothing was pruned; busy: whether nothing was pruned because the repository was in use)`,
		Example: `  refdbctl site maintain
  refdbctl site maintain team/app`,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, err := a.Load(ctx, f)
			if err != nil {
				return err
			}
			repositories, err := maintained(ctx, c, args)
			if err != nil {
				return err
			}
			return a.maintainAll(ctx, c, repositories)
		}),
	}
	f.Add(cmd)
	return cmd
}

// maintained returns the named repositories, or all guarded ones.
func maintained(ctx context.Context, c *config.Config, names []string) (some []config.Repository, err error) {
	for _, name := range names {
		r, err := siteRepository(ctx, c, name)
		if err != nil {
			return nil, err
		}
		some = append(some, r)
	}
	if len(names) > 0 {
		return some, nil
	}
	all, err := c.Repositories()
	for _, r := range all {
		if target, err := os.Readlink(r.Path + "/refdb/socket"); err == nil && target == c.Socket {
			some = append(some, r)
		}
	}
	if err == nil && len(some) == 0 {
		err = errors.New("the daemon guards no repository")
	}
	return some, err
}

func (a *App) maintainAll(ctx context.Context, c *config.Config, repositories []config.Repository) error {
	w := output.NewWriter(a.Out, a.Format, a.Palette(a.Out), maintainedColumns)
	failed := 0
	for _, r := range repositories {
		m, err := client.Maintain(ctx, c.Socket, r.Path, func(text string) {
			if cli.IsTerminal(a.Err) {
				a.Note("%s: %s", output.Escape(r.Project), text)
			}
		})
		switch {
		case ctx.Err() != nil:
			return errors.Join(w.Close(), context.Cause(ctx))
		case err != nil:
			failed++
			a.Note("%s: %s", output.Escape(r.Project), err)
			continue
		}
		if err := w.Write(m); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if failed > 0 {
		return exit.With(exit.Failed, fmt.Sprintf("%d of %s could not be maintained", failed, RepositoryCount(len(repositories))))
	}
	return nil
}
