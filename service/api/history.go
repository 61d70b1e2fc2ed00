package api

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
)

const (
	// mostLooked is how many changes Log looks at until it ends a page. It goes on until the end of a
	// transaction if the page could otherwise be continued only by naming a ref that the caller may not
	// read.
	mostLooked = 5000
	// mostPast is how many refs At looks up by name: each is a request to the database.
	mostPast = 100
)

func changeOf(c refdb.Change) *refdbv1.Change {
	return &refdbv1.Change{
		Ref: c.Ref, Old: string(c.Old), New: string(c.New), Position: int64(c.Position),
		Time: timestamppb.New(c.Time), By: c.By, Owner: c.Owner,
	}
}

// Log implements the API.
func (s *Service) Log(ctx context.Context, call *connect.Request[refdbv1.LogRequest]) (*connect.Response[refdbv1.LogResponse], error) {
	r, err := s.history(ctx, call.Msg)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	return connect.NewResponse(r), nil
}

func (s *Service) history(ctx context.Context, r *refdbv1.LogRequest) (*refdbv1.LogResponse, error) {
	var refs []string // that the caller must be allowed to read
	if r.Ref != "" {
		refs = []string{r.Ref}
	}
	caller, err := authorize(ctx, access.Read, r.Project, refs...)
	if err != nil {
		return nil, err
	}
	size, err := pageSize(r.PageSize)
	if err != nil {
		return nil, err
	}
	before, err := parseLogToken(r.Project, r.PageToken)
	if err != nil {
		return nil, err
	}
	end, err := s.turn(ctx, caller, false, func() error { return caller.May(access.Read, r.Project, refs...) })
	if err != nil {
		return nil, err
	}
	defer end()
	limited, cancel := reading(ctx)
	defer cancel()
	page := &refdbv1.LogResponse{}
	var last driver.ChangeKey
	looked := 0
	for c, err := range s.db.History(limited, r.Project, r.Ref, refdb.Before(before)) {
		switch {
		case err != nil:
			return nil, err
		case looked >= mostLooked && c.Position != last.Position:
			page.NextPageToken = logToken(driver.ChangeKey{Position: last.Position})
			return page, nil
		}
		looked++
		last = c.Key()
		if err := caller.May(access.Read, r.Project, c.Ref); errors.Is(err, access.ErrDenied) {
			continue
		} else if err != nil {
			return nil, err
		}
		if len(page.Changes) == size {
			shown := page.Changes[size-1]
			page.NextPageToken = logToken(driver.ChangeKey{Position: refdb.Position(shown.Position), Ref: shown.Ref})
			return page, nil
		}
		page.Changes = append(page.Changes, changeOf(c))
		if looked >= mostLooked {
			page.NextPageToken = logToken(last)
			return page, nil
		}
	}
	return page, nil
}

// logToken is the token of a page of changes before a place: its position and, if the page begins among
// the changes of that position, a ref that the caller was shown.
func logToken(k driver.ChangeKey) string {
	return strings.TrimSuffix(strconv.FormatInt(int64(k.Position), 10)+":"+k.Ref, ":")
}

// parseLogToken is the reverse of logToken. Without a token it returns the zero place.
func parseLogToken(project, token string) (driver.ChangeKey, error) {
	if token == "" {
		return driver.ChangeKey{}, nil
	}
	text, ref, named := strings.Cut(token, ":")
	position, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || position < 0 || named && driver.CheckRef(ref) != nil:
		return driver.ChangeKey{}, errPageToken
	case !named:
		return driver.ChangeKey{Position: refdb.Position(position)}, nil
	}
	return driver.ChangeKey{Position: refdb.Position(position), Project: project, Ref: ref}, nil
}

// At implements the API.
func (s *Service) At(ctx context.Context, call *connect.Request[refdbv1.AtRequest]) (*connect.Response[refdbv1.AtResponse], error) {
	r, err := s.at(ctx, call.Msg)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	return connect.NewResponse(r), nil
}

