package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/audit"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
)

// ages are how far back the audit goes, the default first.
var ages = []struct {
	Name string
	age  time.Duration
}{{"7d", 7 * 24 * time.Hour}, {"1d", 24 * time.Hour}, {"30d", 30 * 24 * time.Hour}, {"1y", 366 * 24 * time.Hour}}

// auditView is what operators did, the newest first.
type auditView struct {
	Project, Since string
	Entries        []driver.AuditEntry
	Older          bool // there are older ones within the time
	Cut            bool // many were looked at, and the newest were not
}

// Ages are the names of the times that a visitor can choose.
func (auditView) Ages() (names []string) {
	for _, a := range ages {
		names = append(names, a.Name)
	}
	return names
}

// showAudit lists what operators did: of all projects to those who may administer all, of one project to those
// who may administer all of its refs. It names operators, and where they came from.
func (p *Page) showAudit(w http.ResponseWriter, r *http.Request, _ access.Identity) error {
	q := r.URL.Query()
	v := auditView{Project: q.Get("project"), Since: q.Get("since")}
	if v.Since == "" {
		v.Since = ages[0].Name
	}
	i := slices.Index(v.Ages(), v.Since)
	if i < 0 {
		return fmt.Errorf("%w time %.20q: give one of %q", refdb.ErrInvalid, v.Since, v.Ages())
	}
	if v.Project != "" {
		if err := driver.CheckProject(v.Project); err != nil {
			return err
		}
	}
	err := p.read(r.Context(), func(ctx context.Context, caller access.Identity) error {
		if err := mayAudit(caller, v.Project); err != nil {
			return err
		}
		now, err := p.o.DB.Now(ctx)
		if err != nil {
			return err
		}
		return v.gather(ctx, p.o.DB, audit.Filter{Project: v.Project, Since: now.Add(-ages[i].age)})
	})
	if err != nil {
		return err
	}
	p.render(w, r, http.StatusOK, "audit", "Audit", v)
	return nil
}

func mayAudit(caller access.Identity, project string) error {
	err := caller.MayAll(access.Administer)
	if project == "" || !errors.Is(err, access.ErrDenied) {
		return err
	}
	refs, err := caller.Selected(access.Administer, project, "")
	if err == nil && !slices.Equal(refs, []access.Selection{{Below: true}}) {
		err = fmt.Errorf("%w: the subject %s has no right to administer all refs of this project", access.ErrDenied, caller.Subject)
	}
	return err
}

// gather keeps the newest entries. They are read from the oldest on.
func (v *auditView) gather(ctx context.Context, db *refdb.DB, f audit.Filter) error {
	looked := 0
	for e, err := range db.Audit().All(ctx, f) {
		if err != nil {
			return err
		}
		if looked == mostLooked {
			v.Cut = true
			break
		}
		looked++
		if v.Entries = append(v.Entries, e); len(v.Entries) > listed {
			v.Entries, v.Older = v.Entries[1:], true
		}
	}
	slices.Reverse(v.Entries)
	return nil
}
