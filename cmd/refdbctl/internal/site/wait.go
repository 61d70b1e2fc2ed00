package site

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

func (a *App) waitCommand() *cobra.Command {
	var f Flags
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "wait REPO",
		Short: "Wait until a repository has everything pushed at any site",
		Long: `Wait until REPO has every push that any site acknowledged before this command was called: each guarded ref holds the
value that the database held then, or a later one. REPO is a project in this site's configuration, or the path of its
repository. Run the command before git upload-pack, for readers that must see the writes of other sites. The site must
follow: see refdbctl site store.

The exit status is 1 if the repository has not caught up within --limit; the message says how many refs are behind.`,
		Example: `  refdbctl site wait team/app && git upload-pack /srv/git/team/app.git`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, err := a.Load(ctx, f)
			if err != nil {
				return err
			}
			r, err := siteRepository(ctx, c, args[0])
			if err != nil {
				return err
			}
			return a.WithSiteDB(ctx, func(db *refdb.DB) error {
				repo, err := gitrepo.OpenDir(r.Path)
				if err != nil {
					return err
				}
				ruled, err := projects.WithRules(ctx, c, db, r.Project)
				if err != nil {
					return err
				}
				limited, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				behind, err := compare.Wait(limited, ruled, db, repo, r.Project, limit)
				switch {
				case ctx.Err() != nil:
					return context.Cause(ctx)
				case len(behind) > 0: // even if limited has not ended yet
					return exit.With(exit.Failed, fmt.Sprintf("%s is behind by %s after %s, the first is %s", r.Project, output.Count(len(behind), "ref"), limit, behind[0]))
				case err != nil && limited.Err() != nil:
					return exit.With(exit.Failed, fmt.Sprintf("%s could not be compared with the database within %s", r.Project, limit))
				}
				return err
			})
		}),
	}
	f.Add(cmd)
	cmd.Flags().DurationVar(&limit, "limit", time.Second, "how long to wait")
	return cmd
}
