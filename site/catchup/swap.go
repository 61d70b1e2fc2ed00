package catchup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/mover"
)

// maxFailures is how many refs in a row may be refused before the rest is not tried.
const maxFailures = 10

// apply moves refs from their local to their global values. If git refuses a transaction, apply
// halves it until it has found the refs that git refuses. It adds refs that git can't lock now to
// s.held.
func (s *syncer) apply(ctx context.Context, moves []compare.Pair) error {
	if len(moves) == 0 {
		return nil
	}
	err := s.swap(ctx, moves)
	refused := (*gitrepo.RefusedError)(nil)
	switch {
	case err == nil:
		s.failures = 0
		if err := s.noteSettled(moves); err != nil {
			return err
		}
		for _, m := range moves {
			s.did(m)
		}
		return nil
	case !errors.As(err, &refused):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	still, err := s.still(ctx, moves)
	switch {
	case err != nil:
		return err
	case len(still) < len(moves):
		return s.apply(ctx, still)
	case refused.AllLocked, refused.Locked && len(moves) == 1:
		for _, m := range moves {
			s.held = append(s.held, Synced{m.Ref, Held, m.Local, m.Global, refused.Reason})
		}
		return nil
	case len(moves) == 1:
		return s.refused(ctx, moves[0], refused.Reason)
	}
	half := len(moves) / 2
	if err := s.apply(ctx, moves[:half]); err != nil {
		return err
	}
	return s.apply(ctx, moves[half:])
}

// noteSettled records the values to which refs were moved.
func (s *syncer) noteSettled(moves []compare.Pair) error {
	if s.DryRun || !s.settles() {
		return nil
	}
	var values []compare.Settled
	for _, m := range moves {
		if row := s.rows[m.Ref]; row.Value == m.Global && !row.Time.IsZero() {
			values = append(values, compare.Settled{Ref: m.Ref, Value: row.Value, At: row.Time})
		}
	}
	if _, err := compare.NoteSettled(s.repo.Dir(), values); err != nil {
		return fmt.Errorf("recording the refs' new values: %w", err)
	}
	return nil
}

// settles reports whether the repository records what its refs get: it is, or was, guarded.
func (s *syncer) settles() bool {
	_, err := os.Lstat(filepath.Dir(compare.SettledFile(s.repo.Dir())))
	return err == nil
}

// still returns the moves that can still be made, and reports those whose refs have changed
// meanwhile.
func (s *syncer) still(ctx context.Context, moves []compare.Pair) (still []compare.Pair, err error) {
	refs := make([]string, len(moves))
	for i, m := range moves {
		refs[i] = m.Ref
	}
	now, err := compare.LookAgain(ctx, s.db, s.repo, s.project, refs)
	if err != nil {
		return nil, err
	}
	for i, l := range now {
		if result, detail := obstacle(l, s.Site); result != "" {
			s.tell(Synced{l.Ref, result, l.Local, l.Global, detail})
		} else if l.Pair != moves[i] {
			s.tell(Synced{l.Ref, Moved, l.Local, l.Global, "the next sync checks it again"})
		} else {
			still = append(still, l.Pair)
		}
	}
	return still, nil
}

// did reports a move that was made, or would have been.
func (s *syncer) did(m compare.Pair) {
	if s.DryRun && m.Global.IsDeleted() {
		s.leaving = append(s.leaving, m.Ref)
	}
	s.tell(moved(m))
}

// leavesRoom reports whether only a ref that a dry run did not delete is in the way of ref: git
// can't hold refs/heads/a and refs/heads/a/b at once.
func (s *syncer) leavesRoom(ref string) bool {
	for _, gone := range s.leaving {
		if strings.HasPrefix(ref, gone+"/") || strings.HasPrefix(gone, ref+"/") {
			return true
		}
	}
	return false
}

func (s *syncer) refused(ctx context.Context, m compare.Pair, refusal string) error {
	if s.leavesRoom(m.Ref) {
		s.did(m)
		return nil
	}
	if m.Local == refdb.Unknown {
		with, err := compare.Excluding(ctx, s.db, s.project, m.Ref)
		if err != nil {
			return err
		}
		if with != "" {
			refusal = compare.ExcludedText(s.project, with)
		}
	}
	s.tell(Synced{m.Ref, Failed, m.Local, m.Global, refusal})
	if s.failures++; s.failures == maxFailures {
		return fmt.Errorf("%d refs in a row were refused, the last with: %s", maxFailures, refusal)
	}
	return nil
}

func moved(m compare.Pair) Synced {
	o := Synced{Ref: m.Ref, Result: Updated, Local: m.Local, Global: m.Global}
	switch {
	case m.Global.IsDeleted():
		o.Result = Deleted
	case m.Local == refdb.Unknown:
		o.Result = Created
	}
	return o
}

// swap moves refs in one git transaction, from exactly the local values to the global ones. The error
// is a [*gitrepo.RefusedError] if git refuses. In a dry run git prepares the transaction, and then
// aborts it. Ctx does not interrupt git.
func (s *syncer) swap(ctx context.Context, moves []compare.Pair) error {
	all := make([]gitrepo.Move, len(moves))
	for i, m := range moves {
		all[i] = gitrepo.Move{Ref: m.Ref, From: string(m.Local)}
		if !m.Global.IsDeleted() {
			all[i].To = string(m.Global)
		}
	}
	ctx = context.WithoutCancel(ctx)
	if s.DryRun {
		return mover.Try(ctx, s.repo, all)
	}
	return s.mover.Move(ctx, all)
}
