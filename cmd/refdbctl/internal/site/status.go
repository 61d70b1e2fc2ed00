package site

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

func (a *App) statusCommand() *cobra.Command {
	var f Flags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the status of the site daemon",
		Long: `Show the status of the site daemon: whether it serves, pushes in progress, sessions of guards (programs such as Gerrit
that move refs by themselves), stuck refs (the repository has neither the announced value nor the previous one), and
repositories that can't catch up with the database. A line "unreachable" names another site without which a restart of
the database's server would stop all pushes. The last lines are the daemon's background tasks; a task that has
ended, or whose last attempt failed, has a line of its own.

The exit status is 1 if the daemon does not answer or can't serve, or if
  - a ref is stuck;
  - the site's hooks are damaged;
  - the root of the repositories is gone;
  - the site's Gerrit (site.gerrit) runs without the guard;
  - moves can't be listed;
  - a repository has been behind for over a minute;
  - a guard has had no session for over a minute, and transactions wait for the guard; or
  - a guard has left moves unread for over 5 minutes.

With -o json the complete status is printed as one object.`,
		Example: `  refdbctl site status
  refdbctl site status -o json`,
		Args: cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := config.Load(ctx, string(f.Config)) // it needs no database
			if err != nil {
				return err
			}
			limited, cancel := a.Limited(ctx)
			defer cancel()
			s, err := client.Query(limited, c.Socket)
			if err != nil {
				return err
			}
			if a.Format == output.JSON {
				enc := json.NewEncoder(a.Out)
				enc.SetEscapeHTML(false)
				enc.SetIndent("", "  ")
				err = enc.Encode(s)
			} else {
				err = printStatus(a.Out, s)
			}
			if err == nil && !s.OK() {
				err = exit.With(exit.Failed, "")
			}
			return err
		}),
	}
	f.Add(cmd)
	return cmd
}

func printStatus(w io.Writer, s client.Status) error {
	lines := [][2]string{
		{"site", s.Site},
		{"version", s.Version},
		{"process", fmt.Sprintf("%d, up %s", s.PID, output.Ago(Seconds(s.Uptime)))},
		{"serving", yesOrNo(s.Presence, s.PresenceError)},
		{"database", yesOrNo(s.Database, s.DatabaseError)},
		{"repositories", fmt.Sprint(s.Repositories)},
	}
	for _, u := range s.Unreachable {
		lines = append(lines, [2]string{"unreachable", presence.SilentAdvice(u.Site, u.Seen, false)})
	}
	for _, p := range s.Pushes {
		lines = append(lines, [2]string{"push", fmt.Sprintf("%s: %d refs, process %d, for %s", p.Project, p.Refs, p.PID, output.Ago(Seconds(p.Age)))})
	}
	for _, one := range s.Sessions {
		lines = append(lines, [2]string{"session", sessionLine(one)})
	}
	for _, r := range s.Readers {
		lines = append(lines, [2]string{"reader", readerLine(r)})
	}
	if s.StateError != "" {
		lines = append(lines, [2]string{"state", "pushes are refused, because the daemon can't read or write its journal: " + s.StateError + ": free space on the disk of site.state, or repair it; this line disappears after the next successful push"})
	}
	if s.HooksError != "" {
		lines = append(lines, [2]string{"hooks", "damaged: pushes are refused, or not guarded: " + s.HooksError + ": run refdbctl site check --repair"})
	}
	if s.RootGone {
		lines = append(lines, [2]string{"root", "site.root can't be read, or is empty although the daemon has followed repositories there: mount its disk"})
	}
	if s.MovesError != "" {
		lines = append(lines, [2]string{"moves", "not listed, so indexes are not updated: " + s.MovesError + ": check the disk of site.state"})
	}
	if s.Gerrit != nil {
		lines = append(lines, [2]string{"gerrit", gerritLine(*s.Gerrit)})
	}
	for _, x := range s.Stuck {
		lines = append(lines, [2]string{"stuck", fmt.Sprintf("%s %s for %s: %s", x.Project, x.Ref, output.Ago(Seconds(x.Age)), x.Reason)})
	}
	for _, b := range s.Behind {
		lines = append(lines, [2]string{"behind", fmt.Sprintf("%s for %s: %s", b.Project, output.Ago(Seconds(b.Age)), b.Reason)})
	}
	for _, m := range s.Malformed {
		lines = append(lines, [2]string{"malformed", fmt.Sprintf("%s %s: pack %s of %s: git's fsck says: %s: the pack is stored; whether the project accepts such objects depends on transfer.fsckObjects at the sites that accept pushes to it",
			m.Project, output.Ago(Seconds(m.Age)), m.Pack, m.Owner, m.Objection)})
	}
	for _, u := range s.Unguarded {
		line := fmt.Sprintf("%s: mode %s: %d transactions would have been refused", u.Project, u.Mode, u.Refusals)
		if n := len(u.Recent); n > 0 {
			last := u.Recent[n-1]
			line += fmt.Sprintf("; the last, %s: %s", output.Ago(time.Since(last.Time)), last.Reason)
		}
		lines = append(lines, [2]string{"not guarded", line})
	}
	for _, m := range s.PushMirrors {
		lines = append(lines, [2]string{"mirror", mirrorLine(m)})
		for _, b := range m.Behind {
			lines = append(lines, [2]string{"mirror", fmt.Sprintf("%s lacks changes of %s for %s: %s", m.Name, b.Project, output.Ago(Seconds(b.Age)), b.Reason)})
		}
	}
	n := s.Counters
	lines = append(lines, [2]string{"since start", fmt.Sprintf("%d transactions accepted, %d refused; %d refs moved, %d kept; %d alarms; %d processes died; %d decisions applied; %d refs followed, %d packs unpacked; %d database failures",
		n.Prepared, n.Refused, n.Updated, n.Dropped, n.Alarms, n.Deaths, n.Heeded, n.Followed, n.Unpacked, n.Failures)})
	// Some tasks have work only at the start of the daemon, and end.
	names := map[string][]string{}
	for _, t := range s.Tasks {
		if t.Error == "" {
			names[t.State] = append(names[t.State], t.Name)
			continue
		}
		lines = append(lines, [2]string{"task", fmt.Sprintf("%s: %s for %s; last error: %s", t.Name, t.State, output.Ago(Seconds(t.Age)), t.Error)})
	}
	var tasks []string
	for _, state := range []string{client.TaskRunning, client.TaskEnded} {
		if len(names[state]) > 0 {
			tasks = append(tasks, state+": "+strings.Join(names[state], ", "))
		}
	}
	if len(tasks) > 0 {
		lines = append(lines, [2]string{"tasks", strings.Join(tasks, "; ")})
	}
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%-12s %s\n", l[0], output.Escape(l[1])); err != nil {
			return err
		}
	}
	return nil
}

