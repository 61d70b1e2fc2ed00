// Package config reads the configuration of a site: its database, paths and time limits, its
// repositories, and the rules that say which refs are guarded.
package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// What must be durable before a push to a project whose objects the database keeps is acknowledged.
const (
	InDatabase = "database" // its objects, in the database: the loss of a site's disk loses nothing
	OnDisk     = "local"    // its refs in the database, its objects at this site only
)

// The [driver.Project] Store of a project whose objects the database keeps. "" is for those of
// which it keeps none.
const (
	StoreAll     = "all"     // for ever: a site can be made from the database alone
	StoreTransit = "transit" // until the sites have had time to unpack them
	StoreNone    = "none"    // is "" in the configuration file
)

// HooksDir is the directory of the site's hooks in site.root, unless the configuration names
// another one.
const HooksDir = ".refdb-hooks"

// Where things are unless the configuration says otherwise.
const (
	DefaultFile   = "/etc/refdb/site.config"
	DefaultSocket = "/run/refdb/site.sock"
	DefaultState  = "/var/lib/refdb"
)

// A Config is the configuration of a site. It does not change once it is loaded.
type Config struct {
	Site         string // the site's name, one component of a ref
	Database     string // its URL; "" leaves it to the environment
	DatabaseFile string // or a file that holds it
	Socket       string // at which hooks ask the daemon
	State        string // the directory of the daemon's own files
	Hooks        string // the directory of the hooks of all guarded repositories
	Metrics      string // host:port, or a socket's path, that metrics are served at; "" for none
	Root         string // the directory with the repositories; "" if each one is configured
	Gerrit       string // the site directory of the Gerrit that serves them; "" if none does

	Timeout      time.Duration // of the database, within a hook
	LockWait     time.Duration // how long a push waits for another site's
	DatabaseWait time.Duration // how long a push waits, before git locks anything, for a database that is away
	StopTimeout  time.Duration // how long a stopping daemon waits for pushes to end

	projects, refs, alsoRefs, skipRefs patterns
	NewProjectMode                     string // the mode of projects that are new to the database

	NewProjectStore string // what the database keeps of the objects of projects that are new to it: [StoreAll], [StoreTransit] or ""
	Durability      string // what must be durable before a push is acknowledged: [InDatabase] or [OnDisk]
	PackLimit       int64  // bytes of the objects of one push
	Maintain        bool   // the daemon maintains the repositories by itself
	AutoClone       bool   // the daemon clones projects that have no repository here
	RemovedTo       string // the directory that the daemon moves repositories of removed projects to; "" if it leaves them

	GitPrograms []string // names of programs that are git, beside git's own
	PusherEnv   []string // environment variables in which a front end says who pushes, beside the known ones

	PushMirrors []PushMirror // external servers that projects are pushed to

	Product   string            // the firmware's ID of the machine; "" if it can't be read
	root      string            // Root without symbolic links
	paths     map[string]string // of configured repositories, by project
	projectAt map[string]string // the inverse
}

// Load reads the configuration, a file in the syntax of git-config. An error about an
// unknown key or an invalid value names the key.
func Load(ctx context.Context, path string) (*Config, error) {
	entries, err := ReadFile(ctx, path)
	if err != nil {
		return nil, err
	}
	c := &Config{
		Socket: DefaultSocket, State: DefaultState, NewProjectMode: Enforce, NewProjectStore: StoreAll,
		Timeout: 4 * time.Second, LockWait: 2 * time.Second, DatabaseWait: 30 * time.Second, StopTimeout: 30 * time.Second,
		Durability: InDatabase, PackLimit: 256 << 20,
		paths: map[string]string{}, projectAt: map[string]string{},
		Product: product(), // before a command of root becomes another user's
	}
	for _, e := range entries {
		if err := c.set(e); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, e.Name(), err)
		}
	}
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// An Entry is one variable of a configuration file.
type Entry struct {
	section, subsection, key string
	Value                    string
}

// Name returns the whole key: section, subsection and key, with dots between them.
func (e Entry) Name() string {
	if e.subsection == "" {
		return e.section + "." + e.key
	}
	return e.section + "." + e.subsection + "." + e.key
}

