package refs

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// difference is a ref that verify or import reports.
type difference struct {
	ref, result   string
	local, global refdb.Value
	detail        string
}

var differenceColumns = []output.Column[difference]{
	{Name: "result", Value: func(d difference) any { return d.result }},
	{Name: "local", Value: func(d difference) any { return output.OrNil(!d.local.IsAbsent(), string(d.local)) },
		Text: func(d difference) string { return output.OrDash(!d.local.IsAbsent(), output.Escape(string(d.local))) }},
	{Name: "global", Value: func(d difference) any { return output.OrNil(d.global != refdb.Unknown, string(d.global)) },
		Text: func(d difference) string { return output.OrDash(!d.global.IsAbsent(), output.Escape(string(d.global))) }},
	{Name: "ref", Value: func(d difference) any { return d.ref }},
	{Name: "detail", Value: func(d difference) any { return d.detail }},
}

func (a *app) verifyCommand() *cobra.Command {
	var path string
	var all bool
	cmd := &cobra.Command{
		Use:   "verify PROJECT --repo PATH",
		Short: "Compare a repository's refs with the database's, both ways",
		Long: `Compare the refs of the Git repository at PATH with the database's refs of PROJECT, both ways, in constant memory.
Differences are listed, equal refs are counted. The exit status is 1 if there is any difference, or no such project. A
ref that the database does not know and a deleted ref are both absent. Refs that move during the comparison may be
listed: check those again.

` + skipHelp + `

JSON: an object with "differences", a list of ` + output.Names(differenceColumns) + ` (result: local_only, global_only,
different, or refused for a ref that git can't read); and project, equal, local_only, global_only, different, skipped,
refused, ok.`,
		Example: `  refdbctl refs verify my/project --repo /srv/git/my/project.git`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			project := args[0]
			if err := driver.CheckProject(project); err != nil {
				return err
			}
			repo, err := gitrepo.Open(ctx, path)
			if err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				v := &verification{app: a, project: project,
					report: output.NewReport(a.Out, a.Format, a.Palette(a.Out), "differences", differenceColumns)}
				return v.run(ctx, db, repo, all)
			})
		}),
	}
	cmd.Flags().StringVar(&path, "repo", "", "the repository's `path`")
	cli.Must(cmd.MarkFlagRequired("repo"))
	cmd.Flags().BoolVar(&all, "all", false, "include HEAD, and refs that Gerrit keeps out of the database")
	return cmd
}

// verification compares a repository with the database. It reads both in byte order of the
// refs' names, at the same time.
type verification struct {
	*app
	project string
	report  *output.Writer[difference]

	equal, localOnly, globalOnly, different, skipped, refused int
}

func (v *verification) run(ctx context.Context, db *refdb.DB, repo *gitrepo.Repo, all bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	local := &localRefs{repo: repo, all: all,
		skipped: func(string) { v.skipped++ },
		refused: func(complaint string) {
			v.refused++
			v.report.Write(difference{result: "refused", detail: complaint})
		},
	}
	nextLocal, stopLocal := iter.Pull2(local.refs(ctx))
	defer stopLocal()
	nextGlobal, stopGlobal := iter.Pull2(v.globalRefs(ctx, db, all))
	defer stopGlobal()

	l, lerr, lok := nextLocal()
	g, gerr, gok := nextGlobal()
	for lok || gok {
		if lerr != nil {
			return lerr
		}
		if gerr != nil {
			return gerr
		}
		first, err := v.compare(l, lok, g, gok)
		if err != nil {
			return err
		}
		if first <= 0 {
			l, lerr, lok = nextLocal()
		}
		if first >= 0 {
			g, gerr, gok = nextGlobal()
		}
	}
	if v.equal+v.globalOnly+v.different == 0 {
		if err := v.RequireProject(ctx, db, v.project); err != nil {
			return errors.Join(v.finish(), err)
		}
	}
	return v.conclude()
}

// globalRefs iterates over the database's refs that are compared.
func (v *verification) globalRefs(ctx context.Context, db *refdb.DB, all bool) iter.Seq2[refdb.Ref, error] {
	return func(yield func(refdb.Ref, error) bool) {
		for ref, err := range v.Refs(ctx, db, v.project, "", false) {
			if err == nil && !all && !config.GuardedByDefault(ref.Name) {
				continue
			}
			if !yield(ref, err) {
				return
			}
		}
	}
}

// compare counts and reports the ref with the smaller name, or both if the names are
// equal. It returns -1 if that is the local one, 1 if it is the global one, 0 for both, and an
// error of printing.
func (v *verification) compare(l gitrepo.Ref, lok bool, g refdb.Ref, gok bool) (first int, err error) {
	switch {
	case !gok || lok && l.Name < g.Name:
		v.localOnly++
		d := difference{ref: l.Name, result: "local_only", local: refdb.Value(l.Value)}
		if err := driver.CheckKey(v.project, l.Name); err != nil {
			d.detail = err.Error()
		}
		return -1, v.report.Write(d)
	case !lok || g.Name < l.Name:
		v.globalOnly++
		return 1, v.report.Write(difference{ref: g.Name, result: "global_only", global: g.Value})
	case string(g.Value) != l.Value:
		v.different++
		return 0, v.report.Write(difference{ref: l.Name, result: "different", local: refdb.Value(l.Value), global: g.Value})
	}
	v.equal++
	return 0, nil
}

// differences returns how many refs differ.
func (v *verification) differences() int {
	return v.localOnly + v.globalOnly + v.different + v.refused
}

// finish completes the report.
func (v *verification) finish() error {
	return v.report.CloseWith(
		output.Field{Name: "project", Value: v.project},
		output.Field{Name: "equal", Value: v.equal},
		output.Field{Name: "local_only", Value: v.localOnly},
		output.Field{Name: "global_only", Value: v.globalOnly},
		output.Field{Name: "different", Value: v.different},
		output.Field{Name: "skipped", Value: v.skipped},
		output.Field{Name: "refused", Value: v.refused},
		output.Field{Name: "ok", Value: v.differences() == 0},
	)
}

// conclude completes the report, and prints the summary or returns it as an error.
func (v *verification) conclude() error {
	if err := v.finish(); err != nil {
		return err
	}
	summary := fmt.Sprintf("%d equal, %d local only, %d global only, %d different, %d skipped, %d refused",
		v.equal, v.localOnly, v.globalOnly, v.different, v.skipped, v.refused)
	if v.differences() > 0 {
		return exit.With(exit.Failed, fmt.Sprintf("%s: local and global differ: %s", v.project, summary))
	}
	return v.PrintSummary(v.project, summary)
}