// sessionLine describes a guard's session.
func sessionLine(s client.Session) string {
	who := fmt.Sprintf("%s: process %d, up %s", cmp.Or(s.Name, "a guard"), s.PID, output.Ago(Seconds(s.GuardAge)))
	state := "session for " + output.Ago(Seconds(s.Age))
	switch s.State {
	case client.SessionBroken:
		state = "no session for " + output.Ago(Seconds(s.Age))
	case client.SessionSilent:
		state = "no session for " + output.Ago(Seconds(s.Age)) + ", and its open transactions wait for it: check whether the process hangs"
	case client.SessionDead:
		who, state = fmt.Sprintf("%s: process %d", cmp.Or(s.Name, "a guard"), s.PID), "it has ended, and its open transactions are being settled"
	}
	work := fmt.Sprintf("%d transactions open", s.Open)
	if s.Open > 0 {
		work += ", the oldest for " + output.Ago(Seconds(s.Oldest))
	}
	return who + "; " + state + "; " + work
}

// readerLine describes the progress of a reader of the list of moves.
func readerLine(r client.Reader) string {
	who := "guard " + r.Guard[:min(8, len(r.Guard))] + ": "
	if r.Never {
		return who + "has had a session for " + output.Ago(Seconds(r.Age)) + ", but has never read moves: its indexes and caches are not updated; see its log"
	}
	state := "connected for "
	if !r.Connected {
		state = "not connected for "
	}
	line := who + state + output.Ago(Seconds(r.Age)) + "; "
	switch {
	case r.Comparing:
		return line + "comparing everything, because the list does not have all the moves that it missed"
	case r.Unread > 0:
		return line + fmt.Sprintf("%d bytes of moves unread, the oldest for %s", r.Unread, output.Ago(Seconds(r.Oldest)))
	}
	return line + "all moves read"
}

