package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/globalrefdb/globalrefdb/lease"
	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/grants"
	"github.com/globalrefdb/globalrefdb/service/access"
)

// leaseRefs is the prefix of the refs of package lease. A lock on such a ref would pass for a holder of
// the lease.
const leaseRefs = "refs/leases/"

// While Acquire waits it tries again after pauses that grow from firstPause to lastPause, which is less than
// the time for which free locks are kept for it.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = time.Second
)

// Acquire implements the API.
func (s *Service) Acquire(ctx context.Context, call *connect.Request[refdbv1.AcquireRequest]) (*connect.Response[refdbv1.AcquireResponse], error) {
	r, err := s.acquire(ctx, call.Msg)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	return connect.NewResponse(r), nil
}

func (s *Service) acquire(ctx context.Context, r *refdbv1.AcquireRequest) (*refdbv1.AcquireResponse, error) {
	a, err := s.acquisition(ctx, r)
	if err != nil {
		return nil, err
	}
	pause := firstPause
	for began := time.Now(); ; pause = min(pause*3/2, lastPause) {
		got, err := a.send(ctx)
		var locked *refdb.LockedError
		switch {
		case err == nil:
			return &refdbv1.AcquireResponse{Result: &refdbv1.AcquireResponse_Acquired{Acquired: &refdbv1.Acquired{
				Lock:            &refdbv1.Lock{Project: got.Project, Refs: got.Refs, Owner: got.Owner, Token: int64(got.Token)},
				Values:          refsOf(got.Values),
				LeaseTime:       durationpb.New(a.lease),
				RepeatedRequest: got.Existing,
			}}}, nil
		case errors.Is(err, refdb.ErrOutcomeUnknown):
			if a.ticket == "" && !errors.Is(err, errLeft) {
				a.leavePlace(ctx)
			}
			return &refdbv1.AcquireResponse{Result: &refdbv1.AcquireResponse_Unknown{Unknown: unknown(r.RequestId,
				"the refs may be locked, now or later, until the lease ends")}}, nil
		case errors.As(err, &locked):
			a.locked = locked
		case a.locked == nil:
			return nil, err
		default:
			return a.interrupted(ctx, err)
		}
		left := a.wait - time.Since(began)
		if isEntry(locked) {
			left = max(left, entryWait-time.Since(began))
		}
		if left <= 0 || !s.pause(ctx, min(left, pause/2+mathrand.N(pause))) {
			return a.gaveUp(ctx), nil
		}
	}
}

// An acquisition is a call of Acquire.
type acquisition struct {
	service     *Service
	caller      access.Identity
	project     string
	refs        []string // of a lock; of a lease, the ref that stands for it
	owner       string
	lease, wait time.Duration
	// place names the place among those that wait; "" if the call has none. Without a ticket, the call gives
	// the place up when it ends, as no later call could go on in that place. The ticket is the caller's name
	// for the place.
	place, ticket string
	// send makes one attempt. The error is a *refdb.LockedError if another one makes sense.
	send func(context.Context) (grants.Acquired, error)
	// leave gives the place up; nil as long as the call has none.
	leave func(context.Context) error

	locked *refdb.LockedError // the latest refusal
}

// acquisition returns the acquisition that a request asks for, if it is valid and allowed.
func (s *Service) acquisition(ctx context.Context, r *refdbv1.AcquireRequest) (*acquisition, error) {
	a := &acquisition{service: s, project: r.Project, refs: r.Refs}
	if r.Lease != nil {
		a.refs = []string{lease.RefOf(r.Lease.Name)}
	}
	var err error
	if a.caller, err = authorize(ctx, access.Lock, a.project, a.refs...); err != nil {
		return nil, err
	}
	if a.lease, a.wait, err = times(r); err != nil {
		return nil, err
	}
	if err := checkAcquire(r); err != nil {
		return nil, err
	}
	a.ticket = r.Ticket
	if a.wait > 0 {
		a.ticket = cmp.Or(r.Ticket, r.RequestId)
		a.place = rand.Text()
	}
	a.place = cmp.Or(a.ticket, a.place)
	if r.Lease != nil {
		s.lease(a, r)
	} else {
		s.lock(a, r)
	}
	return a, nil
}

// checkAcquire returns an error wrapping refdb.ErrInvalid if a request contradicts itself.
func checkAcquire(r *refdbv1.AcquireRequest) error {
	err := errors.Join(checkID("request ID", r.RequestId), checkID("ticket", r.Ticket))
	switch {
	case err != nil:
		return err
	case r.Lease != nil && len(r.Refs) > 0:
		return fmt.Errorf("%w request: give refs or a lease", refdb.ErrInvalid)
	case slices.ContainsFunc(r.Refs, func(ref string) bool { return strings.HasPrefix(ref, leaseRefs) }):
		return fmt.Errorf("%w refs: those below %s are the rows of leases", refdb.ErrInvalid, leaseRefs)
	}
	return nil
}

