package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/refvalue"
	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func (a *app) locksCommand() *cobra.Command {
	return cli.Group("locks", "List, show and purge locks, resolve intents",
		a.locksListCommand(), a.locksShowCommand(), a.locksPurgeCommand(), a.locksResolveCommand())
}

const (
	defaultWatch = 2 * time.Second
	clearScreen  = "\x1b[H\x1b[2J\x1b[3J"
)

// filter holds the flags that select locks.
type filter struct {
	refdb.LockFilter
	olderThan cli.Age
}

func (f *filter) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Project, "project", "", "only locks of this `project`")
	flags.StringVar(&f.Prefix, "prefix", "", "only locks on refs that start with `prefix`")
	flags.StringVar(&f.Owner, "owner", "", "only locks of this `owner`; a site's name stands for all its processes")
	flags.BoolVar(&f.Stale, "stale", false, "only stale locks, which others may take over")
	flags.Var(&f.olderThan, "older-than", "only locks not renewed for more than `age`, such as 90s, 10m or 2d")
}

func (f *filter) get() refdb.LockFilter {
	f.OlderThan = time.Duration(f.olderThan)
	return f.LockFilter
}

func (a *app) locksListCommand() *cobra.Command {
	var f filter
	var watch time.Duration
	var intents bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List locks",
		Long: `List the locks that match all of the given conditions, in order of project and ref. Ages are by the database's clock.

A lock that stands for an intent, a push that a site has announced and not ended yet, shows the old and the new value.
Such a lock never goes stale: its site ends it, or refdbctl locks resolve.

A row without a time is not a lock: the lock has ended, but processes wait for it. The row is reserved for the first
waiter until its turn is over, or free for the next process that requests the lock.

A lock on a ref under refs/leases/ belongs to a process that holds a lease, or waits for processes that requested the
lease earlier. The state shows which, and the mode of the lease.

With --watch the list is repeated every 2 seconds, or at the interval in --watch=INTERVAL, until Ctrl-C, which ends it
with exit status 0. On a terminal the list is updated in place, elsewhere the lists follow one another. If the
database goes down, the command waits for it.

` + heldForHelp + `

Fields:
` + output.Names(lockColumns(output.Palette{})),
		Example: `  refdbctl locks list --stale
  refdbctl locks list --project my/project --prefix refs/heads/ --older-than 10m -o json
  refdbctl locks list --owner eu-1 --watch=5s`,
		Args: cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("watch") && watch <= 0 {
				return exit.Usage(fmt.Sprintf("--watch %s: the interval must be positive", watch))
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				list := lockList{f.get(), intents}
				if watch > 0 {
					return a.watchLocks(ctx, db, list, watch)
				}
				if err := a.NoteIfNoProject(ctx, db, f.Project); err != nil {
					return err
				}
				return a.printLocks(ctx, db, list, a.Out)
			})
		}),
	}
	f.addFlags(cmd)
	cmd.Flags().BoolVar(&intents, "intents", false, "only locks that stand for an intent")
	cmd.Flags().StringVar(&f.Ref, "ref", "", "only locks on this `ref`")
	cmd.Flags().DurationVar(&watch, "watch", 0, "repeat the list every `interval`")
	cmd.Flags().Lookup("watch").NoOptDefVal = defaultWatch.String()
	return cmd
}

// lockList says which locks to list.
type lockList struct {
	refdb.LockFilter
	intents bool // only locks that stand for an intent
}

func (a *app) printLocks(ctx context.Context, db *refdb.DB, list lockList, to io.Writer) error {
	w := output.NewWriter(to, a.Format, a.Palette(a.Out), lockColumns(a.Palette(a.Out)))
	for l, err := range a.locksWithIntents(ctx, db, list.LockFilter) {
		if err != nil {
			return err
		}
		if list.intents && !l.Intended() {
			continue
		}
		if err := w.Write(l); err != nil {
			return err
		}
	}
	return w.Close()
}

