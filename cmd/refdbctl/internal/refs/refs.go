// Package refs has the commands that read, change, import, compare and follow refs: refdbctl refs
// and watch.
package refs

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/refvalue"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// app has the commands as methods.
type app struct{ *cli.Run }

// Command returns the group of commands.
func Command(r *cli.Run) *cobra.Command {
	a := &app{r}
	return cli.Group("refs", "Read, change, import and compare refs",
		a.getCommand(), a.listCommand(), a.logCommand(), a.putCommand(), a.deleteCommand(), a.rollbackCommand(),
		a.importCommand(), a.verifyCommand(), a.purgeTombstonesCommand())
}

// projectRef is a ref with its project.
type projectRef struct {
	project string
	refdb.Ref
}

func refColumns() []output.Column[projectRef] {
	return []output.Column[projectRef]{
		{Name: "project", Value: func(r projectRef) any { return r.project }, Hidden: true},
		{Name: "value", Value: func(r projectRef) any { return output.OrNil(r.Value != refdb.Unknown, string(r.Value)) }},
		{Name: "state", Value: func(r projectRef) any { return refvalue.State(r.Value) }, Hidden: true},
		{Name: "time", Value: func(r projectRef) any { return output.OrNil(!r.Time.IsZero(), r.Time) }, Hidden: true},
		{Name: "ref", Value: func(r projectRef) any { return r.Name }},
	}
}

const stateHelp = `
(state: present, deleted or unknown; time: time of the last change, by the database's clock)`

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get PROJECT REF",
		Short: "Print the value of a ref",
		Long: `Print the value of a ref. The exit status is 1 if the ref does not exist: it is unknown to the database, or deleted.
JSON and CSV are printed nevertheless, and distinguish the two cases.

Fields: ` + output.Names(refColumns()) + stateHelp,
		Example: `  refdbctl refs get my/project refs/heads/main`,
		Args:    cobra.ExactArgs(2),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			project, name := args[0], args[1]
			if err := driver.CheckKey(project, name); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				limited, cancel := a.Limited(ctx)
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
	case a.Format != output.Table:
		err = output.One(a.Out, a.Format, output.Palette{}, refColumns(), r)
	case !r.Value.IsAbsent():
		_, err = fmt.Fprintln(a.Out, output.Escape(string(r.Value)))
	}
	switch {
	case err != nil:
		return err
	case r.Value == refdb.Unknown:
		return exit.With(exit.Failed, fmt.Sprintf("no such ref: %s %s", r.project, r.Name))
	case r.Value.IsDeleted():
		return exit.With(exit.Failed, fmt.Sprintf("no such ref: %s %s was deleted", r.project, r.Name))
	}
	return nil
}

func (a *app) listCommand() *cobra.Command {
	var prefix string
	var deleted bool
	var at cli.Moment
	cmd := &cobra.Command{
		Use:   "list PROJECT",
		Short: "List a project's refs, as they are or as they were",
		Long: `List a project's refs and their values, in byte order of their names. They are printed as they are read, however many
there are. A project that does not exist is an error (exit status 1).

--at TIME lists the refs as they were, in one consistent state of the past. TIME is ` + cli.MomentHelp + `

Fields: ` + output.Names(refColumns()) + stateHelp,
		Example: `  refdbctl refs list my/project --prefix refs/heads/
  refdbctl refs list my/project --deleted -o csv
  refdbctl refs list my/project --at "2h ago"`,
		Args: cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			project := args[0]
			if err := driver.CheckProject(project); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				w := output.NewWriter(a.Out, a.Format, a.Palette(a.Out), refColumns())
				refs := a.Refs(ctx, db, project, prefix, deleted)
				if at.Given() {
					position, err := at.Resolve(ctx, a.Run, db, project)
					if err != nil {
						return err
					}
					refs = a.RefsAt(ctx, db, project, prefix, deleted, position)
				}
				empty := true
				for ref, err := range refs {
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
				if at.Given() {
					return a.RequireRecorded(ctx, db, project)
				}
				return a.RequireProject(ctx, db, project)
			})
		}),
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only refs that start with `prefix`")
	cmd.Flags().BoolVar(&deleted, "deleted", false, "include deleted refs, which have a zero ID")
	at.AddFlag(cmd)
	return cmd
}