// lock makes a an acquisition of locks on refs.
func (s *Service) lock(a *acquisition, r *refdbv1.AcquireRequest) {
	sorted := slices.Sorted(slices.Values(r.Refs))
	part := strings.ToLower(rand.Text())
	if r.RequestId != "" {
		part = nameOf(append([]string{r.RequestId, r.Project, a.lease.String()}, sorted...)...)
	}
	a.owner = access.Owner(a.caller.Subject, part)
	waiter := nameOf(append([]string{"waiter", a.place, a.caller.Subject, r.Project}, sorted...)...)
	leave := func(ctx context.Context) error {
		return s.db.Grants().Leave(ctx, waiter, a.owner, r.Project, r.Refs...)
	}
	if a.ticket != "" {
		a.leave = leave // the waiter may be in the queues already
	}
	do := func(ctx context.Context) (grants.Acquired, error) {
		if a.leave == nil {
			// A free lock costs a waiter no more than anybody else.
			got, err := s.db.Grants().AcquireUnique(ctx, a.owner, a.lease, r.Project, r.Refs...)
			if a.place == "" || !errors.Is(err, refdb.ErrLocked) || errors.Is(err, refdb.ErrOutcomeUnknown) {
				return got, err
			}
			a.leave = leave
		}
		return s.db.Grants().AcquireInTurn(ctx, waiter, a.owner, a.lease, r.Project, r.Refs...)
	}
	left := func(ctx context.Context, err error) {
		if err != nil && a.leave != nil && a.ticket == "" {
			limited, cancel := context.WithTimeout(ctx, writeLimit)
			defer cancel()
			a.warn(ctx, leave(limited))
		}
	}
	a.send = func(ctx context.Context) (grants.Acquired, error) {
		return beginLasting(ctx, s, a.caller, a.may, do, left)
	}
}

// may returns nil while the caller has the right to the locks.
func (a *acquisition) may() error { return a.caller.May(access.Lock, a.project, a.refs...) }

// interrupted ends a wait for another reason than the locks of others. The call has written its place, so
// that a failure must not say that nothing was done: if the caller can go on, it is told as of the
// latest refusal. A caller that can't go on keeps no place.
func (a *acquisition) interrupted(ctx context.Context, err error) (*refdbv1.AcquireResponse, error) {
	if code, _ := codeOf(err); code == connect.CodeUnavailable || code == connect.CodeCanceled {
		return a.gaveUp(ctx), nil
	}
	a.leavePlace(ctx)
	return nil, err
}

// gaveUp ends the wait.
func (a *acquisition) gaveUp(ctx context.Context) *refdbv1.AcquireResponse {
	if a.ticket == "" {
		a.leavePlace(ctx)
	}
	answer := lockedBy(a.caller, a.locked)
	answer.Ticket = a.ticket
	return &refdbv1.AcquireResponse{Result: &refdbv1.AcquireResponse_Locked{Locked: answer}}
}

// leavePlace gives the place up, also if the call was canceled.
func (a *acquisition) leavePlace(ctx context.Context) {
	if a.leave == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	end, err := a.service.turns.begin(ctx, a.caller.Subject, true)
	if err == nil {
		defer end()
		_, err = begin(ctx, a.service, func(ctx context.Context) (struct{}, error) { return struct{}{}, a.leave(ctx) })
	}
	a.warn(ctx, err)
}

// warn logs that a place could not be given up, if err says so.
func (a *acquisition) warn(ctx context.Context, err error) {
	if err != nil {
		a.service.log.WarnContext(ctx, "a waiter that gave up could not be removed: others wait until its turn ends",
			"class", refdb.ClassOf(err).String())
	}
}

// times returns how long a lock is to stand, and how long to wait for it.
func times(r *refdbv1.AcquireRequest) (lasting, wait time.Duration, err error) {
	if r.LeaseTime != nil && !r.LeaseTime.IsValid() || r.Wait != nil && !r.Wait.IsValid() {
		return 0, 0, fmt.Errorf("%w duration", refdb.ErrInvalid)
	}
	lasting, wait = r.LeaseTime.AsDuration(), r.Wait.AsDuration()
	switch {
	case r.Lease != nil && (lasting < minNamed || lasting > maxNamed):
		err = fmt.Errorf("%w lease time %s: for a lease with a name, give %s to %s", refdb.ErrInvalid, lasting, minNamed, maxNamed)
	case lasting < minLease || lasting > maxLease:
		err = fmt.Errorf("%w lease time %s: give %s to %s", refdb.ErrInvalid, lasting, minLease, maxLease)
	case wait < 0 || wait > MaxWait:
		err = fmt.Errorf("%w wait %s: give at most %s, and repeat the call to wait longer", refdb.ErrInvalid, wait, MaxWait)
	}
	return lasting, wait, err
}

