package main

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// A lockChange ends the listed locks or intents at once, except those that changed meanwhile.
type lockChange[T comparable] struct {
	act      cli.Act
	rows     []T
	columns  func(output.Palette) []output.Column[T]
	show     func() error
	question string

	noun       string // of a row
	verb, done string // "purge", "purged"
	kept, why  string // the result of an unchanged row; a format that explains their number

	change func(ctx context.Context) (changed []T, err error)
}

func (l lockChange[T]) run(ctx context.Context, a *app, db *refdb.DB, c cli.Confirmation) error {
	if len(l.rows) == 0 {
		if err := cli.NewResults(a.Run, l.columns(a.Palette(a.Out))).Close(); err != nil {
			return err
		}
		a.Note("nothing to %s", l.verb)
		return nil
	}
	var changed []T
	return c.Perform(ctx, a.Run, db, cli.Operation{
		Act: l.act, Show: l.show, Question: l.question,
		Do: func() (outcome string, err error) {
			limited, cancel := a.Limited(ctx)
			defer cancel()
			changed, err = l.change(limited)
			return fmt.Sprintf("%s %d of %d", l.done, len(changed), len(l.rows)), err
		},
		Print: func(err error) error {
			if err != nil {
				return fmt.Errorf("after %s: %w", output.Count(len(changed), l.noun), err)
			}
			return l.print(a, changed, c.DryRun)
		},
	})
}

// print prints the rows with their results.
func (l lockChange[T]) print(a *app, changed []T, dryRun bool) error {
	isChanged := make(map[T]bool, len(changed))
	for _, r := range changed {
		isChanged[r] = true
	}
	results := cli.NewResults(a.Run, l.columns(a.Palette(a.Out)))
	for _, r := range l.rows {
		result := l.kept
		switch {
		case dryRun:
			result = "would_" + l.verb
		case isChanged[r]:
			result = l.done
		}
		if err := results.Add(r, result); err != nil {
			return err
		}
	}
	if err := results.Close(); err != nil {
		return err
	}
	switch kept := results.Count(l.kept); {
	case dryRun:
		a.Note("would %s %s", l.verb, output.Count(len(l.rows), l.noun))
	case kept > 0:
		a.Note("%s %s; "+l.why, l.done, output.Count(len(changed), l.noun), kept)
	default:
		a.Note("%s %s", l.done, output.Count(len(changed), l.noun))
	}
	return nil
}
