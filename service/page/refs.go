package page

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A refRow is a ref, and who moved it last, if that is among the changes that were read.
type refRow struct {
	Name, Value string
	Time        time.Time // zero if not recorded
	By          string
}

// A changeRow is a change of a ref.
type changeRow struct {
	Ref, Old, New, By, Owner string
	Time                     time.Time
	Position                 int64
}

// changes are those of a project, or of one of its refs.
type changes struct {
	Project, Ref string
	Rows         []changeRow
	Next         string // the token of the page of earlier ones
	Live         bool   // later ones follow
	Cursor       string // behind the changes
}

// projectView is what the view of a project has.
type projectView struct {
	Project, Prefix string
	Refs            []refRow
	After, Next     string // the token of this page, and of the next one
	Frozen          string // why no ref may be moved
	Changes         changes
}

// Unfreeze is the command that ends a freeze.
func (v projectView) Unfreeze() string {
	return wire.CommandLine("refdbctl project unfreeze", v.Project)
}

// showProject lists refs of a project by the calls List and Log, and what comes by Watch.
func (p *Page) showProject(w http.ResponseWriter, r *http.Request, _ access.Identity) error {
	q := r.URL.Query()
	v := projectView{Project: q.Get("name"), Prefix: q.Get("prefix"), After: q.Get("after")}
	if err := driver.CheckProject(v.Project); err != nil {
		return err
	}
	var err error
	if v.Changes, err = p.changesOf(r.Context(), v.Project, "", ""); err != nil {
		return err
	}
	refs, err := p.o.API.List(r.Context(), connect.NewRequest(&refdbv1.ListRequest{Project: v.Project, Prefix: v.Prefix, PageSize: listed, PageToken: v.After}))
	if err != nil {
		return err
	}
	v.Next = refs.Msg.NextPageToken
	for _, ref := range refs.Msg.Refs {
		v.Refs = append(v.Refs, v.Changes.rowOf(ref))
	}
	err = p.read(r.Context(), func(ctx context.Context, caller access.Identity) error {
		row, ok, err := p.o.DB.Projects().Get(ctx, v.Project)
		if err == nil && ok && row.Freeze != (driver.Freeze{}) && caller.May(access.Read, v.Project) == nil {
			v.Frozen = row.Freeze.String()
		}
		return err
	})
	if err != nil {
		return err
	}
	p.render(w, r, http.StatusOK, "project", v.Project, v)
	return nil
}

// rowOf returns a ref, with what is known of its last change.
func (c changes) rowOf(ref *refdbv1.Ref) refRow {
	row := refRow{Name: ref.Name, Value: ref.Value}
	if ref.Time != nil {
		row.Time = ref.Time.AsTime()
	}
	for _, change := range c.Rows { // the newest first
		if change.Ref == ref.Name {
			if change.New == ref.Value {
				row.By = change.By
			}
			break
		}
	}
	return row
}

// showHistory lists the changes of a ref, or of a project, by the call Log.
func (p *Page) showHistory(w http.ResponseWriter, r *http.Request, _ access.Identity) error {
	q := r.URL.Query()
	c, err := p.changesOf(r.Context(), q.Get("project"), q.Get("ref"), q.Get("before"))
	if err != nil {
		return err
	}
	title := c.Project
	if c.Ref != "" {
		title += " " + c.Ref
	}
	p.render(w, r, http.StatusOK, "history", title, c)
	return nil
}

// changesOf reads a page of changes, the newest first. The first page goes on live: the cursor is read
// before the changes, so that none is missing between.
func (p *Page) changesOf(ctx context.Context, project, ref, before string) (c changes, err error) {
	c = changes{Project: project, Ref: ref, Live: before == ""}
	if err := driver.CheckProject(project); err != nil {
		return c, err
	}
	if ref != "" {
		if err := driver.CheckKey(project, ref); err != nil {
			return c, err
		}
	}
	if c.Live {
		switch c.Cursor, err = p.o.API.End(ctx, project); {
		case connect.CodeOf(err) == connect.CodeUnavailable:
			c.Live = false // such as at a server of the database that is not admitted
		case err != nil:
			return c, err
		}
	}
	page, err := p.o.API.Log(ctx, connect.NewRequest(&refdbv1.LogRequest{Project: project, Ref: ref, PageSize: listed, PageToken: before}))
	if err != nil {
		return c, err
	}
	c.Next = page.Msg.NextPageToken
	for _, change := range page.Msg.Changes {
		c.Rows = append(c.Rows, changeRow{change.Ref, change.Old, change.New, change.By, change.Owner, change.Time.AsTime(), change.Position})
	}
	return c, nil
}

// Events are the query of the stream of later changes.
func (c changes) Events() string {
	return url.Values{"project": {c.Project}, "prefix": {c.Ref}, "cursor": {c.Cursor}}.Encode()
}

// Command shows the same with refdbctl.
func (c changes) Command() string {
	if c.Ref == "" {
		return wire.CommandLine("refdbctl refs log", c.Project)
	}
	return wire.CommandLine("refdbctl refs log", c.Project, c.Ref)
}
