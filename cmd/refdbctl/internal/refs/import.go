package refs

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

func (a *app) importCommand() *cobra.Command {
	im := &Importer{app: a, batch: importBatch}
	var path string
	cmd := &cobra.Command{
		Use:   "import PROJECT --repo PATH",
		Short: "Import the refs of an existing repository into the database",
		Long: `Import the refs of the Git repository at PATH into the database, as PROJECT. The repository is only read.

Only refs that the database does not know are written. A ref that has another value in the database, or was deleted
there, is reported and left alone, and the exit status is 5, unless --overwrite is given: the values to be overwritten
are then shown first, and the command asks for confirmation on a terminal; elsewhere --yes is required. A locked ref
is left as it is, too (exit status 3 if nothing else is wrong).

Some refs are refused, and the exit status is 1 after all others were imported: refs that the database can't hold, for
example because their names are not UTF-8; refs that git can't read; and refs that no repository could have together
with a ref in the database (refs/heads/t and refs/heads/t/x). With --skip-invalid-names the import succeeds if only
names were the reason: such refs then exist in the repository alone, without any protection. The exit status is also 1
for refs/remotes/* and refs/stash, which belong to a working clone: they are left out unless --work-clone is given.

With --prune the refs that the database has and the repository lacks are deleted afterwards. The command shows their
number and, on a terminal, asks for confirmation; elsewhere --yes is required. A repository that has not caught up
with the other sites would delete refs that they pushed: run refdbctl site sync first.

The import works in batches, several in parallel; each batch is written completely or not at all. On Ctrl-C the
batches in progress are finished, and the command reports how far it came (exit status 130). Run it again to continue:
refs that are there already are counted as equal.

` + skipHelp + `

JSON: an object with "problems", a list of ` + output.Names(differenceColumns) + ` (result: different, locked,
refused or would_overwrite); and project, imported, overwritten, equal, different, locked, refused, invalid_names (the
refused refs whose names the database can't hold), skipped, pruned, complete, dry_run.`,
		Example: `  refdbctl refs import my/project --repo /srv/git/my/project.git --dry-run
  refdbctl refs import my/project --repo /srv/git/my/project.git`,
		Args: cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			im.project = args[0]
			if err := driver.CheckProject(im.project); err != nil {
				return err
			}
			if im.prune || im.Overwrite {
				if err := im.Confirmation.Check(a.Run); err != nil {
					return err
				}
			}
			repo, err := gitrepo.Open(ctx, path)
			if err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				im.db = db
				return im.Import(ctx, repo)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&path, "repo", "", "the repository's `path`")
	cli.Must(cmd.MarkFlagRequired("repo"))
	flags.BoolVar(&im.all, "all", false, "include HEAD, and refs that Gerrit keeps out of the database")
	flags.BoolVar(&im.Overwrite, "overwrite", false, "overwrite refs that have another value, or were deleted, with the repository's values")
	flags.BoolVar(&im.skipInvalid, "skip-invalid-names", false, "succeed even if refs were left out because the database can't hold their names")
	flags.BoolVar(&im.workClone, "work-clone", false, "import refs/remotes/* and refs/stash, too")
	flags.BoolVar(&im.prune, "prune", false, "delete the refs that the repository lacks")
	im.Confirmation.AddFlags(cmd)
	im.why.AddFlag(cmd)
	return cmd
}

// Importer imports a repository's refs into the database.
type Importer struct {
	*app
	db      *refdb.DB
	project string
	batch   int

	cli.Confirmation
	why                                           cli.Reason
	all, Overwrite, skipInvalid, prune, workClone bool

	held *refdb.LockedError // the locks that a dry run found

	report       *output.Writer[difference]
	progress     cli.Progress
	printing     error
	invalidNames int // of those refused

	Counts
	Refused, Skipped, pruned int
}

// NewImporter returns an importer of refs of a project. Send prints nothing; Import does.
func NewImporter(r *cli.Run, db *refdb.DB, project string) *Importer {
	im := &Importer{app: &app{r}, db: db, project: project, batch: importBatch}
	im.report = output.NewReport(io.Discard, output.CSV, output.Palette{}, "problems", differenceColumns)
	return im
}

// Import imports the refs of a repository, and prints what it did.
func (im *Importer) Import(ctx context.Context, repo *gitrepo.Repo) error {
	im.report = output.NewReport(im.Out, im.Format, im.Palette(im.Out), "problems", differenceColumns)
	err := im.startProgress(ctx, repo)
	if err == nil && im.Overwrite && !im.Yes && !im.DryRun {
		err = im.confirmOverwrite(ctx, repo)
	}
	if err == nil && im.DryRun {
		im.held, err = im.freshLocks(ctx, im.db, im.project)
	}
	if err == nil {
		err = im.importAudited(ctx, im.localRefs(repo))
	}
	im.progress.Stop()
	if err == nil && im.prune {
		err = im.deleteMissing(ctx, repo)
	}
	return im.conclude(ctx, err)
}

