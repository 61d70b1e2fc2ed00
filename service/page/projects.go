package page

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
)

// knownProjects returns the projects that the caller may read, in the order of their names: those that
// sites guard, and those that a rule names. The database can't list others without reading all refs.
func (p *Page) knownProjects(ctx context.Context, caller access.Identity) ([]string, error) {
	patterns, err := caller.Projects(access.Read)
	if err != nil {
		return nil, err
	}
	lasting := context.WithoutCancel(ctx)
	rows, err := p.projects.get(ctx, func() (rows []driver.Project, err error) {
		err = p.read(lasting, func(ctx context.Context, _ access.Identity) error {
			rows, err = p.o.DB.Projects().After(ctx, 0)
			return err
		})
		return rows, err
	})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, pattern := range patterns {
		if _, below := pattern.Prefix(); !below {
			names = append(names, string(pattern))
		}
	}
	for _, row := range rows {
		names = append(names, row.Project)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return caller.May(access.Read, name) != nil })
	slices.Sort(names)
	return slices.Compact(names), nil
}

// projectList is what the view of all projects has.
type projectList struct {
	Names []string
	Next  string // the name after which the next page begins
}

// showProjects lists the projects that the caller may read.
func (p *Page) showProjects(w http.ResponseWriter, r *http.Request, caller access.Identity) error {
	names, err := p.knownProjects(r.Context(), caller)
	if err != nil {
		return err
	}
	after := r.URL.Query().Get("after")
	at, _ := slices.BinarySearchFunc(names, after, func(name, after string) int {
		if after != "" && strings.Compare(name, after) <= 0 {
			return -1
		}
		return 1
	})
	v := projectList{Names: names[at:]}
	if len(v.Names) > listed {
		v.Names = v.Names[:listed]
		v.Next = v.Names[listed-1]
	}
	p.render(w, r, http.StatusOK, "projects", "Projects", v)
	return nil
}