// refChange holds the arguments and the result of "refs put" and "refs delete".
type refChange struct {
	project, ref string
	old, new     refdb.Value

	oldText  string
	force    bool
	why      cli.Reason
	anything bool
	adopt    bool
	token    int64
	owner    string
	fence    string
}

func (c *refChange) addFlags(a *app, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.oldText, "old", "", `only if the ref has this `+"`value`"+`; "none": only if it does not exist`)
	c.why.AddFlag(cmd)
	flags.BoolVar(&c.force, "force", false, "whatever value the ref has")
	flags.BoolVar(&c.anything, "string", false, "values may be any string, not only object IDs and \"ref: NAME\"")
	flags.BoolVar(&c.adopt, "adopt", false, "also if the database does not know the ref, whatever --old says")
	flags.Int64Var(&c.token, "token", 0, "only while --owner's lock with this `token` (REFDB_TOKEN of \"refdbctl lock\") stands on the ref")
	flags.StringVar(&c.owner, "owner", a.Env("REFDB_OWNER"), "`name` of the owner of --token's lock, as in \"refdbctl locks list\" (default: REFDB_OWNER)")
	flags.StringVar(&c.fence, "fence", "", "--token's lock is on this `ref`, such as the row of a lease, not on the ref to be changed")
	cmd.MarkFlagsMutuallyExclusive("old", "force")
	cmd.MarkFlagsMutuallyExclusive("adopt", "force")
	cmd.MarkFlagsMutuallyExclusive("token", "force")
	for _, name := range []string{"old", "token", "owner", "fence"} { // no files
		cli.Must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
}

const putHelp = `
--old gives the value that the ref must have for the change to be made: a full object ID, "ref: NAME", or "none" (or a
zero ID) if the ref must not exist. If the ref has another value, nothing is changed, the message names that value,
and the exit status is 5. --force makes the change whatever the value is, and shows the previous value.

While a process holds a fresh lock on the ref, the change is refused with exit status 3, even with --force. The holder
passes --token and --owner: then the change is made if that lock still stands, else the exit status is 4. A command
that "refdbctl lock" runs finds both in its environment, as REFDB_TOKEN and REFDB_OWNER, and need not pass --owner.
With --fence REF the change is made if the token's lock stands on REF, whatever ref is changed: under a lease, REF is
$REFDB_REFS.

Fields: `

func (a *app) putCommand() *cobra.Command {
	var c refChange
	cmd := &cobra.Command{
		Use:   "put PROJECT REF NEW (--old OLD | --force)",
		Short: "Set a ref's value if it has the expected value",
		Long: `Set a ref's value if it has the expected value. NEW is a full object ID (40 or 64 hex digits), "ref: NAME" or, with
--string, any string.
` + putHelp + output.Names(changeColumns()),
		Example: `  refdbctl refs put my/project refs/heads/main $NEW --old $OLD
  refdbctl refs put my/project refs/heads/topic $NEW --old none
  refdbctl refs put my/project refs/multi-site/version 7 --string --force`,
		Args: cobra.ExactArgs(3),
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, args []string) (err error) {
			if c.new, err = refvalue.Parse(args[2], c.anything); err != nil {
				return err
			}
			if c.new.IsDeleted() {
				return exit.Usage("a zero ID means a deleted ref: use refdbctl refs delete")
			}
			return c.run(ctx, a, cmd, args)
		}),
	}
	c.addFlags(a, cmd)
	return cmd
}

