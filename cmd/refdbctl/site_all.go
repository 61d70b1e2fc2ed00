package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
)

// fleetLimit is how many repositories are changed at the same time. By default an sshd accepts ten
// new connections at the same time.
const fleetLimit = 8

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

// fleetRow is a repository of which there is something to tell.
type fleetRow struct {
	project, result string
	counts          map[catchup.Result]int
	detail          string
	unreachable     error // the peer's copy, which was not needed
}

var enabledColumns = []output.Column[fleetRow]{
	{Name: "result", Value: func(r fleetRow) any { return r.result }},
	{Name: "project", Value: func(r fleetRow) any { return r.project }},
	{Name: "detail", Value: func(r fleetRow) any { return r.detail }},
}

var syncedRepositoryColumns = syncedRepositories()

func syncedRepositories() []output.Column[fleetRow] {
	columns := []output.Column[fleetRow]{enabledColumns[0], enabledColumns[1]}
	for _, result := range []catchup.Result{catchup.Created, catchup.Updated, catchup.Deleted, catchup.Locked,
		catchup.Moved, catchup.Missing, catchup.Ahead, catchup.Failed} {
		columns = append(columns, output.Column[fleetRow]{Name: string(result), Value: func(r fleetRow) any { return r.counts[result] }})
	}
	return append(columns, enabledColumns[2])
}

// fleet is a command's work on all repositories of the site.
type fleet struct {
	*app
	repositories []config.Repository
	write        func(fleetRow) error
	report       *output.Writer[fleetRow] // nil if the rows are part of another report
	printing     error
	progress     progress

	reached, failed int
	notes           []string // printed at the end, because they would break the progress bar
}

// newFleet finds the repositories. As root it becomes the daemon's user, whose they all have to be.
func (a *app) newFleet(c *config.Config, columns []output.Column[fleetRow]) (*fleet, error) {
	if err := becomeOwner(c.State); err != nil {
		return nil, err
	}
	repositories, err := allRepositories(c)
	if err != nil {
		return nil, err
	}
	report := output.NewReport(a.out, a.format, a.palette(a.out), "repositories", columns)
	return &fleet{app: a, repositories: repositories, write: report.Write, report: report}, nil
}

func allRepositories(c *config.Config) ([]config.Repository, error) {
	repositories, err := c.Repositories()
	if err == nil && len(repositories) == 0 {
		err = errors.New("this site has no repositories: none is below site.root, and none is configured")
	}
	return repositories, err
}

// outcome is what came of a repository. An error is about it alone.
type outcome[T any] struct {
	value T
	err   error
	notes []string
}

// onAll does something to all repositories, and calls each with what came of one, unless that is an
// error, which becomes a row. Those that an interruption stopped count as not reached.
func onAll[T any](ctx context.Context, f *fleet, do func(ctx context.Context, r config.Repository, note func(string)) (T, error), each func(config.Repository, T)) {
	if isTerminal(f.err) {
		f.progress.bar = newBar(f.err, "repositories", len(f.repositories))
	}
	config.InParallel(ctx, f.repositories, fleetLimit, func(ctx context.Context, r config.Repository) (o outcome[T]) {
		o.value, o.err = do(ctx, r, func(line string) { o.notes = append(o.notes, r.Project+": "+line) })
		return o
	}, func(r config.Repository, o outcome[T]) {
		f.notes = append(f.notes, o.notes...)
		if o.err != nil && ctx.Err() != nil {
			return
		}
		f.reached++
		f.progress.add(1)
		if o.err != nil {
			f.failed++
			f.row(fleetRow{project: r.Project, result: "failed", detail: f.explain(o.err)})
			return
		}
		each(r, o.value)
	})
	f.progress.stop()
	for _, line := range f.notes {
		f.note("%s", line)
	}
}

// explain returns an error in one line, without the database's password.
func (a *app) explain(err error) string {
	text := oneLine(err.Error())
	if errors.Is(err, context.DeadlineExceeded) {
		text += fmt.Sprintf(" (no answer from the database within --timeout %s)", a.timeout)
	}
	return redact(text, a.url)
}

func (f *fleet) row(r fleetRow) {
	if f.printing == nil {
		f.printing = f.write(r)
	}
}

// conclude completes the report, and prints the summary or returns it as an error. problem, unless
// nil, is the error of a run in which all repositories were reached and none failed.
func (f *fleet) conclude(ctx context.Context, summary string, problem *status, fields ...output.Field) error {
	total := len(f.repositories)
	if f.printing == nil {
		f.printing = f.report.CloseWith(append([]output.Field{
			{Name: "total", Value: total}, {Name: "reached", Value: f.reached}, {Name: "failed", Value: f.failed},
			{Name: "complete", Value: f.reached == total && f.failed == 0},
		}, fields...)...)
	}
	summary = fmt.Sprintf("%s: %s", repositoryCount(f.reached), summary)
	if f.failed > 0 {
		summary += fmt.Sprintf(", %d failed", f.failed)
	}
	switch {
	case ctx.Err() != nil:
		f.note("not finished: %d of %s: %s; run it again to go on", f.reached, repositoryCount(total), summary)
		return context.Cause(ctx)
	case f.printing != nil:
		return f.printing
	case f.failed > 0:
		return &status{exitError, summary}
	case problem != nil:
		return &status{problem.code, summary + problem.message}
	}
	f.note("%s", summary)
	return nil
}

