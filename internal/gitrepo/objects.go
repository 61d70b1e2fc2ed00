package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Connected returns those of ids whose objects are here, with all that they refer to.
func (r *Repo) Connected(ctx context.Context, ids []string) (map[string]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	here, err := r.Present(ctx, ids)
	if err != nil {
		return nil, err
	}
	found := make(map[string]bool, len(here))
	return found, r.walk(ctx, here, found)
}

// Present returns those of ids whose objects are here.
func (r *Repo) Present(ctx context.Context, ids []string) ([]string, error) {
	cmd := r.Command(ctx, "cat-file", "--batch-check")
	cmd.Stdin = strings.NewReader(strings.Join(ids, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("looking for objects: %w", Failure(ctx, err))
	}
	var here []string
	i := 0
	for line := range strings.Lines(string(out)) {
		if !strings.HasSuffix(line, " missing\n") && i < len(ids) {
			here = append(here, ids[i])
		}
		i++
	}
	return here, nil
}

// walk adds those of ids to found from which git gets to known objects only,
// halving those that it doesn't.
func (r *Repo) walk(ctx context.Context, ids []string, found map[string]bool) error {
	if len(ids) == 0 {
		return nil
	}
	cmd := r.interruptible(ctx, "rev-list", "--objects", "--quiet", "--stdin", "--not", "--all")
	cmd.Stdin = strings.NewReader(strings.Join(ids, "\n") + "\n")
	_, err := cmd.Output()
	if err == nil {
		for _, id := range ids {
			found[id] = true
		}
		return nil
	}
	if exit := (*exec.ExitError)(nil); ctx.Err() != nil || !errors.As(err, &exit) {
		return fmt.Errorf("looking for objects: %w", Failure(ctx, err))
	}
	if len(ids) == 1 {
		return nil
	}
	half := len(ids) / 2
	if err := r.walk(ctx, ids[:half], found); err != nil {
		return err
	}
	return r.walk(ctx, ids[half:], found)
}
