package site

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/refs"
	"github.com/globalrefdb/globalrefdb/internal/redact"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

// bulkLimit is the number of repositories that are changed concurrently. By default an sshd accepts
// ten concurrent new connections.
const bulkLimit = 8

const allFlagHelp = "all repositories of this site: those below site.root, and those configured"

// oneOrAll checks the arguments of a command about one repository or, with --all, all.
func oneOrAll(all *bool) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 1 != *all && len(args) <= 1 {
			return nil
		}
		return errors.New("name one repository, or give --all")
	}
}

// BulkRow is a repository in the report.
type BulkRow struct {
	Project, Result string
	counts          map[catchup.Result]int
	Detail          string
	unreachable     error // why the peer's copy, which was not needed, could not be reached
}

var enabledColumns = []output.Column[BulkRow]{
	{Name: "result", Value: func(r BulkRow) any { return r.Result }},
	{Name: "project", Value: func(r BulkRow) any { return r.Project }},
	{Name: "detail", Value: func(r BulkRow) any { return r.Detail }},
}

var syncedRepositoryColumns = syncedRepositories()

func syncedRepositories() []output.Column[BulkRow] {
	columns := []output.Column[BulkRow]{enabledColumns[0], enabledColumns[1]}
	for _, result := range []catchup.Result{catchup.Created, catchup.Updated, catchup.Deleted, catchup.Locked,
		catchup.Moved, catchup.Missing, catchup.Ahead, catchup.Failed} {
		columns = append(columns, output.Column[BulkRow]{Name: string(result), Value: func(r BulkRow) any { return r.counts[result] }})
	}
	return append(columns, enabledColumns[2])
}

// Bulk is a command's operation on all repositories of the site.
type Bulk struct {
	*App
	Repositories []config.Repository
	Write        func(BulkRow) error
	report       *output.Writer[BulkRow] // nil if the rows are part of another report
	progress     cli.Progress

	reached, Failed int
	notes           []string // printed at the end, because they would break the progress bar
}

// newBulk finds the repositories. As root it switches to the daemon's user, who must own all of
// them.
func (a *App) newBulk(c *config.Config, columns []output.Column[BulkRow]) (*Bulk, error) {
	if err := BecomeOwner(c.State); err != nil {
		return nil, err
	}
	repositories, err := AllRepositories(c)
	if err != nil {
		return nil, err
	}
	report := output.NewReport(a.Out, a.Format, a.Palette(a.Out), "repositories", columns)
	return &Bulk{App: a, Repositories: repositories, Write: report.Write, report: report}, nil
}

func AllRepositories(c *config.Config) ([]config.Repository, error) {
	repositories, err := c.Repositories()
	if err == nil && len(repositories) == 0 {
		err = errors.New("this site has no repositories: none is below site.root, and none is configured")
	}
	return repositories, err
}

// outcome is the result of one repository. An error concerns only this repository.
type outcome[T any] struct {
	value T
	err   error
	notes []string
}

// onAll calls do for all repositories, and each with every result. An error becomes a row.
// Repositories whose processing was interrupted count as not reached.
func onAll[T any](ctx context.Context, f *Bulk, do func(ctx context.Context, r config.Repository, note func(string)) (T, error), each func(config.Repository, T)) {
	if cli.IsTerminal(f.Err) {
		f.progress.Bar = cli.NewBar(f.Err, "repositories", len(f.Repositories))
	}
	config.InParallel(ctx, f.Repositories, bulkLimit, func(ctx context.Context, r config.Repository) (o outcome[T]) {
		o.value, o.err = do(ctx, r, func(line string) { o.notes = append(o.notes, r.Project+": "+line) })
		return o
	}, func(r config.Repository, o outcome[T]) {
		f.notes = append(f.notes, o.notes...)
		if o.err != nil && ctx.Err() != nil {
			return
		}
		f.reached++
		f.progress.Add(1)
		if o.err != nil {
			f.Failed++
			f.Write(BulkRow{Project: r.Project, Result: "failed", Detail: f.explain(o.err)})
			return
		}
		each(r, o.value)
	})
	f.progress.Stop()
	for _, line := range f.notes {
		f.Note("%s", line)
	}
}

