package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/retire"
)

func (a *app) sitesCommand() *cobra.Command {
	return cli.Group("sites", "List all sites, and remove one that is gone", a.sitesListCommand(), a.sitesRetireCommand())
}

// listedSite is a site and its lag.
type listedSite struct {
	presence.Site
	seen time.Time // zero if unknown
	age  time.Duration
	lag  *presence.Lag // nil if the site does not follow
}

var siteColumns = []output.Column[listedSite]{
	{Name: "site", Value: func(s listedSite) any { return s.Name }},
	{Name: "alive", Value: func(s listedSite) any { return s.Alive() }},
	{Name: "owner", Value: func(s listedSite) any { return output.OrNil(s.Lock != nil, s.owner()) },
		Text: func(s listedSite) string { return output.OrDash(s.Lock != nil, output.Escape(s.owner())) }},
	{Name: "seen", Value: func(s listedSite) any { return output.OrNil(!s.seen.IsZero(), s.seen) }, Hidden: true},
	{Name: "age_seconds", Heading: "LAST SEEN", Value: func(s listedSite) any { return output.OrNil(!s.seen.IsZero(), output.Seconds(s.age)) },
		Text: func(s listedSite) string { return output.OrDash(!s.seen.IsZero(), output.Ago(s.age)+" ago") }},
	{Name: "follows", Value: func(s listedSite) any { return s.lag != nil }},
	{Name: "lag_changes", Value: func(s listedSite) any { return output.OrNil(s.lag != nil, s.changes()) },
		Text: func(s listedSite) string { return output.OrDash(s.lag != nil, s.lagText()) }},
	{Name: "lag_seconds", Value: func(s listedSite) any { return output.OrNil(s.lag != nil, output.Seconds(s.lagAge())) },
		Text: func(s listedSite) string { return output.OrDash(s.lag != nil, output.Ago(s.lagAge())) }},
	{Name: "followed", Value: func(s listedSite) any { return output.OrNil(s.About != nil, s.about().Followed) },
		Text: func(s listedSite) string { return output.OrDash(s.About != nil, fmt.Sprint(s.about().Followed)) }},
	{Name: "behind", Value: func(s listedSite) any { return output.OrNil(s.About != nil, s.about().Behind) },
		Text: func(s listedSite) string { return output.OrDash(s.About != nil, fmt.Sprint(s.about().Behind)) }},
	{Name: "behind_projects", Value: func(s listedSite) any { return output.OrNil(s.About != nil, strings.Join(s.about().Projects, "; ")) }, Hidden: true},
	{Name: "store", Value: func(s listedSite) any { return output.OrNil(s.About != nil, s.about().Store) },
		Text: func(s listedSite) string { return output.OrDash(s.About != nil, output.Escape(s.about().Store)) }},
	{Name: "version", Value: func(s listedSite) any { return output.OrNil(s.About != nil, s.about().Version) },
		Text: func(s listedSite) string { return output.OrDash(s.About != nil, output.Escape(s.about().Version)) }},
	{Name: "waited_for", Value: func(s listedSite) any { return s.Awaited() }},
	{Name: "testified", Value: func(s listedSite) any { return s.Testified() }, Hidden: true},
}

func (s listedSite) owner() string {
	if s.Lock == nil {
		return ""
	}
	return s.Lock.Owner
}

// about returns the site's own record.
func (s listedSite) about() presence.About {
	if s.About == nil {
		return presence.About{}
	}
	return *s.About
}

func (s listedSite) changes() int {
	if s.lag == nil {
		return 0
	}
	return s.lag.Changes
}

func (s listedSite) lagAge() time.Duration {
	if s.lag == nil {
		return 0
	}
	return s.lag.Age
}

func (s listedSite) lagText() string {
	switch {
	case s.lag == nil:
		return ""
	case s.lag.Unreadable:
		return "unreadable"
	case s.lag.More:
		return fmt.Sprintf("more than %d", s.lag.Changes)
	}
	return fmt.Sprint(s.lag.Changes)
}

