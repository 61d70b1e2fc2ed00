package cli

import (
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

// PrintRemoval prints how much was removed, and returns err, with which the removal ended. A note
// of the command has already told people what a dry run would remove.
func (a *Run) PrintRemoval(r RemovalResult, noun string, err error) error {
	removed := output.Count(r.Refs, noun)
	switch {
	case err != nil && r.Refs > 0:
		a.Note("%s: not finished: removed %s; run the command again to continue", r.Project, removed)
		return err
	case err != nil || r.DryRun && a.Format == output.Table:
		return err
	}
	return PrintOne(a, RemovalColumns, r, "removed "+removed+" of "+output.Escape(r.Project))
}
