package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/lease"
	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/grants"
	"github.com/globalrefdb/globalrefdb/service/access"
)

// modeOf returns the mode of a request; one that package lease refuses if the request has none.
func modeOf(m refdbv1.LeaseMode) lease.Mode {
	switch m {
	case refdbv1.LeaseMode_LEASE_MODE_SHARED:
		return lease.Shared
	case refdbv1.LeaseMode_LEASE_MODE_EXCLUSIVE:
		return lease.Exclusive
	}
	return 0
}

// lease makes a an acquisition of a lease. Its place among those that wait is the row of the lease itself,
// which a repeat finds by the owner.
func (s *Service) lease(a *acquisition, r *refdbv1.AcquireRequest) {
	part := strings.ToLower(rand.Text())
	if unique := cmp.Or(r.RequestId, a.place); unique != "" {
		part = nameOf("lease", unique, r.Project, a.lease.String(), r.Lease.Name, r.Lease.Mode.String())
	}
	a.owner = access.Owner(a.caller.Subject, part)
	q := lease.GrantRequest{
		Project: r.Project, Name: r.Lease.Name, Mode: modeOf(r.Lease.Mode),
		Owner: a.owner, Row: part, StaleAfter: a.lease, Queue: a.place != "",
	}
	a.send = func(ctx context.Context) (got grants.Acquired, err error) {
		end, err := s.turn(ctx, a.caller, true, a.may)
		if err != nil {
			return got, err
		}
		defer end()
		got, err = begin(ctx, s, func(ctx context.Context) (got grants.Acquired, err error) {
			got.Grant, got.Existing, err = lease.Grant(ctx, s.db, q)
			return got, err
		})
		// With a ticket the row stays: a repeat at another server has perhaps told the client that it is the lease.
		if a.place != "" && a.ticket == "" && got.Token != 0 && errors.Is(err, refdb.ErrLocked) {
			a.leave = func(ctx context.Context) error { return s.leaveRow(ctx, got.Grant) }
		}
		return got, err
	}
}

// leaveRow gives up the row of a caller that waits for a lease.
func (s *Service) leaveRow(ctx context.Context, row grants.Grant) error {
	err := s.db.Grants().Release(ctx, row)
	if errors.Is(err, refdb.ErrLockLost) {
		return nil
	}
	return err
}

// entryWait is for how long a call that doesn't wait tries again while others, for a moment, have the entry
// lock of the lease.
const entryWait = 2 * time.Second

// isEntry reports whether nothing but the entry lock of a lease is in the way.
func isEntry(e *refdb.LockedError) bool {
	return len(e.Holders) == 1 && strings.HasPrefix(e.Holders[0].Ref, leaseRefs) && !isLease([]string{e.Holders[0].Ref})
}

// namedBy returns the refs by which rules name locks: a ref itself, but for the rows of a lease the ref that
// stands for the lease.
func namedBy(refs []string) []string {
	if !slices.ContainsFunc(refs, func(ref string) bool { return strings.HasPrefix(ref, leaseRefs) }) {
		return refs
	}
	named := slices.Clone(refs)
	for i, ref := range refs {
		if strings.HasPrefix(ref, leaseRefs) {
			named[i] = ref[:strings.LastIndexByte(ref, '/')]
		}
	}
	return named
}

// isLease reports whether the refs of a lock are those of a lease: its row.
func isLease(refs []string) bool {
	return len(refs) == 1 && slices.ContainsFunc(refs, func(ref string) bool {
		_, _, ok := lease.ParseRef(ref)
		return ok
	})
}
