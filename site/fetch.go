package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// A source is another site's copy of a repository. What is fetched from it stands
// below refs/peer/NAME/, which nothing guards, so that no gc removes it.
type source struct {
	url  string
	name string
}

// newSource checks a peer's name; "" makes one of the URL.
func newSource(from, name string) (source, error) {
	if from == "" || strings.HasPrefix(from, "-") {
		return source{}, fmt.Errorf("%w address %q: give the URL or path of a peer's copy of the repository", refdb.ErrInvalid, from)
	}
	if name == "" {
		name = nameOf(from)
	}
	f := source{from, name}
	if strings.Contains(name, "/") || refdb.CheckRef(f.ref("refs/x")) != nil {
		return source{}, fmt.Errorf("%w peer %q: give the peer a name that could be a branch's, without %q", refdb.ErrInvalid, name, "/")
	}
	return f, nil
}

// nameOf makes a name of the host, or of the path on this machine.
func nameOf(from string) string {
	name := from
	if u, err := url.Parse(from); err == nil && u.Hostname() != "" {
		name = u.Hostname()
	} else if host, path, ok := strings.Cut(from, ":"); ok && !strings.Contains(host, "/") && path != "" {
		name = host[strings.LastIndexByte(host, '@')+1:] // as in git@host:path
	}
	name = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		if c == '.' {
			return c
		}
		return '-'
	}, name)
	for strings.Contains(name, "..") {
		name = strings.ReplaceAll(name, "..", ".")
	}
	return strings.TrimSuffix(strings.Trim(name, "-."), ".lock")
}

// ref is where a ref of the peer is kept here.
func (f source) ref(name string) string {
	return PeerPrefix + f.name + "/" + strings.TrimPrefix(name, "refs/")
}

// fetch brings the peer's objects here, and its refs below refs/peer/, without
// any hook. One fetch at a time: two would stumble over each other's locks.
func (f source) fetch(ctx context.Context, repo *gitrepo.Repo, progress io.Writer) error {
	unlock, err := exclusive(ctx, filepath.Join(repo.Dir(), "refdb", "fetch"))
	if err != nil {
		return fmt.Errorf("waiting for another fetch: %w", err)
	}
	defer unlock()
	args := []string{
		"-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false",
		"fetch", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=", "--prune", "--force",
	}
	if progress != nil {
		args = append(args, "--progress")
	} else {
		args = append(args, "--quiet")
	}
	cmd := repo.Command(ctx, append(args, "--", f.url, "+refs/*:"+f.ref("refs/*"), "^"+PeerPrefix+"*")...)
	cmd.Env = append(cmd.Env, "GIT_TERMINAL_PROMPT=0")
	gently(cmd)
	var messages bytes.Buffer
	cmd.Stderr = &messages
	if progress != nil {
		cmd.Stderr = io.MultiWriter(&messages, progress)
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if why := complaint(messages.String()); why != "" {
			err = errors.New("git says: " + why)
		}
		return fmt.Errorf("fetching from %s: %w", redacted(f.url), err)
	}
	return nil
}

// redacted is the URL without its password.
func redacted(from string) string {
	if u, err := url.Parse(from); err == nil {
		return u.Redacted()
	}
	return from
}

// gently ends git, when its context does, with a signal upon which it removes
// its lock files. It gets some time for that.
func gently(cmd *exec.Cmd) {
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
}

// exclusive waits until no other process has the file locked, and locks it.
func exclusive(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// connected returns those of ids whose objects are here, with all that they refer to.
func connected(ctx context.Context, repo *gitrepo.Repo, ids []string) (map[string]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	here, err := present(ctx, repo, ids)
	if err != nil {
		return nil, err
	}
	found := make(map[string]bool, len(here))
	return found, walk(ctx, repo, here, found)
}

// present returns those of ids whose objects are here.
func present(ctx context.Context, repo *gitrepo.Repo, ids []string) ([]string, error) {
	cmd := repo.Command(ctx, "cat-file", "--batch-check")
	cmd.Stdin = strings.NewReader(strings.Join(ids, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("looking for objects: %w", gitError(ctx, err))
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
func walk(ctx context.Context, repo *gitrepo.Repo, ids []string, found map[string]bool) error {
	if len(ids) == 0 {
		return nil
	}
	cmd := repo.Command(ctx, "rev-list", "--objects", "--quiet", "--stdin", "--not", "--all")
	cmd.Stdin = strings.NewReader(strings.Join(ids, "\n") + "\n")
	_, err := cmd.Output()
	if err == nil {
		for _, id := range ids {
			found[id] = true
		}
		return nil
	}
	if exit := (*exec.ExitError)(nil); ctx.Err() != nil || !errors.As(err, &exit) {
		return fmt.Errorf("looking for objects: %w", gitError(ctx, err))
	}
	if len(ids) == 1 {
		return nil
	}
	half := len(ids) / 2
	if err := walk(ctx, repo, ids[:half], found); err != nil {
		return err
	}
	return walk(ctx, repo, ids[half:], found)
}
