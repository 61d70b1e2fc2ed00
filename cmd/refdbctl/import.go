package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// importBatch is how many refs go to the database in one transaction.
const importBatch = 1000

func (a *app) refsImportCommand() *cobra.Command {
	im := &importer{app: a, batch: importBatch}
	var path string
	cmd := &cobra.Command{
		Use:   "import PROJECT --repo PATH",
		Short: "Bring the refs of an existing repository into the database",
		Long: `Bring the refs of the Git repository at PATH into the database, as PROJECT. The repository is only
read.

Only what the database does not know is written. A ref that holds another value there, or was
deleted there, is reported and left alone, and the status is 5, unless --overwrite is given: what that
would overwrite is shown, and asked about on a terminal; otherwise --yes is needed. A ref
that somebody holds a lock on is left alone, too (status 3 if that is all). A ref that the database
can't hold, such as one that is not UTF-8, or that git refuses to read, is reported; with --strict
the status is then 1. It is 1 for refs/remotes/* and refs/stash, too, which a clone to work in has
for itself: they are left out unless --work-clone is given.

With --prune the refs that the database has and the repository does not are deleted afterwards: they are
counted and asked about on a terminal; otherwise --yes is needed. A repository that has not caught up
with the other sites would delete what they pushed: refdbctl site sync first.

It works in batches, each of which is written whole or not at all. Ctrl-C lets the batch under way
finish and says how far it came (status 130). Run it again to go on: what is there already is
counted as equal.

` + skipHelp + `

JSON: an object with "problems", a list of ` + output.Names(differenceColumns) + ` (result: different, locked,
refused or would_overwrite); and project, imported, overwritten, equal, different, locked, refused,
skipped, pruned, complete, dry_run.`,
		Example: `  refdbctl refs import my/project --repo /srv/git/my/project.git --dry-run
  refdbctl refs import my/project --repo /srv/git/my/project.git`,
		Args: cobra.ExactArgs(1),
		RunE: a.body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			im.project = args[0]
			if err := refdb.CheckProject(im.project); err != nil {
				return err
			}
			if im.prune || im.overwrite {
				if err := im.consent.check(a); err != nil {
					return err
				}
			}
			repo, err := gitrepo.Open(ctx, path)
			if err != nil {
				return err
			}
			return a.withDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				im.db = db
				return im.run(ctx, repo)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&path, "repo", "", "the repository's `path`")
	must(cmd.MarkFlagRequired("repo"))
	flags.BoolVar(&im.all, "all", false, "import what Gerrit keeps out, too, and HEAD")
	flags.BoolVar(&im.overwrite, "overwrite", false, "set refs that hold another value, or were deleted, to the repository's")
	flags.BoolVar(&im.strict, "strict", false, "fail if a ref was refused")
	flags.BoolVar(&im.workClone, "work-clone", false, "import refs/remotes/* and refs/stash, too")
	flags.BoolVar(&im.prune, "prune", false, "delete the refs that the repository does not have")
	im.consent.addFlags(cmd)
	return cmd
}

// importer brings a repository's refs into the database.
type importer struct {
	*app
	db      *refdb.DB
	project string
	batch   int

	consent
	all, overwrite, strict, prune, workClone bool

	held *refdb.LockedError // what a dry run takes for locked

	report   *output.Writer[difference]
	progress progress
	err      error // of printing
	private  int   // of those refused

	imported, overwritten, equal, different, locked, refused, skipped, pruned int
}

func (im *importer) run(ctx context.Context, repo *gitrepo.Repo) error {
	im.report = output.NewReport(im.out, im.format, im.palette(im.out), "problems", differenceColumns)
	err := im.startProgress(ctx, repo)
	if err == nil && im.overwrite && !im.yes && !im.dryRun {
		err = im.askOverwrite(ctx, repo)
	}
	if err == nil && im.dryRun {
		im.held, err = im.freshLocks(ctx, im.db, im.project)
	}
	if err == nil {
		err = im.walk(ctx, im.local(repo))
	}
	im.progress.stop()
	if err == nil && im.prune {
		err = im.deleteMissing(ctx, repo)
	}
	return im.conclude(ctx, err)
}

