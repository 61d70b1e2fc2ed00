package places

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/bench/internal/command"
)

// A Push moves a branch one commit ahead.
type Push struct {
	Due        time.Duration // after the first push
	Site, Repo int
	Branch     string
	commit     string
	After      int // the push that moved the branch before; -1 if there is none
}

// RandomPushes plans n pushes, rate in a second, to random repositories. Sites take turns, and so do the pushers of each.
func (p Places) RandomPushes(n, rate int) []Push {
	random := rand.New(rand.NewPCG(1, 2)) // the same for all contestants and rounds
	pushes := make([]Push, n)
	for i := range pushes {
		site := i % p.Sites
		pushes[i] = Push{
			Due: time.Duration(i) * time.Second / time.Duration(rate), Site: site, Repo: random.IntN(p.Repos),
			Branch: PusherBranch(site, i/p.Sites%p.Pushers),
		}
	}
	return pushes
}

// A Plan is pushes, and a client's repository with their commits.
type Plan struct {
	client string
	seed   string // the commit that all branches have at first
	Pushes []Push
	number map[string]int // of a push, by its commit
}

// makePlan makes the commits of pushes. Each has a file of its own, and its parent is what its branch had before.
func makePlan(ctx context.Context, client string, pushes []Push) (*Plan, error) {
	if _, err := command.Git(ctx, "init", "--quiet", "--bare", client); err != nil {
		return nil, err
	}
	plan := &Plan{client: client, Pushes: linked(pushes), number: map[string]int{}}
	const seed = 1 // marks are the commits' places in the stream
	var stream bytes.Buffer
	writeCommit(&stream, seed, 0)
	for i, p := range plan.Pushes {
		parent := seed
		if p.After >= 0 {
			parent = seed + 1 + p.After
		}
		writeCommit(&stream, seed+1+i, parent)
	}
	marks := filepath.Join(client, "marks")
	cmd := exec.CommandContext(ctx, "git", "--git-dir", client, "fast-import", "--quiet", "--force", "--export-marks="+marks)
	cmd.Stdin = &stream
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("git fast-import: %w: %s", err, said)
	}
	commits, err := readMarks(marks)
	if err != nil {
		return nil, err
	}
	plan.seed = commits[seed]
	for i := range pushes {
		commit := commits[seed+1+i]
		plan.Pushes[i].commit, plan.number[commit] = commit, i
	}
	return plan, nil
}

// linked returns pushes that know which push moved their branch before.
func linked(pushes []Push) []Push {
	pushes = slices.Clone(pushes)
	last := map[string]int{}
	for i, p := range pushes {
		branch := fmt.Sprint(p.Repo, p.Branch)
		pushes[i].After = -1
		if before, ok := last[branch]; ok {
			pushes[i].After = before
		}
		last[branch] = i
	}
	return pushes
}

// writeCommit writes a commit for git fast-import. Without a parent it is a root.
func writeCommit(stream *bytes.Buffer, mark, parent int) {
	text := fmt.Sprintln(mark)
	// The stream's branch is of no use: a commit without "from" would build on it.
	fmt.Fprintf(stream, "reset refs/heads/all\n\ncommit refs/heads/all\nmark :%d\ncommitter bench <bench@localhost> 1700000000 +0000\ndata %d\n%s", mark, len(text), text)
	if parent > 0 {
		fmt.Fprintf(stream, "from :%d\n", parent)
	}
	fmt.Fprintf(stream, "M 100644 inline file\ndata %d\n%s\n", len(text), text)
}

// readMarks returns the commits that git fast-import made, by their marks.
func readMarks(path string) (map[int]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	commits := map[int]string{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var mark int
		var commit string
		if _, err := fmt.Sscanf(lines.Text(), ":%d %s", &mark, &commit); err != nil {
			return nil, fmt.Errorf("a mark of git fast-import: %q: %w", lines.Text(), err)
		}
		commits[mark] = commit
	}
	return commits, nil
}