// watchLocks prints the list again and again until ctx ends, which is no error. While the
// database is down, it waits.
func (a *app) watchLocks(ctx context.Context, db *refdb.DB, list lockList, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	down := false
	for {
		err := a.printRound(ctx, db, list, interval)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !outage(err):
			return err
		case err != nil && !down:
			a.Note("waiting until the database responds again: %s", err)
		}
		down = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// printRound prints the list in one write. Printed row by row, the list would flicker, and would be
// incomplete if the database fails meanwhile.
func (a *app) printRound(ctx context.Context, db *refdb.DB, list lockList, interval time.Duration) error {
	var round roundBuffer
	if a.Format == output.Table {
		limited, cancel := a.Limited(ctx)
		defer cancel()
		now, err := db.Now(limited)
		if err != nil {
			return err
		}
		if cli.IsTerminal(a.Out) {
			fmt.Fprintf(&round, "%s%s, every %s; Ctrl-C ends\n\n", clearScreen, now.UTC().Format(time.DateTime), interval)
		} else {
			fmt.Fprintf(&round, "# %s\n", now.UTC().Format(time.RFC3339))
		}
	}
	if err := a.printLocks(ctx, db, list, &round); err != nil {
		return err
	}
	_, err := a.Out.Write(round)
	return err
}

type roundBuffer []byte

func (b *roundBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

func (a *app) locksShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show PROJECT REF",
		Short: "Show the lock on a ref",
		Long: `Show the lock on a ref: who holds it, since when, when it was last renewed, and whether others may take it over
(stale). If it stands for an intent, also the old and the new value, and the process of the site that announced the
intent. The exit status is 1 if there is no lock; the JSON output is then null, and CSV has only its header.

` + heldForHelp + `

Fields:
` + output.Names(lockColumns(output.Palette{})),
		Example: `  refdbctl locks show my/project refs/heads/main`,
		Args:    cobra.ExactArgs(2),
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, args []string) error {
			project, ref := args[0], args[1]
			if err := driver.CheckKey(project, ref); err != nil {
				return err
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				for l, err := range a.locksWithIntents(ctx, db, refdb.LockFilter{Project: project, Ref: ref}) {
					if err != nil {
						return err
					}
					columns := lockColumns(a.Palette(a.Out))
					for i := range columns {
						columns[i].Hidden = false
					}
					if l.Intended() {
						defer a.Note("site %s resolves this intent when the push ends, or when its daemon runs again; if the site will not come back: "+
							"refdbctl locks resolve %s %s", siteOf(l.Owner), project, ref)
					}
					return output.One(a.Out, a.Format, a.Palette(a.Out), columns, l)
				}
				if err := output.Nothing(a.Out, a.Format, lockColumns(output.Palette{})); err != nil {
					return err
				}
				return exit.With(exit.Failed, fmt.Sprintf("there is no lock on %s %s", project, ref))
			})
		}),
	}
}

// lockRow is a lock, with its intent if it stands for one, or with its lease.
type lockRow struct {
	refdb.LockInfo
	intent driver.Intent
	lease  leaseRow
}

// leaseRow describes the lease that a lock belongs to: its owner holds the lease or waits for it.
type leaseRow struct {
	name  string
	mode  lease.Mode // 0: the lock belongs to no lease
	waits bool
}

// text returns the state of a lock with its role in its lease.
func (l leaseRow) text(state string) string {
	switch {
	case l.mode == 0:
		return state
	case l.waits:
		return state + ", waits: " + l.mode.String()
	}
	return state + ", " + l.mode.String()
}

// leases finds the leases of locks. It reads a lease once for consecutive locks.
type leases struct {
	project, name string
	rows          []lease.Row
}

