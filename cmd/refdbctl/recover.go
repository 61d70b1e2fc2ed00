package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/recovery"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

// recoverArgs holds the arguments of "recover".
type recoverArgs struct {
	cli.Confirmation
	status  bool
	without []string
	why     cli.Reason
}

var lostColumns = []output.Column[driver.LostChange]{
	{Name: "project", Value: func(l driver.LostChange) any { return l.Project }},
	{Name: "ref", Value: func(l driver.LostChange) any { return l.Ref }},
	{Name: "old", Value: func(l driver.LostChange) any { return output.OrNil(l.Old != "", l.Old) },
		Text: func(l driver.LostChange) string { return output.OrDash(l.Old != "", l.Old.Abbrev()) }},
	{Name: "new", Value: func(l driver.LostChange) any { return output.OrNil(l.New != "", l.New) },
		Text: func(l driver.LostChange) string { return output.OrDash(l.New != "", l.New.Abbrev()) }},
	{Name: "made", Value: func(l driver.LostChange) any { return l.At }},
	output.Optional("by", func(l driver.LostChange) string { return l.By }),
	{Name: "site", Value: func(l driver.LostChange) any { return l.Witness }},
	{Name: "op", Value: func(l driver.LostChange) any { return l.Op }},
	{Name: "fate", Value: func(l driver.LostChange) any { return l.Fate },
		Text: func(l driver.LostChange) string { return output.OrDash(l.Fate != driver.Undecided, string(l.Fate)) }},
}

// An admission is the state of the database's server, with the sites that are awaited and unreachable.
type admission struct {
	driver.Admission
	unreachable []string
}

var admissionColumns = []output.Column[admission]{
	{Name: "server", Value: func(s admission) any { return s.Server }},
	{Name: "admitted", Value: func(s admission) any { return s.Admitted }},
	{Name: "undecided", Value: func(s admission) any { return s.Lost }},
	siteNames("waiting", func(s admission) []string { return s.Waiting() }),
	siteNames("without", func(s admission) []string { return witnesses(s, func(w driver.Witness) bool { return w.Without }) }),
	siteNames("unreachable", func(s admission) []string { return s.unreachable }),
	siteNames("testified", func(s admission) []string { return witnesses(s, driver.Witness.Testified) }),
	{Name: "policy", Value: func(s admission) any { return string(s.Policy.Policy) }},
}

func siteNames(column string, of func(admission) []string) output.Column[admission] {
	return output.Column[admission]{
		Name:  column,
		Value: func(s admission) any { return append([]string{}, of(s)...) },
		Text:  func(s admission) string { return output.OrDash(len(of(s)) > 0, strings.Join(of(s), ", ")) },
	}
}

// witnesses returns the names of some sites.
func witnesses(a admission, which func(driver.Witness) bool) (names []string) {
	for _, w := range a.Witnesses {
		if which(w) {
			names = append(names, w.Name)
		}
	}
	return names
}

func (a *app) recoverCommand() *cobra.Command {
	var r recoverArgs
	cmd := &cobra.Command{
		Use:   "recover --reason TEXT [--without SITE]",
		Short: "Make a database that went back in time writable again",
		Long: `Make a database writable again that has lost acknowledged changes, for example by a failover to a standby that lacked
them, or because a backup was restored; or whose new server some sites can't compare.

After each restart, promotion or replacement of the database's server, all sites compare what they know with what the
server has, automatically and within seconds; nothing is written before that. If something is missing, nothing is
written until this command has run. The command writes each lost change again whose ref still has the value from
before the change ("again"). Lost changes that contradict the database are left as they are and listed ("opposed"):
review them with refdbctl refs log, then push again, or set with refdbctl refs put, the values that should stand. Then
a new epoch of the history begins, all locks end except those that stand for pushes in progress, and the database is
writable.

The command does not wait for sites: if a site has not compared the server yet, the command names it and does nothing.
Start that site's daemon or, if the site won't be back soon, continue --without it. Changes that only that site knows
stay lost until it is back: then they are listed ("late").

The command may be interrupted, and run again by any operator. It requires the owner of the database's tables. On a
terminal it asks for confirmation; elsewhere --yes is required. --status only shows the state, with all changes that
were ever lost.

Fields: ` + output.Names(admissionColumns) + `
(server: its identity; undecided: number of lost changes that are not decided; waiting: sites that have not compared
the server; without: sites that were left out; unreachable: sites that are waited for now or would be after a restart,
and whose daemons don't run or can't reach the database; testified: silent sites about which another site has
testified, so that no server waits for them; policy: see refdbctl recover policy)
and for each lost change: ` + output.Names(lostColumns) + `
(made: the approximate time of the change; site: the site that knows it; fate: again, opposed, dropped for an
announced push that was not made, or late). JSON has the lost changes in a list, "lost"; CSV has only them.`,
		Example: `  refdbctl recover --status
  refdbctl recover --reason "failover to db2, which lacked the last second"
  refdbctl recover --reason "disk of asia-1 is gone" --without asia-1 --yes`,
		Args: cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			switch {
			case r.status && (len(r.without) > 0 || r.why != ""):
				return exit.Usage("--status only shows the state: --without and --reason are for a recovery")
			case !r.status && r.why == "":
				return exit.Usage("--reason TEXT is required: the audit records it")
			}
			if !r.status {
				if err := r.Check(a.Run); err != nil {
					return err
				}
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return r.run(ctx, a, db) })
		}),
	}
	r.AddYes(cmd)
	r.why.AddFlag(cmd)
	cmd.Flags().BoolVar(&r.status, "status", false, "only show the state")
	cmd.Flags().StringArrayVar(&r.without, "without", nil, "don't wait for this `site`; may be repeated")
	cmd.MarkFlagsMutuallyExclusive("status", "yes")
	cmd.AddCommand(a.recoverPolicyCommand())
	return cmd
}

