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
	"github.com/globalrefdb/globalrefdb/refdb/operator"
)

func (a *app) historyCommand() *cobra.Command {
	return cli.Group("history", "Show and prune the history of all changes", a.historyStatsCommand(), a.historyPruneCommand())
}

var epochColumns = []output.Column[driver.Epoch]{
	{Name: "epoch", Value: func(e driver.Epoch) any { return e.ID }},
	{Name: "first", Value: func(e driver.Epoch) any { return int64(e.First) }},
	{Name: "began", Value: func(e driver.Epoch) any { return e.Began }},
	output.Optional("by", func(e driver.Epoch) string { return e.By }),
	{Name: "reason", Value: func(e driver.Epoch) any { return e.Reason }},
}

var historyColumns = []output.Column[refdb.HistoryState]{
	{Name: "upto", Value: func(s refdb.HistoryState) any { return int64(s.Upto) }},
	{Name: "pruned", Value: func(s refdb.HistoryState) any { return int64(s.Pruned) }},
	{Name: "pruned_time", Value: func(s refdb.HistoryState) any { return output.OrNil(!s.PrunedTime.IsZero(), s.PrunedTime) },
		Text: func(s refdb.HistoryState) string {
			return output.OrDash(!s.PrunedTime.IsZero(), s.PrunedTime.UTC().Format(time.RFC3339))
		}},
	{Name: "begin", Value: func(s refdb.HistoryState) any { return s.Epochs[0].Began }},
}

func (a *app) historyStatsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Show the range of the history",
		Long: `Show how far back the history goes, and up to which position it is complete. If a running transaction delays its
completeness, refdbctl doctor names the transaction.

Fields: ` + output.Names(historyColumns) + `
(upto: the last position that is complete; pruned: the first position from which no change was pruned; pruned_time: the
latest time of a pruned change; begin: when the history began)
and for each epoch, a span of positions between two times that the database went back: ` + output.Names(epochColumns) + `
(first: its first position; by, reason: who began it, and why). JSON has the epochs in a list, "epochs"; CSV has only
them.`,
		Example: `  refdbctl history stats`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				limited, cancel := a.Limited(ctx)
				defer cancel()
				s, err := db.HistoryState(limited)
				if err != nil {
					return err
				}
				return cli.PrintReport(a.Run, historyColumns, s, "epochs", epochColumns, cli.All(s.Epochs))
			})
		}),
	}
}

// historyPrune holds the arguments of "history prune".
type historyPrune struct {
	cli.Confirmation
	keep                  int
	olderThan, evenUnread cli.Age
	why                   cli.Reason
}

var prunedColumns = []output.Column[int]{{Name: "pruned", Value: func(n int) any { return n }}}

func (a *app) historyPruneCommand() *cobra.Command {
	var p historyPrune
	cmd := &cobra.Command{
		Use:   "prune --older-than AGE [--keep N] [--even-unread AGE]",
		Short: "Delete old changes from the history permanently",
		Long: `Delete changes that are at least AGE old, by the database's clock, from the history. The newest changes of each ref
stay, however old they are: --keep says how many. Values of refs don't change.

Afterwards refs list --at and refs rollback --at refuse states before the newest deleted change. Changes that a
follower has not read are kept, and so are changes since a site that is not away last compared the database, unless
they are at least as old as --even-unread: that follower then has to start over, and that site regards the changes as
lost.

The command works in small steps, while the database is in use; after Ctrl-C or an error, run it again. On a terminal
it asks for confirmation; elsewhere --yes is required.

Fields: ` + output.Names(prunedColumns),
		Example: `  refdbctl history prune --older-than 90d --keep 5 --even-unread 180d --yes`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			switch {
			case p.keep < 0:
				return exit.Usage(fmt.Sprintf("--keep %d: must be 0 or more", p.keep))
			case p.evenUnread > 0 && p.evenUnread < p.olderThan:
				return exit.Usage("--even-unread must be at least as long as --older-than")
			}
			if err := p.Check(a.Run); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return p.run(ctx, a, db) })
		}),
	}
	flags := cmd.Flags()
	flags.Var(&p.olderThan, "older-than", "only changes at least this `age`, such as 90d")
	flags.IntVar(&p.keep, "keep", 5, "keep the newest `N` changes of each ref")
	flags.Var(&p.evenUnread, "even-unread", "delete changes at least this `age` even if a follower has not read them")
	cli.Must(cmd.MarkFlagRequired("older-than"))
	for _, name := range []string{"older-than", "keep", "even-unread"} { // no files
		cli.Must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	p.AddYes(cmd)
	p.why.AddFlag(cmd)
	return cmd
}

