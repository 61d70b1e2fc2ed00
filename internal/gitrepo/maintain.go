package gitrepo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Maintain runs a git command that no hook needs to know of, with files that it inherits, and returns what it prints. If it can
// wait, others go first. Ended by its context it gets time to remove its lock files.
func (r *Repo) Maintain(ctx context.Context, canWait bool, inherits []*os.File, args ...string) (out string, err error) {
	cmd := r.Command(ctx, append([]string{"-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.ExtraFiles = inherits
	var printed, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &limited{to: &complaints, left: 1 << 16}
	if err = cmd.Start(); err == nil {
		if canWait {
			lowerPriority(cmd.Process.Pid)
		}
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], failure(ctx, err, complaints.String()))
	}
	return printed.String(), nil
}

// Count returns how many loose objects and packs the repository has.
func (r *Repo) Count(ctx context.Context) (loose, packs int, err error) {
	out, err := r.Maintain(ctx, true, nil, "count-objects", "-v")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, _ := strconv.Atoi(value)
		switch key {
		case "count":
			loose = n
		case "packs":
			packs = n
		}
	}
	return loose, packs, nil
}

// Unreached returns those of ids that no ref reaches, refs below a prefix aside. It leaves out commits that others of these
// reach. All that ids reach must be here: see [Repo.Connected].
func (r *Repo) Unreached(ctx context.Context, ids []string, prefix string) (unreached []string, err error) {
	commits, others, err := r.byType(ctx, ids)
	if err != nil {
		return nil, err
	}
	if len(others) > 0 {
		held, err := r.valuesBeside(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for _, id := range others {
			if !held[id] {
				unreached = append(unreached, id)
			}
		}
	}
	if len(commits) == 0 {
		return unreached, nil
	}
	cmd := r.interruptible(ctx, "rev-list", "--topo-order", "--parents", "--stdin", "--not", "--exclude="+prefix+"*", "--all")
	cmd.Stdin = revisions(commits, nil)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("looking for what no ref of %q reaches: %w", r.path, Failure(ctx, err))
	}
	wanted, reached := map[string]bool{}, map[string]bool{}
	for _, id := range commits {
		wanted[id] = true
	}
	for line := range strings.Lines(string(out)) {
		family := strings.Fields(line) // a commit and its parents, after all its children
		id := family[0]
		if wanted[id] && !reached[id] {
			unreached = append(unreached, id)
		}
		if wanted[id] || reached[id] {
			for _, parent := range family[1:] {
				reached[parent] = true
			}
		}
	}
	return unreached, nil
}

// byType separates the commits among ids from other objects. It leaves out what is not here.
func (r *Repo) byType(ctx context.Context, ids []string) (commits, others []string, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	cmd := r.interruptible(ctx, "cat-file", "--batch-check=%(objectname) %(objecttype)")
	cmd.Stdin = revisions(ids, nil)
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("looking for objects of %q: %w", r.path, Failure(ctx, err))
	}
	for line := range strings.Lines(string(out)) {
		switch id, kind, _ := strings.Cut(strings.TrimSpace(line), " "); kind {
		case "commit":
			commits = append(commits, id)
		case "tag", "tree", "blob":
			others = append(others, id)
		}
	}
	return commits, others, nil
}

// valuesBeside returns what refs hold that are not below a prefix.
func (r *Repo) valuesBeside(ctx context.Context, prefix string) (map[string]bool, error) {
	held := map[string]bool{}
	for ref, err := range r.Refs(ctx, func(string) {}) {
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(ref.Name, prefix) {
			held[ref.Value] = true
		}
	}
	return held, nil
}
