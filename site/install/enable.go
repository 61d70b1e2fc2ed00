// Package install puts a repository under guard, and reverses that: the hooks, git's settings and
// the link to the daemon's socket.
package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
)

// A Step is a change of a repository, or a check that found the change already made.
type Step struct {
	Name   string // the hook, setting or file
	Detail string // what was done
}

// Enable puts a repository under guard. It installs the site's hooks, from the program at the path
// hook, and creates the link by which they find the daemon. It then changes git's settings in one
// step, after which git runs the hooks. The repository's own hooks stay where they are. [Disable]
// restores the previous state.
//
// Enable may be called again: it leaves correct parts alone, and converts a repository of an
// earlier version. It calls done for each step. It fails if no daemon that serves the repository
// answers, because pushes would be refused, and if the repository's disk folds names.
//
// At the end Enable waits for at most five seconds until git's lock files are gone: they may belong
// to a transaction that ran no hook. Then the daemon follows the repository, if the database keeps
// its objects.
func Enable(ctx context.Context, c *config.Config, r config.Repository, hook string, done func(Step)) error {
	program, err := ReadHook(hook)
	if err != nil {
		return err
	}
	repo, err := openOwn(ctx, r)
	if err != nil {
		return err
	}
	hooks, err := readHooks(ctx, c, repo)
	if err != nil {
		return err
	}
	if err := IsServed(ctx, c, repo.Dir()); err != nil {
		return err
	}
	if err := guard(ctx, c, hooks, program, done); err != nil {
		return err
	}
	if err := AwaitLocks(ctx, repo.Dir()); err != nil {
		return err
	}
	Announce(ctx, c, repo.Dir())
	return nil
}

// Guard puts the repository at dir under guard, like [Enable], while only its creator knows the
// repository. Pushes into it are refused until it is at a path that the daemon serves.
func Guard(ctx context.Context, c *config.Config, dir, hook string) error {
	program, err := ReadHook(hook)
	if err != nil {
		return err
	}
	repo, err := openOwn(ctx, config.Repository{Path: dir})
	if err != nil {
		return err
	}
	hooks, err := readHooks(ctx, c, repo)
	if err != nil {
		return err
	}
	return guard(ctx, c, hooks, program, func(Step) {})
}

// IsServed returns an error unless the daemon accepts pushes to the repository dir.
func IsServed(ctx context.Context, c *config.Config, dir string) error {
	refusal, err := client.Refusal(ctx, c.Socket, dir)
	if err != nil {
		return noDaemon(c, err)
	}
	if refusal != "" {
		return fmt.Errorf("the site daemon would refuse pushes: %s: if the configuration says otherwise, reload the daemon's configuration", refusal)
	}
	return nil
}

// DaemonRuns returns an error unless the daemon accepts requests.
func DaemonRuns(ctx context.Context, c *config.Config) error {
	if err := client.Answers(ctx, c.Socket); err != nil {
		return noDaemon(c, err)
	}
	return nil
}

func noDaemon(c *config.Config, err error) error {
	return fmt.Errorf("the site daemon does not answer at %s: pushes would be refused: start it first: %w", c.Socket, err)
}

// Announce asks the daemon to follow a newly guarded repository, if the database keeps its objects.
func Announce(ctx context.Context, c *config.Config, dir string) {
	// A daemon that does not know the request, as one of an earlier version, discovers the
	// repository by itself.
	_ = client.Follow(ctx, c.Socket, dir)
}

// guard installs the hooks and git's settings, and creates the link to the daemon's socket. From
// then on git asks the daemon.
func guard(ctx context.Context, c *config.Config, hooks Hooks, program []byte, done func(Step)) error {
	if err := requireDistinctNames(hooks.repo.Dir(), os.Lstat); err != nil {
		return err
	}
	return hooks.lead(ctx, program, func(config GitConfig) error {
		did, err := LinkSocket(hooks.repo, c.Socket)
		if err != nil {
			return fmt.Errorf("linking to the daemon's socket: %w", err)
		}
		done(Step{"socket", did})
		for _, s := range Settings {
			did, err := config.Apply(ctx, hooks.variables, s)
			if err != nil {
				return err
			}
			done(Step{s.Key, did})
		}
		did, err = config.HideRefs(ctx)
		done(Step{HiddenRefs.Key, did})
		return err
	}, done)
}

// RepairHooks installs the hooks of a repository that should be guarded, as [Enable] does. A nil
// program stands for the program of the site's hooks, which must then be intact.
func RepairHooks(ctx context.Context, hooks Hooks, program []byte) (did string, err error) {
	var last Step
	err = hooks.lead(ctx, program, func(GitConfig) error { return nil }, func(s Step) { last = s })
	return last.Detail, err
}