func (s *Service) at(ctx context.Context, r *refdbv1.AtRequest) (*refdbv1.AtResponse, error) {
	if len(r.Refs) > mostPast {
		return nil, fmt.Errorf("%w: %d refs, at most %d are allowed", refdb.ErrTooMany, len(r.Refs), mostPast)
	}
	caller, err := authorize(ctx, access.Read, r.Project, r.Refs...)
	if err == nil {
		err = checkAt(r)
	}
	if err != nil {
		return nil, err
	}
	l, err := newListing(caller, r.Project, r.Prefix, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	end, err := s.turn(ctx, caller, false, func() error {
		if err := caller.May(access.Read, r.Project, r.Refs...); err != nil {
			return err
		}
		return l.selectReadable()
	})
	if err != nil {
		return nil, err
	}
	defer end()
	limited, cancel := reading(ctx)
	defer cancel()
	position := refdb.Position(r.GetPosition())
	if t := r.GetTime(); t != nil {
		if position, err = s.db.PositionAt(limited, t.AsTime()); err != nil {
			return nil, err
		}
	}
	page := &refdbv1.AtResponse{Position: int64(position)}
	if len(r.Refs) > 0 {
		page.Refs, err = s.past(limited, r.Project, position, r.Refs)
		return page, err
	}
	page.Refs, page.NextPageToken, err = l.page(func(selection access.Selection, most int) iter.Seq2[refdb.Ref, error] {
		return s.pastSelected(limited, r.Project, position, selection, l.after, most)
	})
	return page, err
}

// checkAt returns an error wrapping refdb.ErrInvalid if the request contradicts itself.
func checkAt(r *refdbv1.AtRequest) error {
	switch when := r.When.(type) {
	case nil:
		return fmt.Errorf("%w request: give a time or a position", refdb.ErrInvalid)
	case *refdbv1.AtRequest_Time:
		if !when.Time.IsValid() {
			return fmt.Errorf("%w time", refdb.ErrInvalid)
		}
		if r.PageToken != "" {
			return fmt.Errorf("%w request: with a page token, give the position of the page before instead of a time", refdb.ErrInvalid)
		}
	}
	if len(r.Refs) > 0 && (r.Prefix != "" || r.PageSize != 0 || r.PageToken != "") {
		return fmt.Errorf("%w request: prefix and pages are for a list: leave out the refs", refdb.ErrInvalid)
	}
	for _, ref := range r.Refs {
		if err := driver.CheckRef(ref); err != nil {
			return err
		}
	}
	return nil
}

// past returns what refs held right after a position, in byte order.
func (s *Service) past(ctx context.Context, project string, position refdb.Position, names []string) (all []*refdbv1.Ref, err error) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		ref, err := s.pastRef(ctx, project, position, name)
		if err != nil {
			return nil, err
		}
		all = append(all, refOf(ref))
	}
	return all, nil
}

// pastRef returns a ref as it was right after a position, without a value if the database did not know
// it: the first of those that begin with its name.
func (s *Service) pastRef(ctx context.Context, project string, position refdb.Position, name string) (refdb.Ref, error) {
	for ref, err := range s.db.RefsAt(ctx, project, name, position, from("", 1), refdb.IncludeDeleted()) {
		if err != nil {
			return refdb.Ref{}, err
		}
		if ref.Name == name {
			return ref, nil
		}
		break
	}
	return refdb.Ref{Name: name}, nil
}

// pastSelected iterates over the refs of a selection after a name, as they were right after a position.
func (s *Service) pastSelected(
	ctx context.Context, project string, position refdb.Position, selection access.Selection, after string, page int,
) iter.Seq2[refdb.Ref, error] {
	if selection.Below {
		return s.db.RefsAt(ctx, project, selection.Name, position, from(after, page))
	}
	return func(yield func(refdb.Ref, error) bool) {
		ref, err := s.pastRef(ctx, project, position, selection.Name)
		if err != nil || !ref.Value.IsAbsent() {
			yield(ref, err)
		}
	}
}
