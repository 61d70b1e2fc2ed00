package main

import (
	"context"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
)

func (a *app) refsCommand() *cobra.Command {
	return group("refs", "Read, change, import and compare refs",
		a.refsGetCommand(), a.refsListCommand(), a.refsPutCommand(), a.refsDeleteCommand(),
		a.refsImportCommand(), a.refsVerifyCommand(), a.refsPurgeTombstonesCommand())
}

// projectRef is a ref and its project.
type projectRef struct {
	project string
	refdb.Ref
}

func refColumns() []output.Column[projectRef] {
	return []output.Column[projectRef]{
		{Name: "project", Value: func(r projectRef) any { return r.project }, Hidden: true},
		{Name: "value", Value: func(r projectRef) any { return orNil(r.Value != refdb.Unknown, string(r.Value)) }},
		{Name: "state", Value: func(r projectRef) any { return state(r.Value) }, Hidden: true},
		{Name: "time", Value: func(r projectRef) any { return orNil(!r.Time.IsZero(), r.Time) }, Hidden: true},
		{Name: "ref", Value: func(r projectRef) any { return r.Name }},
	}
}

const stateHelp = `(state: present, deleted or unknown; time: of the last change, by the database's clock)`

func (a *app) refsGetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get PROJECT REF",
		Short: "Print what a ref holds",
		Long: `Print what a ref holds. The status is 1 if the ref is not there: unknown to the database, or
deleted. JSON and CSV are printed nevertheless, and tell the two apart.

Fields: ` + output.Names(refColumns()) + stateHelp,
		Example: `  refdbctl refs get my/project refs/heads/main`,
		Args:    cobra.ExactArgs(2),
		RunE: a.body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			project, name := args[0], args[1]
			if err := refdb.CheckKey(project, name); err != nil {
				return err
			}
			return a.withDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				limited, cancel := a.limited(ctx)
				defer cancel()
				rows, err := db.GetAll(limited, project, name)
				if err != nil {
					return err
				}
				ref := refdb.Ref{Name: name}
				if len(rows) == 1 {
					ref = rows[0]
				}
				return a.printRef(projectRef{project, ref})
			})
		}),
	}
}

func (a *app) printRef(r projectRef) error {
	var err error
	switch {
	case a.format != output.Table:
		err = output.One(a.out, a.format, output.Palette{}, refColumns(), r)
	case !r.Value.IsAbsent():
		_, err = fmt.Fprintln(a.out, output.Escape(string(r.Value)))
	}
	switch {
	case err != nil:
		return err
	case r.Value == refdb.Unknown:
		return &status{exitError, fmt.Sprintf("no such ref: %s %s", r.project, r.Name)}
	case r.Value.IsDeleted():
		return &status{exitError, fmt.Sprintf("no such ref: %s %s was deleted", r.project, r.Name)}
	}
	return nil
}

func (a *app) refsListCommand() *cobra.Command {
	var prefix string
	var deleted bool
	cmd := &cobra.Command{
		Use:   "list PROJECT",
		Short: "List a project's refs",
		Long: `List a project's refs and what they hold, in byte order of their names. They are printed as they are
read, however many there are. A project that is not there is an error (status 1).

Fields: ` + output.Names(refColumns()) + stateHelp,
		Example: `  refdbctl refs list my/project --prefix refs/heads/
  refdbctl refs list my/project --deleted -o csv`,
		Args: cobra.ExactArgs(1),
		RunE: a.body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			project := args[0]
			if err := refdb.CheckProject(project); err != nil {
				return err
			}
			return a.withDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				w := output.NewWriter(a.out, a.format, a.palette(a.out), refColumns())
				empty := true
				for ref, err := range a.refs(ctx, db, project, prefix, deleted) {
					if err != nil {
						return err
					}
					if err := w.Write(projectRef{project, ref}); err != nil {
						return err
					}
					empty = false
				}
				if err := w.Close(); err != nil || !empty {
					return err
				}
				return a.isThere(ctx, db, project)
			})
		}),
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only refs that start with `prefix`")
	cmd.Flags().BoolVar(&deleted, "deleted", false, "deleted refs too, which hold a zero ID")
	return cmd
}

func (a *app) refs(ctx context.Context, db *refdb.DB, project, prefix string, deleted bool) iter.Seq2[refdb.Ref, error] {
	var options []refdb.ListOption
	if deleted {
		options = append(options, refdb.IncludeDeleted())
	}
	return paced(ctx, a, func(ctx context.Context) iter.Seq2[refdb.Ref, error] {
		return db.Refs(ctx, project, prefix, options...)
	})
}
