package cli

import (
	"fmt"
	"iter"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
)

// PrintOne prints a record for programs, or text, a line for people.
func PrintOne[T any](a *Run, columns []output.Column[T], record T, text string) error {
	if a.Format != output.Table {
		return output.One(a.Out, a.Format, output.Palette{}, columns, record)
	}
	_, err := fmt.Fprintln(a.Out, text)
	return err
}

// PrintRows prints records as they are read.
func PrintRows[T any](a *Run, columns []output.Column[T], records iter.Seq2[T, error]) error {
	w := output.NewWriter(a.Out, a.Format, a.Palette(a.Out), columns)
	if err := writeAll(w, records); err != nil {
		return err
	}
	return w.Close()
}

// PrintReport prints a summary and a list of records. JSON is one object: the list under name, then
// the fields of the summary. CSV has only the records.
func PrintReport[S, T any](a *Run, summaryColumns []output.Column[S], summary S, name string, columns []output.Column[T], records iter.Seq2[T, error]) error {
	if a.Format == output.Table {
		if err := output.One(a.Out, a.Format, a.Palette(a.Out), summaryColumns, summary); err != nil {
			return err
		}
		fmt.Fprintln(a.Out) // if this fails, so does the next line
	}
	var fields []output.Field
	for _, c := range summaryColumns {
		fields = append(fields, output.Field{Name: c.Name, Value: c.Value(summary)})
	}
	return PrintList(a, name, columns, records, fields...)
}

// PrintList prints records. JSON is one object: the list under name, then the fields.
func PrintList[T any](a *Run, name string, columns []output.Column[T], records iter.Seq2[T, error], fields ...output.Field) error {
	w := output.NewReport(a.Out, a.Format, a.Palette(a.Out), name, columns)
	if err := writeAll(w, records); err != nil {
		return err
	}
	return w.CloseWith(fields...)
}

// ShowTable shows records on standard error, before a question.
func ShowTable[T any](a *Run, columns []output.Column[T], records []T) error {
	w := output.NewWriter(a.Messages, output.Table, a.Palette(a.Err), columns)
	if err := writeAll(w, All(records)); err != nil {
		return err
	}
	return w.Close()
}

func writeAll[T any](w *output.Writer[T], records iter.Seq2[T, error]) error {
	for r, err := range records {
		if err == nil {
			err = w.Write(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// All iterates over records that were read without an error.
func All[T any](records []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Collect reads all records.
func Collect[T any](records iter.Seq2[T, error]) (all []T, err error) {
	for r, err := range records {
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}
