package page

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A lockRow is a lock that the visitor may see.
type lockRow struct{ refdb.LockInfo }

// State says who is in the way of whom.
func (l lockRow) State() string {
	switch {
	case l.Intended():
		return "push"
	case l.Idle():
		return "free"
	case l.Reserved():
		return "reserved"
	case l.Stale():
		return "stale"
	}
	return "held"
}

// Held reports whether the lock has a holder; a reservation has the token of the last one.
func (l lockRow) Held() bool { return l.Token != 0 && !l.Reserved() }

// Lease describes the lease that the lock belongs to; "" if it belongs to none.
func (l lockRow) Lease() string {
	name, mode, ok := lease.ParseRef(l.Ref)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s lease %s", mode, name)
}

// Command is what to run next; "" if nothing is wrong.
func (l lockRow) Command() string {
	if l.Held() && !l.Intended() && l.Waiters == 0 && !l.Stale() {
		return ""
	}
	return wire.CommandLine("refdbctl locks show", l.Project, l.Ref)
}

// A lockQuery says which locks to list.
type lockQuery struct {
	Project, Prefix, Owner string
	Stale                  bool
	after                  driver.LockCursor
	matches                func(refdb.LockInfo) bool // nil for all
}

// StaleText is the parameter of a query for stale locks only.
func (q lockQuery) StaleText() string {
	if q.Stale {
		return "1"
	}
	return ""
}

// A lockList is a page of locks.
type lockList struct {
	lockQuery
	Rows []lockRow
	Next *driver.LockCursor // the last row, if there are more; nil if not
	// Cut: many locks were looked at, and some were not.
	Cut bool
}

// locksOf reads a page of the locks that the caller may see. It reads only projects that the caller has a
// right in.
func (p *Page) locksOf(ctx context.Context, caller access.Identity, q lockQuery) (list lockList, err error) {
	list.lockQuery = q
	patterns, err := caller.Projects(access.Read)
	if q.Project != "" {
		if err := caller.May(access.Read, q.Project); err != nil {
			return list, err
		}
		patterns = []access.Pattern{access.Pattern(q.Project)}
	}
	if err != nil {
		return list, err
	}
	looked := 0
	patterns = access.Disjoint(patterns)
	for _, pattern := range patterns {
		for l, err := range p.locksIn(ctx, pattern, q) {
			switch {
			case err != nil:
				return list, err
			case looked == mostLooked:
				list.Cut = true
				return list, nil
			}
			looked++
			if err := caller.May(access.Read, l.Project, l.Ref); errors.Is(err, access.ErrDenied) {
				continue
			} else if err != nil {
				return list, err
			}
			if q.matches != nil && !q.matches(l) {
				continue
			}
			if len(list.Rows) == listed {
				last := list.Rows[listed-1]
				list.Next = &driver.LockCursor{Project: last.Project, Ref: last.Ref}
				return list, nil
			}
			list.Rows = append(list.Rows, lockRow{l})
		}
	}
	return list, nil
}

// locksIn iterates over the locks of the projects that a pattern selects, behind the place of the query.
func (p *Page) locksIn(ctx context.Context, pattern access.Pattern, q lockQuery) iter.Seq2[refdb.LockInfo, error] {
	f := refdb.LockFilter{Prefix: q.Prefix, Owner: q.Owner, Stale: q.Stale}
	start, below := pattern.Prefix()
	if q.Project != "" || !below {
		f.Project, start, below = string(pattern), string(pattern), false
	}
	from := q.after
	switch {
	case !below && from.Project > start || below && from.Project > start && !strings.HasPrefix(from.Project, start):
		return func(func(refdb.LockInfo, error) bool) {} // listed before
	case from.Project < start:
		from = driver.LockCursor{Project: start}
	}
	return func(yield func(refdb.LockInfo, error) bool) {
		for l, err := range p.o.DB.Locks(ctx, f, refdb.Behind(from.Project, from.Ref)) {
			if err == nil && !strings.HasPrefix(l.Project, start) || !yield(l, err) {
				return
			}
		}
	}
}

// showLocks lists the locks that the caller may see.
func (p *Page) showLocks(w http.ResponseWriter, r *http.Request, _ access.Identity) error {
	q, err := lockQueryOf(r.URL.Query())
	if err != nil {
		return err
	}
	var list lockList
	err = p.read(r.Context(), func(ctx context.Context, caller access.Identity) (err error) {
		list, err = p.locksOf(ctx, caller, q)
		return err
	})
	if err != nil {
		return err
	}
	p.render(w, r, http.StatusOK, "locks", "Locks", list)
	return nil
}

func lockQueryOf(v url.Values) (lockQuery, error) {
	q := lockQuery{Project: v.Get("project"), Prefix: v.Get("prefix"), Owner: v.Get("owner"), Stale: v.Get("stale") != ""}
	var faults []error
	if q.Project != "" {
		faults = append(faults, driver.CheckProject(q.Project))
	}
	for _, text := range []string{q.Prefix, q.Owner} {
		if fault := driver.TextFault(text); text != "" && fault != "" {
			faults = append(faults, fmt.Errorf("%w text %.100q: %s", refdb.ErrInvalid, text, fault))
		}
	}
	if after := v.Get("after"); after != "" {
		q.after = driver.LockCursor{Project: after, Ref: v.Get("after_ref")}
		faults = append(faults, driver.CheckKey(q.after.Project, q.after.Ref))
	}
	return q, errors.Join(slices.DeleteFunc(faults, func(err error) bool { return err == nil })...)
}
