package pushmirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// push makes the mirror hold what the database holds of a project. It returns the part that could
// not be pushed, and the reason.
func (t *term) push(ctx context.Context, project string, w work) (rest work, err error) {
	if gone, err := t.isGone(ctx, project); gone || err != nil {
		return w.unless(gone), err
	}
	if err := t.checkAddress(project); err != nil {
		return w, err
	}
	c, r, err := t.Copy(ctx, project)
	if errors.Is(err, config.ErrNotConfigured) {
		err = fmt.Errorf("%w: this site pushes to the mirror, but does not follow the project: run refdbctl site clone %s", err, project)
	}
	if err != nil {
		return w, err
	}
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return w, err
	}
	pushed := func(ref string) bool { return t.config.PushesRef(ref) && c.Guards(project, ref) }
	var names []string // of refs; nil for all
	if !w.all {
		names = slices.DeleteFunc(slices.Sorted(maps.Keys(w.refs)), func(ref string) bool { return !pushed(ref) })
		if len(names) == 0 {
			return work{}, nil
		}
	}
	// The mirror is read before the database. If this process is stopped in between and continues
	// late, the values of the mirror are outdated, and the push moves nothing.
	at := remote{repo, t.config.Address(project)}
	there, err := at.list(ctx, names, pushed)
	if ctx.Err() == nil {
		t.outage.record(err == nil)
	}
	if err != nil {
		return w, err
	}
	rows, err := t.rows(ctx, project, names, pushed)
	if err != nil {
		return w, err
	}
	here, err := repo.Values(ctx, slices.Sorted(maps.Keys(rows)))
	if err != nil {
		return w, err
	}
	rest = work{refs: map[string]bool{}}
	var deletions, others []move
	for ref, value := range rows {
		switch has := there.values[ref]; {
		case value.IsDeleted() && has == "", string(value) == has:
		case there.shadows[ref] != "":
			rest.refs[ref], err = true, fmt.Errorf("%s: the mirror has a ref %s, which git push takes for this one: delete it there", ref, there.shadows[ref])
		case value.IsDeleted() && here[ref] == "":
			deletions = append(deletions, move{ref, has, ""})
		case !value.IsDeleted() && here[ref] == string(value): // the copy has all objects that its refs reach
			others = append(others, move{ref, has, string(value)})
		default:
			rest.refs[ref], err = true, fmt.Errorf("%s: this site's copy has not followed the database yet", ref)
		}
	}
	// A deletion may make room for a name that it excludes.
	for _, moves := range [][]move{deletions, others} {
		failed, failure := at.push(ctx, moves, there.size)
		if failure != nil {
			err = failure
			t.mayBeOrphaned(project)
		}
		for _, ref := range failed {
			rest.refs[ref] = true
		}
	}
	return rest, err
}

// unless returns w, or no work.
func (w work) unless(done bool) work {
	if done {
		return work{}
	}
	return w
}

// isGone reports whether a project is not pushed any more, by the row that the database has now.
func (t *term) isGone(ctx context.Context, project string) (bool, error) {
	if p, ok := t.Projects.Get(project); ok && t.pushes(p) {
		return false, nil
	}
	if err := t.Projects.Refresh(ctx, t.DB); err != nil {
		return false, err
	}
	p, ok := t.Projects.Get(project)
	return !ok || !t.pushes(p), nil
}

// rows returns the values that the database has for the refs that are pushed; names is nil for all.
// A ref without a row exists only at the mirror, or nowhere. The server of the database was admitted
// before the rows were read and after that.
func (t *term) rows(ctx context.Context, project string, names []string, pushed func(ref string) bool) (map[string]refdb.Value, error) {
	rows := map[string]refdb.Value{}
	add := func(row refdb.Ref) {
		if pushed(row.Name) && (row.Value.IsDeleted() || row.Value.IsObjectID()) {
			rows[row.Name] = row.Value
		}
	}
	err := t.MayAct(ctx)
	if err != nil {
		return nil, err
	}
	if names == nil {
		for row, err := range t.DB.Refs(ctx, project, "refs/", refdb.IncludeDeleted()) {
			if err != nil {
				return nil, err
			}
			add(row)
		}
	} else {
		var all []refdb.Ref
		if all, err = t.DB.GetAll(ctx, project, names...); err != nil {
			return nil, err
		}
		for _, row := range all {
			add(row)
		}
	}
	return rows, t.MayAct(ctx)
}
