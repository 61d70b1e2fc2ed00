package hooks

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// withNewName adds the new name to the request in which `git branch` deletes the old name of a
// branch that it renames: git creates the new name after the deletion, and runs no hook for it.
// Both are announced together, and stay announced until git has ended ([renames]).
func (h *Hooks) withNewName(ctx context.Context, hook pusher.Hook, q wire.Request) (wire.Request, error) {
	lines, err := wire.ParseLines(q.Body)
	if err != nil {
		return q, nil // prepared says so
	}
	at := slices.IndexFunc(lines, func(l wire.Line) bool { return l.NewZero() && strings.HasPrefix(l.Ref, "refs/heads/") })
	if at < 0 {
		return q, nil
	}
	c := h.State.Config()
	a, err := hook.Agent(c.GitPrograms, q.Process, h.State.Boot)
	if err != nil {
		return q, nil
	}
	to, err := a.RenamesTo()
	r, unknown := c.Find(q.Dir)
	if to == "" || errors.Join(err, unknown) != nil {
		return q, nil
	}
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return q, err
	}
	from := lines[at].Ref
	values, err := repo.Values(ctx, []string{from, to})
	switch {
	case err != nil:
		return q, err
	case values[to] != "":
		// Git would delete it first: killed then, it would leave what is neither the old nor the
		// new value.
		return q, refusal.Because(refusal.Other, refusal.Lines{wire.RenameOverAnother(from, to)})
	case values[from] == "":
		return q, nil
	}
	q.Body = append(slices.Clone(q.Body), lines[at].New+" "+values[from]+" "+to+"\n"...)
	return q, nil
}

// renames reports whether the process creates a ref, after this hook, that was announced together
// with the deletion of another.
func renames(a pusher.Agent) bool {
	to, err := a.RenamesTo()
	return err == nil && to != ""
}
