package install

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
)

// removeOwnRefs removes the site's own refs, which are hidden from clients: refs that keep objects
// for other sites, and refs fetched from peers. They keep commits that were force-pushed away.
func removeOwnRefs(ctx context.Context, repo *gitrepo.Repo) (n int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("removing the refs below %s, in which clients would see what was force-pushed away; they stay hidden: run it again: %w", HiddenRefs.Value, err)
		}
	}()
	out, err := repo.Maintain(ctx, false, nil, append([]string{"for-each-ref", "--format=%(refname)"}, hookdir.Hidden[:]...)...)
	if err != nil || out == "" {
		return 0, err
	}
	var in bytes.Buffer
	for line := range strings.Lines(out) {
		fmt.Fprintf(&in, "delete %s\x00\x00", strings.TrimSpace(line))
		n++
	}
	cmd := repo.Command(ctx, "-c", "core.hooksPath=/dev/null", "update-ref", "--no-deref", "--stdin", "-z")
	cmd.Stdin = &in
	if _, err := cmd.Output(); err != nil {
		return 0, gitrepo.Failure(ctx, err)
	}
	return n, nil
}
