package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
)

// stuckColumns are what is left to an operator.
var stuckColumns = []output.Column[site.Stuck]{
	{Name: "project", Value: func(s site.Stuck) any { return s.Project }},
	{Name: "ref", Value: func(s site.Stuck) any { return s.Ref }},
	{Name: "age_seconds", Heading: "AGE", Value: func(s site.Stuck) any { return s.Age },
		Text: func(s site.Stuck) string { return ago(seconds(s.Age)) }},
	{Name: "reason", Value: func(s site.Stuck) any { return s.Reason }},
}

func (a *app) siteRepairCommand() *cobra.Command {
	var f siteFlags
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Resolve what crashed pushes of this site have left",
		Long: `Resolve what crashed pushes of this site have left, while its daemon does not run: what the repositories
hold tells whether a push that was announced came to its end. And take over what an operator decided in this
site's absence. The daemon does that by itself, at its start and all the time: if it runs, this
only says how it is, as refdbctl site status does.

Run it as root, as which it becomes the daemon's user, or as that user. The status is 1 if something
is left: the reasons say what to do.

JSON: an object with "stuck", a list of ` + output.Names(stuckColumns) + `;
and updated, dropped, heeded, under_way, ok.`,
		Example: `  refdbctl site repair`,
		Args:    cobra.NoArgs,
		RunE: a.body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := a.load(ctx, f)
			if err == nil {
				err = becomeOwner(c.State)
			}
			if err != nil {
				return err
			}
			limited, cancel := a.limited(ctx)
			s, err := site.Query(limited, c.Socket)
			cancel()
			if err == nil {
				a.note("the daemon runs and resolves what is left by itself")
				return a.printRepair(s)
			}
			return a.withDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				s, err := site.Repair(ctx, c, db, site.Options{Logger: a.logger(), DigestKey: []byte(a.env("REFDB_DIGEST_KEY")), Version: version()})
				if err != nil {
					return err
				}
				return a.printRepair(s)
			})
		}),
	}
	f.add(cmd)
	return cmd
}

func (a *app) printRepair(s site.Status) error {
	w := output.NewReport(a.out, a.format, a.palette(a.out), "stuck", stuckColumns)
	for _, one := range s.Stuck {
		if err := w.Write(one); err != nil {
			return err
		}
	}
	underWay := 0
	for _, p := range s.Pushes {
		underWay += p.Refs
	}
	n := s.Counters
	err := w.CloseWith(
		output.Field{Name: "updated", Value: n.Updated},
		output.Field{Name: "dropped", Value: n.Dropped},
		output.Field{Name: "heeded", Value: n.Heeded},
		output.Field{Name: "under_way", Value: underWay},
		output.Field{Name: "ok", Value: len(s.Stuck) == 0},
	)
	if err != nil {
		return err
	}
	summary := fmt.Sprintf("%d moved, %d kept the old value, %d as an operator decided, %d under way, %d stuck",
		n.Updated, n.Dropped, n.Heeded, underWay, len(s.Stuck))
	if len(s.Stuck) > 0 {
		return &status{exitError, s.Site + ": " + summary}
	}
	return a.printSummary(s.Site, summary)
}
