package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// put is one change of one ref.
type put struct {
	project, ref string
	old, new     refdb.Value

	oldText  string
	force    bool
	anything bool
	adopt    bool
	token    int64
	owner    string
}

func (p *put) addFlags(a *app, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&p.oldText, "old", "", `only if the ref holds this `+"`value`"+`; "none": only if it is not there`)
	flags.BoolVar(&p.force, "force", false, "whatever the ref holds")
	flags.BoolVar(&p.anything, "string", false, "values may be any string, not only object IDs and \"ref: NAME\"")
	flags.BoolVar(&p.adopt, "adopt", false, "also if the database does not know the ref at all, whatever --old says")
	flags.Int64Var(&p.token, "token", 0, "only while --owner's lock with this `token` stands on the ref, as \"refdbctl lock\" gives in REFDB_TOKEN")
	flags.StringVar(&p.owner, "owner", a.env("REFDB_OWNER"), "whose lock --token is: a `name` as in \"refdbctl locks list\" (default: REFDB_OWNER)")
	cmd.MarkFlagsMutuallyExclusive("old", "force")
	cmd.MarkFlagsMutuallyExclusive("adopt", "force")
	cmd.MarkFlagsMutuallyExclusive("token", "force")
	for _, name := range []string{"old", "token", "owner"} { // no files
		must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
}

const putHelp = `
--old says what the ref must hold for the change to be made: a full object ID, "ref: NAME", or "none" (or a
zero ID) if it must not be there. If it holds something else nothing is changed, its value is named, and the
status is 5. --force changes it whatever it holds, and shows what that was.

While somebody holds a fresh lock on the ref the change is refused with status 3, with --force too.
The holder passes its --token and --owner: then the change is made if that lock still stands, else
the status is 4. A command that "refdbctl lock" runs finds both in its environment, as REFDB_TOKEN
and REFDB_OWNER, and need not pass --owner.

Fields: `

func (a *app) refsPutCommand() *cobra.Command {
	var p put
	cmd := &cobra.Command{
		Use:   "put PROJECT REF NEW (--old OLD | --force)",
		Short: "Change what a ref holds, if it holds what is expected",
		Long: `Change what a ref holds, if it holds what is expected. NEW is a full object ID (40 or 64 hex
digits), "ref: NAME" or, with --string, any string.
` + putHelp + output.Names(changeColumns()),
		Example: `  refdbctl refs put my/project refs/heads/main $NEW --old $OLD
  refdbctl refs put my/project refs/heads/topic $NEW --old none
  refdbctl refs put my/project refs/multi-site/version 7 --string --force`,
		Args: cobra.ExactArgs(3),
		RunE: a.body(func(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
			if p.new, err = parseValue(args[2], p.anything); err != nil {
				return err
			}
			if p.new.IsDeleted() {
				return usage("a zero ID means a deleted ref: use refdbctl refs delete")
			}
			return p.run(ctx, a, cmd, args)
		}),
	}
	p.addFlags(a, cmd)
	return cmd
}

func (p *put) run(ctx context.Context, a *app, cmd *cobra.Command, args []string) (err error) {
	p.project, p.ref = args[0], args[1]
	if !p.force && !cmd.Flags().Changed("old") {
		return usage(`give --old OLD, what the ref must hold ("none" if it must not be there), or --force to change it whatever it holds`)
	}
	if err := refdb.CheckKey(p.project, p.ref); err != nil {
		return err
	}
	if !p.force {
		if p.old, err = parseOld(p.oldText, p.anything); err != nil {
			return fmt.Errorf("--old: %w", err)
		}
		if p.old.IsAbsent() && p.deletes() {
			return usage("--old none: a ref that is not there can't be deleted")
		}
	}
	switch fenced := cmd.Flags().Changed("token"); {
	case fenced && p.token <= 0:
		return usage(fmt.Sprintf("--token %d: a token is a positive number, as in REFDB_TOKEN", p.token))
	case fenced && p.owner == "":
		return usage("--token needs the owner of the lock: give --owner NAME, or set REFDB_OWNER as refdbctl lock does")
	case !fenced && cmd.Flags().Changed("owner"):
		return usage("--owner needs the --token of the lock")
	}
	return a.withDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
		limited, cancel := a.limited(ctx)
		defer cancel()
		if err := p.apply(limited, db); err != nil {
			return err
		}
		return a.printChange(p)
	})
}

// deletes reports whether the ref is to be deleted, by a zero ID as long as what it held.
func (p *put) deletes() bool { return p.new == refdb.Unknown }

func (p *put) apply(ctx context.Context, db *refdb.DB) (err error) {
	switch {
	case p.force && p.deletes():
		p.old, err = forceDelete(ctx, db, p.project, p.ref)
		return err
	case p.force:
		p.old, err = db.Put(ctx, p.project, p.ref, p.new)
		return err
	}
	var options []refdb.UpdateOption
	if p.adopt {
		options = append(options, refdb.Adopt())
	}
	if p.token != 0 {
		options = append(options, refdb.Under(p.owner, refdb.Token(p.token), p.ref))
	}
	u := refdb.Update{Ref: p.ref, Old: p.old, New: p.new}
	if p.deletes() {
		u.New = tombstone(p.old)
	}
	return db.Update(ctx, p.project, []refdb.Update{u}, options...)
}

func changeColumns() []output.Column[*put] {
	return []output.Column[*put]{
		{Name: "project", Value: func(p *put) any { return p.project }},
		{Name: "ref", Value: func(p *put) any { return p.ref }},
		{Name: "old", Value: func(p *put) any { return orNil(!p.old.IsAbsent(), string(p.old)) }},
		{Name: "new", Value: func(p *put) any { return orNil(!p.new.IsAbsent(), string(p.new)) }},
	}
}

func (a *app) printChange(p *put) error {
	if a.format != output.Table {
		return output.One(a.out, a.format, output.Palette{}, changeColumns(), p)
	}
	_, err := fmt.Fprintf(a.out, "%s %s: %s -> %s\n", output.Escape(p.project), output.Escape(p.ref),
		output.Escape(describe(p.old)), output.Escape(describe(p.new)))
	return err
}
