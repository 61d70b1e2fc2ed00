package catchup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// maxFailures is how many refs in a row may be refused before the rest is not tried.
const maxFailures = 10

// apply moves refs from their local to their global values. If git refuses a transaction, apply
// halves it until it has found the refs that git refuses.
func (s *syncer) apply(ctx context.Context, moves []compare.Pair) error {
	if len(moves) == 0 {
		return nil
	}
	refusal, err := s.swap(ctx, moves)
	if err != nil {
		return err
	}
	if refusal == "" {
		s.failures = 0
		if err := s.noteSettled(ctx, moves); err != nil {
			return err
		}
		for _, m := range moves {
			s.did(m)
		}
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	still, err := s.still(ctx, moves)
	switch {
	case err != nil:
		return err
	case len(still) < len(moves):
		return s.apply(ctx, still)
	case len(moves) == 1:
		return s.refused(ctx, moves[0], refusal)
	}
	half := len(moves) / 2
	if err := s.apply(ctx, moves[:half]); err != nil {
		return err
	}
	return s.apply(ctx, moves[half:])
}

// noteSettled records the values that the refs have got.
func (s *syncer) noteSettled(ctx context.Context, moves []compare.Pair) error {
	if _, err := os.Lstat(filepath.Dir(compare.SettledFile(s.repo.Dir()))); err != nil || s.DryRun {
		return nil // never guarded, or not moved
	}
	names := make([]string, len(moves))
	to := make(map[string]refdb.Value, len(moves))
	for i, m := range moves {
		names[i], to[m.Ref] = m.Ref, m.Global
	}
	rows, err := s.db.GetAll(ctx, s.project, names...)
	if err != nil {
		return err
	}
	var values []compare.Settled
	for _, row := range rows {
		if row.Value == to[row.Name] && !row.Time.IsZero() {
			values = append(values, compare.Settled{Ref: row.Name, Value: row.Value, At: row.Time})
		}
	}
	if _, err := compare.NoteSettled(s.repo.Dir(), values); err != nil {
		return fmt.Errorf("recording the refs' new values: %w", err)
	}
	return nil
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

// swap moves refs in one git transaction, from exactly the local values to the global ones. If
// git refuses, it returns git's reason. In a dry run git prepares the transaction without the
// hooks, and then aborts it. Ctx does not interrupt git: it would leave its lock files behind.
func (s *syncer) swap(ctx context.Context, moves []compare.Pair) (refusal string, err error) {
	var in bytes.Buffer
	if s.DryRun {
		in.WriteString("start\x00")
	}
	for _, m := range moves {
		switch {
		case m.Global.IsDeleted():
			fmt.Fprintf(&in, "delete %s\x00%s\x00", m.Ref, m.Local)
		case m.Local == refdb.Unknown:
			fmt.Fprintf(&in, "create %s\x00%s\x00", m.Ref, m.Global)
		default:
			fmt.Fprintf(&in, "update %s\x00%s\x00%s\x00", m.Ref, m.Global, m.Local)
		}
	}
	args := []string{"update-ref", "--no-deref", "-m", "refdb: as in the global database", "--stdin", "-z"}
	if s.DryRun {
		in.WriteString("prepare\x00abort\x00")
		args = append([]string{"-c", "core.hooksPath=/dev/null"}, args...)
	}
	cmd := s.repo.Command(context.WithoutCancel(ctx), args...)
	cmd.Env = append(cmd.Env, wire.ReplicaVariable+"=1")
	cmd.Stdin = &in
	_, err = cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() { // one that was killed has refused nothing
		if refusal = gitrepo.ErrorLine(string(exit.Stderr)); refusal == "" {
			refusal = strings.TrimSpace("git update-ref: " + exit.Error())
		}
		return refusal, nil
	}
	if err != nil {
		return "", fmt.Errorf("moving refs: %w", err)
	}
	return "", nil
}
