package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/groupcommit"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// sendBatch makes the round trip of a batch. The batch consists of the calls that are still wanted
// when a connection is available.
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
	// Some callers may have given up meanwhile, so decide is called here and not by them.
	for _, c := range calls {
		c.decide(d)
	}
	return nil
}

// batch returns the statements for calls, one for each kind of call. The keys come first: the
// transaction, whose number tokens are made from, then begins after all transactions that held the
// keys before.
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
	reset()           // makes it undecided
	decide(d *Driver) // completes its answer, and notifies waiters
}

// reset makes the calls undecided.
func reset[C call](calls []C) {
	for _, c := range calls {
		c.reset()
	}
}

// byName indexes calls by their refs. A batch has at most one call for a ref.
func byName[C call](calls []C) map[refName]C {
	named := make(map[refName]C, len(calls))
	for _, c := range calls {
		named[c.Key()] = c
	}
	return named
}

// A form is the way in which the statements of a batch take their requests. The rest of their text
// is the same in both forms.
type form int

const (
	// single is for one request, in scalar arguments. It costs the server a third less time, and
	// waits for its keys.
	single form = iota
	// several is for arrays with an element for each request. A request whose keys are taken stays
	// undecided.
	several
)

// bothForms returns the text of a statement in each form.
func bothForms(text func(f form) string) [2]string {
	return [2]string{single: text(single), several: text(several)}
}

// asked selects the requests from the arguments: columns such as "ref text", from $1 on.
//
// Here and in tryRefsSQL, unnest is in a SELECT list because in FROM the server would first copy
// each array.
func (f form) asked(columns ...string) string {
	from := map[form]string{single: "$%d::%s", several: "unnest($%d::%s[])"}[f]
	for i, c := range columns {
		name, typ, _ := strings.Cut(c, " ")
		columns[i] = fmt.Sprintf(from+" AS %s", i+1, typ, name)
	}
	return "SELECT " + strings.Join(columns, ", ")
}

// gotKeys is true for a request whose keys were taken; index counts from 1.
func (f form) gotKeys() string {
	if f == single {
		return "true"
	}
	return "strpos(current_setting('refdb.got'), chr(index + 64)) > 0"
}

// column returns an argument for a statement of form f.
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
