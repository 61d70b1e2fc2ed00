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
		Long: `Set for which sites a new server of the database waits, to wait or synchronous: after a restart, a promotion or a replacement of the server,
nothing is written until the sites have compared what they know with what the server has.

wait, the default: for all sites, but for those that have stopped, and for silent ones about which another site has
testified. If a site and the database's server are lost at the same moment, nobody can testify about that site: all
sites refuse pushes until refdbctl recover --without SITE.

synchronous: not for sites that were silent when the server was replaced, nor for those that have not reported by their
stale-after later. So pushes go on without a command. Set it only if each fail-over of yours promotes a standby that has
every acknowledged commit: Patroni with synchronous_mode_strict, or a managed service that replicates synchronously. If
that is not so, acknowledged pushes that only such a site knows are lost, and found only once it is back: then the
database halts. All sites that run still compare, and what they miss halts the database under each policy.

A database that is restored from a backup has the policy of that time: run refdbctl recover policy set wait before any
site's daemon reaches it. A site that knows a later wait restores that by itself.

The command requires the owner of the database's tables. The audit records it.

Fields: ` + output.Names(policyColumns),
		Example:   `  refdbctl recover policy set synchronous --reason "RDS Multi-AZ: fail-overs lose no commit"`,
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
