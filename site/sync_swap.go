package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// maxFailures is how many refs in a row may be refused before the rest is not tried.
const maxFailures = 10

// replicaEnv marks a change that only repeats what the database says.
const replicaEnv = "REFDB_REPLICA"

// apply moves refs from their local to their global values. What git refuses
// as a whole is halved until those are found that it refuses.
func (s *syncer) apply(ctx context.Context, moves []pair) error {
	if len(moves) == 0 {
		return nil
	}
	var refusal string
	if !s.DryRun {
		var err error
		if refusal, err = s.swap(ctx, moves); err != nil {
			return err
		}
	}
	if refusal == "" {
		s.failures = 0
		for _, m := range moves {
			s.tell(moved(m))
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
		return s.refused(moves[0], refusal)
	}
	half := len(moves) / 2
	if err := s.apply(ctx, moves[:half]); err != nil {
		return err
	}
	return s.apply(ctx, moves[half:])
}

// still returns those moves that are as they were, and tells of those that
// others have come between.
func (s *syncer) still(ctx context.Context, moves []pair) (still []pair, err error) {
	refs := make([]string, len(moves))
	for i, m := range moves {
		refs[i] = m.ref
	}
	now, err := lookAgain(ctx, s.db, s.repo, s.project, refs)
	if err != nil {
		return nil, err
	}
	for i, l := range now {
		if result, detail := obstacle(l); result != "" {
			s.tell(Synced{l.ref, result, l.local, l.global, detail})
		} else if l.pair != moves[i] {
			s.tell(Synced{l.ref, SyncMoved, l.local, l.global, "the next sync looks at it again"})
		} else {
			still = append(still, l.pair)
		}
	}
	return still, nil
}

func (s *syncer) refused(m pair, refusal string) error {
	s.tell(Synced{m.ref, SyncFailed, m.local, m.global, refusal})
	if s.failures++; s.failures == maxFailures {
		return fmt.Errorf("%d refs in a row were refused, the last with: %s", maxFailures, refusal)
	}
	return nil
}

func moved(m pair) Synced {
	o := Synced{Ref: m.ref, Result: SyncUpdated, Local: m.local, Global: m.global}
	switch {
	case m.global.IsDeleted():
		o.Result = SyncDeleted
	case m.local == refdb.Unknown:
		o.Result = SyncCreated
	}
	return o
}

// swap moves refs in one transaction of git's, from exactly the local values
// to the global ones, and returns what git says if it refuses. It is not interrupted:
// git would leave its locks behind.
func (s *syncer) swap(ctx context.Context, moves []pair) (refusal string, err error) {
	var in bytes.Buffer
	for _, m := range moves {
		switch {
		case m.global.IsDeleted():
			fmt.Fprintf(&in, "delete %s\x00%s\x00", m.ref, m.local)
		case m.local == refdb.Unknown:
			fmt.Fprintf(&in, "create %s\x00%s\x00", m.ref, m.global)
		default:
			fmt.Fprintf(&in, "update %s\x00%s\x00%s\x00", m.ref, m.global, m.local)
		}
	}
	cmd := s.repo.Command(context.WithoutCancel(ctx), "update-ref", "--no-deref", "-m", "refdb: as in the global database", "--stdin", "-z")
	cmd.Env = append(cmd.Env, replicaEnv+"=1")
	cmd.Stdin = &in
	_, err = cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if refusal = complaint(string(exit.Stderr)); refusal == "" {
			refusal = strings.TrimSpace("git update-ref: " + exit.Error())
		}
		return refusal, nil
	}
	if err != nil {
		return "", fmt.Errorf("moving refs: %w", err)
	}
	return "", nil
}