func (s *leases) of(ctx context.Context, a *app, db *refdb.DB, l refdb.LockInfo) (row leaseRow, err error) {
	name, mode, ok := lease.ParseRef(l.Ref)
	if !ok {
		return leaseRow{}, nil
	}
	if s.project != l.Project || s.name != name {
		limited, cancel := a.Limited(ctx)
		defer cancel()
		if s.rows, err = lease.Rows(limited, db, l.Project, name); err != nil {
			return leaseRow{}, err
		}
		s.project, s.name = l.Project, name
	}
	waits := slices.ContainsFunc(s.rows, func(r lease.Row) bool { return r.ID() == l.ID() && r.Waits })
	return leaseRow{name, mode, waits}, nil
}

// locksWithIntents joins the locks with their intents and leases. Locks and intents have the same
// order. Intents are read only once a lock stands for one.
func (a *app) locksWithIntents(ctx context.Context, db *refdb.DB, f refdb.LockFilter) iter.Seq2[lockRow, error] {
	return func(yield func(lockRow, error) bool) {
		intents := cli.WithRowTimeout(ctx, a.Run, func(ctx context.Context) iter.Seq2[driver.Intent, error] {
			return db.Intents().All(ctx, driver.IntentFilter{Project: f.Project, Ref: f.Ref, Owner: f.Owner})
		})
		next, stop := iter.Pull2(intents)
		defer stop()
		var i driver.Intent
		more := true
		var found leases
		for l, err := range a.Locks(ctx, db, f) {
			row := lockRow{LockInfo: l}
			if err == nil {
				row.lease, err = found.of(ctx, a, db, l)
			}
			for err == nil && l.Intended() && more && precedes(i, l) {
				i, err, more = next()
			}
			if i.Project == l.Project && i.Ref == l.Ref && i.Token == l.Token {
				row.intent = i
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// precedes reports whether i comes before the intent of l.
func precedes(i driver.Intent, l refdb.LockInfo) bool {
	return cmp.Or(strings.Compare(i.Project, l.Project), strings.Compare(i.Ref, l.Ref), cmp.Compare(i.Token, l.Token)) < 0
}

// siteOf returns the site of an owner.
func siteOf(owner string) string {
	site, _, _ := strings.Cut(owner, "/")
	return site
}

// lockColumns are the fields of a lock. A lock that was taken by Gerrit's plugin may have no
// heartbeat or token.
func lockColumns(p output.Palette) []output.Column[lockRow] {
	columns := plainLockColumns(p)
	at := slices.IndexFunc(columns, func(c output.Column[lockRow]) bool { return c.Name == "token" })
	return slices.Insert(columns, at, slices.Concat(intentColumns, leaseColumns)...)
}

// leaseColumns are the fields of the lease that a lock belongs to.
var leaseColumns = []output.Column[lockRow]{
	{Name: "lease", Value: func(l lockRow) any { return output.OrNil(l.lease.mode != 0, l.lease.name) }, Hidden: true},
	{Name: "lease_mode", Value: func(l lockRow) any { return output.OrNil(l.lease.mode != 0, l.lease.mode.String()) }, Hidden: true},
	{Name: "waits", Value: func(l lockRow) any { return output.OrNil(l.lease.mode != 0, l.lease.waits) }, Hidden: true},
}

// intentColumns are the fields of the intent that a lock stands for.
var intentColumns = []output.Column[lockRow]{
	{
		Name:  "intent",
		Value: func(l lockRow) any { return l.Intended() },
		Text: func(l lockRow) string {
			return output.OrDash(l.intent.New != refdb.Unknown, output.Escape(refvalue.Abbreviated(l.intent.Old)+" → "+refvalue.Abbreviated(l.intent.New)))
		},
	},
	{Name: "old", Value: func(l lockRow) any { return output.OrNil(!l.intent.Old.IsAbsent(), string(l.intent.Old)) }, Hidden: true},
	{Name: "new", Value: func(l lockRow) any { return output.OrNil(!l.intent.New.IsAbsent(), string(l.intent.New)) }, Hidden: true},
	output.Optional("by", func(l lockRow) string { return l.intent.By }),
	{Name: "agent", Value: func(l lockRow) any { return output.OrNil(l.intent.Agent != "", l.intent.Agent) }, Hidden: true},
}

// plainLockColumns are the fields of a lock without those of its intent and lease.
func plainLockColumns(p output.Palette) []output.Column[lockRow] {
	return []output.Column[lockRow]{
		{Name: "project", Value: func(l lockRow) any { return l.Project }},
		{Name: "ref", Value: func(l lockRow) any { return l.Ref }},
		{
			Name:  "owner",
			Value: func(l lockRow) any { return l.Owner },
			Text: func(l lockRow) string {
				return output.OrDash(strings.TrimSpace(l.Owner) != "(waits)", output.Escape(l.Owner))
			},
		},
		{
			Name:    "held_seconds",
			Heading: "HELD FOR",
			Value:   func(l lockRow) any { return output.OrNil(isHeld(l.LockInfo), output.Seconds(l.HeldFor())) },
			Text: func(l lockRow) string {
				return output.OrDash(isHeld(l.LockInfo), l.HeldFor().Round(time.Second).String())
			},
		},
		{
			Name:    "age_seconds",
			Heading: "LAST BEAT",
			Value:   func(l lockRow) any { return output.OrNil(hasHeartbeat(l.LockInfo), output.Seconds(l.Age)) },
			Text:    func(l lockRow) string { return output.OrDash(hasHeartbeat(l.LockInfo), output.Ago(l.Age)+" ago") },
		},
		{
			Name:    "stale_after_seconds",
			Heading: "STALE AFTER",
			Value:   func(l lockRow) any { return output.Seconds(l.StaleAfter) },
			Text: func(l lockRow) string {
				if l.Intended() {
					return "never"
				}
				return l.StaleAfter.String()
			},
			Hidden: true,
		},
		{
			Name:    "stale",
			Heading: "STATE",
			Value:   func(l lockRow) any { return l.Stale() },
			Text: func(l lockRow) string {
				switch {
				case l.Intended():
					return p.Yellow("intent")
				case l.Idle():
					return p.Green(l.lease.text("free"))
				case l.Reserved():
					return p.Green(l.lease.text("reserved"))
				case l.Stale():
					return p.Yellow(l.lease.text("stale"))
				}
				return p.Green(l.lease.text("fresh"))
			},
		},
		{Name: "reserved", Value: func(l lockRow) any { return l.Reserved() }, Hidden: true},
		{Name: "token", Value: func(l lockRow) any { return output.OrNil(l.Token != 0, int64(l.Token)) }, Hidden: true},
		{Name: "token_time", Value: func(l lockRow) any { return output.OrNil(l.Token != 0, l.Token.Time()) }, Hidden: true},
		{Name: "heartbeat", Value: func(l lockRow) any { return output.OrNil(hasHeartbeat(l.LockInfo), l.Heartbeat) }, Hidden: true},
	}
}

// heldForHelp explains how accurate the column is. On PostgreSQL a token is a transaction's number,
// which is raised to the clock's time once a second.
const heldForHelp = `HELD FOR (held_seconds) is counted from the token. On PostgreSQL it may be up to 2 seconds too long, or more if
commits waited for a standby when the lock was taken; it may also be too short, down to 0, by as much as the
database's clock was set back. LAST BEAT is exact, and alone decides whether a lock is stale.`

// isHeld reports whether the lock is held. A reservation has the token of the previous lock.
func isHeld(l refdb.LockInfo) bool { return l.Token != 0 && !l.Reserved() }

// hasHeartbeat reports whether a holder has renewed the lock. The heartbeat of a reservation marks
// the end of a turn.
func hasHeartbeat(l refdb.LockInfo) bool { return l.Heartbeat.Unix() > 0 && !l.Reserved() }