// ReadFile reads a file in the syntax of git-config. Git reads it, because the syntax has many
// special cases.
func ReadFile(ctx context.Context, path string) ([]Entry, error) {
	// Git's own message for a file that is missing does not say so.
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: write it, as docs/GIT.md shows, or name another file with --config", err)
		}
		return nil, fmt.Errorf("reading the site's configuration: %w", err)
	}
	f.Close()
	cmd := exec.CommandContext(ctx, "git", "config", "--file", path, "--null", "--list")
	cmd.Dir = "/"
	cmd.Env = append(gitrepo.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("reading the site's configuration %s: %w", path, gitrepo.Failure(ctx, err))
	}
	var entries []Entry
	for item := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		if len(item) == 0 {
			continue
		}
		name, value, _ := strings.Cut(string(item), "\n")
		e := Entry{Value: value}
		e.section, e.key, _ = strings.Cut(name, ".")
		if i := strings.LastIndexByte(e.key, '.'); i >= 0 {
			e.subsection, e.key = e.key[:i], e.key[i+1:]
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (c *Config) set(e Entry) error {
	switch {
	case e.section == "repository" && e.key == "path":
		return c.addRepository(e.subsection, e.Value)
	case e.section == "pushmirror":
		return c.setPushMirror(e)
	}
	// Git prints keys in lower case.
	switch e.Name() {
	case "site.name":
		c.Site = e.Value
		if strings.Contains(e.Value, "/") || driver.CheckRef("refs/sites/"+e.Value) != nil {
			return fmt.Errorf("%q can't be a site's name: give one that could be a branch's, without %q", e.Value, "/")
		}
	case "site.database":
		c.Database = e.Value
	case "site.databasefile":
		return setPath(&c.DatabaseFile, e.Value)
	case "site.socket":
		return setPath(&c.Socket, e.Value)
	case "site.state":
		return setPath(&c.State, e.Value)
	case "site.hooks":
		return setPath(&c.Hooks, e.Value)
	case "site.root":
		return setPath(&c.Root, e.Value)
	case "site.gerrit":
		return setPath(&c.Gerrit, e.Value)
	case "site.metrics":
		c.Metrics = e.Value
		return CheckAddress(e.Value)
	case "site.timeout":
		return setDuration(&c.Timeout, e.Value, time.Hour)
	case "site.lockwait":
		return setDuration(&c.LockWait, e.Value, time.Hour)
	case "site.databasewait":
		return setDuration(&c.DatabaseWait, e.Value, time.Hour)
	case "site.stoptimeout":
		return setDuration(&c.StopTimeout, e.Value, time.Hour)
	case "site.store":
		switch e.Value {
		case StoreAll, StoreTransit:
			c.NewProjectStore = e.Value
		case StoreNone:
			c.NewProjectStore = ""
		default:
			return fmt.Errorf("%q is not one of: %s, %s, %s", e.Value, StoreAll, StoreTransit, StoreNone)
		}
	case "site.durability":
		if e.Value != InDatabase && e.Value != OnDisk {
			return fmt.Errorf("%q is not one of: %s, %s", e.Value, InDatabase, OnDisk)
		}
		c.Durability = e.Value
	case "site.maintain":
		if e.Value != "daily" && e.Value != "off" {
			return fmt.Errorf("%q is not one of: daily, off", e.Value)
		}
		c.Maintain = e.Value == "daily"
	case "site.autoclone":
		return setBool(&c.AutoClone, e.Value)
	case "site.followremoval":
		return setPath(&c.RemovedTo, e.Value)
	case "site.packlimit":
		return setBytes(&c.PackLimit, e.Value)
	case "site.gitexe":
		if e.Value == "" || strings.Contains(e.Value, "/") {
			return fmt.Errorf("%q is not the name of a program, without its directory", e.Value)
		}
		c.GitPrograms = append(c.GitPrograms, e.Value)
	case "site.pusherenv":
		if e.Value == "" || strings.Contains(e.Value, "=") {
			return fmt.Errorf("%q is not the name of an environment variable", e.Value)
		}
		c.PusherEnv = append(c.PusherEnv, e.Value)
	case "guard.project":
		return c.projects.add(e.Value)
	case "guard.ref":
		return c.refs.add(e.Value)
	case "guard.alsoref":
		return c.alsoRefs.add(e.Value)
	case "guard.skipref":
		return c.skipRefs.add(e.Value)
	case "guard.mode":
		if e.Value != Enforce && e.Value != Log {
			return fmt.Errorf("%q is not one of: %s, %s", e.Value, Enforce, Log)
		}
		c.NewProjectMode = e.Value
	default:
		return errUnknownKey
	}
	return nil
}

func setPath(p *string, value string) error {
	if !filepath.IsAbs(value) {
		return fmt.Errorf("%q is not an absolute path", value)
	}
	*p = filepath.Clean(value)
	return nil
}

func setBool(b *bool, value string) error {
	if value != "true" && value != "false" {
		return fmt.Errorf("%q is not one of: true, false", value)
	}
	*b = value == "true"
	return nil
}

func setDuration(d *time.Duration, value string, below time.Duration) error {
	v, err := time.ParseDuration(value)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a duration: give one such as 2s or 500ms", value)
	case v <= 0 || v >= below:
		return fmt.Errorf("%s must be more than 0 and less than %s", value, below)
	}
	*d = v
	return nil
}

// setBytes takes a number of bytes as git's own settings have it.
func setBytes(n *int64, value string) error {
	digits, unit := strings.TrimRight(value, "kKmMgG"), int64(1)
	switch strings.ToLower(strings.TrimPrefix(value, digits)) {
	case "":
	case "k":
		unit = 1 << 10
	case "m":
		unit = 1 << 20
	case "g":
		unit = 1 << 30
	default:
		unit = 0
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case v <= 0, unit == 0, err != nil && !errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%q is not a number of bytes: give one such as 256m or 1g", value)
	case err != nil, v > math.MaxInt64/unit:
		return fmt.Errorf("%q is too large: give less than %dg", value, int64(math.MaxInt64>>30+1))
	}
	*n = v * unit
	return nil
}

func (ps *patterns) add(text string) error {
	p, err := parsePattern(text)
	if err != nil {
		return fmt.Errorf("%q is not a pattern: %w", text, err)
	}
	*ps = append(*ps, p)
	return nil
}

// complete fills in what depends on several keys.
func (c *Config) complete() error {
	if c.Site == "" {
		return errors.New("site.name is missing: give this site a name that no other has")
	}
	for _, ps := range []*patterns{&c.projects, &c.refs} {
		if *ps == nil {
			*ps = patterns{{text: "*"}}
		}
	}
	if c.Root != "" {
		root, err := filepath.EvalSymlinks(c.Root)
		if err != nil {
			return fmt.Errorf("site.root: %w", err)
		}
		c.root = root
	}
	switch {
	case c.Hooks != "":
	case c.Root != "":
		c.Hooks = filepath.Join(c.Root, HooksDir) // whoever reaches a repository reaches its hooks
	default:
		c.Hooks = c.State + "-hooks"
	}
	if err := c.completePushMirrors(); err != nil {
		return err
	}
	return c.checkRemovedTo()
}