// mirrorLine says which site pushes to a mirror.
func mirrorLine(m client.PushMirror) string {
	since := output.Ago(Seconds(m.Age))
	switch {
	case m.Pushes:
		return fmt.Sprintf("%s: this site has pushed to it for %s; projects waiting: %d", m.Name, since, m.Waiting)
	case m.Error != "":
		return m.Name + ": this site can't push to it: " + m.Error
	case m.Site != "":
		return fmt.Sprintf("%s: site %s has pushed to it for %s", m.Name, m.Site, since)
	}
	return m.Name + ": no site has begun to push to it yet"
}

// gerritLine describes the site's Gerrit.
func gerritLine(g client.Gerrit) string {
	who := g.Path
	if g.PID != 0 {
		who += fmt.Sprintf(": process %d", g.PID)
	}
	age := output.Ago(Seconds(g.Age))
	switch g.State {
	case client.GerritUnguarded:
		return who + "; running WITHOUT THE GUARD for " + age + ": stop it, and run refdbctl gerrit enable"
	case client.GerritUnknown:
		return who + "; the daemon can't determine its state: " + g.Error
	}
	return who + "; " + g.State + " for " + age
}

// yesOrNo returns "yes", or "no" with a reason.
func yesOrNo(ok bool, reason string) string {
	if ok {
		return "yes"
	}
	return "no: " + reason
}

func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// stuckColumns are the columns of refs that an operator has to decide about.
var stuckColumns = []output.Column[client.Stuck]{
	{Name: "project", Value: func(s client.Stuck) any { return s.Project }},
	{Name: "ref", Value: func(s client.Stuck) any { return s.Ref }},
	{Name: "age_seconds", Heading: "AGE", Value: func(s client.Stuck) any { return s.Age },
		Text: func(s client.Stuck) string { return output.Ago(Seconds(s.Age)) }},
	{Name: "reason", Value: func(s client.Stuck) any { return s.Reason }},
}

func (a *App) repairCommand() *cobra.Command {
	var f Flags
	cmd := &cobra.Command{
		Use:   "repair",
		Short: "Resolve the intents that crashed pushes of this site have left",
		Long: `Resolve the intents that crashed pushes of this site have left, while the site's daemon does not run. The contents of
the repositories tell whether an announced push was completed. Decisions that an operator made in the site's absence
are carried out, too. The daemon does both by itself, at its start and continuously: if it runs, this command only
reports the daemon's state.

Run it as root or as the daemon's user; as root, it switches to that user. The exit status is 1 if something is left:
the reasons say what to do.

JSON: an object with "stuck", a list of ` + output.Names(stuckColumns) + `;
and updated, dropped, heeded, under_way, ok.`,
		Example: `  refdbctl site repair`,
		Args:    cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := a.Load(ctx, f)
			if err == nil {
				err = BecomeOwner(c.State)
			}
			if err != nil {
				return err
			}
			limited, cancel := a.Limited(ctx)
			s, err := client.Query(limited, c.Socket)
			cancel()
			if err == nil {
				a.Note("the daemon is running, and resolves the intents by itself")
				return a.printRepair(s)
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
				s, err := site.Repair(ctx, c, db, site.Options{Logger: a.Logger(), DigestKey: []byte(a.Env("REFDB_DIGEST_KEY")), Version: cli.Version()})
				if err != nil {
					return err
				}
				return a.printRepair(s)
			})
		}),
	}
	f.Add(cmd)
	return cmd
}

func (a *App) printRepair(s client.Status) error {
	underWay := 0
	for _, p := range s.Pushes {
		underWay += p.Refs
	}
	n := s.Counters
	err := cli.PrintList(a.Run, "stuck", stuckColumns, cli.All(s.Stuck),
		output.Field{Name: "updated", Value: n.Updated},
		output.Field{Name: "dropped", Value: n.Dropped},
		output.Field{Name: "heeded", Value: n.Heeded},
		output.Field{Name: "under_way", Value: underWay},
		output.Field{Name: "ok", Value: len(s.Stuck) == 0},
	)
	if err != nil {
		return err
	}
	summary := fmt.Sprintf("%d moved, %d kept the old value, %d as an operator decided, %d in progress, %d stuck",
		n.Updated, n.Dropped, n.Heeded, underWay, len(s.Stuck))
	if len(s.Stuck) > 0 {
		return exit.With(exit.Failed, s.Site+": "+summary)
	}
	return a.PrintSummary(s.Site, summary)
}