// pause returns false if the call or the server ends before d has passed.
func (s *Service) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.stopping:
	}
	return false
}

// Extend implements the API.
func (s *Service) Extend(ctx context.Context, call *connect.Request[refdbv1.ExtendRequest]) (*connect.Response[refdbv1.ExtendResponse], error) {
	g, err := grantOf(ctx, call.Msg.Lock)
	if err == nil {
		err = s.onGrant(ctx, func(ctx context.Context) error { return s.db.Grants().Extend(ctx, g) })
	}
	var lost *refdb.LostError
	r := &refdbv1.ExtendResponse{}
	switch {
	case err == nil:
		r.Result = &refdbv1.ExtendResponse_Extended{Extended: &refdbv1.Extended{}}
	case errors.As(err, &lost):
		r.Result = &refdbv1.ExtendResponse_Lost{Lost: &refdbv1.Lost{Refs: lost.Refs}}
	case errors.Is(err, refdb.ErrOutcomeUnknown):
		r.Result = &refdbv1.ExtendResponse_Unknown{Unknown: &refdbv1.OutcomeUnknown{Advice: "the lock stands for at least as long as before: extend it again"}}
	default:
		return nil, s.failure(ctx, err)
	}
	return connect.NewResponse(r), nil
}

// Release implements the API.
func (s *Service) Release(ctx context.Context, call *connect.Request[refdbv1.ReleaseRequest]) (*connect.Response[refdbv1.ReleaseResponse], error) {
	g, err := grantOf(ctx, call.Msg.Lock)
	if err == nil {
		err = s.onGrant(ctx, func(ctx context.Context) error { return s.db.Grants().Release(ctx, g) })
	}
	var lost *refdb.LostError
	r := &refdbv1.ReleaseResponse{}
	switch {
	case err == nil:
		r.Result = &refdbv1.ReleaseResponse_Released{Released: &refdbv1.Released{}}
	case errors.As(err, &lost):
		r.Result = &refdbv1.ReleaseResponse_Lost{Lost: &refdbv1.Lost{Refs: lost.Refs}}
	case errors.Is(err, refdb.ErrOutcomeUnknown):
		r.Result = &refdbv1.ReleaseResponse_Unknown{Unknown: &refdbv1.OutcomeUnknown{Advice: "release the lock again: if it is lost then, this request may have released it"}}
	default:
		return nil, s.failure(ctx, err)
	}
	return connect.NewResponse(r), nil
}

// onGrant calls do, which writes. It waits for no turn, behind which a lock could be lost: drivers keep
// connections for beats and releases.
func (s *Service) onGrant(ctx context.Context, do func(context.Context) error) error {
	_, err := begin(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}

// grantOf returns the caller's grant that a lock of the API names.
func grantOf(ctx context.Context, l *refdbv1.Lock) (grants.Grant, error) {
	if l == nil {
		return grants.Grant{}, fmt.Errorf("%w request: it names no lock", refdb.ErrInvalid)
	}
	caller, err := authorize(ctx, access.Lock, l.Project, namedBy(l.Refs)...)
	if err != nil {
		return grants.Grant{}, err
	}
	return ownGrant(caller, l)
}

func ownGrant(caller access.Identity, l *refdbv1.Lock) (grants.Grant, error) {
	if !access.Owns(caller.Subject, l.Owner) {
		return grants.Grant{}, fmt.Errorf("%w: the lock is not one of the subject %s", access.ErrDenied, caller.Subject)
	}
	return grants.Grant{Project: l.Project, Refs: l.Refs, Owner: l.Owner, Token: refdb.Token(l.Token)}, nil
}

// lockedBy names the holders of those locked refs that the caller may read. The caller may be unable to
// read others, whose names conflict with names of refs that it creates.
func lockedBy(caller access.Identity, e *refdb.LockedError) *refdbv1.Locked {
	locked := &refdbv1.Locked{}
	for _, h := range e.Holders {
		if h.Stale() || caller.May(access.Read, h.Project, namedBy([]string{h.Ref})...) != nil {
			continue
		}
		subject, _ := access.SubjectOf(h.Owner)
		holder := &refdbv1.Holder{Ref: h.Ref, Owner: h.Owner, Subject: subject, Age: durationpb.New(h.Age), PendingChange: h.Intended()}
		if !h.Intended() {
			holder.StaleAfter = durationpb.New(h.StaleAfter)
		}
		locked.Holders = append(locked.Holders, holder)
	}
	return locked
}

// unknown says what to do about a request with an unknown outcome.
func unknown(requestID, state string) *refdbv1.OutcomeUnknown {
	if requestID != "" {
		return &refdbv1.OutcomeUnknown{Advice: state + ": repeat the request with the same request ID"}
	}
	return &refdbv1.OutcomeUnknown{Advice: state + ": read, then decide; a request with a request ID could be repeated"}
}
