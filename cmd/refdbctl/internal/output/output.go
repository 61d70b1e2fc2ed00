// Package output prints records as a table for people, or as JSON or CSV for
// programs. One list of columns serves all three, so that a field has the same
// name everywhere, and help texts can name the fields without repeating them.
package output

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A Format is what records are printed as. It is a flag's value.
type Format string

const (
	Table Format = "table"
	JSON  Format = "json"
	CSV   Format = "csv"
)

// Formats are all of them, the default first.
var Formats = [...]string{string(Table), string(JSON), string(CSV)}

func (f *Format) String() string { return string(*f) }

// Type names the value in help texts.
func (f *Format) Type() string { return "format" }

// Set accepts the name of a format.
func (f *Format) Set(s string) error {
	for _, known := range Formats {
		if s == known {
			*f = Format(s)
			return nil
		}
	}
	return fmt.Errorf("give one of %s", strings.Join(Formats[:], ", "))
}

// A Column is one field of records of type T.
type Column[T any] struct {
	// Name is the field's name in JSON and CSV.
	Name string
	// Heading is the name in a table; "": Name, in capitals.
	Heading string
	// Value is what JSON and CSV hold: nil, a string, bool, number or time.Time.
	Value func(T) any
	// Text is what a table shows; nil: Value.
	Text func(T) string
	// Hidden keeps the field out of tables.
	Hidden bool
}

// Names lists the names of columns, for help texts.
func Names[T any](columns []Column[T]) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

func (c Column[T]) heading() string {
	if c.Heading != "" {
		return c.Heading
	}
	return strings.ToUpper(strings.ReplaceAll(c.Name, "_", " "))
}

func (c Column[T]) text(record T) string {
	if c.Text != nil {
		return c.Text(record)
	}
	return Escape(plain(c.Value(record)))
}

// A Field is a named value beside the records.
type Field struct {
	Name  string
	Value any
}

const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// plain is the value as CSV holds it.
func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return Escape(v) // a terminal may show it
	case time.Time:
		return v.UTC().Format(timeLayout)
	default:
		return string(encode(v))
	}
}

// encode is the value as JSON holds it.
func encode(v any) []byte {
	switch t := v.(type) {
	case time.Time:
		v = t.UTC().Format(timeLayout)
	case string:
		if !utf8.ValidString(t) {
			v = Escape(t)
		}
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		// Columns hold only what JSON can.
		panic(fmt.Sprintf("a column holds %T: %v", v, err))
	}
	return escapeJSON(strings.TrimSuffix(b.String(), "\n"))
}

// Seconds is a duration as programs get it: a number of seconds, to the microsecond.
func Seconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1e6
}