// startProgress starts the progress bar, on a terminal. It reads the refs once to count them.
func (im *Importer) startProgress(ctx context.Context, repo *gitrepo.Repo) error {
	if !cli.IsTerminal(im.app.Err) {
		return nil
	}
	total := 0
	counter := &localRefs{repo: repo, all: im.all, skipped: func(string) {}, refused: func(string) {}}
	for _, err := range counter.refs(ctx) {
		if err != nil {
			return err
		}
		total++
	}
	im.progress.Bar = cli.NewBar(im.app.Err, "refs", total)
	return nil
}

// importAudited imports refs. With --overwrite that is recorded in the audit.
func (im *Importer) importAudited(ctx context.Context, refs *localRefs) error {
	if !im.Overwrite || im.DryRun {
		return im.importRefs(ctx, refs)
	}
	what := cli.Act{Action: "refs import --overwrite", Project: im.project, Detail: "refs that hold another value, or were deleted", Reason: im.why}
	return im.Audited(ctx, im.db, what, func() (string, error) {
		err := im.importRefs(ctx, refs)
		return fmt.Sprintf("overwrote %d, imported %d", im.overwritten, im.Imported), err
	})
}

// confirmOverwrite shows the refs that would be overwritten, and asks for confirmation.
func (im *Importer) confirmOverwrite(ctx context.Context, repo *gitrepo.Repo) error {
	plan := &Importer{app: im.app, db: im.db, project: im.project, batch: im.batch, Confirmation: cli.Confirmation{DryRun: true},
		all: im.all, Overwrite: true, workClone: im.workClone, held: new(refdb.LockedError)}
	plan.report = output.NewWriter(im.Messages, output.Table, im.Palette(im.app.Err), differenceColumns)
	if err := plan.importRefs(ctx, plan.localRefs(repo)); err != nil {
		return err
	}
	if err := plan.report.Close(); err != nil || plan.overwritten == 0 {
		return err
	}
	return im.Confirm(ctx, im.app.Run, fmt.Sprintf("Overwrite %s of project %s?", output.Count(plan.overwritten, "ref"), output.Escape(im.project)))
}

func (im *Importer) localRefs(repo *gitrepo.Repo) *localRefs {
	return &localRefs{repo: repo, all: im.all,
		skipped: func(string) { im.Skipped++ },
		refused: func(complaint string) { im.refuse(gitrepo.Ref{}, complaint) },
	}
}

// importRefs reads the refs and imports them.
func (im *Importer) importRefs(ctx context.Context, from *localRefs) error {
	return im.Send(ctx, func(yield func(gitrepo.Ref, error) bool) {
		for ref, err := range from.refs(ctx) {
			if err == nil && !im.accepts(ref) {
				im.progress.Add(1)
				continue
			}
			if !yield(ref, err) {
				return
			}
		}
	})
}

// accepts reports whether a ref can be imported. Otherwise it reports the ref as refused.
func (im *Importer) accepts(ref gitrepo.Ref) bool {
	if !im.workClone && isPrivate(ref.Name) {
		im.refuse(ref, "belongs to a working clone: import from the repository that it was cloned from, or add --work-clone")
		return false
	}
	if err := cmp.Or(driver.CheckKey(im.project, ref.Name), driver.CheckPlaceable(ref.Name)); err != nil {
		im.invalidNames++
		im.refuse(ref, err.Error())
		return false
	}
	if err := driver.CheckValue(refdb.Value(ref.Value)); err != nil {
		im.refuse(ref, err.Error())
		return false
	}
	return true
}

// isPrivate reports whether a ref belongs to a working clone.
func isPrivate(ref string) bool {
	return strings.HasPrefix(ref, "refs/remotes/") || ref == "refs/stash"
}

// incomplete returns the number of refused refs that make the import fail. With
// --skip-invalid-names refs with invalid names don't count.
func (im *Importer) incomplete() int {
	if im.skipInvalid {
		return im.Refused - im.invalidNames
	}
	return im.Refused
}

func (im *Importer) refuse(ref gitrepo.Ref, why string) {
	im.Refused++
	im.print(difference{ref: ref.Name, result: "refused", local: refdb.Value(ref.Value), detail: why})
}

func (im *Importer) print(d difference) { im.printing = im.report.Write(d) }