func (r recoverArgs) run(ctx context.Context, a *app, db *refdb.DB) error {
	if r.status {
		now, err := a.admission(ctx, db.Recovery().Admission)
		if err != nil {
			return err
		}
		return a.printLost(ctx, db, now, true)
	}
	if err := a.RequireRights(ctx, db, "recover"); err != nil {
		return err
	}
	// If nothing was lost and no other site has to compare the server, this admits it.
	now, err := a.admission(ctx, db.Recovery().Compare)
	if err != nil {
		return err
	}
	if now.Admitted {
		return a.PrintSummary(now.Server, "the server is admitted, nothing is to be recovered")
	}
	for _, site := range r.without {
		if !slices.Contains(now.Waiting(), site) {
			return exit.Usage(fmt.Sprintf("--without %s: the database does not wait for a site of that name; refdbctl recover --status lists the sites that it waits for", site))
		}
	}
	if left := slices.DeleteFunc(now.Waiting(), func(site string) bool { return slices.Contains(r.without, site) }); len(left) > 0 {
		return fmt.Errorf("nothing was done: the database's new server has not been compared by %s yet: start the site's daemon there, or add --without %s",
			strings.Join(left, ", "), strings.Join(left, " --without "))
	}
	question := fmt.Sprintf("Write %d lost changes again, unless the database contradicts them", now.Lost)
	if waiting := now.Waiting(); len(waiting) > 0 {
		question += ", without the changes that are known only at " + strings.Join(waiting, ", ")
	}
	if err := a.printLost(ctx, db, now, false); err != nil {
		return err
	}
	return r.Perform(ctx, a.Run, db, cli.Operation{
		Act:      cli.Act{Action: "recover", Detail: fmt.Sprintf("%d lost changes, without %q", now.Lost, r.without), Reason: r.why},
		Question: question + "?",
		Do:       func() (string, error) { return r.recover(ctx, a, db, now.Lost) },
	})
}

// recover writes lost changes again, and prints those that it does not write.
func (r recoverArgs) recover(ctx context.Context, a *app, db *refdb.DB, lost int) (outcome string, err error) {
	fates := map[driver.Fate]int{}
	done, err := db.Recovery().Recover(ctx, recovery.Options{
		By: a.Who(), Reason: string(r.why), Without: r.without,
		Each: func(l driver.LostChange) {
			fates[l.Fate]++
			if l.Fate != driver.Rewritten {
				a.Note("%s: %s %s: %s -> %s, by %s at %s", l.Fate, output.Escape(l.Project), output.Escape(l.Ref), l.Old.Abbrev(), l.New.Abbrev(),
					output.OrDash(l.By != "", output.Escape(l.By)), output.Escape(l.Witness))
			}
		},
	})
	outcome = fmt.Sprintf("%d written again, %d opposed, %d dropped", fates[driver.Rewritten], fates[driver.Opposed], fates[driver.Dropped])
	if untold := lost - fates[driver.Rewritten] - fates[driver.Opposed] - fates[driver.Dropped]; untold > 0 && done.Done {
		outcome += fmt.Sprintf("; the reply about %d was lost: refdbctl recover --status lists them", untold)
	}
	if err == nil && !done.Done {
		err = fmt.Errorf("not done yet: %w", done.Err())
	}
	if err != nil {
		return outcome, err
	}
	return outcome, a.PrintSummary(done.Server, outcome+"; the database can be written again")
}

func (a *app) admission(ctx context.Context, ask func(context.Context) (driver.Admission, error)) (driver.Admission, error) {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	return ask(limited)
}

// printLost shows the state and lost changes: the undecided ones or all.
func (a *app) printLost(ctx context.Context, db *refdb.DB, server driver.Admission, all bool) error {
	now := admission{Admission: server}
	sites, err := a.unreachable(ctx, db, server)
	if err != nil {
		a.Note("which sites are unreachable could not be determined: %s", err)
	}
	for _, s := range sites {
		now.unreachable = append(now.unreachable, s.Name)
	}
	return cli.PrintReport(a.Run, admissionColumns, now, "lost", lostColumns, db.Recovery().LostChanges(ctx, all))
}

func (a *app) unreachable(ctx context.Context, db *refdb.DB, server driver.Admission) ([]presence.Site, error) {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	sites, err := presence.Witnesses(limited, db, server)
	return presence.Unreachable(sites), err
}
