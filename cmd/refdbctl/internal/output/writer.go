package output

import (
	"bufio"
	"encoding/csv"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
)

// tableChunk is how many rows of a table are laid out together: a table of any
// length needs no more memory than that.
const tableChunk = 1000

// A Writer prints records one by one, in constant memory. Close it.
type Writer[T any] struct {
	format  Format
	columns []Column[T]
	palette Palette
	out     *bufio.Writer
	csv     *csv.Writer
	rows    [][]string
	widths  []int
	begun   bool
	// name, unless empty, makes the JSON an object that holds the records under
	// that name, and then the fields given to CloseWith.
	name string
}

// NewWriter returns a Writer whose JSON is an array of objects.
func NewWriter[T any](w io.Writer, f Format, p Palette, columns []Column[T]) *Writer[T] {
	out := bufio.NewWriter(w)
	return &Writer[T]{format: f, columns: columns, palette: p, out: out, csv: csv.NewWriter(out)}
}

// NewReport returns a Writer whose JSON is one object: the array of the
// records under that name, then the fields given to CloseWith.
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
		if err := w.headCSV(); err != nil {
			return err
		}
		line := make([]string, len(w.columns))
		for i, c := range w.columns {
			line[i] = plain(c.Value(record))
		}
		if err := w.csv.Write(line); err != nil {
			return err
		}
	default:
		w.rows = append(w.rows, texts(w.columns, record))
		if len(w.rows) == tableChunk {
			w.layOut()
		}
	}
	w.begun = true
	// A bufio.Writer keeps its first error; this is where it is heard of.
	_, err := w.out.Write(nil)
	return err
}

// Close ends the output.
func (w *Writer[T]) Close() error { return w.CloseWith() }

// CloseWith ends the output; in the JSON of a report the fields follow the records.
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
		if err := w.headCSV(); err != nil {
			return err
		}
		w.csv.Flush()
		if err := w.csv.Error(); err != nil {
			return err
		}
	default:
		w.layOut()
	}
	return w.out.Flush()
}

func (w *Writer[T]) openJSON() {
	if w.name != "" {
		w.out.WriteString("{" + string(encode(w.name)) + ": ")
	}
	w.out.WriteString("[")
}

func (w *Writer[T]) headCSV() error {
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

// layOut prints the rows collected so far; no column gets narrower from one
// chunk to the next.
func (w *Writer[T]) layOut() {
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

// texts are the cells of a table's row.
func texts[T any](columns []Column[T], record T) []string {
	var cells []string
	for _, c := range columns {
		if !c.Hidden {
			cells = append(cells, c.text(record))
		}
	}
	return cells
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

// Nothing prints that there is no record where [One] would have printed it: null
// in JSON, and nothing in a table.
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
