package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
)

const (
	// repeatable is the time after an update for which a repeat of its request finds the update.
	repeatable = time.Hour
	// mostChanges is how many changes of a ref are searched for the update.
	mostChanges = 5000
)

var errHistory = errors.New("the history does not tell whether an earlier request with this request ID made the update, as it was pruned up to less than an hour ago, or has too many changes since: nothing was done; leave out the request ID")

// Update implements the API.
func (s *Service) Update(ctx context.Context, call *connect.Request[refdbv1.UpdateRequest]) (*connect.Response[refdbv1.UpdateResponse], error) {
	r, err := s.update(ctx, call.Msg)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	return connect.NewResponse(r), nil
}

func (s *Service) update(ctx context.Context, r *refdbv1.UpdateRequest) (*refdbv1.UpdateResponse, error) {
	if len(r.Updates) > MaxRefs {
		return nil, fmt.Errorf("%w: %d refs, at most %d are allowed", refdb.ErrTooMany, len(r.Updates), MaxRefs)
	}
	refs, updates := make([]string, len(r.Updates)), make([]refdb.Update, len(r.Updates))
	for i, u := range r.Updates {
		refs[i] = u.GetRef()
		updates[i] = refdb.Update{Ref: u.GetRef(), Old: refdb.Value(u.GetOld()), New: refdb.Value(u.GetNew())}
	}
	caller, err := authorize(ctx, access.Write, r.Project, refs...)
	if err != nil {
		return nil, err
	}
	options := []refdb.UpdateOption{refdb.By(caller.Subject)}
	fence, err := s.fence(caller, r)
	if err == nil {
		err = checkID("request ID", r.RequestId)
	}
	if err != nil {
		return nil, err
	}
	options = append(options, fence...)
	end, err := s.turn(ctx, caller, false, func() error { return caller.May(access.Write, r.Project, refs...) })
	if err != nil {
		return nil, err
	}
	defer end()
	inRepositories, err := s.placed(ctx, caller, r.Project, refs)
	if err != nil {
		return nil, err
	}
	if inRepositories {
		options = append(options, refdb.GitNames())
	}
	id := ""
	if r.RequestId != "" {
		id = requestName(caller, r)
		options = append(options, func(r *driver.UpdateRequest) { r.Origin.ID = id })
		if answer, err := s.repeated(ctx, caller, r, updates, id); answer != nil || err != nil {
			return answer, err
		}
	}
	_, err = begin(ctx, s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.db.Update(ctx, r.Project, updates, options...)
	})
	if err == nil {
		return updated(false), nil
	}
	if errors.Is(err, refdb.ErrOutcomeUnknown) {
		return outcomeUnknown(r), nil
	}
	refusal := refusalOf(caller, err)
	if refusal == nil {
		return nil, readable(caller, err)
	}
	if id != "" {
		// An earlier request with this ID may have been carried out just now, and be the reason.
		lasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit)
		defer cancel()
		switch answer, err := s.repeated(lasting, caller, r, updates, id); {
		case err != nil:
			return outcomeUnknown(r), nil
		case answer != nil:
			return answer, nil
		}
	}
	return refusal, nil
}

// fence returns the options of an update under a lock.
func (s *Service) fence(caller access.Identity, r *refdbv1.UpdateRequest) ([]refdb.UpdateOption, error) {
	l := r.Under
	switch {
	case l == nil && r.Release:
		return nil, fmt.Errorf("%w request: it releases a lock, but names none", refdb.ErrInvalid)
	case l == nil:
		return nil, nil
	case l.Project != r.Project:
		return nil, fmt.Errorf("%w request: the lock is in another project than the refs", refdb.ErrInvalid)
	case len(l.Refs) > MaxRefs:
		return nil, fmt.Errorf("%w: a lock on %d refs, at most %d are allowed", refdb.ErrTooMany, len(l.Refs), MaxRefs)
	}
	g, err := ownGrant(caller, l)
	if err != nil {
		return nil, err
	}
	options := []refdb.UpdateOption{refdb.Under(g.Owner, g.Token, g.Refs...)}
	if isLease(g.Refs) {
		options = append(options, refdb.AnyRef())
	}
	if r.Release {
		options = append(options, func(r *driver.UpdateRequest) { r.Fence.Release = true })
	}
	return options, nil
}

// placed reports whether sites have repositories of the project: then the project has a row, in
// whichever mode. If so, placed returns ErrDenied unless the caller may administer the refs: the object
// that a ref is set to may be at no site, and a value whose object is not in the database would stop
// the sites that follow. The row is read before the update's transaction: an update may still be made
// while the project is being added.
func (s *Service) placed(ctx context.Context, caller access.Identity, project string, refs []string) (bool, error) {
	limited, cancel := reading(ctx)
	defer cancel()
	_, ok, err := s.db.Projects().Get(limited, project)
	if err != nil || !ok {
		return false, err
	}
	if err := caller.May(access.Administer, project, refs...); err != nil {
		return false, fmt.Errorf("%w: sites have repositories of the project, so that its refs are changed by pushes", err)
	}
	return true, nil
}

