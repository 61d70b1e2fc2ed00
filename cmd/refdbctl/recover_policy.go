package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

var policyColumns = []output.Column[driver.PolicyMark]{
	{Name: "policy", Value: func(p driver.PolicyMark) any { return string(p.Policy) }},
	{Name: "since", Value: func(p driver.PolicyMark) any { return output.OrNil(!p.Since.IsZero(), p.Since) },
		Text: func(p driver.PolicyMark) string {
			return output.OrDash(!p.Since.IsZero(), p.Since.Format(time.RFC3339))
		}},
}

func (a *app) recoverPolicyCommand() *cobra.Command {
	return cli.Group("policy", "Decide in advance for which sites a new server of the database waits", a.recoverPolicyShowCommand(), a.recoverPolicySetCommand())
}

func (a *app) recoverPolicyShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show the policy",
		Long: `Show for which sites a new server of the database waits.

Fields: ` + output.Names(policyColumns) + `
(policy: wait or synchronous, see refdbctl recover policy set; since: when it was set)`,
		Example: `  refdbctl recover policy show`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				now, err := a.admission(ctx, db.Recovery().Admission)
				if err != nil {
					return err
				}
				return a.printPolicy(now.Policy)
			})
		}),
	}
}

func (a *app) recoverPolicySetCommand() *cobra.Command {
	var why cli.Reason
	cmd := &cobra.Command{
		Use:   "set POLICY --reason TEXT",
		Short: "Set the policy",
		Long: `Set for which sites a new server of the database waits. After a restart, a promotion or a replacement of the server,
nothing is written until these sites have compared what they know with what the server has. POLICY is one of:

wait, the default: the server waits for all sites except those that were shut down cleanly, and silent sites about which
another site has testified. If a site and the database's server are lost at the same moment, no site can testify about
that site, and all sites refuse pushes until refdbctl recover --without SITE.

synchronous: the server does not wait for sites that were silent when it was replaced, nor, once their stale-after has
passed, for sites that have not reported. So pushes go on without a command. Set it only if every failover promotes a
standby that has every acknowledged commit: Patroni with synchronous_mode_strict, or a managed service that replicates
synchronously. Otherwise acknowledged pushes that only such a site knows are lost, and the loss is found only once that
site is back: then the database halts. Under either policy all running sites compare, and a change that a site knows and
the server lacks halts the database.

A database that was restored from a backup has the policy of that time. Before any site's daemon reaches the database,
run refdbctl recover policy set wait. A site that knows of a later change to wait restores wait by itself.

The command requires the owner of the database's tables. The audit log records it.

Fields: ` + output.Names(policyColumns),
		Example:   `  refdbctl recover policy set synchronous --reason "RDS Multi-AZ: failovers lose no commit"`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{string(driver.Wait), string(driver.Synchronous)},
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			p := driver.Policy(args[0])
			switch {
			case p != driver.Wait && p != driver.Synchronous:
				return exit.Usage(fmt.Sprintf("%q is no policy: give %s or %s", args[0], driver.Wait, driver.Synchronous))
			case why == "":
				return exit.Usage("--reason TEXT is required: the audit records it")
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return a.setPolicy(ctx, db, p, why) })
		}),
	}
	why.AddFlag(cmd)
	return cmd
}

func (a *app) setPolicy(ctx context.Context, db *refdb.DB, p driver.Policy, why cli.Reason) error {
	if err := a.RequireRights(ctx, db, "recover"); err != nil {
		return err
	}
	var now driver.Admission
	err := a.Audited(ctx, db, cli.Act{Action: "recover policy set", Detail: string(p), Reason: why}, func() (string, error) {
		limited, cancel := a.Limited(ctx)
		defer cancel()
		var err error
		now, err = db.Recovery().SetPolicy(limited, p)
		return string(p), err
	})
	if err != nil {
		return err
	}
	return a.printPolicy(now.Policy)
}

func (a *app) printPolicy(p driver.PolicyMark) error {
	return output.One(a.Out, a.Format, a.Palette(a.Out), policyColumns, p)
}