func (a *app) sitesListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List all sites",
		Long: `List all sites that the database knows, whether their daemons are alive, and the lag of sites that follow by
themselves.

Fields: ` + output.Names(siteColumns) + `
(alive: whether its daemon has a fresh lock on the site's name; owner: the owner of that lock; seen: when its daemon
last reported, by the database's clock; follows: whether the site reads what other sites change; lag_changes:
number of changes that it has not read, at most ` + fmt.Sprint(presence.MostChanges) + `, or -1 if it must start over because the history no longer has
them; lag_seconds: since when; followed: number of repositories that it keeps up to date; behind: number of those that
it can't; behind_projects: the first ` + fmt.Sprint(presence.NamedBehind) + ` of these; store: site.store in its configuration; version: version of its
daemon; waited_for: whether, if the database's server is replaced, nothing is written before this site has compared
it; testified: whether it is silent, and another site has testified about it: no server waits for it)

A daemon records how far it has read after some seconds, or every minute if there is little to read, and its own state
within a minute. refdbctl site status, run at the site, shows why repositories are behind.`,
		Example: `  refdbctl sites list
  refdbctl sites list -o json`,
		Args: cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return a.listSites(ctx, db) })
		}),
	}
}

func (a *app) listSites(ctx context.Context, db *refdb.DB) error {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	all, err := presence.Registered(limited, db)
	if err != nil {
		return err
	}
	now, err := db.Now(limited)
	if err != nil {
		return err
	}
	w := output.NewWriter(a.Out, a.Format, a.Palette(a.Out), siteColumns)
	for _, s := range all {
		row := listedSite{Site: s, seen: s.Seen()}
		row.age = max(0, now.Sub(row.seen))
		if s.Follower != nil {
			limited, cancel := a.Limited(ctx)
			row.lag, err = presence.LagOf(limited, db, *s.Follower, now)
			cancel()
		}
		if err == nil {
			err = w.Write(row)
		}
		if err != nil {
			return err
		}
	}
	return w.Close()
}

var retiredColumns = []output.Column[string]{{Name: "retired", Value: func(name string) any { return name }}}

func (a *app) sitesRetireCommand() *cobra.Command {
	var c cli.Confirmation
	var why cli.Reason
	cmd := &cobra.Command{
		Use:   "retire NAME --reason TEXT",
		Short: "Remove a site that is gone for good",
		Long: `Remove a site that is gone for good, or is taken out of service. The command is refused while the site's daemon runs
(exit status 3): stop the daemon first.

A push that the site had announced and not ended may have been acknowledged. If the database keeps the project's
objects, and has all objects of the push, the push counts as made: the refs take the new values. To check that, the
project's packs are unpacked into a temporary directory (TMPDIR), which needs as much space as the repository.
Otherwise nothing is decided: the pushes are listed. Decide them with refdbctl locks resolve --site NAME, then run
this command again.

Then the site's registration is removed: changes are no longer kept for it, a new server of the database does not wait
for it, and project set --mode enforce ignores it. Its refs and repositories are not touched. The command may be
interrupted, and run again.

Should the site come back, its daemon does not start with its old state, unless refdbctl site take-over is run.

The command asks for confirmation on a terminal; elsewhere --yes is required. It is recorded: refdbctl audit list.

Fields: ` + output.Names(retiredColumns),
		Example: `  refdbctl sites retire us --reason "us burnt down, its disks are lost"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if why == "" {
				return exit.Usage("--reason TEXT is required: the audit records it")
			}
			if err := c.Check(a.Run); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error { return a.retire(ctx, db, &c, args[0], why) })
		}),
	}
	c.AddYes(cmd)
	why.AddFlag(cmd)
	return cmd
}

func (a *app) retire(ctx context.Context, db *refdb.DB, c *cli.Confirmation, name string, why cli.Reason) error {
	if err := a.RequireRights(ctx, db, "sites retire"); err != nil {
		return err
	}
	return c.Perform(ctx, a.Run, db, cli.Operation{
		Act:      cli.Act{Action: "sites retire", Detail: name, Reason: why},
		Question: fmt.Sprintf("Retire the site %s?", output.Escape(name)),
		Do: func() (string, error) {
			taken := 0
			err := retire.Retire(ctx, db, retire.Request{
				Site: name, By: a.Who(), Why: string(why),
				Each: func(project, ref string) {
					taken++
					a.Note("%s %s: a push that the site had announced counts as made", output.Escape(project), output.Escape(ref))
				},
			})
			return fmt.Sprintf("%s took the new value", output.Count(taken, "ref")), err
		},
		Print: func(err error) error {
			switch {
			case errors.Is(err, presence.ErrTaken):
				return exit.With(exit.Locked, err.Error())
			case errors.Is(err, retire.ErrUnknown):
				return exit.With(exit.Failed, err.Error())
			case err != nil:
				return err
			}
			return cli.PrintOne(a.Run, retiredColumns, name, "retired "+output.Escape(name))
		},
	})
}
