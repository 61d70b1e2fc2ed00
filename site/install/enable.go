// Package install puts a repository under guard, and undoes it: the hooks, git's settings and
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
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// A Step is one thing that was done to a repository, or found done.
type Step struct {
	Name   string // the hook, setting or file
	Detail string // what was done
}

// Enable puts a repository under guard. It changes git's settings, makes the link by which the
// hook finds the daemon, and installs the hooks; the last hook starts the guard. Hook is the path
// of the hook's program, of which the site gets a copy. [Disable] restores what was there before.
// Enable may be called again: it leaves what is right, and replaces older hooks. It calls done
// for each step. If no daemon that serves the repository answers, it refuses, because pushes
// would be refused, and if the repository's disk folds names. At the end it waits for at most five seconds until git's lock files are gone:
// they may be of a transaction that no hook was asked about. Then the daemon follows the repository, if the database keeps its objects.
func Enable(ctx context.Context, c *config.Config, r config.Repository, hook string, done func(Step)) error {
	program, err := ReadHook(hook)
	if err != nil {
		return err
	}
	repo, err := openOwn(ctx, r)
	if err != nil {
		return err
	}
	hooks, err := HooksOf(ctx, c, repo, program)
	if err != nil {
		return err
	}
	if err := IsServed(ctx, c, repo.Dir()); err != nil {
		return err
	}
	if err := guard(ctx, c, repo, hooks, done); err != nil {
		return err
	}
	if err := AwaitLocks(ctx, repo.Dir()); err != nil {
		return err
	}
	Announce(ctx, c, repo.Dir())
	return nil
}

// Guard puts a repository under guard that nothing but its maker knows yet, at dir, as [Enable] does it. Pushes into it are refused until it
// is where the daemon serves it.
func Guard(ctx context.Context, c *config.Config, dir, hook string) error {
	program, err := ReadHook(hook)
	if err != nil {
		return err
	}
	repo, err := openOwn(ctx, config.Repository{Path: dir})
	if err != nil {
		return err
	}
	hooks, err := HooksOf(ctx, c, repo, program)
	if err != nil {
		return err
	}
	return guard(ctx, c, repo, hooks, func(Step) {})
}

// IsServed returns an error unless the daemon lets pushes through to the repository dir.
func IsServed(ctx context.Context, c *config.Config, dir string) error {
	refusal, err := client.Refusal(ctx, c.Socket, dir)
	if err != nil {
		return noDaemon(c, err)
	}
	if refusal != "" {
		return fmt.Errorf("the site daemon would refuse pushes: %s: if the configuration says otherwise, let the daemon reload it", refusal)
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

// Announce lets the daemon follow a repository that has come under guard, if the database keeps its objects.
func Announce(ctx context.Context, c *config.Config, dir string) {
	// A daemon that does not take it, as one of an earlier version, finds the repository by itself.
	_ = client.Follow(ctx, c.Socket, dir)
}

// guard makes the settings, the link to the daemon's socket and the hooks, of which the last one starts the guard.
func guard(ctx context.Context, c *config.Config, repo *gitrepo.Repo, hooks Hooks, done func(Step)) error {
	if err := requireDistinctNames(repo.Dir(), os.Lstat); err != nil {
		return err
	}
	config := GitConfig{repo}
	before, err := ReadVariables(ctx, repo)
	if err != nil {
		return err
	}
	for _, s := range Settings {
		did, err := config.Apply(ctx, before, s)
		if err != nil {
			return err
		}
		done(Step{s.Key, did})
	}
	did, err := config.HideRefs(ctx)
	if err != nil {
		return err
	}
	done(Step{HiddenRefs.Key, did})
	did, err = LinkSocket(repo, c.Socket)
	if err != nil {
		return fmt.Errorf("linking to the daemon's socket: %w", err)
	}
	done(Step{"socket", did})
	for _, name := range HookNames {
		did, err := hooks.Install(name)
		if err != nil {
			return fmt.Errorf("installing the hook %s: %w", name, err)
		}
		done(Step{name, did})
	}
	return nil
}

// AwaitLocks waits until git's lock files in the Git directory dir are gone, except those that are
// made meanwhile. They may be of transactions that began before the hooks were in place, which move
// refs without the database. A second call can't tell them from those of later transactions.
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
			return fmt.Errorf("%s: a git may be moving refs since before the hooks were in place: run this again when it is through; "+
				"if no git runs any more, remove the file", files[0].Path)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Disable ends the guard of a repository and restores what was there before. It refuses while an
// intent of this site is pending on one of the repository's refs, because nobody would end the
// intent. With a nil db it does not look for intents.
func Disable(ctx context.Context, c *config.Config, db *refdb.DB, r config.Repository, done func(Step)) error {
	repo, err := openOwn(ctx, r)
	if err != nil {
		return err
	}
	hooks, err := HooksOf(ctx, c, repo, nil)
	if err != nil {
		return err
	}
	if db != nil {
		for i, err := range db.Intents(ctx, refdb.IntentFilter{Project: r.Project, Owner: c.Site}) {
			if err != nil {
				return err
			}
			return fmt.Errorf("%s: a push that this site announced is pending since %s: its daemon ends it, or `refdbctl site repair` if that does not run", i.Ref, i.Age.Round(time.Second))
		}
	}
	for _, name := range HookNames {
		did, err := hooks.remove(name)
		if err != nil {
			return fmt.Errorf("removing the hook %s: %w", name, err)
		}
		done(Step{name, did})
	}
	config := GitConfig{repo}
	before, err := ReadVariables(ctx, repo)
	if err != nil {
		return err
	}
	for _, s := range Settings {
		did, err := config.restore(ctx, before, s)
		if err != nil {
			return err
		}
		done(Step{s.Key, did})
	}
	removed, err := removeOwnRefs(ctx, repo)
	if err != nil {
		return err
	}
	done(Step{"own refs", fmt.Sprint(removed, " removed")})
	did, err := config.showRefs(ctx)
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
	// Maintenance that was under way may have kept something since.
	_, err = removeOwnRefs(ctx, repo)
	return err
}

// openOwn opens a repository to change it. It refuses one of another user: that user's git could
// not work with files of this user.
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
		return nil, fmt.Errorf("%s belongs to user %d: run this as that user, such as with sudo -u", repo.Dir(), s.Uid)
	}
	return repo, nil
}

// SocketLink returns the path at which the hook finds the daemon's socket.
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
	// A new link is moved over the old one: there is always one.
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.Symlink(socket, fresh); err != nil {
		return "", err
	}
	if err := os.Rename(fresh, path); err != nil {
		return "", err
	}
	return "made to lead to " + socket, durable.SyncDir(filepath.Dir(path))
}
