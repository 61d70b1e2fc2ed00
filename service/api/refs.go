package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
)

func refOf(r refdb.Ref) *refdbv1.Ref {
	ref := &refdbv1.Ref{Name: r.Name, Value: string(r.Value)}
	if !r.Time.IsZero() {
		ref.Time = timestamppb.New(r.Time)
	}
	return ref
}

func refsOf(rows []refdb.Ref) (refs []*refdbv1.Ref) {
	for _, r := range rows {
		refs = append(refs, refOf(r))
	}
	return refs
}

// Get implements the API.
func (s *Service) Get(ctx context.Context, call *connect.Request[refdbv1.GetRequest]) (*connect.Response[refdbv1.GetResponse], error) {
	r := call.Msg
	caller, err := authorize(ctx, access.Read, r.Project, r.Refs...)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	end, err := s.turn(ctx, caller, false, func() error { return caller.May(access.Read, r.Project, r.Refs...) })
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	defer end()
	limited, cancel := reading(ctx)
	defer cancel()
	rows, err := s.db.GetAll(limited, r.Project, r.Refs...)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	var all []*refdbv1.Ref
	for _, name := range slices.Sorted(slices.Values(r.Refs)) {
		ref := &refdbv1.Ref{Name: name}
		if i, ok := slices.BinarySearchFunc(rows, name, func(r refdb.Ref, name string) int { return strings.Compare(r.Name, name) }); ok {
			ref = refOf(rows[i])
		}
		all = append(all, ref)
	}
	return connect.NewResponse(&refdbv1.GetResponse{Refs: all}), nil
}

// IsUpToDate implements the API.
func (s *Service) IsUpToDate(ctx context.Context, call *connect.Request[refdbv1.IsUpToDateRequest]) (*connect.Response[refdbv1.IsUpToDateResponse], error) {
	r := call.Msg
	caller, err := authorize(ctx, access.Read, r.Project, r.Ref)
	if err == nil {
		err = driver.CheckValue(refdb.Value(r.Local))
	}
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	end, err := s.turn(ctx, caller, false, func() error { return caller.May(access.Read, r.Project, r.Ref) })
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	defer end()
	limited, cancel := reading(ctx)
	defer cancel()
	value, err := s.db.Get(limited, r.Project, r.Ref)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	local := refdb.Value(r.Local)
	current := value == refdb.Unknown || value == local || value.IsDeleted() && local.IsAbsent() // as refdb.DB.IsUpToDate
	return connect.NewResponse(&refdbv1.IsUpToDateResponse{UpToDate: current, Value: string(value)}), nil
}

// List implements the API.
func (s *Service) List(ctx context.Context, call *connect.Request[refdbv1.ListRequest]) (*connect.Response[refdbv1.ListResponse], error) {
	r, err := s.list(ctx, call.Msg)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	return connect.NewResponse(r), nil
}

func (s *Service) list(ctx context.Context, r *refdbv1.ListRequest) (*refdbv1.ListResponse, error) {
	caller, err := callerOf(ctx)
	if err != nil {
		return nil, err
	}
	// Only refs that the caller may read are read, so that the token of a page names no other ref.
	selections, err := caller.Selected(access.Read, r.Project, r.Prefix)
	if err != nil {
		return nil, err
	}
	size := int(r.PageSize)
	switch {
	case size < 0 || size > MaxRefs:
		return nil, fmt.Errorf("%w page size %d: give at most %d", refdb.ErrInvalid, size, MaxRefs)
	case size == 0:
		size = MaxRefs
	}
	if r.PageToken != "" && driver.CheckRef(r.PageToken) != nil {
		return nil, fmt.Errorf("%w page token: give the next_page_token of a response", refdb.ErrInvalid)
	}
	end, err := s.turn(ctx, caller, false, func() (err error) {
		selections, err = caller.Selected(access.Read, r.Project, r.Prefix)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer end()
	limited, cancel := reading(ctx)
	defer cancel()
	page := &refdbv1.ListResponse{}
	for _, selection := range selections {
		switch {
		case !selection.Below && selection.Name <= r.PageToken && r.PageToken != "":
			continue
		case selection.Below && selection.Name < r.PageToken && !strings.HasPrefix(r.PageToken, selection.Name):
			continue
		}
		for ref, err := range s.selected(limited, r.Project, selection, r.PageToken, size+1-len(page.Refs)) {
			if err != nil {
				return nil, err
			}
			if len(page.Refs) == size {
				page.NextPageToken = page.Refs[size-1].Name
				return page, nil
			}
			page.Refs = append(page.Refs, refOf(ref))
		}
	}
	return page, nil
}

// selected iterates over the refs of a selection after a name, a page at a time.
func (s *Service) selected(ctx context.Context, project string, selection access.Selection, after string, page int) func(func(refdb.Ref, error) bool) {
	if selection.Below {
		return s.db.Refs(ctx, project, selection.Name, func(q *driver.RefQuery) { q.After, q.Limit = after, page })
	}
	return func(yield func(refdb.Ref, error) bool) {
		rows, err := s.db.GetAll(ctx, project, selection.Name)
		if err != nil {
			yield(refdb.Ref{}, err)
			return
		}
		for _, r := range rows {
			if !r.Value.IsAbsent() {
				yield(r, nil)
			}
		}
	}
}
