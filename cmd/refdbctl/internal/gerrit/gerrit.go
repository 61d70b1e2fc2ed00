// Package gerrit has the commands that put this site's Gerrit under guard: refdbctl gerrit.
package gerrit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/site"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/gerrit"
)

// app has the commands as methods, beside those of the site's repositories.
type app struct{ *site.App }

// Command returns the group of commands.
func Command(r *cli.Run) *cobra.Command {
	a := &app{&site.App{Run: r}}
	return cli.Group("gerrit", "Guard the Gerrit of this site",
		a.enableCommand(),
		a.joinCommand(),
		a.checkCommand(),
		a.disableCommand(),
	)
}

// gerritColumns are the columns of a change for a Gerrit.
var gerritColumns = []output.Column[gerrit.Change]{
	{Name: "where", Value: func(c gerrit.Change) any { return c.Where }},
	{Name: "what", Value: func(c gerrit.Change) any { return c.What }},
	output.Optional("before", func(c gerrit.Change) string { return c.Before }),
	output.Optional("after", func(c gerrit.Change) string { return c.After }),
}

// changesHelp explains the columns.
const changesHelp = `
(where: a file, or the database; what: the key, or the part, that is changed; before and after: the values)`

const jarFlagHelp = "`path` of the guard's jar (default: the one for this version of Gerrit beside this program, or in ../share/globalrefdb)"

// gerritFlags are the flags that the commands about a Gerrit share.
type gerritFlags struct {
	site.Flags
	jar  string
	hook string
}

func (f *gerritFlags) add(cmd *cobra.Command) {
	f.Flags.Add(cmd)
	cmd.Flags().StringVar(&f.hook, "hook", "", site.HookFlagHelp)
}

func (f *gerritFlags) addJar(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.jar, "jar", "", jarFlagHelp)
}

// findHook finds the hook's program unless --hook names it.
func (f *gerritFlags) findHook() (err error) {
	f.hook, err = site.HookOr(f.hook)
	return err
}

// findJar returns the jar for the Gerrit in a WAR.
func (f *gerritFlags) findJar(war string) (gerrit.Jar, error) {
	if _, err := os.Stat(war); err != nil {
		return gerrit.Jar{}, fmt.Errorf("the WAR of Gerrit, which tells its version: %w", err)
	}
	version, err := gerrit.VersionOf(war)
	if err != nil {
		return gerrit.Jar{}, err
	}
	series, err := version.Series()
	if err != nil {
		return gerrit.Jar{}, err
	}
	if f.jar == "" {
		return gerrit.FindJar(series, jarDirectories())
	}
	jar, err := gerrit.ReadJar(f.jar)
	if err == nil && jar.Series != series {
		err = fmt.Errorf("%s is for Gerrit from %s on: Gerrit %s needs %s", f.jar, jar.Series, version.Text, gerrit.JarName(series))
	}
	return jar, err
}

// jarDirectories are where the guard's jars are looked for.
func jarDirectories() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	dir := filepath.Dir(self)
	return []string{dir, filepath.Join(filepath.Dir(dir), "share", "globalrefdb")}
}

// errNoAnswer means that no daemon listens at the socket.
var errNoAnswer = errors.New("start it: systemctl start refdb-site")

// siteDaemon returns the status of the site's daemon. It fails if the daemon does not respond, or
// belongs to another site.
func (a *app) siteDaemon(ctx context.Context, c *config.Config) (client.Status, error) {
	limited, cancel := a.Limited(ctx)
	defer cancel()
	s, err := client.Query(limited, c.Socket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return s, fmt.Errorf("%w: %w", err, errNoAnswer)
	case err != nil:
		return s, err
	case s.Site != c.Site:
		return s, fmt.Errorf("the daemon at %s belongs to site %s, not to %s: set site.socket to this site's socket", c.Socket, s.Site, c.Site)
	}
	return s, nil
}

// gerritStopped returns an error if a process has the Gerrit at path open.
func gerritStopped(path string) error {
	holder, held, err := gerrit.HolderOf(path)
	if err != nil || !held {
		return err
	}
	if holder.PID == 0 {
		return fmt.Errorf("a Gerrit runs in %s, in another PID namespace: stop it first", path)
	}
	return fmt.Errorf("a Gerrit runs in %s (process %d): stop it first", path, holder.PID)
}

// sameOwner returns an error unless a directory of Gerrit and the daemon's state belong to the same
// user.
func sameOwner(c *config.Config, path string) error {
	theirs, err := ownerOf(path)
	if err != nil {
		return err
	}
	ours, err := ownerOf(c.State)
	if err == nil && ours != theirs {
		err = fmt.Errorf("%s belongs to user %d, the daemon's %s to user %d: run Gerrit and the daemon as the same user", path, theirs, c.State, ours)
	}
	return err
}

