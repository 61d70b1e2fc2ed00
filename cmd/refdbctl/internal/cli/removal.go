package cli

import (
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
)

// RemovalResult is how many refs or tombstones of a project were removed, or would be.
type RemovalResult struct {
	Project string
	Refs    int
	DryRun  bool
}

// RemovalColumns are the columns of a RemovalResult.
var RemovalColumns = []output.Column[RemovalResult]{
	{Name: "project", Value: func(r RemovalResult) any { return r.Project }},
	{Name: "removed", Value: func(r RemovalResult) any { return r.Refs }},
	{Name: "dry_run", Value: func(r RemovalResult) any { return r.DryRun }},
}

// PrintRemoval prints how many there were. In a table, a note has said it before if it is a dry run.
func (a *Run) PrintRemoval(r RemovalResult, what string) error {
	if a.Format != output.Table {
		return output.One(a.Out, a.Format, output.Palette{}, RemovalColumns, r)
	}
	if r.DryRun {
		return nil
	}
	_, err := fmt.Fprintf(a.Out, "removed %s of %s\n", output.Count(r.Refs, what), output.Escape(r.Project))
	return err
}

// NoteUnfinished prints how far a removal got that an error, or Ctrl-C, ended.
func (a *Run) NoteUnfinished(project, removed string) {
	if !strings.HasPrefix(removed, "0 ") {
		a.Note("%s: not finished: removed %s; run it again to go on", project, removed)
	}
}
