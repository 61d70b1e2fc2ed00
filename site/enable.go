package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A Step is one thing that was done to a repository, or found done.
type Step struct {
	Name   string // the hook, setting or file
	Detail string // what was done
}

// Enable puts a repository under guard: git's settings, the link by which the
// hook finds the daemon, and the hooks, the last of which makes it so. hook
// is the path of the hook's program, of which the site gets a copy. What was there before is remembered,
// and put back by [Disable]. It is safe to call again: what is there is left, and
// older hooks are replaced. done is called for each step. It refuses if no
// daemon that serves the repository answers: pushes would be refused. With the hooks in
// place it waits five seconds at most for whoever holds locks of git's: that may be a
// transaction that no hook was asked about.
func Enable(ctx context.Context, c *Config, r Repository, hook string, done func(Step)) error {
	program, err := readHook(hook)
	if err != nil {
		return err
	}
	repo, err := openOwn(ctx, r)
	if err != nil {
		return err
	}
	hooks, err := hooksOf(ctx, c, repo, program)
	if err != nil {
		return err
	}
	refusal, err := refusalOf(ctx, c.Socket, repo.Dir())
	if err != nil {
		return fmt.Errorf("the site daemon does not answer at %s: pushes would be refused: start it first: %w", c.Socket, err)
	}
	if refusal != "" {
		return fmt.Errorf("the site daemon would refuse pushes: %s: if the configuration says otherwise, let the daemon reload it", refusal)
	}
	config := gitConfig{repo}
	for _, s := range settings {
		did, err := config.apply(ctx, s)
		if err != nil {
			return err
		}
		done(Step{s.key, did})
	}
	did, err := config.hidePeers(ctx)
	if err != nil {
		return err
	}
	done(Step{hidden.key, did})
	did, err = linkSocket(repo, c.Socket)
	if err != nil {
		return fmt.Errorf("linking to the daemon's socket: %w", err)
	}
	done(Step{"socket", did})
	for _, name := range hookNames {
		did, err := hooks.install(name)
		if err != nil {
			return fmt.Errorf("installing the hook %s: %w", name, err)
		}
		done(Step{name, did})
	}
	return settle(ctx, repo.Dir())
}

// settle waits for the transactions of git that may have been let through before
// the hooks were in place: until then refs may move that the database does not know
// of. They hold locks. Called again, it can't tell them from those that came later.
func settle(ctx context.Context, dir string) error {
	files, err := lockFiles(dir)
	if err != nil {
		return err
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	patience := time.After(leftoverPatience)
	for {
		files = slices.DeleteFunc(files, func(f lockFile) bool { return !f.same() })
		if len(files) == 0 {
			return nil
		}
		select {
		case <-poll.C:
		case <-patience:
			return fmt.Errorf("%s: a git may be moving refs since before the hooks were in place: run this again when it is through; "+
				"if no git runs any more, remove the file", files[0].path)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Disable ends the guard of a repository and puts back what was there before.
// It refuses while an intent of this site is pending on one of its refs: nobody
// would end it. With a nil db it does not look.
func Disable(ctx context.Context, c *Config, db *refdb.DB, r Repository, done func(Step)) error {
	repo, err := openOwn(ctx, r)
	if err != nil {
		return err
	}
	hooks, err := hooksOf(ctx, c, repo, nil)
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
	for _, name := range hookNames {
		did, err := hooks.remove(name)
		if err != nil {
			return fmt.Errorf("removing the hook %s: %w", name, err)
		}
		done(Step{name, did})
	}
	config := gitConfig{repo}
	for _, s := range settings {
		did, err := config.restore(ctx, s)
		if err != nil {
			return err
		}
		done(Step{s.key, did})
	}
	did, err := config.showPeers(ctx)
	if err != nil {
		return err
	}
	done(Step{hidden.key, did})
	switch err := os.Remove(socketLink(repo)); {
	case errors.Is(err, fs.ErrNotExist):
		done(Step{"socket", "is not there"})
	case err != nil:
		return err
	default:
		done(Step{"socket", "removed"})
	}
	return nil
}

// refusalOf asks the daemon at socket whether it would let a push through that
// moves nothing, and returns what it has against it.
func refusalOf(ctx context.Context, socket, dir string) (refusal string, err error) {
	ctx, cancel := context.WithTimeout(ctx, hookLimit)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	err = wire.Request{State: wire.StatePreReceive, Dir: dir, Limit: hookLimit}.Write(conn)
	if err == nil {
		err = conn.(*net.UnixConn).CloseWrite()
	}
	if err != nil {
		return "", err
	}
	answer, err := wire.ReadResponse(conn)
	if err != nil || answer.OK {
		return "", err
	}
	return strings.Join(answer.Lines, "; "), nil
}

// openOwn opens a repository that is to be changed. Files of another user in it
// would keep that user's git from working.
func openOwn(ctx context.Context, r Repository) (*gitrepo.Repo, error) {
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

// socketLink is where the hook looks for the daemon.
func socketLink(repo *gitrepo.Repo) string { return filepath.Join(repo.Dir(), "refdb", "socket") }

// linkSocket makes the link lead to the socket.
func linkSocket(repo *gitrepo.Repo, socket string) (did string, err error) {
	path := socketLink(repo)
	if target, err := os.Readlink(path); err == nil && target == socket {
		return "leads to " + socket, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
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
	return "made to lead to " + socket, syncDir(filepath.Dir(path))
}
