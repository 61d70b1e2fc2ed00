package api

import (
	"context"
	"fmt"
	"iter"
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
	l, err := newListing(caller, r.Project, r.Prefix, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	end, err := s.turn(ctx, caller, false, l.selectReadable)
	if err != nil {
		return nil, err
	}
	defer end()
	limited, cancel := reading(ctx)
	defer cancel()
	page := &refdbv1.ListResponse{}
	page.Refs, page.NextPageToken, err = l.page(func(selection access.Selection, most int) iter.Seq2[refdb.Ref, error] {
		return s.selected(limited, r.Project, selection, l.after, most)
	})
	return page, err
}

// pageSize returns how many items a page may have.
func pageSize(requested int32) (int, error) {
	switch size := int(requested); {
	case size < 0 || size > MaxRefs:
		return 0, fmt.Errorf("%w page size %d: give at most %d", refdb.ErrInvalid, size, MaxRefs)
	case size == 0:
		return MaxRefs, nil
	default:
		return size, nil
	}
}

var errPageToken = fmt.Errorf("%w page token: give the next_page_token of a response", refdb.ErrInvalid)

// A listing is a page of those refs of a project that the caller may read. Only those are read from the
// database, so that the token of a page names no other ref.
type listing struct {
	caller          access.Identity
	project, prefix string
	size            int
	after           string // a ref, "" to start
	selections      []access.Selection
}

func newListing(caller access.Identity, project, prefix string, size int32, token string) (*listing, error) {
	l := &listing{caller: caller, project: project, prefix: prefix, after: token}
	if err := l.selectReadable(); err != nil {
		return nil, err
	}
	if token != "" && driver.CheckRef(token) != nil {
		return nil, errPageToken
	}
	var err error
	l.size, err = pageSize(size)
	return l, err
}

// selectReadable sets what the caller may read now.
func (l *listing) selectReadable() (err error) {
	l.selections, err = l.caller.Selected(access.Read, l.project, l.prefix)
	return err
}

// page returns the refs, and the token of the next page. read iterates over the refs of a selection
// behind l.after, some at a time.
func (l *listing) page(read func(selection access.Selection, most int) iter.Seq2[refdb.Ref, error]) (refs []*refdbv1.Ref, next string, err error) {
	for _, selection := range l.selections {
		switch {
		case !selection.Below && selection.Name <= l.after && l.after != "":
			continue
		case selection.Below && selection.Name < l.after && !strings.HasPrefix(l.after, selection.Name):
			continue
		}
		for ref, err := range read(selection, l.size+1-len(refs)) {
			if err != nil {
				return nil, "", err
			}
			if len(refs) == l.size {
				return refs, refs[l.size-1].Name, nil
			}
			refs = append(refs, refOf(ref))
		}
	}
	return refs, "", nil
}

// selected iterates over the refs of a selection after a name, a page at a time.
func (s *Service) selected(ctx context.Context, project string, selection access.Selection, after string, page int) iter.Seq2[refdb.Ref, error] {
	if selection.Below {
		return s.db.Refs(ctx, project, selection.Name, from(after, page))
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

// from lists refs after a name, so many at a time.
func from(after string, page int) refdb.ListOption {
	return func(q *driver.RefQuery) { q.After, q.Limit = after, page }
}
