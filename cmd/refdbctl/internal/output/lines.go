package output

import "io"

// Lines print records as they come: each call shows them at once. In JSON each record is an object
// on a line of its own.
type Lines[T any] struct {
	w *Writer[T]
}

// NewLines returns Lines. Nothing ends their output.
func NewLines[T any](w io.Writer, f Format, p Palette, columns []Column[T]) *Lines[T] {
	return &Lines[T]{NewWriter(w, f, p, columns)}
}

// Print prints some records.
func (l *Lines[T]) Print(records ...T) error {
	w := l.w
	for _, r := range records {
		if w.format == JSON {
			writeObject(w.out, w.columns, r)
			w.out.WriteString("\n")
		} else if err := w.Write(r); err != nil {
			return err
		}
	}
	w.flushRows()
	w.csv.Flush()
	return w.out.Flush()
}
