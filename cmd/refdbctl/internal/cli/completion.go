package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// completionLimit is how long a shell waits for names from the database.
	completionLimit = 2 * time.Second
	// maxCompletions is how many names a shell is offered.
	maxCompletions = 200
)

// A names function calls offer with names that begin with what the user has typed, until it returns
// false. args are the arguments before.
type names func(ctx context.Context, db *refdb.DB, args []string, begun string, offer func(name string) bool)

// complete has the shell complete names in the database: the arguments of cmd and of the commands
// below it that their usage lines call so, and values of flags.
func (a *Run) complete(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		a.complete(c)
	}
	if o := operandsOf(cmd.Use); cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() && len(o.all) > 0 {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return a.completeOperand(cmd, o, args, begun)
		}
	}
	for flag, list := range map[string]names{"project": projectNames, "site": siteNames, "without": siteNames, "mirror-at": siteNames, "owner": siteNames} {
		// The flags of a command's parents are completed with these.
		if _, done := cmd.GetFlagCompletionFunc(flag); !done && cmd.LocalFlags().Lookup(flag) != nil {
			Must(cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return a.fromDatabase(cmd, args, begun, list)
			}))
		}
	}
	if cmd.LocalFlags().Lookup("mode") != nil {
		Must(cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]cobra.Completion{config.Enforce, config.Log}, cobra.ShellCompDirectiveNoFileComp)))
	}
}

func (a *Run) completeOperand(cmd *cobra.Command, o operands, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	i := len(args)
	if i >= len(o.all) && o.repeated {
		i = len(o.all) - 1
	}
	if i >= len(o.all) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	switch operand := o.all[i]; {
	case operand == "PROJECT":
		return a.fromDatabase(cmd, args, begun, projectNames)
	case operand == "REF":
		return a.fromDatabase(cmd, args, begun, refNames)
	case operand == "NAME" && cmd.Parent().Name() == "sites":
		return a.fromDatabase(cmd, args, begun, siteNames)
	case operand == "REPO", operand == "SITE_PATH", operand == "DIRECTORY":
		return nil, cobra.ShellCompDirectiveDefault // files
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// fromDatabase returns names from the database. Whatever goes wrong, there are none, or fewer: a
// message would garble the command line. Names that a shell would have to quote are left out.
func (a *Run) fromDatabase(cmd *cobra.Command, args []string, begun string, list names) (found []cobra.Completion, _ cobra.ShellCompDirective) {
	limit := completionLimit
	if a.DaemonPatience > 0 {
		limit = a.DaemonPatience // that of tests
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	a.LogLevel, a.Timeout = logNothing, limit
	_ = a.WithDB(ctx, refdb.Options{}, func(db *refdb.DB) error {
		list(ctx, db, args, begun, func(name string) bool {
			if strings.HasPrefix(name, begun) && wire.ShellWord(name) == name {
				found = append(found, name)
			}
			return len(found) < maxCompletions
		})
		return nil
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}

// projectNames offers the projects that have a row. To find the others, the database would have to
// read all refs.
func projectNames(ctx context.Context, db *refdb.DB, _ []string, _ string, offer func(string) bool) {
	rows, _ := db.Projects().After(ctx, 0)
	slices.SortFunc(rows, func(a, b driver.Project) int { return strings.Compare(a.Project, b.Project) })
	for _, p := range rows {
		if p.Mode != config.Removed && !offer(p.Project) {
			return
		}
	}
}

func refNames(ctx context.Context, db *refdb.DB, args []string, begun string, offer func(string) bool) {
	for ref, err := range db.Refs(ctx, args[0], begun) {
		if err != nil || !offer(ref.Name) {
			return
		}
	}
}

func siteNames(ctx context.Context, db *refdb.DB, _ []string, _ string, offer func(string) bool) {
	sites, _ := presence.Sites(ctx, db)
	for _, name := range sites {
		if !offer(name) {
			return
		}
	}
}
