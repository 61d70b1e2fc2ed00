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
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/value"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/config"
)

var syncedColumns = []output.Column[catchup.Synced]{
	{Name: "result", Value: func(s catchup.Synced) any { return string(s.Result) }},
	{Name: "local", Value: func(s catchup.Synced) any { return output.OrNil(!s.Local.IsAbsent(), string(s.Local)) },
		Text: func(s catchup.Synced) string { return output.Escape(value.Abbreviated(s.Local)) }},
	{Name: "global", Value: func(s catchup.Synced) any { return output.OrNil(!s.Global.IsAbsent(), string(s.Global)) },
		Text: func(s catchup.Synced) string { return output.Escape(value.Abbreviated(s.Global)) }},
	{Name: "ref", Value: func(s catchup.Synced) any { return s.Ref }},
	{Name: "detail", Value: func(s catchup.Synced) any { return s.Detail }},
}

func (a *App) syncCommand() *cobra.Command {
	var f Flags
	var o catchup.Options
	var all bool
	cmd := &cobra.Command{
		Use:   "sync --from URL [REPO]",
		Short: "Bring a repository's refs to what the database says",
		Long: `Bring the refs of REPO, a project of this site's configuration or the path of its repository, to
exactly what the database says, deletions included. The objects are fetched from another site's copy
at URL, into refs/peer/NAME/*. The database is never written to. Run it as root, as which it becomes
the user who owns the repository, or as that user, such as every minute and after pushes at other
sites; it is safe at any time and twice at once.

Refs that the database does not know are never touched. A ref that this site itself has locked is skipped,
since a push is under way here; locks of other sites don't matter. One whose objects the peer does not have
yet is skipped, too: the status is 1 then, and if git refuses to move a ref. Locked refs, and those that
moved meanwhile, are no failure; nor is a peer that can't be reached if nothing is missing here: a warning
says so.

A ref is left, with status 1, if the database has an older value of it than it had when this one came
here, and the move would lose commits: the database was restored from a backup, it seems. A branch that
was moved back by a push at another site is no such case. --force takes the database's value all the same.

JSON: an object with "refs", a list of ` + output.Names(syncedColumns) + ` for those that differed
(result: created, updated, deleted, locked, moved, missing, ahead or failed); and project, peer, equal, unknown,
created, updated, deleted, locked, moved, missing, ahead, failed, complete, dry_run.

--all does that for all repositories of the site, eight at a time; as root it becomes the daemon's user, whom they
must all belong to. URL then has ` + projectPlace + ` where the project's name belongs. One that fails stops no other; Ctrl-C
begins no more of them. JSON: an object with "repositories", a list of
` + output.Names(syncedRepositoryColumns) + `
for those in which refs differed (result: changed, equal, incomplete or failed); and total, reached, failed, complete, changed,
incomplete, dry_run. The status is 1 if one failed or is incomplete.`,
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
	flags.BoolVar(&o.Force, "force", false, "also take values that are older than those which the database had")
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
	var printing error
	o.Each = func(s catchup.Synced) {
		if printing == nil {
			printing = report.Write(s)
		}
	}
	var bar cli.Progress
	if cli.IsTerminal(a.Err) {
		o.FetchProgress = a.Messages
		o.Progress = func(done, total int) { bar.Set(a.Err, done, total) }
	}
	got, err := catchup.Sync(ctx, c, db, r, o)
	bar.Stop()
	n := got.Results
	if printing == nil {
		printing = report.CloseWith(
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
	}
	summary := fmt.Sprintf("%d equal, %d created, %d updated, %d deleted, %d locked, %d moved meanwhile, %d missing, %d failed, %d unknown to the database",
		got.Equal, n[catchup.Created], n[catchup.Updated], n[catchup.Deleted], n[catchup.Locked], n[catchup.Moved],
		n[catchup.Missing], n[catchup.Failed], got.Unknown)
	if o.DryRun {
		summary = "dry run: " + summary
	}
	switch {
	case err != nil:
		if len(n) > 0 {
			a.Note("%s: not finished: %s; run it again to go on", r.Project, summary)
		}
		return err
	case printing != nil:
		return printing
	case n[catchup.Failed] > 0:
		return exit.With(exit.Failed, fmt.Sprintf("%s: %s", r.Project, summary))
	case n[catchup.Ahead] > 0:
		return exit.With(exit.Failed, fmt.Sprintf("%s: %s; %d left, as the database seems to have been set back: see OPERATIONS.md, \"The database went back in time\"",
			r.Project, summary, n[catchup.Ahead]))
	case n[catchup.Missing] > 0:
		return exit.With(exit.Failed, fmt.Sprintf("%s: %s; peer %s does not have what is missing yet: run it again, or --from another", r.Project, summary, got.Peer))
	}
	if got.Unreachable != nil {
		a.Note("warning: %s; all that was needed was here", got.Unreachable)
	}
	return a.PrintSummary(r.Project, summary)
}
