package gerrit

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// The sequences from which Gerrit takes the numbers of changes and accounts.
const (
	ChangeSequence  = "refs/sequences/changes"  // in All-Projects
	AccountSequence = "refs/sequences/accounts" // in All-Users
)

// Numbers are the largest that refs are named after.
type Numbers struct{ Change, Account int }

// Add takes a ref's name into account. Drafts and stars are of changes that have refs of their own.
func (n *Numbers) Add(ref string) {
	parts := strings.Split(ref, "/")
	if len(parts) < 4 || parts[0] != "refs" {
		return
	}
	id, err := strconv.Atoi(parts[3])
	if err != nil {
		return
	}
	switch {
	case parts[1] == "changes" && len(parts) >= 5:
		n.Change = max(n.Change, id)
	case parts[1] == "users" && len(parts) == 4:
		n.Account = max(n.Account, id)
	}
}

// NextNumber returns the next number that a sequence gives out; 0 if the repository has no such sequence.
func NextNumber(ctx context.Context, repo *gitrepo.Repo, sequence string) (int, error) {
	values, err := repo.Values(ctx, []string{sequence})
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", sequence, err)
	}
	if values[sequence] == "" {
		return 0, nil
	}
	text, err := repo.Command(ctx, "cat-file", "blob", sequence).Output()
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", sequence, gitrepo.Failure(ctx, err))
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("reading %s: it has %q, not a number", sequence, strings.TrimSpace(string(text)))
	}
	return n, nil
}
