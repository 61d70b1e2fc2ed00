package page

import (
	"context"
	"net/http"

	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/site/overview"
)

// showOverview shows the figures, which are of all projects, to those who may read all; and to others, the
// projects.
func (p *Page) showOverview(w http.ResponseWriter, r *http.Request, caller access.Identity) error {
	if caller.MayAll(access.Read) != nil {
		return p.showProjects(w, r, caller)
	}
	return p.showFigures(w, r, caller, "overview", "Overview")
}

// showSites shows the sites, which are of no project, to those who may read all.
func (p *Page) showSites(w http.ResponseWriter, r *http.Request, caller access.Identity) error {
	return p.showFigures(w, r, caller, "sites", "Sites")
}

func (p *Page) showFigures(w http.ResponseWriter, r *http.Request, caller access.Identity, view, title string) error {
	if err := caller.MayAll(access.Read); err != nil {
		return err
	}
	// What is read is for others, too, and does not end with this request.
	lasting := context.WithoutCancel(r.Context())
	v, err := p.figures.get(r.Context(), func() (v overview.Overview, err error) {
		err = p.read(lasting, func(ctx context.Context, _ access.Identity) error {
			v = overview.Gather(ctx, p.o.DB, overview.Options{})
			return nil
		})
		return v, err
	})
	if err != nil {
		return err
	}
	if err := caller.MayAll(access.Read); err != nil {
		return err // withdrawn meanwhile
	}
	p.render(w, r, http.StatusOK, view, title, v)
	return nil
}
