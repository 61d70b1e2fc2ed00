package catchup

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/site/compare"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
)

// catchUp syncs refs, and returns those whose objects are missing.
func (s *syncer) catchUp(ctx context.Context, refs []string) (missing []Synced, err error) {
	for chunk := range slices.Chunk(refs, compare.Chunk) {
		if ctx.Err() != nil {
			return missing, context.Cause(ctx)
		}
		more, err := []Synced(nil), errGuarded
		if !s.asksDaemon() {
			more, err = s.bring(ctx, chunk)
		}
		if errors.Is(err, errGuarded) {
			more, err = s.askDaemon(ctx, chunk)
		}
		missing = append(missing, more...)
		if err != nil {
			return missing, err
		}
	}
	return missing, nil
}

// bring moves refs that differ, and returns the refs whose objects are missing.
func (s *syncer) bring(ctx context.Context, refs []string) (missing []Synced, err error) {
	until := time.Now().Add(s.patience)
	again := backoff.NewExponentialBackOff()
	again.InitialInterval, again.MaxInterval = 20*time.Millisecond, 500*time.Millisecond
	for len(refs) > 0 {
		doubtful, held, err := s.attempt(ctx, refs)
		if err != nil {
			return missing, err
		}
		// This may take long, and holds no claim.
		complete, lacking, err := s.complete(ctx, doubtful)
		if err != nil {
			return missing, err
		}
		missing = append(missing, lacking...)
		refs = complete
		late := !time.Now().Before(until)
		for _, h := range held {
			switch {
			case s.patience == 0:
				s.tell(h)
			case late:
				h.Result = Failed
				s.tell(h)
			default:
				refs = append(refs, h.Ref)
			}
		}
		if len(held) > 0 && !late && !pause.For(ctx, again.NextBackOff()) {
			return missing, context.Cause(ctx)
		}
	}
	return missing, nil
}

// attempt claims refs, compares them, and moves those that differ and whose objects are known to be
// here. It returns the refs whose objects may be missing, and those that git could not lock.
func (s *syncer) attempt(ctx context.Context, refs []string) (doubtful []compare.Pair, held []Synced, err error) {
	release, taken, err := s.mover.Claim(ctx, refs)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	moves, err := s.compare(ctx, refs, taken)
	if err != nil {
		return nil, nil, err
	}
	came, err := s.fetched(ctx, moves)
	if err != nil {
		return nil, nil, err
	}
	var ready []compare.Pair
	for _, m := range moves {
		if m.Global.IsDeleted() || came[m.Ref] || s.here[string(m.Global)] || s.whole != nil && s.whole(string(m.Global)) {
			ready = append(ready, m)
		} else {
			doubtful = append(doubtful, m)
		}
	}
	s.held = nil
	// Deletions come first: git can't hold refs/heads/a and refs/heads/a/b at once, not even within a transaction.
	deletes, others := apart(ready)
	for _, moves := range [][]compare.Pair{deletes, others} {
		if err := s.apply(ctx, moves); err != nil {
			return nil, nil, err
		}
	}
	return doubtful, s.held, nil
}

func apart(moves []compare.Pair) (deletes, others []compare.Pair) {
	for _, m := range moves {
		if m.Global.IsDeleted() {
			deletes = append(deletes, m)
		} else {
			others = append(others, m)
		}
	}
	return deletes, others
}

// complete separates the refs whose objects are here from those that lack some.
func (s *syncer) complete(ctx context.Context, moves []compare.Pair) (complete []string, missing []Synced, err error) {
	if len(moves) == 0 {
		return nil, nil, nil
	}
	ids := make([]string, len(moves))
	for i, m := range moves {
		ids[i] = string(m.Global)
	}
	here, err := s.repo.Connected(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range moves {
		if here[string(m.Global)] {
			s.here[string(m.Global)] = true
			complete = append(complete, m.Ref)
			continue
		}
		detail := "its objects are not here"
		if s.report.Peer != "" {
			detail += ", and peer " + s.report.Peer + " does not have them yet"
		}
		missing = append(missing, Synced{m.Ref, Missing, m.Local, m.Global, detail})
	}
	return complete, missing, nil
}

// fetched returns the refs of which the peer has the global value: a fetch brought all of their
// objects.
func (s *syncer) fetched(ctx context.Context, moves []compare.Pair) (map[string]bool, error) {
	if s.peer == nil {
		return nil, nil
	}
	names := make([]string, len(moves))
	for i, m := range moves {
		names[i] = s.peer.ref(m.Ref)
	}
	values, err := s.repo.Values(ctx, names)
	came := make(map[string]bool, len(moves))
	for i, m := range moves {
		came[m.Ref] = values[names[i]] == string(m.Global)
	}
	return came, err
}
