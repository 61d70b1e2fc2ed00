package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/migrations"
)

// version is this program's own.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// build is what "version" prints.
type build struct{}

var buildColumns = []output.Column[build]{
	{Name: "version", Value: func(build) any { return version() }},
	{Name: "go", Value: func(build) any { return runtime.Version() }},
	{Name: "platform", Value: func(build) any { return runtime.GOOS + "/" + runtime.GOARCH }},
	// All kinds of databases have the same versions.
	{Name: "schema", Value: func(build) any { return migrations.Latest(migrations.SQLite) }},
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Long: `Print the version of this program, what it was built with, and the version of the schema that it
needs; "refdbctl migrate version" prints the database's. No database is asked.

Fields: ` + output.Names(buildColumns),
		Example: `  refdbctl version -o json`,
		Args:    cobra.NoArgs,
		RunE: a.body(func(context.Context, *cobra.Command, []string) error {
			return output.One(a.out, a.format, a.palette(a.out), buildColumns, build{})
		}),
	}
}
