package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
)

var syncedColumns = []output.Column[site.Synced]{
	{Name: "result", Value: func(s site.Synced) any { return string(s.Result) }},
	{Name: "local", Value: func(s site.Synced) any { return orNil(!s.Local.IsAbsent(), string(s.Local)) },
		Text: func(s site.Synced) string { return output.Escape(abbreviated(s.Local)) }},
	{Name: "global", Value: func(s site.Synced) any { return orNil(!s.Global.IsAbsent(), string(s.Global)) },
		Text: func(s site.Synced) string { return output.Escape(abbreviated(s.Global)) }},
	{Name: "ref", Value: func(s site.Synced) any { return s.Ref }},
	{Name: "detail", Value: func(s site.Synced) any { return s.Detail }},
}

func (a *app) siteSyncCommand() *cobra.Command {
	var f siteFlags
	var o site.SyncOptions
	cmd := &cobra.Command{
		Use:   "sync --from URL REPO",
		Short: "Bring a repository's refs to what the database says",
		Long: `Bring the refs of REPO, a project of this site's configuration or the path of its repository, to
exactly what the database says, deletions included. The objects are fetched from another site's copy
at URL, into refs/peer/NAME/*. The database is never written to. Run it as root, as which it becomes
the user who owns the repository, or as that user, such as every minute and after pushes at other
sites; it is safe at any time and twice at once.

Refs that the database does not know are never touched. A ref that somebody holds a lock on is
skipped, since a push is under way; so is one whose objects the peer does not have yet: the status is 1
then, and if git refuses to move a ref. Locked refs, and those that moved meanwhile, are no failure; nor is
a peer that can't be reached if nothing is missing here: a warning says so.

JSON: an object with "refs", a list of ` + output.Names(syncedColumns) + ` for those that differed
(result: created, updated, deleted, locked, moved, missing or failed); and project, peer, equal, unknown,
created, updated, deleted, locked, moved, missing, failed, complete, dry_run.`,
		Example: `  refdbctl site sync --from git@us-1:team/app.git team/app
  refdbctl site sync --from https://us-1.example.com/team/app.git --peer us-1 /srv/git/team/app.git`,
		Args: cobra.ExactArgs(1),
		RunE: a.body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, r, err := a.siteAnd(ctx, f, args[0])
			if err != nil {
				return err
			}
			return a.withSiteDB(ctx, func(db *refdb.DB) error { return a.sync(ctx, c, db, r, o) })
		}),
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.From, "from", "", "the `URL` or path of another site's copy")
	flags.StringVar(&o.Peer, "peer", "", "that site's `name` (default: the URL's host)")
	flags.BoolVarP(&o.DryRun, "dry-run", "n", false, "fetch, show what would be done, and move no ref")
	must(cmd.MarkFlagRequired("from"))
	return cmd
}

// siteRepository finds a repository of the configuration, named by its project or its path.
func siteRepository(ctx context.Context, c *site.Config, arg string) (site.Repository, error) {
	isPath := filepath.IsAbs(arg) || strings.HasPrefix(arg, ".")
	if !isPath {
		r, err := c.Repository(arg)
		if err == nil || !errors.Is(err, site.ErrNotConfigured) {
			return r, err
		}
		if _, openErr := gitrepo.OpenDir(arg); openErr != nil {
			return r, err
		}
	}
	repo, err := gitrepo.OpenDir(arg)
	if err != nil {
		return site.Repository{}, err
	}
	return c.Find(repo.Dir())
}

func (a *app) sync(ctx context.Context, c *site.Config, db *refdb.DB, r site.Repository, o site.SyncOptions) error {
	report := output.NewReport(a.out, a.format, a.palette(a.out), "refs", syncedColumns)
	var printing error
	o.Each = func(s site.Synced) {
		if printing == nil {
			printing = report.Write(s)
		}
	}
	var bar progress
	if isTerminal(a.err) {
		o.FetchProgress = a.messages
		o.Progress = func(done, total int) { bar.of(a.err, done, total) }
	}
	got, err := site.Sync(ctx, c, db, r, o)
	bar.stop()
	n := got.Results
	if printing == nil {
		printing = report.CloseWith(
			output.Field{Name: "project", Value: r.Project},
			output.Field{Name: "peer", Value: got.Peer},
			output.Field{Name: "equal", Value: got.Equal},
			output.Field{Name: "unknown", Value: got.Unknown},
			output.Field{Name: "created", Value: n[site.SyncCreated]},
			output.Field{Name: "updated", Value: n[site.SyncUpdated]},
			output.Field{Name: "deleted", Value: n[site.SyncDeleted]},
			output.Field{Name: "locked", Value: n[site.SyncLocked]},
			output.Field{Name: "moved", Value: n[site.SyncMoved]},
			output.Field{Name: "missing", Value: n[site.SyncMissing]},
			output.Field{Name: "failed", Value: n[site.SyncFailed]},
			output.Field{Name: "complete", Value: err == nil},
			output.Field{Name: "dry_run", Value: o.DryRun},
		)
	}
	summary := fmt.Sprintf("%d equal, %d created, %d updated, %d deleted, %d locked, %d moved meanwhile, %d missing, %d failed, %d unknown to the database",
		got.Equal, n[site.SyncCreated], n[site.SyncUpdated], n[site.SyncDeleted], n[site.SyncLocked], n[site.SyncMoved],
		n[site.SyncMissing], n[site.SyncFailed], got.Unknown)
	if o.DryRun {
		summary = "dry run: " + summary
	}
	switch {
	case err != nil:
		if len(n) > 0 {
			a.note("%s: not finished: %s; run it again to go on", r.Project, summary)
		}
		return err
	case printing != nil:
		return printing
	case n[site.SyncFailed] > 0:
		return &status{exitError, fmt.Sprintf("%s: %s", r.Project, summary)}
	case n[site.SyncMissing] > 0:
		return &status{exitError, fmt.Sprintf("%s: %s; peer %s does not have what is missing yet: run it again, or --from another", r.Project, summary, got.Peer)}
	}
	if got.Unreachable != nil {
		a.note("warning: %s; all that was needed was here", got.Unreachable)
	}
	return a.printSummary(r.Project, summary)
}