// lead makes git run the site's hooks, and refuse pushes without them. A crash leaves the
// repository as it was, or under guard: the steps before the change of the configuration either
// have no effect on git, or make git run the site's hooks from the places of the repository's own
// hooks. More changes the configuration in the same step.
func (h Hooks) lead(ctx context.Context, program []byte, more func(GitConfig) error, done func(Step)) error {
	if err := h.refuse(); err != nil {
		return err
	}
	if program != nil {
		did, err := h.Site.Provide(ctx, program, false)
		if err != nil {
			return err
		}
		done(Step{"site hooks", did})
	}
	if faults := h.Site.Faults(nil); len(faults) > 0 {
		return fmt.Errorf("%s: %s", faults[0].Path, faults[0].Detail)
	}
	if detail := h.Site.NotEnterable(h.repo.Dir()); detail != "" {
		return errors.New(detail)
	}
	found := h.hidings()
	for _, hidden := range [][]string{found.before, found.hidden()} { // for the present configuration, and for a rewritten one
		if err := h.Site.ProvideConfig(ctx, hidden); err != nil {
			return err
		}
	}
	var led string
	err := rewrite(ctx, h.repo, func(config GitConfig) (err error) {
		if err := more(config); err != nil {
			return err
		}
		if err := h.place(); err != nil {
			return fmt.Errorf("installing the hooks: %w", err)
		}
		led, err = config.lead(ctx, h)
		return err
	})
	if err != nil {
		return err
	}
	finished, err := h.finish(ctx, gitrepo.LockPatience)
	if err != nil {
		return fmt.Errorf("restoring the repository's own hooks: %w", err)
	}
	detail := led + "; the repository's own hooks are run from " + h.Own
	if !finished {
		left := h.unplaced()
		if len(left) == 0 || !isOurs(filepath.Join(h.Own, deciding[0])) {
			return fmt.Errorf("a git process from before the hooks were installed is working on %s, and does not run them: run the command again when it has ended", h.repo.Dir())
		}
		for _, path := range left {
			detail += "; " + filepath.Base(path) + " stays there until the git processes that run now have ended: run the command again"
		}
	}
	done(Step{hooksPathKey, detail})
	return nil
}

// AwaitLocks waits until git's lock files in the Git directory dir are gone, except for files that
// are created meanwhile. They may belong to transactions that began before the hooks were
// installed, and that move refs without the database. A second call can't distinguish them from
// those of later transactions.
func AwaitLocks(ctx context.Context, dir string) error {
	files, err := gitrepo.LockFiles(dir)
	if err != nil {
		return err
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	patience := time.After(gitrepo.LockPatience)
	for {
		files = slices.DeleteFunc(files, func(f gitrepo.LockFile) bool { return !f.Exists() })
		if len(files) == 0 {
			return nil
		}
		select {
		case <-poll.C:
		case <-patience:
			return fmt.Errorf("%s: a git process from before the hooks were installed may be moving refs: run the command again when it has ended; %s",
				files[0].Path, unlock(dir))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Disable ends the guard of a repository and restores the previous state. It fails while an intent
// of this site is pending on one of the repository's refs, because no process would end that
// intent. With a nil db it does not check for intents.
func Disable(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository, done func(Step)) error {
	repo, err := openOwn(ctx, r)
	if err != nil {
		return err
	}
	hooks, err := readHooks(ctx, c, repo)
	if err != nil {
		return err
	}
	if db != nil {
		for i, err := range db.Intents().All(ctx, driver.IntentFilter{Project: r.Project, Owner: c.Site}) {
			if err != nil {
				return err
			}
			return fmt.Errorf("%s: a push that this site announced has been pending for %s: the site's daemon ends it, or `refdbctl site repair` if the daemon does not run", i.Ref, i.Age.Round(time.Second))
		}
	}
	err = rewrite(ctx, repo, func(config GitConfig) error {
		did, err := config.unlead(ctx, hooks)
		if err != nil {
			return err
		}
		done(Step{hooksPathKey, did})
		for _, s := range Settings {
			did, err := config.restore(ctx, hooks.variables, s)
			if err != nil {
				return err
			}
			done(Step{s.Key, did})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := hooks.giveBack(done); err != nil {
		return err
	}
	// The refs stay hidden until they are removed.
	removed, err := removeOwnRefs(ctx, repo)
	if err != nil {
		return err
	}
	done(Step{"own refs", fmt.Sprint(removed, " removed")})
	did, err := GitConfig{Repo: repo}.showRefs(ctx)
	if err != nil {
		return err
	}
	done(Step{HiddenRefs.Key, did})
	switch err := os.Remove(SocketLink(repo)); {
	case errors.Is(err, fs.ErrNotExist):
		done(Step{"socket", "is not there"})
	case err != nil:
		return err
	default:
		done(Step{"socket", "removed"})
	}
	// Maintenance that was in progress may have added refs meanwhile.
	_, err = removeOwnRefs(ctx, repo)
	return err
}

// openOwn opens a repository to change it. It refuses a repository of another user, whose git could
// not use files of this user.
func openOwn(ctx context.Context, r config.Repository) (*gitrepo.Repo, error) {
	repo, err := gitrepo.Open(ctx, r.Path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(repo.Dir())
	if err != nil {
		return nil, err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && int(s.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s belongs to user %d: run the command as that user, for example with sudo -u", repo.Dir(), s.Uid)
	}
	return repo, nil
}

// SocketLink returns the path of the link by which the hook finds the daemon's socket.
func SocketLink(repo *gitrepo.Repo) string { return filepath.Join(repo.Dir(), "refdb", "socket") }

// LinkSocket makes [SocketLink] a link to the socket.
func LinkSocket(repo *gitrepo.Repo, socket string) (did string, err error) {
	path := SocketLink(repo)
	if target, err := os.Readlink(path); err == nil && target == socket {
		return "leads to " + socket, nil
	}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return "made to lead to " + socket, placeLink(path, socket)
}

// ReadHook reads the hook's program, which must be refdb-hook.
func ReadHook(path string) ([]byte, error) {
	if !hookdir.IsProgram(path) {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("the hook's program: %w: build or install refdb-hook, or say where it is", err)
		}
		return nil, fmt.Errorf("%s is not refdb-hook: name the program that was built from cmd/refdb-hook", path)
	}
	return os.ReadFile(path)
}
