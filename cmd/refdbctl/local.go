package main

import (
	"context"
	"iter"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site"
)

// local is the refs of a repository that an import or a comparison is about.
type local struct {
	repo *gitrepo.Repo
	all  bool // those too that Gerrit keeps out
	// skipped and refused are called for the refs left out: by choice, and
	// because git can't read them.
	skipped func(ref string)
	refused func(complaint string)
}

// refs iterates over them in byte order.
func (l *local) refs(ctx context.Context) iter.Seq2[gitrepo.Ref, error] {
	return func(yield func(gitrepo.Ref, error) bool) {
		if l.all {
			head, ok, err := l.repo.Head(ctx)
			// HEAD is less than refs/.
			if err != nil || ok {
				if !yield(head, err) || err != nil {
					return
				}
			}
		}
		for ref, err := range l.repo.Refs(ctx, l.warn) {
			if err == nil && !l.all && !site.Kept(ref.Name) {
				l.skipped(ref.Name)
				continue
			}
			if !yield(ref, err) || err != nil {
				return
			}
		}
	}
}

func (l *local) warn(line string) {
	l.refused("git says: " + strings.TrimPrefix(line, "warning: "))
}
