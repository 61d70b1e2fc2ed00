// Package output prints records as a table for people, or as JSON or CSV for
// programs. One list of columns serves all three: a field has the same name
// everywhere, and help texts take the names from the list.
package output

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A Format is a format of output. It is the value of a flag.
type Format string

const (
	Table Format = "table"
	JSON  Format = "json"
	CSV   Format = "csv"
)

// Formats are all formats, the default first.
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
	// Heading is the name in a table; "" means Name, in capitals with spaces.
	Heading string
	// Value is what JSON and CSV hold: nil, a string, bool, number or time.Time.
	Value func(T) any
	// Text is what a table shows, and must be safe for a terminal; nil means Value, escaped.
	Text func(T) string
	// Hidden keeps the field out of tables.
	Hidden bool
}

// Optional returns a column of text that may be missing, which is null in JSON and a dash in a
// table.
func Optional[T any](name string, text func(T) string) Column[T] {
	return Column[T]{Name: name,
		Value: func(r T) any { return OrNil(text(r) != "", text(r)) },
		Text:  func(r T) string { return OrDash(text(r) != "", Escape(text(r))) }}
}

// Names lists the names of columns, for help texts, in lines of a help text's width.
func Names[T any](columns []Column[T]) string {
	const width = 110
	var text strings.Builder
	line := 0
	for i, c := range columns {
		switch {
		case i == 0:
		case line+len(c.Name) > width:
			text.WriteString(",\n")
			line = 0
		default:
			text.WriteString(", ")
		}
		text.WriteString(c.Name)
		line += len(c.Name) + len(", ")
	}
	return text.String()
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
	return Escape(csvText(c.Value(record)))
}

// A Field is a named value of a report, beside its records.
type Field struct {
	Name  string
	Value any
}

const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// csvText returns a value as CSV holds it.
func csvText(v any) string {
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

// encode returns a value as JSON.
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
		// A column's values are of types that JSON has.
		panic(fmt.Sprintf("a column holds %T: %v", v, err))
	}
	return escapeJSON(strings.TrimSuffix(b.String(), "\n"))
}

// Seconds returns a duration as JSON and CSV hold it: a number of seconds, to the microsecond.
func Seconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1e6
}
