package main

import (
	"context"
	"fmt"
	"iter"
	"os"
	"os/user"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/past"
	"github.com/globalrefdb/globalrefdb/refdb"
)

func (a *app) auditCommand() *cobra.Command {
	return group("audit", "Look at what operators did", a.auditListCommand())
}

var auditColumns = []output.Column[refdb.AuditEntry]{
	{Name: "time", Value: func(e refdb.AuditEntry) any { return e.Time.UTC().Format(time.RFC3339Nano) },
		Text: func(e refdb.AuditEntry) string { return e.Time.UTC().Format("2006-01-02 15:04:05Z") }},
	{Name: "who", Value: func(e refdb.AuditEntry) any { return e.Who }},
	{Name: "origin", Value: func(e refdb.AuditEntry) any { return e.Origin }},
	{Name: "action", Value: func(e refdb.AuditEntry) any { return e.Action }},
	{Name: "project", Value: func(e refdb.AuditEntry) any { return orNil(e.Project != "", e.Project) }},
	{Name: "detail", Value: func(e refdb.AuditEntry) any { return e.Detail }},
	{Name: "reason", Value: func(e refdb.AuditEntry) any { return orNil(e.Reason != "", e.Reason) }},
	{Name: "outcome", Value: func(e refdb.AuditEntry) any { return orNil(!e.Ended.IsZero(), e.Outcome) },
		Text: func(e refdb.AuditEntry) string {
			if e.Ended.IsZero() {
				return "not known"
			}
			return output.Escape(e.Outcome)
		}},
	{Name: "id", Value: func(e refdb.AuditEntry) any { return e.ID }, Hidden: true},
}

func (a *app) auditListCommand() *cobra.Command {
	var f refdb.AuditFilter
	var since string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what operators did",
		Long: `List what was purged, resolved, forced, removed or changed with refdbctl: by whom, from where and why, in
the order of the database's times. Each line was written before the act. One without an outcome is of a
command that is under way, or died: what it was about to do may have been done.

--since is ` + past.Forms + `.

Fields: ` + output.Names(auditColumns),
		Example: `  refdbctl audit list --project my/project --since 7d
  refdbctl audit list -o json`,
		Args: cobra.NoArgs,
		RunE: a.body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if f.Project != "" {
				if err := refdb.CheckProject(f.Project); err != nil {
					return err
				}
			}
			return a.withDB(ctx, refdb.Options{}, func(db *refdb.DB) (err error) {
				if f.Since, err = a.since(ctx, db, since); err != nil {
					return err
				}
				w := output.NewWriter(a.out, a.format, a.palette(a.out), auditColumns)
				for e, err := range withRowTimeout(ctx, a, func(ctx context.Context) iter.Seq2[refdb.AuditEntry, error] { return db.Audit(ctx, f) }) {
					if err == nil {
						err = w.Write(e)
					}
					if err != nil {
						return err
					}
				}
				return w.Close()
			})
		}),
	}
	cmd.Flags().StringVar(&f.Project, "project", "", "only what was done to this `project`")
	cmd.Flags().StringVar(&since, "since", "", "only what was done from that `time` on")
	return cmd
}

// since parses --since: a time, or an age, which is subtracted from the database's time.
func (a *app) since(ctx context.Context, db *refdb.DB, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := past.ParseTime(text)
	if err != nil {
		return time.Time{}, usage(fmt.Sprintf("--since %q: %s", text, err))
	}
	now, err := a.now(ctx, db)
	return t.Resolve(now), err
}

// now returns the database's time.
func (a *app) now(ctx context.Context, db *refdb.DB) (time.Time, error) {
	limited, cancel := a.limited(ctx)
	defer cancel()
	return db.Now(limited)
}

// An act is something that an operator does. It is recorded before it is done.
type act struct {
	action  string // the command
	project string // "" for several projects
	detail  string
	reason
}

// reason is the value of --reason, a flag of all commands that are recorded.
type reason string

func (r *reason) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(r), "reason", "", "why, a `text` that refdbctl audit list shows")
}

// forceSuffix is appended to the action of an act.
func forceSuffix(force bool) string {
	if force {
		return " --force"
	}
	return ""
}

// enumerate joins the first 100 items, so that they fit the detail of an audit entry.
func enumerate(items []string) string {
	const most = 100
	if n := len(items); n > most {
		return strings.Join(items[:most], "; ") + fmt.Sprintf("; and %d more", n-most)
	}
	return strings.Join(items, "; ")
}

// concludeLimit bounds how long writing the outcome of an act may take. Ctrl-C does not end it.
const concludeLimit = 5 * time.Second

// audited records an act in the database's audit, calls do, and records the outcome that do
// returns. If the act can't be recorded, do is not called.
func (a *app) audited(ctx context.Context, db *refdb.DB, what act, do func() (outcome string, err error)) error {
	limited, cancel := a.limited(ctx)
	entry, err := db.Record(limited, refdb.AuditEntry{
		Who: a.who(), Origin: a.origin(), Action: what.action, Project: what.project, Detail: what.detail, Reason: string(what.reason),
	})
	cancel()
	if err != nil {
		return fmt.Errorf("nothing was done: %w", err)
	}
	outcome, err := do()
	switch {
	case err == nil && outcome == "":
		outcome = "done"
	case err != nil:
		outcome = strings.TrimPrefix(outcome+"; "+strings.Join(strings.Fields(redact(err.Error(), a.url)), " "), "; ")
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeLimit)
	defer cancel()
	if err := db.Conclude(ending, entry, outcome); err != nil {
		a.note("warning: the audit has no outcome of %s: %s", what.action, err)
	}
	return err
}

// who returns the user of this program, as user@host, and who became that user by sudo.
func (a *app) who() string {
	name := a.user
	if by := a.env("SUDO_USER"); by != "" {
		name += " (sudo by " + by + ")"
	}
	return storable(name)
}

// operator returns who runs this process, as user@host.
func operator() string {
	name := fmt.Sprintf("uid %d", os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return name + "@" + hostname()
}

func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// origin returns where the user is: the host and, in an SSH session, the client's address.
func (a *app) origin() string {
	if from, _, _ := strings.Cut(a.env("SSH_CONNECTION"), " "); from != "" {
		return storable(hostname() + ", ssh from " + from)
	}
	return storable(hostname())
}

// storable returns text from the environment in a form that the databases can store.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
}

// recordable returns a user in a form that the history can record: the part before what does not fit.
func recordable(who string) string {
	const most = 200 // bytes, the limit of refdb.Options.By
	who = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, who)
	if len(who) > most {
		who = strings.ToValidUTF8(who[:most], "")
	}
	return who
}