func (c *refChange) run(ctx context.Context, a *app, cmd *cobra.Command, args []string) (err error) {
	c.project, c.ref = args[0], args[1]
	if !c.force && !cmd.Flags().Changed("old") {
		return exit.Usage(`give --old OLD, the value that the ref must have ("none" if it must not exist), or --force to change it whatever its value is`)
	}
	if !c.force && c.why != "" {
		return exit.Usage("--reason requires --force: the audit does not record other changes")
	}
	if err := driver.CheckKey(c.project, c.ref); err != nil {
		return err
	}
	if !c.force {
		if c.old, err = refvalue.ParseOld(c.oldText, c.anything); err != nil {
			return fmt.Errorf("--old: %w", err)
		}
		if c.old.IsAbsent() && c.deletes() {
			return exit.Usage("--old none: a ref that does not exist can't be deleted")
		}
	}
	switch fenced := cmd.Flags().Changed("token"); {
	case fenced && c.token <= 0:
		return exit.Usage(fmt.Sprintf("--token %d: a token is a positive number, as in REFDB_TOKEN", c.token))
	case fenced && c.owner == "":
		return exit.Usage("--token needs the owner of the lock: give --owner NAME, or set REFDB_OWNER as refdbctl lock does")
	case !fenced && cmd.Flags().Changed("owner"):
		return exit.Usage("--owner needs the --token of the lock")
	case !fenced && cmd.Flags().Changed("fence"):
		return exit.Usage("--fence needs the --token of the lock on that ref")
	}
	if cmd.Flags().Changed("fence") {
		if err := driver.CheckKey(c.project, c.fence); err != nil {
			return fmt.Errorf("--fence: %w", err)
		}
	}
	return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
		if err := c.applyAudited(ctx, a, db); err != nil {
			return err
		}
		return a.printChange(c)
	})
}

// applyAudited makes the change. With --force that is recorded in the audit.
func (c *refChange) applyAudited(ctx context.Context, a *app, db *refdb.DB) error {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	if !c.force {
		return c.apply(limited, db)
	}
	what := cli.Act{Action: "refs put --force", Project: c.project, Detail: c.ref + " to " + string(c.new), Reason: c.why}
	if c.deletes() {
		what.Action, what.Detail = "refs delete --force", c.ref
	}
	return a.Audited(ctx, db, what, func() (string, error) {
		if err := c.apply(limited, db); err != nil {
			return "", err
		}
		return "it held " + refvalue.Describe(c.old), nil
	})
}

// deletes reports whether the ref is to be deleted.
func (c *refChange) deletes() bool { return c.new == refdb.Unknown }

func (c *refChange) apply(ctx context.Context, db *refdb.DB) (err error) {
	switch {
	case c.force && c.deletes():
		c.old, err = forceDelete(ctx, db, c.project, c.ref)
		return err
	case c.force:
		c.old, err = db.Put(ctx, c.project, c.ref, c.new)
		return err
	}
	var options []refdb.UpdateOption
	if c.adopt {
		options = append(options, refdb.Adopt())
	}
	switch {
	case c.fence != "":
		options = append(options, refdb.Under(c.owner, refdb.Token(c.token), c.fence), refdb.AnyRef())
	case c.token != 0:
		options = append(options, refdb.Under(c.owner, refdb.Token(c.token), c.ref))
	}
	u := refdb.Update{Ref: c.ref, Old: c.old, New: c.new}
	if c.deletes() {
		u.New = refdb.Deleted
	}
	return db.Update(ctx, c.project, []refdb.Update{u}, options...)
}

func changeColumns() []output.Column[*refChange] {
	return []output.Column[*refChange]{
		{Name: "project", Value: func(c *refChange) any { return c.project }},
		{Name: "ref", Value: func(c *refChange) any { return c.ref }},
		{Name: "old", Value: func(c *refChange) any { return output.OrNil(!c.old.IsAbsent(), string(c.old)) }},
		{Name: "new", Value: func(c *refChange) any { return output.OrNil(!c.new.IsAbsent(), string(c.new)) }},
	}
}

func (a *app) printChange(c *refChange) error {
	return cli.PrintOne(a.Run, changeColumns(), c, fmt.Sprintf("%s %s: %s -> %s", output.Escape(c.project), output.Escape(c.ref),
		output.Escape(refvalue.Describe(c.old)), output.Escape(refvalue.Describe(c.new))))
}
