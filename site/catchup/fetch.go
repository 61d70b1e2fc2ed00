package catchup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/filelock"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
)

// A source is another site's copy of a repository. The refs that are fetched from it are kept below
// refs/peer/NAME/, which is not guarded, so that no gc removes their objects.
type source struct {
	url  string
	name string
}

// newSource returns the source at the URL or path from. A name of "" is made of from.
func newSource(from, name string) (source, error) {
	if from == "" || strings.HasPrefix(from, "-") {
		return source{}, fmt.Errorf("%w address %q: give the URL or path of a peer's copy of the repository", refdb.ErrInvalid, from)
	}
	if name == "" {
		name = nameOf(from)
	}
	f := source{from, name}
	if strings.Contains(name, "/") || driver.CheckRef(f.ref("refs/x")) != nil {
		return source{}, fmt.Errorf("%w peer %q: give the peer a name that could be a branch's, without %q", refdb.ErrInvalid, name, "/")
	}
	return f, nil
}

// nameOf makes a name of the URL's host, or of a path on this machine.
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

// ref returns the name under which a ref of the peer is kept here.
func (f source) ref(name string) string {
	return config.PeerPrefix + f.name + "/" + strings.TrimPrefix(name, "refs/")
}

// fetch fetches the peer's objects and refs, without running hooks. Only one fetch runs at a time:
// two would fail on each other's locks.
func (f source) fetch(ctx context.Context, repo *gitrepo.Repo, progress io.Writer) error {
	lock, err := filelock.Exclusive(ctx, filepath.Join(repo.Dir(), "refdb", "fetch"))
	if err != nil {
		return fmt.Errorf("waiting for another fetch: %w", err)
	}
	defer lock.Close()
	// What transfer.fsckObjects asks for was judged where the push came in. Hashes, and that all is there, git looks at in any case.
	args := []string{
		"-c", "fetch.fsckObjects=false",
		"-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.logAllRefUpdates=false",
		"fetch", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=", "--prune", "--force",
	}
	if progress != nil {
		args = append(args, "--progress")
	} else {
		args = append(args, "--quiet")
	}
	cmd := repo.Command(ctx, append(args, "--", f.url, "+refs/*:"+f.ref("refs/*"), "^"+config.PeerPrefix+"*", "^"+config.OwnPrefix+"*")...)
	cmd.Env = append(cmd.Env, "GIT_TERMINAL_PROMPT=0")
	terminateFirst(cmd)
	var messages bytes.Buffer
	cmd.Stderr = &messages
	if progress != nil {
		cmd.Stderr = io.MultiWriter(&messages, progress)
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if why := gitrepo.ErrorLine(messages.String()); why != "" {
			err = errors.New("git says: " + why)
		}
		return fmt.Errorf("fetching from %s: %w", redacted(f.url), err)
	}
	return maintenance.NotePeer(repo.Dir(), f.name, time.Now())
}

// redacted returns the URL without its password.
func redacted(from string) string {
	if u, err := url.Parse(from); err == nil {
		return u.Redacted()
	}
	return from
}

// terminateFirst lets git remove its lock files when its context ends: git gets a SIGTERM first, and some
// time.
func terminateFirst(cmd *exec.Cmd) {
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
}
