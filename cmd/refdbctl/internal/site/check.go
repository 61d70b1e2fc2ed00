package site

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	sitecheck "github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// FindingColumns are the columns of a finding. The code comes first, because readers search for it.
var FindingColumns = []output.Column[sitecheck.Finding]{
	{Name: "code", Value: func(f sitecheck.Finding) any { return f.Code }},
	{Name: "project", Value: func(f sitecheck.Finding) any { return f.Project },
		Text: func(f sitecheck.Finding) string { return output.OrDash(f.Project != "", output.Escape(f.Project)) }},
	{Name: "subject", Value: func(f sitecheck.Finding) any { return f.Subject },
		Text: func(f sitecheck.Finding) string { return output.OrDash(f.Subject != "", output.Escape(f.Subject)) }},
	{Name: "mended", Value: func(f sitecheck.Finding) any { return f.Mended },
		Text: func(f sitecheck.Finding) string { return output.OrDash(f.Mended, "mended") }},
	{Name: "detail", Value: func(f sitecheck.Finding) any { return f.Detail }},
}

func (a *App) checkCommand() *cobra.Command {
	var f Flags
	var o sitecheck.Options
	var all bool
	var textfile string
	cmd := &cobra.Command{
		Use:   "check [--all | REPO...]",
		Short: "Find what leaves repositories unguarded or out of step",
		Long: `Check the repositories of this site that are named by project or path, or all of them. The check covers
  - the site's hooks: that they are there, are executable, are refdb-hook, and are run by git;
  - of which project each repository is a copy; git's settings; the link to the daemon's socket, and the daemon;
  - symbolic refs; all refs compared with the database, both ways; intents that have been pending for long;
  - lock files that a killed git has left; repositories that can't follow; and
  - objects that the database should keep but lacks.

Each finding is one line. The exit status is 1 if there is any finding. A push in progress is not a finding. Run the
command as root or as the daemon's user; as root, it switches to that user.

--repair repairs what is safe: hooks, settings, the link, lock files that no process needs, and refs whose file is
empty or has no value, which get the database's value. It moves no ref that has a value: refdbctl site sync does that,
and the daemon, if the database keeps the project's objects; in that case the daemon is asked to. A repository that
was never put under guard is left alone. The exit status is 1 if a finding remains.

--objects reads all objects, too, which may take hours. It finds objects that are damaged, and objects that refs reach
but that are missing. With --repair, they are restored from the database, if it keeps the project's objects. Meanwhile
the repository needs twice its space. Damaged files are kept in the repository, in refdb/damaged.

Many repositories are checked in parallel. A repository that can't be checked is a finding, and does not stop the
others. If the database stops answering, the remaining ones are checked without it, and the exit status is 1. After
Ctrl-C the command reports what it has found so far.

--textfile FILE writes the numbers of findings, by code, and the time of the check as metrics for the textfile collector
of node_exporter, also if there are findings. It needs a check of all repositories. FILE is replaced in one step, and its
directory must be writable by the daemon's user. If the command is interrupted, or fails before it checks anything, FILE
stays as it is.

The codes are stable: daemon-down, database, repository, repository-unknown, hook-missing, hook-foreign,
hook-not-executable, hook-outdated, hook-other, hooks-path, socket, setting, guarded-fetch, head-differs, symref,
ref-broken, local-unknown, local-differs, global-missing-here, name-conflict, database-behind, not-enforced,
intent-pending, intent-decided, leftover-lock, peer-ref, foreign-owner, behind, no-base, packs-unused, not-maintained,
object-damaged, object-missing, objects-unread, object-malformed, root-gone, project-removed, moved, not-guarded.

JSON: an object with "findings", a list of ` + output.Names(FindingColumns) + `;
and repositories, looked_at, not_compared (repositories that are not to be guarded), mended, ok.`,
		Example: `  refdbctl site check
  refdbctl site check team/app --repair
  refdbctl site check team/app --objects --repair
  refdbctl site check -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if all && len(args) > 0 {
				return errors.New("name repositories, or give --all")
			}
			if textfile != "" && len(args) > 0 {
				return errors.New("--textfile FILE is for a check of all repositories: name none, because the metrics of some would replace those of all")
			}
			return nil
		},
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			c, err := a.Load(ctx, f)
			if err == nil {
				err = BecomeOwner(c.State)
			}
			if err != nil {
				return err
			}
			if textfile != "" {
				if err := checkTextfile(textfile); err != nil {
					return err
				}
			}
			repositories, err := siteRepositories(ctx, c, args)
			if err != nil {
				return err
			}
			if o.Hook == "" {
				o.Hook = FindHook() // without it the hooks' version is not compared
			}
			began := time.Now()
			result, err := a.check(ctx, c, repositories, o, func(_ context.Context, _ *refdb.DB, found func(sitecheck.Finding)) error {
				if len(args) > 0 {
					return nil
				}
				return sitecheck.Unserved(c, found)
			})
			if textfile != "" && ctx.Err() == nil {
				result.took = time.Since(began)
				err = errors.Join(err, writeTextfile(textfile, result, time.Now()))
			}
			return err
		}),
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, allFlagHelp+"; the default if none is named")
	cmd.Flags().BoolVar(&o.Repair, "repair", false, "repair what is safe")
	cmd.Flags().BoolVar(&o.Objects, "objects", false, "read all objects")
	cmd.Flags().StringVar(&o.Hook, "hook", "", HookFlagHelp)
	cmd.Flags().StringVar(&textfile, "textfile", "", "write metrics of the check to this `file`")
	return cmd
}

// siteRepositories returns the named repositories, or all.
func siteRepositories(ctx context.Context, c *config.Config, args []string) ([]config.Repository, error) {
	if len(args) == 0 {
		return c.Repositories()
	}
	var all []config.Repository
	for _, arg := range args {
		r, err := siteRepository(ctx, c, arg)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// Check checks the repositories after it has called first, and prints the findings of both. first
// gets a nil DB if the database can't be opened. more are additional fields of the report.
func (a *App) Check(ctx context.Context, c *config.Config, repositories []config.Repository, o sitecheck.Options,
	first func(context.Context, *refdb.DB, func(sitecheck.Finding)) error, more ...output.Field) error {
	_, err := a.check(ctx, c, repositories, o, first, more...)
	return err
}

// check is [App.Check]. It also returns the result in numbers.
func (a *App) check(ctx context.Context, c *config.Config, repositories []config.Repository, o sitecheck.Options,
	first func(context.Context, *refdb.DB, func(sitecheck.Finding)) error, more ...output.Field) (checkResult, error) {
	byCode := map[string]int{}
	report := output.NewReport(a.Out, a.Format, a.Palette(a.Out), "findings", FindingColumns)
	var left, mended, reached int
	var notCompared atomic.Int64
	o.NotCompared = func(config.Repository) { notCompared.Add(1) }
	var bar cli.Progress
	if cli.IsTerminal(a.Err) && len(repositories) > 1 {
		bar.Bar = cli.NewBar(a.Err, "repositories", len(repositories))
	}
	o.Progress = func(done, _ int) {
		reached = done
		bar.Add(1)
	}
	found := func(f sitecheck.Finding) {
		if f.Mended {
			mended++
		} else {
			left++
			byCode[f.Code]++
		}
		report.Write(f)
	}
	db, err := a.openForSite(ctx)
	if err != nil {
		// The rest can be checked without it.
		found(sitecheck.Finding{Code: "database", Detail: err.Error()})
		db = nil
	}
	if err = first(ctx, db, found); err != nil && ctx.Err() == nil && db != nil {
		found(sitecheck.Finding{Code: "database", Detail: a.explain(err)})
	}
	if ctx.Err() == nil {
		err = sitecheck.Run(ctx, c, db, repositories, o, found)
	}
	bar.Stop()
	if db != nil {
		defer db.Close()
	}
	printing := report.CloseWith(append([]output.Field{
		{Name: "repositories", Value: len(repositories)},
		{Name: "looked_at", Value: reached},
		{Name: "not_compared", Value: notCompared.Load()},
		{Name: "mended", Value: mended},
		{Name: "ok", Value: err == nil && left == 0},
	}, more...)...)
	summary := fmt.Sprintf("checked %s: %s", RepositoryCount(reached), output.Count(left, "finding"))
	if mended > 0 {
		summary += fmt.Sprintf(", and %d mended", mended)
	}
	if n := int(notCompared.Load()); n > 0 {
		summary += fmt.Sprintf("; %s not compared, because not under guard", RepositoryCount(n))
	}
	result := checkResult{complete: err == nil && db != nil, repositories: len(repositories), checked: reached, notCompared: int(notCompared.Load()), repaired: mended, left: byCode}
	switch {
	case err != nil && ctx.Err() != nil:
		a.Note("not finished: %s of %d; run the command again", summary, len(repositories))
		return result, err
	case err != nil:
		if reached > 0 {
			a.Note("%s", summary)
		}
		return result, err
	case printing != nil:
		return result, printing
	case left > 0:
		return result, exit.With(exit.Failed, summary)
	}
	a.Note("%s", summary)
	return result, nil
}

// RepositoryCount returns a number of repositories in words.
func RepositoryCount(n int) string {
	if n == 1 {
		return "1 repository"
	}
	return fmt.Sprintf("%d repositories", n)
}