// conclude completes the report and prints the summary, also if the import ended with err.
func (im *Importer) conclude(ctx context.Context, err error) error {
	printing := im.report.CloseWith(
		output.Field{Name: "project", Value: im.project},
		output.Field{Name: "imported", Value: im.Imported},
		output.Field{Name: "overwritten", Value: im.overwritten},
		output.Field{Name: "equal", Value: im.Equal},
		output.Field{Name: "different", Value: im.Different},
		output.Field{Name: "locked", Value: im.Locked},
		output.Field{Name: "refused", Value: im.Refused},
		output.Field{Name: "invalid_names", Value: im.invalidNames},
		output.Field{Name: "skipped", Value: im.Skipped},
		output.Field{Name: "pruned", Value: im.pruned},
		output.Field{Name: "complete", Value: err == nil},
		output.Field{Name: "dry_run", Value: im.DryRun},
	)
	refused := fmt.Sprintf("%d refused", im.Refused)
	if im.invalidNames > 0 {
		refused += fmt.Sprintf(", %d of them for their names", im.invalidNames)
	}
	summary := fmt.Sprintf("%d imported, %d overwritten, %d equal, %d different, %d locked, %s, %d skipped",
		im.Imported, im.overwritten, im.Equal, im.Different, im.Locked, refused, im.Skipped)
	if im.prune {
		summary += fmt.Sprintf(", %d pruned", im.pruned)
	}
	if im.DryRun {
		summary = "dry run: " + summary
	}
	if err != nil {
		im.Note("%s: not finished: %s; run the command again to continue", im.project, summary)
		return exit.Interruption(ctx, err)
	}
	if printing != nil {
		return printing
	}
	switch {
	case im.Different > 0:
		return exit.With(exit.Mismatch, fmt.Sprintf("%s: %s; refs that differ were left alone: --overwrite overwrites the database", im.project, summary))
	case im.Locked > 0:
		return exit.With(exit.Locked, fmt.Sprintf("%s: %s; locked refs were left alone: run the command again", im.project, summary))
	case im.Refused > 0 && im.Refused == im.invalidNames && !im.skipInvalid:
		return exit.With(exit.Failed, fmt.Sprintf("%s: %s; rename those refs, or leave them out with --skip-invalid-names", im.project, summary))
	case im.incomplete() > 0:
		return exit.With(exit.Failed, fmt.Sprintf("%s: %s", im.project, summary))
	}
	return im.PrintSummary(im.project, summary)
}

// deleteMissing deletes the refs in the database that the repository lacks.
func (im *Importer) deleteMissing(ctx context.Context, repo *gitrepo.Repo) error {
	if im.incomplete() > 0 {
		return exit.With(exit.Failed, fmt.Sprintf("%s: nothing was pruned, because %s of the repository can't be read or stored: fix them first, "+
			"or they would count as deleted", im.project, output.Count(im.incomplete(), "ref")))
	}
	missing, err := im.missing(ctx, repo)
	if err != nil || len(missing) == 0 {
		return err
	}
	d := &deletion{app: im.app, db: im.db, project: im.project, refs: missing, report: im.reportPruned}
	act := cli.Act{Action: "refs import --prune", Project: im.project, Detail: output.Count(len(missing), "ref") + " that the repository lacks", Reason: im.why}
	return d.perform(ctx, im.Confirmation, act, " that the repository does not have", func(err error) error {
		im.pruned = d.deleted
		return err
	})
}

// reportPruned reports a ref that --prune did not delete.
func (im *Importer) reportPruned(ref refdb.Ref, result string) {
	switch result {
	case "changed":
		im.Different++
		im.print(difference{ref: ref.Name, result: "different", global: ref.Value, detail: "not in the repository, and changed meanwhile"})
	case "locked":
		im.Locked++
		im.print(difference{ref: ref.Name, result: "locked", global: ref.Value, detail: "not in the repository"})
	}
}

// missing lists the refs that only the database has. It reads the repository after the database, so
// that a ref that is pushed meanwhile is found in both.
func (im *Importer) missing(ctx context.Context, repo *gitrepo.Repo) ([]refdb.Ref, error) {
	var global []refdb.Ref
	for ref, err := range im.Refs(ctx, im.db, im.project, "", false) {
		if err != nil {
			return nil, err
		}
		if im.all || config.GuardedByDefault(ref.Name) {
			global = append(global, ref)
		}
	}
	here := make(map[string]bool)
	from := im.localRefs(repo)
	from.skipped = func(string) {}
	for ref, err := range from.refs(ctx) {
		if err != nil {
			return nil, err
		}
		here[ref.Name] = true
	}
	return slices.DeleteFunc(global, func(ref refdb.Ref) bool { return here[ref.Name] }), nil
}

// localRefs reads the refs of a repository for an import or a comparison.
type localRefs struct {
	repo *gitrepo.Repo
	all  bool // also refs that Gerrit keeps out of the database, and HEAD
	// skipped is called for each ref that is left out, refused for each that git
	// can't read.
	skipped func(ref string)
	refused func(complaint string)
}

// refs iterates over the refs in byte order of their names.
func (l *localRefs) refs(ctx context.Context) iter.Seq2[gitrepo.Ref, error] {
	return func(yield func(gitrepo.Ref, error) bool) {
		if l.all {
			head, err := l.repo.Head(ctx)
			// HEAD sorts before refs/.
			if !yield(head, err) || err != nil {
				return
			}
		}
		for ref, err := range l.repo.Refs(ctx, l.warn) {
			if err == nil && !l.all && !config.GuardedByDefault(ref.Name) {
				l.skipped(ref.Name)
				continue
			}
			if !yield(ref, err) || err != nil {
				return
			}
		}
	}
}

func (l *localRefs) warn(line string) {
	l.refused("git says: " + strings.TrimPrefix(line, "warning: "))
}

const skipHelp = `By default, refs that Gerrit keeps out of the database are left out: refs/changes/* except .../meta and
.../robot-comments, refs/cache-automerge/*, refs/draft-comments/*, refs/multi-site/*; and so is HEAD, which is local to
each site. --all includes them.`
