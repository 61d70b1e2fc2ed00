package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/groupcommit"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// sendBatch makes the round trip of a batch, with the calls that are still wanted once
// there is a connection.
func (d *Driver) sendBatch(ctx context.Context, calls []call, wanted func() []call) error {
	work := roundtrip.Write("in a batch of requests")
	if len(calls) == 1 {
		work.What = calls[0].What()
	} else {
		work = work.FailAtLockTimeout()
	}
	if slices.ContainsFunc(calls, func(c call) bool { _, ok := c.(*releaseCall); return ok }) {
		work = work.On(roundtrip.Releases)
	}
	work.Late = func() []roundtrip.Statement {
		calls = wanted()
		return d.batch(calls)
	}
	if err := d.pools.Do(ctx, work); err != nil {
		reset(calls)
		return err
	}
	// Callers may have given up meanwhile: so this is not left to them.
	for _, c := range calls {
		c.decide(d)
	}
	return nil
}

// batch is the statements for calls, one for each kind of them. The keys come first,
// so that the transaction, of whose number tokens are made, begins after all that had
// them before.
func (d *Driver) batch(calls []call) (all []roundtrip.Statement) {
	var (
		keyed         []refName
		releases      []*releaseCall
		acquires      []*acquireCall
		plain, others []*updateCall
	)
	f := several
	if len(calls) == 1 {
		f = single
	}
	key := func(c call) (index int32) {
		keyed = append(keyed, c.Key())
		return int32(len(keyed))
	}
	for _, c := range calls {
		switch c := c.(type) {
		case *releaseCall:
			releases = append(releases, c)
		case *acquireCall:
			c.index = key(c)
			acquires = append(acquires, c)
		case *updateCall:
			c.index = key(c)
			if c.plain() {
				plain = append(plain, c)
			} else {
				others = append(others, c)
			}
		}
	}
	switch {
	case len(keyed) == 0:
	case f == single:
		all = append(all, lockRef(keyed[0]))
	default:
		all = append(all, tryRefs(keyed))
	}
	all = slices.Concat(all, releaseStatement(f, releases), plainStatement(f, plain), updateStatement(f, others))
	if len(acquires) > 0 {
		all = append(all, d.lag.raise()...)
	}
	return append(all, acquireStatement(f, acquires)...)
}

// A call is a request about a single ref, with room for its answer.
type call interface {
	groupcommit.Request[refName]
	reset()           // leaves it undecided
	decide(d *Driver) // makes its answer, and wakes those who wait
}

// reset leaves the calls undecided.
func reset[C call](calls []C) {
	for _, c := range calls {
		c.reset()
	}
}

// byName finds a call by its ref, of which a batch has each once.
func byName[C call](calls []C) map[refName]C {
	named := make(map[refName]C, len(calls))
	for _, c := range calls {
		named[c.Key()] = c
	}
	return named
}

// A form is how the statements of a batch take their requests. The rest of their text
// is the same in both forms.
type form int

const (
	// single: one request, in plain arguments, which takes the server a third less
	// time. It waits for its keys.
	single form = iota
	// several: arrays with an element for each request. Only requests whose keys
	// nobody has are served.
	several
)

// bothForms returns the text of a statement in each form.
func bothForms(text func(f form) string) [2]string {
	return [2]string{single: text(single), several: text(several)}
}

// asked selects the requests from the arguments: columns such as "ref text", from $1 on.
//
// Here and in tryRefsSQL unnest is in a SELECT list, because in FROM each array would be copied
// first.
func (f form) asked(columns ...string) string {
	from := map[form]string{single: "$%d::%s", several: "unnest($%d::%s[])"}[f]
	for i, c := range columns {
		name, typ, _ := strings.Cut(c, " ")
		columns[i] = fmt.Sprintf(from+" AS %s", i+1, typ, name)
	}
	return "SELECT " + strings.Join(columns, ", ")
}

// gotKeys holds for a request whose keys were taken; index counts from 1.
func (f form) gotKeys() string {
	if f == single {
		return "true"
	}
	return "strpos(current_setting('refdb.got'), chr(index + 64)) > 0"
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
