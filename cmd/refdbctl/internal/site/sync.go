package site

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/refvalue"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/config"
)

var syncedColumns = []output.Column[catchup.Synced]{
	{Name: "result", Value: func(s catchup.Synced) any { return string(s.Result) }},
	{Name: "local", Value: func(s catchup.Synced) any { return output.OrNil(!s.Local.IsAbsent(), string(s.Local)) },
		Text: func(s catchup.Synced) string { return output.Escape(refvalue.Abbreviated(s.Local)) }},
	{Name: "global", Value: func(s catchup.Synced) any { return output.OrNil(!s.Global.IsAbsent(), string(s.Global)) },
		Text: func(s catchup.Synced) string { return output.Escape(refvalue.Abbreviated(s.Global)) }},
	{Name: "ref", Value: func(s catchup.Synced) any { return s.Ref }},
	{Name: "detail", Value: func(s catchup.Synced) any { return s.Detail }},
}

func (a *App) syncCommand() *cobra.Command {
	var f Flags
	var o catchup.Options
	var all bool
	cmd := &cobra.Command{
		Use:   "sync --from URL [REPO]",
		Short: "Update a repository's refs to the database's values",
		Long: `Update the refs of REPO to exactly the database's values, deletions included. REPO is a project in this site's
configuration, or the path of its repository. The objects are fetched from another site's copy at URL, into
refs/peer/NAME/*. The database is never written to. Run the command as root, which switches to the user who owns the
repository, or as that user: for example every minute, and after pushes at other sites. It is safe at any time, and
may run twice at once.

Refs that the database does not know are never touched. A ref that this site itself has locked is skipped, since a
push to it is in progress here; locks of other sites don't matter. A ref whose objects the peer does not have yet is
skipped, too: the exit status is then 1, as it is if git refuses to move a ref. These are not failures: refs that are
locked, refs that moved meanwhile, and a peer that can't be reached although nothing is missing here, for which a
warning is printed.

A ref is left as it is, with exit status 1, if the database's value is older than the one it had when the repository
got its value, and the move would lose commits: the database seems to have been restored from a backup. A branch that
a push at another site moved back is not affected. --force takes the database's value anyway.

JSON: an object with "refs", a list of ` + output.Names(syncedColumns) + ` for the refs that differed
(result: created, updated, deleted, locked, moved, missing, ahead or failed); and project, peer, equal, unknown,
created, updated, deleted, locked, moved, missing, ahead, failed, complete, dry_run.

--all updates all repositories of the site, eight at a time. As root, it switches to the daemon's user, who must own
all of them. URL must have ` + projectPlace + ` in the place of the project's name. A failing repository does not stop the others;
Ctrl-C starts no further ones. JSON: an object with "repositories", a list of
` + output.Names(syncedRepositoryColumns) + `
for the repositories in which refs differed (result: changed, equal, incomplete or failed); and total, reached,
failed, complete, changed, incomplete, dry_run. The exit status is 1 if a repository failed or is incomplete.`,
		Example: `  refdbctl site sync --from git@us-1:team/app.git team/app
  refdbctl site sync --from https://us-1.example.com/team/app.git --peer us-1 /srv/git/team/app.git
  refdbctl site sync --from git@us-1:` + projectPlace + `.git --all`,
		Args: oneOrAll(&all),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if all {
				c, err := a.Load(ctx, f)
				if err != nil {
					return err
				}
				return a.syncAll(ctx, c, o)
			}
			c, r, err := a.siteAnd(ctx, f, args[0])
			if err != nil {
				return err
			}
			return a.WithSiteDB(ctx, func(db *refdb.DB) error { return a.sync(ctx, c, db, r, o) })
		}),
	}
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.From, "from", "", "the `URL` or path of another site's copy")
	flags.BoolVar(&all, "all", false, allFlagHelp)
	flags.StringVar(&o.Peer, "peer", "", "that site's `name` (default: the URL's host)")
	flags.BoolVar(&o.Force, "force", false, "take the database's values even if they are older than the ones it had before")
	flags.BoolVarP(&o.DryRun, "dry-run", "n", false, "fetch, show what would be done, and move no ref")
	cli.Must(cmd.MarkFlagRequired("from"))
	return cmd
}

