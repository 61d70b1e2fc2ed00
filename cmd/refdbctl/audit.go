package main

import (
	"context"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/timespec"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/audit"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func (a *app) auditCommand() *cobra.Command {
	return cli.Group("audit", "Show what operators did", a.auditListCommand())
}

var auditColumns = []output.Column[driver.AuditEntry]{
	{Name: "time", Value: func(e driver.AuditEntry) any { return e.Time.UTC().Format(time.RFC3339Nano) },
		Text: func(e driver.AuditEntry) string { return e.Time.UTC().Format("2006-01-02 15:04:05Z") }},
	{Name: "who", Value: func(e driver.AuditEntry) any { return e.Who }},
	{Name: "origin", Value: func(e driver.AuditEntry) any { return e.Origin }},
	{Name: "action", Value: func(e driver.AuditEntry) any { return e.Action }},
	{Name: "project", Value: func(e driver.AuditEntry) any { return output.OrNil(e.Project != "", e.Project) }},
	{Name: "detail", Value: func(e driver.AuditEntry) any { return e.Detail }},
	{Name: "reason", Value: func(e driver.AuditEntry) any { return output.OrNil(e.Reason != "", e.Reason) }},
	{Name: "outcome", Value: func(e driver.AuditEntry) any { return output.OrNil(!e.Ended.IsZero(), e.Outcome) },
		Text: func(e driver.AuditEntry) string {
			if e.Ended.IsZero() {
				return "not known"
			}
			return output.Escape(e.Outcome)
		}},
	{Name: "id", Value: func(e driver.AuditEntry) any { return e.ID }, Hidden: true},
}

func (a *app) auditListCommand() *cobra.Command {
	var f audit.Filter
	var since string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what operators did",
		Long: `List what was purged, resolved, forced, removed or changed with refdbctl: by whom, from where and why, in order of the
database's timestamps. Each entry is written before the operation. An entry without an outcome belongs to a command
that is in progress, or has died: its operation may have been done.

--since is ` + timespec.Forms + `.

Fields: ` + output.Names(auditColumns),
		Example: `  refdbctl audit list --project my/project --since 7d
  refdbctl audit list -o json`,
		Args: cobra.NoArgs,
		RunE: a.Body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if f.Project != "" {
				if err := driver.CheckProject(f.Project); err != nil {
					return err
				}
			}
			return a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) (err error) {
				if f.Since, err = a.Since(ctx, db, since); err != nil {
					return err
				}
				return cli.PrintRows(a.Run, auditColumns, cli.WithRowTimeout(ctx, a.Run, func(ctx context.Context) iter.Seq2[driver.AuditEntry, error] {
					return db.Audit().All(ctx, f)
				}))
			})
		}),
	}
	cmd.Flags().StringVar(&f.Project, "project", "", "only operations on this `project`")
	cmd.Flags().StringVar(&since, "since", "", "only operations since this `time`")
	return cmd
}