// explain returns an error in one line, without the database's password.
func (a *App) explain(err error) string {
	text := output.OneLine(err.Error())
	if errors.Is(err, context.DeadlineExceeded) {
		text += fmt.Sprintf(" (no answer from the database within --timeout %s)", a.Timeout)
	}
	return redact.Text(text, a.URL)
}

// conclude completes the report, and prints the summary or returns it as an error. problem, unless
// nil, is the error of a run in which all repositories were reached and none failed.
func (f *Bulk) conclude(ctx context.Context, summary string, problem *exit.Error, fields ...output.Field) error {
	total := len(f.Repositories)
	printing := f.report.CloseWith(append([]output.Field{
		{Name: "total", Value: total}, {Name: "reached", Value: f.reached}, {Name: "failed", Value: f.Failed},
		{Name: "complete", Value: f.reached == total && f.Failed == 0},
	}, fields...)...)
	summary = fmt.Sprintf("%s: %s", RepositoryCount(f.reached), summary)
	if f.Failed > 0 {
		summary += fmt.Sprintf(", %d failed", f.Failed)
	}
	switch {
	case ctx.Err() != nil:
		f.Note("not finished: %d of %s: %s; run the command again to continue", f.reached, RepositoryCount(total), summary)
		return context.Cause(ctx)
	case printing != nil:
		return printing
	case f.Failed > 0:
		return exit.With(exit.Failed, summary)
	case problem != nil:
		return exit.With(problem.Code, summary+problem.Message)
	}
	f.Note("%s", summary)
	return nil
}

func (a *App) enableAll(ctx context.Context, c *config.Config, hook string, claim projects.Claim, imports bool) error {
	f, err := a.newBulk(c, enabledColumns)
	if err != nil {
		return err
	}
	return a.WithSiteDB(ctx, func(db *refdb.DB) error {
		got := f.Enable(ctx, c, db, hook, claim, imports)
		summary := fmt.Sprintf("%d guarded, %s imported", got.Guarded, output.Count(got.Imported, "ref"))
		var problem *exit.Error
		if got.Differ > 0 {
			problem = exit.With(exit.Mismatch, fmt.Sprintf("; in %d of them refs differ from the database: `refdbctl site check` says how to update them", got.Differ))
		}
		return f.conclude(ctx, summary, problem, output.Field{Name: "guarded", Value: got.Guarded}, output.Field{Name: "differ", Value: got.Differ},
			output.Field{Name: "imported", Value: got.Imported})
	})
}

// BulkEnabled is the result of putting all repositories under guard: numbers of repositories and
// refs.
type BulkEnabled struct{ Guarded, Differ, Imported int }

// Enable puts all repositories under guard.
func (f *Bulk) Enable(ctx context.Context, c *config.Config, db *refdb.DB, hook string, claim projects.Claim, imports bool) (all BulkEnabled) {
	a := f.App
	onAll(ctx, f, func(ctx context.Context, r config.Repository, note func(string)) (*refs.Importer, error) {
		_, ruled, err := register(ctx, c, db, r, claim)
		if err != nil {
			return nil, err
		}
		if !guardsAny(ruled, r) {
			note("warning: the rules guard neither its branches nor its tags")
		}
		if err := warnOfFetches(ctx, ruled, db, r, note); err != nil {
			return nil, err
		}
		if err := install.Enable(ctx, ruled, r, hook, func(install.Step) {}); err != nil || !imports {
			return &refs.Importer{}, err
		}
		got, err := a.importGuarded(ctx, ruled, db, r, note)
		if err != nil {
			return got, fmt.Errorf("the hooks are in place, but not all refs were imported: run the command again: %w", err)
		}
		_, err = a.storeFirst(ctx, c, db, r)
		return got, err
	}, func(r config.Repository, got *refs.Importer) {
		all.Imported += got.Imported
		if got.Different > 0 {
			all.Differ++
			f.Write(BulkRow{Project: r.Project, Result: "differs", Detail: fmt.Sprintf("it is guarded; the database has another value for %s: "+
				"`refdbctl site check %s` says how to update them", output.Count(got.Different, "ref"), r.Project)})
		}
	})
	all.Guarded = f.reached - f.Failed
	return all
}

