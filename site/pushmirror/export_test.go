package pushmirror

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/grants"
)

const (
	RefPrefix  = refPrefix
	StaleAfter = staleAfter
)

// A Term is a term that has not begun.
type Term struct{ *term }

// NewTerm returns the term of m's first mirror that begins with a grant, on db.
func NewTerm(m *Mirrors, db *refdb.DB, a grants.Acquired) Term {
	own := &Mirrors{State: m.State, DB: db, Projects: m.Projects, Logger: m.Logger, Copy: m.Copy, MayAct: m.MayAct}
	return Term{newTerm(&mirror{Mirrors: own, config: m.State.Config().PushMirrors[0]}, a, time.Now())}
}

// Cursor returns where it continues.
func (t Term) Cursor() refdb.Cursor { return t.cursor }

// Keep extends the grant.
func (t Term) Keep(ctx context.Context) error { return t.keep(ctx) }

// A Move is a move of a ref at the mirror.
type Move struct{ Ref, From, To string }

// Push moves refs of the repository at url.
func Push(ctx context.Context, repo *gitrepo.Repo, url string, moves ...Move) (failed []string, err error) {
	all := []move{}
	for _, m := range moves {
		all = append(all, move{m.Ref, m.From, m.To})
	}
	return remote{repo, url}.push(ctx, all, 0)
}
