package cli

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/internal/redact"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// An Act is an operator's action. The audit records it before it is done.
type Act struct {
	Action  string // the command
	Project string // "" for several projects
	Detail  string
	Reason
}

// Reason is the value of --reason, a flag of all commands that are recorded.
type Reason string

// AddFlag adds the flag to a command.
func (r *Reason) AddFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(r), "reason", "", "the reason, a `text` that refdbctl audit list shows")
}

// ForceSuffix is appended to the action of an act.
func ForceSuffix(force bool) string {
	if force {
		return " --force"
	}
	return ""
}

// concludeLimit bounds the time for writing the outcome of an act, which Ctrl-C does not interrupt.
const concludeLimit = 5 * time.Second

// Audited records an act in the database's audit, calls do, and records the outcome that do
// returns. If the act can't be recorded, Audited does not call do.
func (a *Run) Audited(ctx context.Context, db *refdb.DB, what Act, do func() (outcome string, err error)) error {
	limited, cancel := a.Limited(ctx)
	entry, err := db.Audit().Record(limited, driver.AuditEntry{
		Who: a.Who(), Origin: a.origin(), Action: what.Action, Project: what.Project, Detail: what.Detail, Reason: string(what.Reason),
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
		outcome = strings.TrimPrefix(outcome+"; "+strings.Join(strings.Fields(redact.Text(err.Error(), a.URL)), " "), "; ")
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeLimit)
	defer cancel()
	if err := db.Audit().Conclude(ending, entry, outcome); err != nil {
		a.Note("warning: the outcome of %s was not recorded in the audit: %s", what.Action, err)
	}
	return err
}

// RequireRights returns an error if this user lacks a right for one of the steps of a command.
func (a *Run) RequireRights(ctx context.Context, db *refdb.DB, command string) error {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	return db.Operator().CheckRights(limited, command)
}

// Who returns the user of this program, as user@host, and the user who ran sudo, if any.
func (a *Run) Who() string {
	name := a.User
	if by := a.Env("SUDO_USER"); by != "" {
		name += " (sudo by " + by + ")"
	}
	return storable(name)
}

// Operator returns the user of this process, as user@host.
func Operator() string {
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

// origin returns the host and, in an SSH session, the client's address.
func (a *Run) origin() string {
	if from, _, _ := strings.Cut(a.Env("SSH_CONNECTION"), " "); from != "" {
		return storable(hostname() + ", ssh from " + from)
	}
	return storable(hostname())
}

// storable returns text from the environment in a form that the databases can store.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
}

// By returns the user of this program as the history records it, and as pushers may read it.
func (a *Run) By() string { return recordable(a.Who()) }

// recordable returns a user's name in a form that the history can record, truncated if necessary.
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

// DescribeProject returns a project's rules and mode for the audit.
func DescribeProject(p driver.Project) string {
	return strings.ReplaceAll(p.Rules, "\n", "; ") + " (" + p.Mode + ")"
}