// requestName returns the operation's ID for a request with a request ID. It depends on the whole
// request, so that another request to which a client gives the same request ID by mistake is not taken
// for a repeat.
func requestName(caller access.Identity, r *refdbv1.UpdateRequest) string {
	parts := []string{caller.Subject, r.RequestId, r.Project, fmt.Sprint(r.Release)}
	if l := r.Under; l != nil {
		parts = append(append(parts, l.Owner, fmt.Sprint(l.Token)), slices.Sorted(slices.Values(l.Refs))...)
	}
	sorted := slices.SortedFunc(slices.Values(r.Updates), func(a, b *refdbv1.RefUpdate) int { return strings.Compare(a.GetRef(), b.GetRef()) })
	for _, u := range sorted {
		parts = append(parts, u.GetRef(), u.GetOld(), u.GetNew())
	}
	return "request-" + nameOf(parts...)
}

// repeated returns the answer to a repeat of an update that an earlier request with that ID has made;
// nil if no request has made it. Finding the update in the database is not enough for "updated": a
// failover may lose the update until a later commit is confirmed.
func (s *Service) repeated(ctx context.Context, caller access.Identity, r *refdbv1.UpdateRequest, updates []refdb.Update, id string) (*refdbv1.UpdateResponse, error) {
	made, found, err := s.carriedOut(ctx, r.Project, updates, id)
	if err != nil || !found {
		return nil, err
	}
	shown := driver.UpdateRequest{Project: r.Project, Updates: updates, Origin: driver.Origin{ID: id, Owner: made.Owner, By: caller.Subject}}
	project, prefix := access.ConfirmationRefs()
	_, err = begin(ctx, s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.db.Grants().Confirm(ctx, shown, made.Time, project, prefix)
	})
	if err != nil {
		return outcomeUnknown(r), nil
	}
	return updated(true), nil
}

// carriedOut returns a change of the update with that ID, if the update was made within the last hour.
// The error is errHistory if the history can't tell.
func (s *Service) carriedOut(ctx context.Context, project string, updates []refdb.Update, id string) (made driver.Change, found bool, err error) {
	// All refs that change get the same ID. If no ref changes, repeating the update does no harm.
	i := slices.IndexFunc(updates, func(u refdb.Update) bool { return !u.Old.Equivalent(u.New) })
	if i < 0 {
		return made, false, nil
	}
	ctx, cancel := reading(ctx)
	defer cancel()
	rows, err := s.db.GetAll(ctx, project, updates[i].Ref)
	if err != nil {
		return made, false, err
	}
	if len(rows) > 0 && rows[0].Op == id {
		return driver.Change{Time: rows[0].Time}, true, nil
	}
	now, err := s.db.Now(ctx)
	if err != nil {
		return made, false, err
	}
	since := now.Add(-repeatable)
	if len(rows) > 0 && !rows[0].Time.IsZero() && rows[0].Time.Before(since) {
		return made, false, nil
	}
	looked := 0
	for c, err := range s.db.History(ctx, project, updates[i].Ref) {
		looked++
		switch {
		case err != nil:
			return made, false, err
		case c.Op == id:
			return c, true, nil
		case c.Time.Before(since):
			return made, false, nil
		case looked == mostChanges:
			return made, false, errHistory
		}
	}
	state, err := s.db.HistoryState(ctx)
	if err != nil {
		return made, false, err
	}
	if state.PrunedTime.After(since) {
		return made, false, errHistory
	}
	return made, false, nil
}

func updated(again bool) *refdbv1.UpdateResponse {
	return &refdbv1.UpdateResponse{Result: &refdbv1.UpdateResponse_Updated{Updated: &refdbv1.Updated{RepeatedRequest: again}}}
}

func outcomeUnknown(r *refdbv1.UpdateRequest) *refdbv1.UpdateResponse {
	return &refdbv1.UpdateResponse{Result: &refdbv1.UpdateResponse_Unknown{Unknown: unknown(r.RequestId, "the refs may have been changed, or may be changed soon")}}
}

// readable returns err or, if err names a ref that the caller may not read, an error of the same kind
// that names no ref.
func readable(caller access.Identity, err error) error {
	var conflict *refdb.NameConflictError
	if !errors.As(err, &conflict) {
		return err
	}
	for _, c := range conflict.Conflicts {
		if caller.May(access.Read, conflict.Project, c.Ref, c.With) != nil {
			return fmt.Errorf("%w: with a ref that the subject may not read", refdb.ErrNameConflict)
		}
	}
	return err
}

// refusalOf returns the response for an update that was refused; nil if the error is a failure.
func refusalOf(caller access.Identity, err error) *refdbv1.UpdateResponse {
	var locked *refdb.LockedError
	var mismatch *refdb.MismatchError
	var lost *refdb.LostError
	switch {
	case errors.As(err, &lost):
		return &refdbv1.UpdateResponse{Result: &refdbv1.UpdateResponse_Lost{Lost: &refdbv1.Lost{Refs: lost.Refs}}}
	case errors.As(err, &locked):
		return &refdbv1.UpdateResponse{Result: &refdbv1.UpdateResponse_Locked{Locked: lockedBy(caller, locked)}}
	case errors.As(err, &mismatch):
		m := &refdbv1.Mismatched{}
		for _, x := range mismatch.Mismatches {
			m.Mismatches = append(m.Mismatches, &refdbv1.Mismatch{Ref: x.Ref, Expected: string(x.Want), Value: string(x.Have)})
		}
		return &refdbv1.UpdateResponse{Result: &refdbv1.UpdateResponse_Mismatched{Mismatched: m}}
	}
	return nil
}