// siteRepository finds a repository of the configuration, named by its project or its path.
func siteRepository(ctx context.Context, c *config.Config, arg string) (config.Repository, error) {
	isPath := filepath.IsAbs(arg) || strings.HasPrefix(arg, ".")
	if !isPath {
		r, err := c.Repository(arg)
		if err == nil || !errors.Is(err, config.ErrNotConfigured) {
			return r, err
		}
		if _, openErr := gitrepo.OpenDir(arg); openErr != nil {
			return r, err
		}
	}
	repo, err := gitrepo.OpenDir(arg)
	if err != nil {
		return config.Repository{}, err
	}
	return c.Find(repo.Dir())
}

func (a *App) sync(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository, o catchup.Options) error {
	report := output.NewReport(a.Out, a.Format, a.Palette(a.Out), "refs", syncedColumns)
	o.Each = func(s catchup.Synced) { report.Write(s) }
	var bar cli.Progress
	if cli.IsTerminal(a.Err) {
		o.FetchProgress = a.Messages
		o.Progress = func(done, total int) { bar.Set(a.Err, done, total) }
	}
	got, err := catchup.Sync(ctx, c, db, r, o)
	bar.Stop()
	n := got.Results
	printing := report.CloseWith(
		output.Field{Name: "project", Value: r.Project},
		output.Field{Name: "peer", Value: got.Peer},
		output.Field{Name: "equal", Value: got.Equal},
		output.Field{Name: "unknown", Value: got.Unknown},
		output.Field{Name: "created", Value: n[catchup.Created]},
		output.Field{Name: "updated", Value: n[catchup.Updated]},
		output.Field{Name: "deleted", Value: n[catchup.Deleted]},
		output.Field{Name: "locked", Value: n[catchup.Locked]},
		output.Field{Name: "moved", Value: n[catchup.Moved]},
		output.Field{Name: "missing", Value: n[catchup.Missing]},
		output.Field{Name: "ahead", Value: n[catchup.Ahead]},
		output.Field{Name: "failed", Value: n[catchup.Failed]},
		output.Field{Name: "complete", Value: err == nil},
		output.Field{Name: "dry_run", Value: o.DryRun},
	)
	summary := fmt.Sprintf("%d equal, %d created, %d updated, %d deleted, %d locked, %d moved meanwhile, %d missing, %d failed, %d unknown to the database",
		got.Equal, n[catchup.Created], n[catchup.Updated], n[catchup.Deleted], n[catchup.Locked], n[catchup.Moved],
		n[catchup.Missing], n[catchup.Failed], got.Unknown)
	if o.DryRun {
		summary = "dry run: " + summary
	}
	switch {
	case err != nil:
		if len(n) > 0 {
			a.Note("%s: not finished: %s; run the command again to continue", r.Project, summary)
		}
		return err
	case printing != nil:
		return printing
	case n[catchup.Failed] > 0:
		return exit.With(exit.Failed, fmt.Sprintf("%s: %s", r.Project, summary))
	case n[catchup.Ahead] > 0:
		return exit.With(exit.Failed, fmt.Sprintf("%s: %s; %d left as they are, because the database seems to have gone back in time: see OPERATIONS.md, \"The database went back in time\"",
			r.Project, summary, n[catchup.Ahead]))
	case n[catchup.Missing] > 0:
		return exit.With(exit.Failed, fmt.Sprintf("%s: %s; peer %s does not have the missing objects yet: run the command again, or fetch --from another site", r.Project, summary, got.Peer))
	}
	if got.Unreachable != nil {
		a.Note("warning: %s; nothing was missing here", got.Unreachable)
	}
	return a.PrintSummary(r.Project, summary)
}
