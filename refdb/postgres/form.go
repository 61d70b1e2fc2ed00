package postgres

import (
	"fmt"
	"strings"
)

// A form is how the statements of a batch take their requests. What they do with
// them is the same text.
type form int

const (
	// single: of a batch of one, in plain arguments, which takes the server a
	// third less time. Its keys are waited for.
	single form = iota
	// several: in arrays with an element for each. Only those are served whose
	// keys nobody has.
	several
)

// bothForms returns the text of a statement in each form.
func bothForms(text func(f form) string) [2]string {
	return [2]string{single: text(single), several: text(several)}
}

// asked selects the requests from the arguments: columns such as "ref text", from $1 on.
//
// Here and in tryRefsSQL unnest stands in a SELECT list: in FROM each array would
// be copied first.
func (f form) asked(columns ...string) string {
	from := map[form]string{single: "$%d::%s", several: "unnest($%d::%s[])"}[f]
	for i, c := range columns {
		name, typ, _ := strings.Cut(c, " ")
		columns[i] = fmt.Sprintf(from+" AS %s", i+1, typ, name)
	}
	return "SELECT " + strings.Join(columns, ", ")
}

// gotKeys holds for a request whose keys we have, place counting from 1.
func (f form) gotKeys() string {
	if f == single {
		return "true"
	}
	return "strpos(current_setting('refdb.got'), chr(place + 64)) > 0"
}

// column is an argument for a statement of that form.
func column[C, T any](f form, calls []C, of func(C) T) any {
	if f == single {
		return of(calls[0])
	}
	all := make([]T, len(calls))
	for i, c := range calls {
		all[i] = of(c)
	}
	return all
}
