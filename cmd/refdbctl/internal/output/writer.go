package output

import (
	"bufio"
	"encoding/csv"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
)

// tableChunk is how many rows of a table are laid out together. It bounds the memory that
// a long table needs.
const tableChunk = 1000

// A Writer prints records one by one, in constant memory. Close it. Its methods return the first
// error of writing, also when it occurred earlier.
type Writer[T any] struct {
	format  Format
	columns []Column[T]
	palette Palette
	out     *bufio.Writer
	csv     *csv.Writer
	rows    [][]string
	widths  []int // of the columns shown so far
	begun   bool  // something was written
	// name, unless empty, makes the JSON an object: the records under this name, then
	// the fields given to CloseWith.
	name string
}

// NewWriter returns a Writer whose JSON is an array of objects.
func NewWriter[T any](w io.Writer, f Format, p Palette, columns []Column[T]) *Writer[T] {
	out := bufio.NewWriter(w)
	return &Writer[T]{format: f, columns: columns, palette: p, out: out, csv: csv.NewWriter(out)}
}

// NewReport returns a Writer whose JSON is one object: the array of the records
// under name, then the fields given to CloseWith.
func NewReport[T any](w io.Writer, f Format, p Palette, name string, columns []Column[T]) *Writer[T] {
	report := NewWriter(w, f, p, columns)
	report.name = name
	return report
}

// Write adds a record.
func (w *Writer[T]) Write(record T) error {
	switch w.format {
	case JSON:
		if w.begun {
			w.out.WriteString(",")
		} else {
			w.openJSON()
		}
		w.out.WriteString("\n  ")
		writeObject(w.out, w.columns, record)
	case CSV:
		if err := w.writeCSVHeader(); err != nil {
			return err
		}
		line := make([]string, len(w.columns))
		for i, c := range w.columns {
			line[i] = csvText(c.Value(record))
		}
		if err := w.csv.Write(line); err != nil {
			return err
		}
	default:
		w.rows = append(w.rows, cells(w.columns, record))
		if len(w.rows) == tableChunk {
			w.flushRows()
		}
	}
	w.begun = true
	// A bufio.Writer keeps its first error. An empty write returns it.
	_, err := w.out.Write(nil)
	return err
}

// Close ends the output.
func (w *Writer[T]) Close() error { return w.CloseWith() }

// CloseWith ends the output. In the JSON of a report the fields follow the records; other
// output has no fields.
func (w *Writer[T]) CloseWith(fields ...Field) error {
	switch w.format {
	case JSON:
		if w.begun {
			w.out.WriteString("\n]")
		} else {
			w.openJSON()
			w.out.WriteString("]")
		}
		if w.name != "" {
			for _, f := range fields {
				w.out.WriteString(",\n" + string(encode(f.Name)) + ": ")
				w.out.Write(encode(f.Value))
			}
			w.out.WriteString("}")
		}
		w.out.WriteString("\n")
	case CSV:
		if err := w.writeCSVHeader(); err != nil {
			return err
		}
		w.csv.Flush()
		if err := w.csv.Error(); err != nil {
			return err
		}
	default:
		w.flushRows()
	}
	return w.out.Flush()
}

func (w *Writer[T]) openJSON() {
	if w.name != "" {
		w.out.WriteString("{" + string(encode(w.name)) + ": ")
	}
	w.out.WriteString("[")
}

func (w *Writer[T]) writeCSVHeader() error {
	if w.begun {
		return nil
	}
	w.begun = true
	names := make([]string, len(w.columns))
	for i, c := range w.columns {
		names[i] = c.Name
	}
	return w.csv.Write(names)
}

// flushRows prints the collected rows of a table. No column gets narrower from one chunk to
// the next.
func (w *Writer[T]) flushRows() {
	if len(w.rows) == 0 {
		return
	}
	var shown []Column[T]
	for _, c := range w.columns {
		if !c.Hidden {
			shown = append(shown, c)
		}
	}
	t := newTable()
	configs := make([]table.ColumnConfig, len(shown))
	first := w.widths == nil
	if first {
		w.widths = make([]int, len(shown))
		head := make(table.Row, len(shown))
		for i, c := range shown {
			head[i] = w.palette.Bold(c.heading())
			w.widths[i] = len(c.heading())
		}
		t.AppendHeader(head)
	}
	for _, cells := range w.rows {
		row := make(table.Row, len(cells))
		for i, cell := range cells {
			row[i] = cell
			w.widths[i] = max(w.widths[i], displayWidth(cell))
		}
		t.AppendRow(row)
	}
	for i, width := range w.widths {
		configs[i] = table.ColumnConfig{Number: i + 1, WidthMin: width}
	}
	t.SetColumnConfigs(configs)
	w.out.WriteString(t.Render() + "\n")
	w.rows = w.rows[:0]
}

// cells returns the row of a table for a record.
func cells[T any](columns []Column[T], record T) []string {
	var row []string
	for _, c := range columns {
		if !c.Hidden {
			row = append(row, c.text(record))
		}
	}
	return row
}

// One prints a single record: an object in JSON, a line per field in a table.
func One[T any](w io.Writer, f Format, p Palette, columns []Column[T], record T) error {
	switch f {
	case JSON:
		out := bufio.NewWriter(w)
		writeObject(out, columns, record)
		out.WriteString("\n")
		return out.Flush()
	case CSV:
		rows := NewWriter(w, f, p, columns)
		if err := rows.Write(record); err != nil {
			return err
		}
		return rows.Close()
	default:
		t := newTable()
		for _, c := range columns {
			if !c.Hidden {
				t.AppendRow(table.Row{p.Bold(c.heading()), c.text(record)})
			}
		}
		_, err := io.WriteString(w, t.Render()+"\n")
		return err
	}
}

// Nothing prints that there is no record, where [One] would print one: null in JSON,
// the header in CSV, nothing in a table.
func Nothing[T any](w io.Writer, f Format, columns []Column[T]) error {
	switch f {
	case JSON:
		_, err := io.WriteString(w, "null\n")
		return err
	case CSV:
		return NewWriter(w, f, Palette{}, columns).Close()
	default:
		return nil
	}
}

func writeObject[T any](out *bufio.Writer, columns []Column[T], record T) {
	for i, c := range columns {
		if i == 0 {
			out.WriteString("{")
		} else {
			out.WriteString(", ")
		}
		out.Write(encode(c.Name))
		out.WriteString(": ")
		out.Write(encode(c.Value(record)))
	}
	out.WriteString("}")
}
