package site

import (
	"context"
	"sync"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/compare"
)

// compactAbove is the smallest size at which a file of settled values is compacted.
const compactAbove = 1 << 20

// sizes are the sizes at which the files of settled values will be compacted next.
type sizes struct {
	mu    sync.Mutex
	above map[string]int64
}

// exceeded reports whether a file that has grown to size is to be compacted, once.
func (s *sizes) exceeded(dir string, size int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size < max(compactAbove, s.above[dir]) {
		return false
	}
	s.put(dir, 4*size)
	return true
}

func (s *sizes) put(dir string, above int64) {
	if s.above == nil {
		s.above = map[string]int64{}
	}
	s.above[dir] = above
}

func (s *sizes) compacted(dir string, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(dir, 4*size)
}

// settled records the new values of the refs in done. If it fails, these values are not protected from a database
// that is set back; the push succeeds.
func (d *Daemon) settled(ctx context.Context, repo *gitrepo.Repo, of announcement, moves []*pendingMove, done []string) {
	if len(done) == 0 {
		return
	}
	named := make(map[string]bool, len(done))
	for _, ref := range done {
		named[ref] = true
	}
	var values []compare.Settled
	for _, m := range moves {
		if named[m.Ref] {
			values = append(values, compare.Settled{Ref: m.Ref, Value: m.New, By: of.token.Time()})
		}
	}
	dir := repo.Dir()
	size, err := compare.NoteSettled(dir, values)
	if err != nil {
		d.o.Logger.WarnContext(ctx, "what a push moved could not be noted in the repository", "repository", d.digest(of.project, ""))
		return
	}
	if d.sizes.exceeded(dir, size) {
		d.tasks.Go(func() {
			if size, err := compare.CompactSettled(dir); err == nil {
				d.sizes.compacted(dir, size)
			}
		})
	}
}
