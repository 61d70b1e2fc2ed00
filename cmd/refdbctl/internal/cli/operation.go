package cli

import (
	"context"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// An Operation is what a command does once it knows what it is about to change: it shows that, asks
// for confirmation, records the act in the audit, acts, and prints the results. A dry run prints
// what the results would be.
type Operation struct {
	Act
	Show     func() error // shows the plan before the question; nil if the question says it all
	Question string
	Name     string // the user confirms by typing this name; "" for y or yes

	Do      func() (outcome string, err error) // acts; the audit records the outcome
	Preview func() error                       // acts in a dry run; nil does nothing
	Print   func(err error) error              // prints the results, given Do's error; nil returns it
}

// Perform performs an operation as the flags say.
func (c *Confirmation) Perform(ctx context.Context, a *Run, db *refdb.DB, o Operation) error {
	var err error
	switch {
	case !c.DryRun:
		if err := c.ask(ctx, a, o); err != nil {
			return err
		}
		err = a.Audited(ctx, db, o.Act, o.Do)
	case o.Preview != nil:
		err = o.Preview()
	}
	if o.Print == nil {
		return err
	}
	return o.Print(err)
}

func (c *Confirmation) ask(ctx context.Context, a *Run, o Operation) error {
	if !c.Yes && o.Show != nil {
		if err := o.Show(); err != nil {
			return err
		}
	}
	if o.Name != "" {
		return c.ConfirmByName(ctx, a, o.Question, o.Name)
	}
	return c.Confirm(ctx, a, o.Question)
}

// Results prints records with what became of each, and counts the results.
type Results[T any] struct {
	rows   *output.Writer[output.Result[T]]
	counts map[string]int
}

// NewResults returns Results that prints the given columns after the result.
func NewResults[T any](a *Run, columns []output.Column[T]) *Results[T] {
	rows := output.NewWriter(a.Out, a.Format, a.Palette(a.Out), output.WithResult(columns))
	return &Results[T]{rows: rows, counts: make(map[string]int)}
}

// Add prints a record.
func (r *Results[T]) Add(record T, result string) error {
	r.counts[result]++
	return r.rows.Write(output.Result[T]{Record: record, Result: result})
}

// Count returns the number of records with a result.
func (r *Results[T]) Count(result string) int { return r.counts[result] }

// Close completes the output, and returns the first error of printing.
func (r *Results[T]) Close() error { return r.rows.Close() }