// projectPlace is the placeholder of the project in an address.
const projectPlace = "{project}"

// peerAddress is the address of a project's copy.
func peerAddress(from, project string) string {
	if strings.Contains(from, "://") {
		project = (&url.URL{Path: project}).EscapedPath()
	}
	return strings.ReplaceAll(from, projectPlace, project)
}

func (a *App) syncAll(ctx context.Context, c *config.Config, o catchup.Options) error {
	if !strings.Contains(o.From, projectPlace) {
		return exit.Usage(fmt.Sprintf("--from %s: with --all it names each project's copy: put %s where the project's name belongs", o.From, projectPlace))
	}
	f, err := a.newBulk(c, syncedRepositoryColumns)
	if err != nil {
		return err
	}
	return a.WithSiteDB(ctx, func(db *refdb.DB) error {
		sums := map[catchup.Result]int{}
		var changed, incomplete, unreachable int
		var first error // why the first unreachable copy could not be reached
		onAll(ctx, f, func(ctx context.Context, r config.Repository, _ func(string)) (BulkRow, error) {
			return a.syncOne(ctx, c, db, r, o)
		}, func(_ config.Repository, row BulkRow) {
			if row.unreachable != nil {
				if unreachable++; first == nil {
					first = row.unreachable
				}
			}
			for result, n := range row.counts {
				sums[result] += n
			}
			switch row.Result {
			case "changed":
				changed++
			case "incomplete":
				incomplete++
			}
			if len(row.counts) > 0 {
				f.Write(row)
			}
		})
		if unreachable > 0 {
			f.Note("warning: %s: fetching from the copies of %s failed; nothing was missing here", f.explain(first), RepositoryCount(unreachable))
		}
		summary := fmt.Sprintf("%d with changes, %d created, %d updated, %d deleted, %d locked, %d moved meanwhile", changed,
			sums[catchup.Created], sums[catchup.Updated], sums[catchup.Deleted], sums[catchup.Locked], sums[catchup.Moved])
		if o.DryRun {
			summary = "dry run: " + summary
		}
		var problem *exit.Error
		if incomplete > 0 {
			problem = exit.With(exit.Failed, fmt.Sprintf(", %d incomplete: %d refs missing, %d ahead, %d failed", incomplete,
				sums[catchup.Missing], sums[catchup.Ahead], sums[catchup.Failed]))
		}
		return f.conclude(ctx, summary, problem, output.Field{Name: "changed", Value: changed},
			output.Field{Name: "incomplete", Value: incomplete}, output.Field{Name: "dry_run", Value: o.DryRun})
	})
}

// syncOne updates one of all repositories to the database's values.
func (a *App) syncOne(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository, o catchup.Options) (BulkRow, error) {
	row := BulkRow{Project: r.Project, Result: "equal"}
	o.From = peerAddress(o.From, r.Project)
	o.Each = func(s catchup.Synced) {
		switch s.Result {
		case catchup.Missing, catchup.Ahead, catchup.Failed:
			if row.Result = "incomplete"; row.Detail == "" {
				row.Detail = s.Ref + ": " + s.Detail
			}
		case catchup.Created, catchup.Updated, catchup.Deleted:
			if row.Result != "incomplete" {
				row.Result = "changed"
			}
		}
	}
	got, err := catchup.Sync(ctx, c, db, r, o)
	row.counts, row.unreachable = got.Results, got.Unreachable
	return row, err
}
