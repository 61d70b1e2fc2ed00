package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/site"
)

func (a *app) siteStatusCommand() *cobra.Command {
	var f siteFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Ask the site daemon how it is",
		Long: `Ask the site daemon how it is: whether it serves, what pushes are under way, and which refs are stuck
because the repository has neither the value that was announced nor the one before.

The status is 1 if it does not answer, can't serve, or something is stuck. With -o json all that it
says is printed as one object.`,
		Example: `  refdbctl site status
  refdbctl site status -o json`,
		Args: cobra.NoArgs,
		RunE: a.body(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			c, err := site.LoadConfig(ctx, string(f.config)) // it needs no database
			if err != nil {
				return err
			}
			limited, cancel := a.limited(ctx)
			defer cancel()
			s, err := site.Query(limited, c.Socket)
			if err != nil {
				return err
			}
			if a.format == output.JSON {
				enc := json.NewEncoder(a.out)
				enc.SetEscapeHTML(false)
				enc.SetIndent("", "  ")
				err = enc.Encode(s)
			} else {
				err = printStatus(a.out, s)
			}
			if err == nil && !s.OK() {
				err = &status{exitError, ""}
			}
			return err
		}),
	}
	f.add(cmd)
	return cmd
}

func printStatus(w io.Writer, s site.Status) error {
	lines := [][2]string{
		{"site", s.Site},
		{"version", s.Version},
		{"process", fmt.Sprintf("%d, up %s", s.PID, ago(seconds(s.Uptime)))},
		{"serving", fine(s.Presence, s.PresenceError)},
		{"database", fine(s.Database, s.DatabaseError)},
		{"repositories", fmt.Sprint(s.Repositories)},
	}
	for _, p := range s.Pushes {
		lines = append(lines, [2]string{"push", fmt.Sprintf("%s: %d refs, process %d, since %s", p.Project, p.Refs, p.PID, ago(seconds(p.Age)))})
	}
	for _, x := range s.Stuck {
		lines = append(lines, [2]string{"stuck", fmt.Sprintf("%s %s since %s: %s", x.Project, x.Ref, ago(seconds(x.Age)), x.Reason)})
	}
	n := s.Counters
	lines = append(lines, [2]string{"since start", fmt.Sprintf("%d transactions let through, %d refused; %d refs moved, %d kept; %d alarms; %d pushes died; %d decisions carried out; %d failures of the database",
		n.Prepared, n.Refused, n.Updated, n.Dropped, n.Alarms, n.Deaths, n.Heeded, n.Failures)})
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%-12s %s\n", l[0], output.Escape(l[1])); err != nil {
			return err
		}
	}
	return nil
}

func fine(ok bool, reason string) string {
	if ok {
		return "yes"
	}
	return "no: " + reason
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
