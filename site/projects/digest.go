package projects

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// LocalDigest returns the digest of the guarded refs of a repository, and of their values.
func LocalDigest(ctx context.Context, c *config.Config, repo *gitrepo.Repo, project string) (string, error) {
	return digestOf(c, project, func(yield func(refdb.Ref, error) bool) {
		for ref, err := range repo.Refs(ctx, func(string) {}) {
			if !yield(refdb.Ref{Name: ref.Name, Value: refdb.Value(ref.Value)}, err) {
				return
			}
		}
	})
}

// globalDigest returns the same of the database. The two are equal if the refs are.
func globalDigest(ctx context.Context, c *config.Config, db *refdb.DB, project string) (string, error) {
	return digestOf(c, project, db.Refs(ctx, project, "refs/"))
}

// digestOf needs the refs in byte order, as both sides return them.
func digestOf(c *config.Config, project string, refs iter.Seq2[refdb.Ref, error]) (string, error) {
	sum := sha256.New()
	for ref, err := range refs {
		if err != nil {
			return "", err
		}
		if c.Guards(project, ref.Name) {
			io.WriteString(sum, ref.Name+"\x00"+string(ref.Value)+"\x00")
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}
