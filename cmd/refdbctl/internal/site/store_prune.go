package site

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

// prunedPacks is the number of packs that "site store prune" has deleted.
type prunedPacks struct{ unused, superseded int }

var prunedPacksColumns = []output.Column[prunedPacks]{
	{Name: "unused", Value: func(p prunedPacks) any { return p.unused }},
	{Name: "superseded", Value: func(p prunedPacks) any { return p.superseded }},
}

func (a *App) storePruneCommand() *cobra.Command {
	olderThan := cli.Age(time.Hour)
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete packs that no site needs from the database",
		Long: `Delete packs of all projects that no site needs from the database: packs that a push has stored but not used, for
example because the push was refused or killed, and packs that a newer base replaces, for example after a killed
compaction.

The sites' daemons delete unused packs by themselves once these are an hour old, and a new base deletes the packs that
it replaces. Run this command if the database has no space left for that, or no daemon runs. A push that takes longer
than --older-than to store its next part is refused, and can be retried. After Ctrl-C or an error, run the command
again.

Fields: ` + output.Names(prunedPacksColumns),
		Example: `  refdbctl site store prune
  refdbctl site store prune --older-than 5m`,
		Args: cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				pruned, err := prunePacks(ctx, db, time.Duration(olderThan))
				return errors.Join(err, a.printPruned(pruned))
			})
		}),
	}
	cmd.Flags().Var(&olderThan, "older-than", "delete unused packs that have received no part for at least this `age`")
	cli.Must(cmd.RegisterFlagCompletionFunc("older-than", cobra.NoFileCompletions))
	return cmd
}

// prunePacks returns the number of deleted packs, also with an error.
func prunePacks(ctx context.Context, db *refdb.DB, olderThan time.Duration) (pruned prunedPacks, err error) {
	if pruned.unused, err = db.Packs().DropAbandoned(ctx, olderThan); err != nil {
		return pruned, err
	}
	all, err := db.Projects().After(ctx, 0)
	if err != nil {
		return pruned, err
	}
	for _, p := range all {
		if !packs.Stored(p) {
			continue
		}
		n, err := db.Packs().DropSuperseded(ctx, p.Project)
		pruned.superseded += n
		if err != nil {
			return pruned, err
		}
	}
	return pruned, nil
}

func (a *App) printPruned(p prunedPacks) error {
	text := fmt.Sprintf("pruned %s that were not used, and %d that a base replaces", output.Count(p.unused, "pack"), p.superseded)
	return cli.PrintOne(a.Run, prunedPacksColumns, p, text)
}