func (a *app) enableAll(ctx context.Context, c *config.Config, hook string, isNew, imports bool) error {
	f, err := a.newFleet(c, enabledColumns)
	if err != nil {
		return err
	}
	return a.withSiteDB(ctx, func(db *refdb.DB) error {
		got := f.enable(ctx, c, db, hook, isNew, imports)
		summary := fmt.Sprintf("%d guarded, %s imported", got.guarded, count(got.imported, "ref"))
		var problem *status
		if got.differ > 0 {
			problem = &status{exitMismatch, fmt.Sprintf("; in %d of them refs differ from the database: run refdbctl site sync", got.differ)}
		}
		return f.conclude(ctx, summary, problem, output.Field{Name: "guarded", Value: got.guarded}, output.Field{Name: "differ", Value: got.differ},
			output.Field{Name: "imported", Value: got.imported})
	})
}

// enabledFleet is what came of putting all repositories under guard: repositories, and refs.
type enabledFleet struct{ guarded, differ, imported int }

// enable puts all repositories under guard.
func (f *fleet) enable(ctx context.Context, c *config.Config, db *refdb.DB, hook string, isNew, imports bool) (all enabledFleet) {
	a := f.app
	onAll(ctx, f, func(ctx context.Context, r config.Repository, note func(string)) (*importer, error) {
		_, ruled, err := register(ctx, c, db, r, isNew)
		if err != nil {
			return nil, err
		}
		if !guardsAny(ruled, r) {
			note("warning: the rules guard neither its branches nor its tags")
		}
		if err := install.Enable(ctx, ruled, r, hook, func(install.Step) {}); err != nil || !imports {
			return &importer{}, err
		}
		got, err := a.importGuarded(ctx, ruled, db, r, note)
		if err != nil {
			return got, fmt.Errorf("the hooks are in place, but the refs were not all imported: run it again: %w", err)
		}
		_, err = a.storeFirst(ctx, c, db, r)
		return got, err
	}, func(r config.Repository, got *importer) {
		all.imported += got.imported
		if got.different > 0 {
			all.differ++
			f.row(fleetRow{project: r.Project, result: "differs", detail: fmt.Sprintf("it is guarded; %s here holds another value than in the database: "+
				"run refdbctl site sync", count(got.different, "ref"))})
		}
	})
	all.guarded = f.reached - f.failed
	return all
}

// projectPlace stands in an address for the project.
const projectPlace = "{project}"

// peerAddress is the address of a project's copy.
func peerAddress(from, project string) string {
	if strings.Contains(from, "://") {
		project = (&url.URL{Path: project}).EscapedPath()
	}
	return strings.ReplaceAll(from, projectPlace, project)
}

func (a *app) syncAll(ctx context.Context, c *config.Config, o catchup.Options) error {
	if !strings.Contains(o.From, projectPlace) {
		return usage(fmt.Sprintf("--from %s: with --all it names each project's copy: put %s where the project's name belongs", o.From, projectPlace))
	}
	f, err := a.newFleet(c, syncedRepositoryColumns)
	if err != nil {
		return err
	}
	return a.withSiteDB(ctx, func(db *refdb.DB) error {
		sums := map[catchup.Result]int{}
		var changed, incomplete, unreachable int
		var first error // of those that could not be reached
		onAll(ctx, f, func(ctx context.Context, r config.Repository, _ func(string)) (fleetRow, error) {
			return a.syncOne(ctx, c, db, r, o)
		}, func(_ config.Repository, row fleetRow) {
			if row.unreachable != nil {
				if unreachable++; first == nil {
					first = row.unreachable
				}
			}
			for result, n := range row.counts {
				sums[result] += n
			}
			switch row.result {
			case "changed":
				changed++
			case "incomplete":
				incomplete++
			}
			if len(row.counts) > 0 {
				f.row(row)
			}
		})
		if unreachable > 0 {
			f.note("warning: %s: the copies of %s could not be fetched from; all that was needed was here", f.explain(first), repositoryCount(unreachable))
		}
		summary := fmt.Sprintf("%d with changes, %d created, %d updated, %d deleted, %d locked, %d moved meanwhile", changed,
			sums[catchup.Created], sums[catchup.Updated], sums[catchup.Deleted], sums[catchup.Locked], sums[catchup.Moved])
		if o.DryRun {
			summary = "dry run: " + summary
		}
		var problem *status
		if incomplete > 0 {
			problem = &status{exitError, fmt.Sprintf(", %d incomplete: %d refs missing, %d ahead, %d failed", incomplete,
				sums[catchup.Missing], sums[catchup.Ahead], sums[catchup.Failed])}
		}
		return f.conclude(ctx, summary, problem, output.Field{Name: "changed", Value: changed},
			output.Field{Name: "incomplete", Value: incomplete}, output.Field{Name: "dry_run", Value: o.DryRun})
	})
}

// syncOne brings one of all repositories to what the database says.
func (a *app) syncOne(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository, o catchup.Options) (fleetRow, error) {
	row := fleetRow{project: r.Project, result: "equal"}
	o.From = peerAddress(o.From, r.Project)
	o.Each = func(s catchup.Synced) {
		switch s.Result {
		case catchup.Missing, catchup.Ahead, catchup.Failed:
			if row.result = "incomplete"; row.detail == "" {
				row.detail = s.Ref + ": " + s.Detail
			}
		case catchup.Created, catchup.Updated, catchup.Deleted:
			if row.result != "incomplete" {
				row.result = "changed"
			}
		}
	}
	got, err := catchup.Sync(ctx, c, db, r, o)
	row.counts, row.unreachable = got.Results, got.Unreachable
	return row, err
}
