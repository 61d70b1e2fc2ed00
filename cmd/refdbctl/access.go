package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
)

func (a *app) accessCommand() *cobra.Command {
	return cli.Group("access", "Decide what clients of refdb-server may do", a.accessAllowCommand(), a.accessListCommand(), a.accessRemoveCommand())
}

var ruleColumns = []output.Column[access.Rule]{
	{Name: "id", Value: func(r access.Rule) any { return r.ID }},
	{Name: "subject", Value: func(r access.Rule) any { return r.Subject }},
	{Name: "right", Value: func(r access.Rule) any { return string(r.Right) }},
	{Name: "projects", Value: func(r access.Rule) any { return string(r.Projects) }},
	{Name: "refs", Value: func(r access.Rule) any { return string(r.Refs) }},
	{Name: "created", Value: func(r access.Rule) any { return output.OrNil(!r.Created.IsZero(), r.Created) }, Hidden: true},
	output.Optional("by", func(r access.Rule) string { return r.By }),
}

// describe returns what a rule allows.
func describe(r access.Rule) string {
	return fmt.Sprintf("%s: %s %s %s", r.Subject, r.Right, r.Projects, r.Refs)
}

func (a *app) accessAllowCommand() *cobra.Command {
	var why cli.Reason
	cmd := &cobra.Command{
		Use:   "allow SUBJECT RIGHT PROJECTS REFS",
		Short: "Give a subject a right on projects and refs",
		Long: `Give a subject a right on projects and refs. Clients of refdb-server authenticate as a subject: by a token, by a JWT
(ISSUER:VALUE) or by a certificate (its URI). A subject may do what any of its rules allows; without a rule it may do
nothing. RIGHT is one of:

  read        read values, and compare them with others
  lock        lock refs, and read
  write       change refs, and read
  administer  all of these, and change refs of projects of which sites have repositories

PROJECTS and REFS are a name, PREFIX/* for all names below PREFIX/, or * for all names: quote them for the shell. Rules
never give access to the records of sites, tokens and rules.

Servers apply the rule within 10 seconds. An existing rule is left as it is.

Fields: ` + output.Names(ruleColumns),
		Example: `  refdbctl access allow ci-deploy lock my/project 'refs/locks/*'
  refdbctl access allow dashboard read '*' '*'
  refdbctl access allow k8s:system:serviceaccount:prod:deployer lock my/project 'refs/locks/*'`,
		Args: cobra.ExactArgs(4),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			r := access.Rule{Subject: args[0], Right: access.Right(args[1]), Projects: access.Pattern(args[2]), Refs: access.Pattern(args[3]), By: a.By()}
			if err := r.Check(); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return a.allow(ctx, db, r, why) })
		}),
	}
	why.AddFlag(cmd)
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var offered []string
		if len(args) == 1 {
			for _, r := range access.Rights {
				offered = append(offered, string(r))
			}
		}
		return offered, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

func (a *app) allow(ctx context.Context, db *refdb.DB, r access.Rule, why cli.Reason) error {
	if err := a.RequireRights(ctx, db, "access allow"); err != nil {
		return err
	}
	var added bool
	err := a.Audited(ctx, db, cli.Act{Action: "access allow", Detail: describe(r), Reason: why}, func() (_ string, err error) {
		limited, cancel := a.Limited(ctx)
		defer cancel()
		r, added, err = access.AddRule(limited, db, r)
		if err == nil && !added {
			return "it was there already", nil
		}
		return "", err
	})
	if err != nil {
		return err
	}
	if !added {
		a.Note("there is such a rule already: %s", r.ID)
	}
	return cli.PrintOne(a.Run, ruleColumns, r, fmt.Sprintf("%s  %s", r.ID, output.Escape(describe(r))))
}

func (a *app) accessListCommand() *cobra.Command {
	var subject, project string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the rules",
		Long: `List what the clients of refdb-server may do: see refdbctl access allow.

Fields: ` + output.Names(ruleColumns) + `
(by: who added the rule; created: when, by the database's clock)`,
		Example: `  refdbctl access list --subject ci-deploy
  refdbctl access list --project my/project`,
		Args: cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				limited, cancel := a.Limited(ctx)
				defer cancel()
				all, err := a.accessRecords(limited, db)
				if err != nil {
					return err
				}
				var listed []access.Rule
				for _, r := range all.Rules {
					if (subject == "" || r.Subject == subject) && (project == "" || r.Projects.Matches(project)) {
						listed = append(listed, r)
					}
				}
				return cli.PrintRows(a.Run, ruleColumns, cli.All(listed))
			})
		}),
	}
	cmd.Flags().StringVar(&subject, "subject", "", "only rules of this `subject`")
	cmd.Flags().StringVar(&project, "project", "", "only rules that apply to this `project`")
	return cmd
}

func (a *app) accessRemoveCommand() *cobra.Command {
	var why cli.Reason
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Remove a rule",
		Long: `Remove the rule with the given ID, as refdbctl access list shows it. Within 10 seconds no server applies the rule any
more. The subject's other rules may still allow the same.

Fields: ` + output.Names(ruleColumns),
		Example: `  refdbctl access remove 8d0f2b6c11a4e973 --reason "the job was removed"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return a.removeRule(ctx, db, args[0], why) })
		}),
	}
	why.AddFlag(cmd)
	return cmd
}

func (a *app) removeRule(ctx context.Context, db *refdb.DB, id string, why cli.Reason) error {
	if err := a.RequireRights(ctx, db, "access remove"); err != nil {
		return err
	}
	limited, cancel := a.Limited(ctx)
	all, err := a.accessRecords(limited, db)
	cancel()
	if err != nil {
		return err
	}
	for _, r := range all.Rules {
		if r.ID != id {
			continue
		}
		err := a.Audited(ctx, db, cli.Act{Action: "access remove", Detail: describe(r), Reason: why}, func() (string, error) {
			limited, cancel := a.Limited(ctx)
			defer cancel()
			err := access.RemoveRule(limited, db, id)
			if errors.Is(err, access.ErrNotFound) {
				return "another process removed it", nil
			}
			return "", err
		})
		if err != nil {
			return err
		}
		return cli.PrintOne(a.Run, ruleColumns, r, "removed "+output.Escape(describe(r)))
	}
	return exit.With(exit.Failed, "no such rule: "+id+" (refdbctl access list shows all)")
}
