package output

// A Result is a record with what a command did to it, such as "purged".
type Result[T any] struct {
	Record T
	Result string
}

// WithResult returns the columns of a [Result]: the result, then the columns of the record.
func WithResult[T any](columns []Column[T]) []Column[Result[T]] {
	all := []Column[Result[T]]{{Name: "result", Value: func(r Result[T]) any { return r.Result }}}
	for _, c := range columns {
		column := Column[Result[T]]{Name: c.Name, Heading: c.Heading, Hidden: c.Hidden,
			Value: func(r Result[T]) any { return c.Value(r.Record) }}
		if c.Text != nil {
			column.Text = func(r Result[T]) string { return c.Text(r.Record) }
		}
		all = append(all, column)
	}
	return all
}