func ownerOf(path string) (uid uint32, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		uid = s.Uid
	}
	return uid, nil
}

// gerritPatterns are the refs that a Gerrit at several sites needs in addition to those that are
// guarded by default: patch sets and drafts.
var gerritPatterns = []string{"refs/changes/*", "refs/draft-comments/*"}

// unguardedPatterns returns those of gerritPatterns that rules leave out.
func unguardedPatterns(ruled *config.Config, project string) (missing []string) {
	for _, p := range gerritPatterns {
		if !ruled.Guards(project, strings.TrimSuffix(p, "*")+"01/1/1") {
			missing = append(missing, p)
		}
	}
	return missing
}

// changeSite changes the site's configuration, which may be writable only by root, makes the daemon
// reload it, and returns the new configuration. It is called after all checks, so that a refused
// command does not change whether Gerrit is watched.
func (a *app) changeSite(ctx context.Context, f site.Flags, c *config.Config, edits []config.Edit) (*config.Config, error) {
	if len(edits) == 0 {
		// An earlier run may have been interrupted before the reload.
		return c, a.reloadDaemon(ctx, c, true)
	}
	if err := config.Rewrite(ctx, string(f.Config), edits); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: run this as root, or change it: %s", err, commandsOf(f, edits))
		}
		return nil, err
	}
	changed, err := a.Load(ctx, f)
	if err != nil {
		return nil, err
	}
	return changed, a.reloadDaemon(ctx, changed, false)
}

func commandsOf(f site.Flags, edits []config.Edit) string {
	var commands []string
	for _, e := range edits {
		words := append([]string{"git", "config", "-f", string(f.Config)}, e...)
		for i, word := range words {
			if strings.ContainsAny(word, "*^$ ") {
				words[i] = "'" + word + "'"
			}
		}
		commands = append(commands, strings.Join(words, " "))
	}
	return strings.Join(commands, "; ")
}

// confirmChanges shows the changes and asks for confirmation.
func (a *app) confirmChanges(ctx context.Context, c *cli.Confirmation, changes []gerrit.Change, question string) error {
	if c.Yes || len(changes) == 0 {
		return nil
	}
	for _, one := range changes {
		a.Note("%s", describeChange(one))
	}
	return c.Confirm(ctx, a.Run, question)
}

func describeChange(c gerrit.Change) string {
	text := strings.TrimSpace(output.Escape(c.Where) + " " + output.Escape(c.What))
	switch {
	case c.After == "":
		return text + ": removed, was " + output.Escape(c.Before)
	case c.Before == "":
		return text + ": " + output.Escape(c.After)
	}
	return text + ": " + output.Escape(c.After) + ", was " + output.Escape(c.Before)
}

// reloadPatience is how long a daemon may take to read its configuration again.
const reloadPatience = 10 * time.Second

// reloadDaemon makes the site's daemon reload its configuration, and waits until it has. If the
// configuration is unchanged, the daemon may have read it already.
func (a *app) reloadDaemon(ctx context.Context, c *config.Config, unchanged bool) error {
	s, err := a.siteDaemon(ctx, c)
	if err != nil {
		return nil // the daemon reads its configuration when it starts
	}
	if unchanged && watched(s) == c.Gerrit {
		return nil
	}
	if s.PID == os.Getpid() || !isDaemon(s.PID) || syscall.Kill(s.PID, syscall.SIGHUP) != nil {
		a.Note("reload the daemon's configuration: systemctl reload refdb-site")
		return nil
	}
	for deadline := time.Now().Add(a.AwaitDaemon(reloadPatience)); ; {
		s, err := a.siteDaemon(ctx, c)
		if err != nil {
			return err
		}
		if path := watched(s); path == c.Gerrit {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("the daemon has not reloaded its configuration: see its log, then run this command again")
		}
		if err := cli.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// watched returns the site directory of the Gerrit that the daemon watches; "" if it watches none.
func watched(s client.Status) string {
	if s.Gerrit == nil {
		return ""
	}
	return s.Gerrit.Path
}

// samePath reports whether a path, which may contain symbolic links, leads to real; "" does not.
func samePath(path, real string) bool {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	return path == real
}

// isDaemon reports whether a process is a site daemon: in this PID namespace the daemon's ID may be
// another process's.
func isDaemon(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && strings.Contains(string(text), "\x00site\x00serve")
}