// askOverwrite shows what would be overwritten, and asks.
func (im *importer) askOverwrite(ctx context.Context, repo *gitrepo.Repo) error {
	plan := &importer{app: im.app, db: im.db, project: im.project, batch: im.batch, consent: consent{dryRun: true},
		all: im.all, overwrite: true, workClone: im.workClone, held: new(refdb.LockedError)}
	plan.report = output.NewWriter(im.messages, output.Table, im.palette(im.app.err), differenceColumns)
	if err := plan.walk(ctx, plan.local(repo)); err != nil {
		return err
	}
	if err := errors.Join(plan.err, plan.report.Close()); err != nil || plan.overwritten == 0 {
		return err
	}
	return im.ask(ctx, im.app, fmt.Sprintf("Overwrite %s of project %s?", count(plan.overwritten, "ref"), output.Escape(im.project)))
}

func (im *importer) local(repo *gitrepo.Repo) *local {
	return &local{repo: repo, all: im.all,
		skipped: func(string) { im.skipped++ },
		refused: func(complaint string) { im.refuse(gitrepo.Ref{}, complaint) },
	}
}

// walk reads the refs and sends them off, batch by batch.
func (im *importer) walk(ctx context.Context, from *local) error {
	batch := make([]gitrepo.Ref, 0, im.batch)
	for ref, err := range from.refs(ctx) {
		if err != nil {
			return err
		}
		if !im.workClone && isPrivate(ref.Name) {
			im.private++
			im.refuse(ref, "a work clone's own: import from the repository that it was cloned from, or add --work-clone")
			im.progress.add(1)
			continue
		}
		if err := im.storable(ref); err != nil {
			im.refuse(ref, err.Error())
			im.progress.add(1)
			continue
		}
		if batch = append(batch, ref); len(batch) == im.batch {
			if err := im.send(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return im.send(ctx, batch)
}

// isPrivate reports whether a ref is what a clone to work in has for itself.
func isPrivate(ref string) bool {
	return strings.HasPrefix(ref, "refs/remotes/") || ref == "refs/stash"
}

func (im *importer) storable(ref gitrepo.Ref) error {
	if err := refdb.CheckKey(im.project, ref.Name); err != nil {
		return err
	}
	return refdb.CheckValue(refdb.Value(ref.Value))
}

func (im *importer) refuse(ref gitrepo.Ref, why string) {
	im.refused++
	im.say(difference{ref: ref.Name, result: "refused", local: refdb.Value(ref.Value), detail: why})
}

func (im *importer) say(d difference) {
	if im.err == nil {
		im.err = im.report.Write(d)
	}
}

// conclude prints the summary, also of an import that was cut short by err.
func (im *importer) conclude(ctx context.Context, err error) error {
	if im.err == nil {
		im.err = im.report.CloseWith(
			output.Field{Name: "project", Value: im.project},
			output.Field{Name: "imported", Value: im.imported},
			output.Field{Name: "overwritten", Value: im.overwritten},
			output.Field{Name: "equal", Value: im.equal},
			output.Field{Name: "different", Value: im.different},
			output.Field{Name: "locked", Value: im.locked},
			output.Field{Name: "refused", Value: im.refused},
			output.Field{Name: "skipped", Value: im.skipped},
			output.Field{Name: "pruned", Value: im.pruned},
			output.Field{Name: "complete", Value: err == nil},
			output.Field{Name: "dry_run", Value: im.dryRun},
		)
	}
	summary := fmt.Sprintf("%d imported, %d overwritten, %d equal, %d different, %d locked, %d refused, %d skipped",
		im.imported, im.overwritten, im.equal, im.different, im.locked, im.refused, im.skipped)
	if im.prune {
		summary += fmt.Sprintf(", %d pruned", im.pruned)
	}
	if im.dryRun {
		summary = "dry run: " + summary
	}
	if err != nil {
		im.note("%s: not finished: %s; run it again to go on", im.project, summary)
		return interruption(ctx, err)
	}
	if im.err != nil {
		return im.err
	}
	switch {
	case im.different > 0:
		return &status{exitMismatch, fmt.Sprintf("%s: %s; refs that differ were left alone: --overwrite sets them", im.project, summary)}
	case im.locked > 0:
		return &status{exitLocked, fmt.Sprintf("%s: %s; locked refs were left alone: run it again", im.project, summary)}
	case im.private > 0, im.refused > 0 && im.strict:
		return &status{exitError, fmt.Sprintf("%s: %s", im.project, summary)}
	}
	return im.printSummary(im.project, summary)
}

// printSummary prints what JSON has in its fields.
func (a *app) printSummary(project, summary string) (err error) {
	switch a.format {
	case output.Table:
		_, err = fmt.Fprintf(a.out, "%s: %s\n", output.Escape(project), summary)
	case output.CSV:
		a.note("%s: %s", project, summary)
	}
	return err
}
