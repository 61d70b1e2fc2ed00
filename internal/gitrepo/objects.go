package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
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
	whole, err := r.isConnected(ctx, revisions(ids, nil), "--not", "--all")
	if err != nil {
		return err
	}
	if whole {
		for _, id := range ids {
			found[id] = true
		}
		return nil
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

// IsConnected reports whether all objects that ids reach are here. Objects that known reach are assumed to be here; known itself
// must be.
func (r *Repo) IsConnected(ctx context.Context, ids, known []string) (bool, error) {
	return r.isConnected(ctx, revisions(ids, known))
}

// IsConnectedBesideRefs is IsConnected with the refs among known.
func (r *Repo) IsConnectedBesideRefs(ctx context.Context, ids, known []string) (bool, error) {
	return r.isConnected(ctx, revisions(ids, known), "--not", "--all")
}

// isConnected runs git rev-list, which fails if an object is missing. It also fails for other reasons, such as a broken ref, a damaged object, or
// want of memory: they say nothing about what is here.
func (r *Repo) isConnected(ctx context.Context, in io.Reader, args ...string) (bool, error) {
	cmd := r.interruptible(ctx, append([]string{"rev-list", "--objects", "--quiet", "--stdin"}, args...)...)
	cmd.Stdin = in
	var complaints bytes.Buffer
	cmd.Stderr = &limited{to: &complaints, left: 1 << 16}
	err := cmd.Run()
	if err == nil {
		return true, nil
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() && ctx.Err() == nil && r.lacksOneOf(ctx, complaints.String()) {
		return false, nil
	}
	return false, fmt.Errorf("looking for objects of %q: %w", r.path, failure(ctx, err, complaints.String()))
}

var objectID = regexp.MustCompile(`\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b`)

// lacksOneOf reports whether an object that git complains about is not here. A damaged one is: git complains about it again.
func (r *Repo) lacksOneOf(ctx context.Context, complaints string) bool {
	ids := objectID.FindAllString(complaints, -1)
	if len(ids) == 0 {
		return false
	}
	cmd := r.interruptible(ctx, "cat-file", "--batch-check")
	cmd.Stdin = strings.NewReader(strings.Join(ids, "\n") + "\n")
	var more bytes.Buffer
	cmd.Stderr = &limited{to: &more, left: 1 << 16}
	out, err := cmd.Output()
	return err == nil && more.Len() == 0 && slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool { return strings.HasSuffix(line, " missing") })
}