func (p *historyPrune) run(ctx context.Context, a *app, db *refdb.DB) error {
	older := time.Duration(p.olderThan)
	what := fmt.Sprintf("older than %s, but for the newest %d of each ref", output.Ago(older), p.keep)
	if p.evenUnread > 0 {
		what += "; older than " + output.Ago(time.Duration(p.evenUnread)) + " even if unread"
	}
	if err := a.RequireRights(ctx, db, "history prune"); err != nil {
		return err
	}
	n := 0
	return p.Perform(ctx, a.Run, db, cli.Operation{
		Act:      cli.Act{Action: "history prune", Detail: what, Reason: p.why},
		Question: "Delete changes " + what + ", from the history?",
		Do: func() (_ string, err error) {
			n, err = db.Operator().PruneHistory(ctx, operator.PruneOptions{OlderThan: older, Keep: p.keep, EvenUnread: time.Duration(p.evenUnread)})
			return fmt.Sprintf("pruned %d", n), err
		},
		Print: func(err error) error {
			if err != nil {
				return err
			}
			return cli.PrintOne(a.Run, prunedColumns, n, "pruned "+output.Count(n, "change"))
		},
	})
}

func (a *app) followersCommand() *cobra.Command {
	return cli.Group("followers", "List the readers of the history, and remove one that is gone", a.followersListCommand(), a.followersRemoveCommand())
}

var followerColumns = []output.Column[driver.Follower]{
	{Name: "name", Value: func(f driver.Follower) any { return f.Name }},
	{Name: "read", Value: func(f driver.Follower) any { return int64(f.Read) }},
	{Name: "seen", Value: func(f driver.Follower) any { return f.Seen }, Hidden: true},
	{Name: "age_seconds", Heading: "LAST SEEN", Value: func(f driver.Follower) any { return output.Seconds(f.Age) },
		Text: func(f driver.Follower) string { return output.Ago(f.Age) + " ago" }},
	{Name: "cursor", Value: func(f driver.Follower) any { return output.OrNil(f.Cursor != "", f.Cursor) }, Hidden: true},
}

func (a *app) followersListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the followers of the history",
		Long: `List the registered followers: programs that read all changes. Changes that a follower has not read are not pruned,
unless refdbctl history prune --even-unread is given.

Fields: ` + output.Names(followerColumns) + `
(read: the position up to which it has read all changes; seen: when it last reported that, by the database's clock)`,
		Example: `  refdbctl followers list`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				limited, cancel := a.Limited(ctx)
				defer cancel()
				all, err := db.Followers().All(limited)
				if err != nil {
					return err
				}
				return cli.PrintRows(a.Run, followerColumns, cli.All(all))
			})
		}),
	}
}

var removedFollowerColumns = []output.Column[string]{{Name: "removed", Value: func(name string) any { return name }}}

func (a *app) followersRemoveCommand() *cobra.Command {
	var c cli.Confirmation
	var why cli.Reason
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a follower that will not come back",
		Long: `Remove a follower that will not come back. From then on changes that it has not read may be pruned. A follower that
does come back registers again, and continues if none of its changes was pruned meanwhile. A follower that does not
exist is an error (exit status 1).

On a terminal the command asks for confirmation; elsewhere --yes is required.

Fields: ` + output.Names(removedFollowerColumns),
		Example: `  refdbctl followers remove mirror-us --reason "the mirror was turned off"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			name := args[0]
			if err := driver.CheckFollower(name); err != nil {
				return err
			}
			if err := c.Check(a.Run); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				return c.Perform(ctx, a.Run, db, cli.Operation{
					Act:      cli.Act{Action: "followers remove", Detail: name, Reason: why},
					Question: fmt.Sprintf("Remove the follower %s?", output.Escape(name)),
					Do: func() (string, error) {
						limited, cancel := a.Limited(ctx)
						defer cancel()
						found, err := db.Followers().Remove(limited, name)
						if err == nil && !found {
							err = exit.With(exit.Failed, "no such follower: "+name+" (refdbctl followers list shows all)")
						}
						return "", err
					},
					Print: func(err error) error {
						if err != nil {
							return err
						}
						return cli.PrintOne(a.Run, removedFollowerColumns, name, "removed "+output.Escape(name))
					},
				})
			})
		}),
	}
	c.AddYes(cmd)
	why.AddFlag(cmd)
	return cmd
}
