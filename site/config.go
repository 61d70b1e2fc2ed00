package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// Where things are unless the configuration says otherwise.
const (
	DefaultConfig = "/etc/refdb/site.config"
	DefaultSocket = "/run/refdb/site.sock"
	DefaultState  = "/var/lib/refdb"
)

// hookLimit is how long the hook waits for an answer.
const hookLimit = 5 * time.Second

// A Config is what a site's daemon and the commands beside it are told. It
// does not change once it is loaded.
type Config struct {
	Site         string // the site's name, one component of a ref
	Database     string // its URL; "" leaves it to the environment
	DatabaseFile string // or a file that holds it
	Socket       string // that hooks talk to
	State        string // directory of the daemon's own files
	Root         string // repositories are found below it; "" if all are configured one by one

	Timeout     time.Duration // of the database, within a hook
	LockWait    time.Duration // how long a push waits for another site's
	StopTimeout time.Duration // how long a stopping daemon waits for pushes to end

	projects, refs, skipRefs patterns

	gitExes []string // names of programs that are git, beside git's own

	root      string            // Root without symbolic links
	paths     map[string]string // of configured repositories, by project
	projectAt map[string]string // the inverse
}

// LoadConfig reads the configuration, a file in the syntax of git-config. A
// key that is not known, and a value that is none, is an error that names it.
func LoadConfig(ctx context.Context, path string) (*Config, error) {
	entries, err := readConfig(ctx, path)
	if err != nil {
		return nil, err
	}
	c := &Config{
		Socket: DefaultSocket, State: DefaultState,
		Timeout: 4 * time.Second, LockWait: 2 * time.Second, StopTimeout: 30 * time.Second,
		paths: map[string]string{}, projectAt: map[string]string{},
	}
	for _, e := range entries {
		if err := c.set(e); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, e.name(), err)
		}
	}
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// An entry is one line of a configuration file.
type entry struct {
	section, subsection, key string
	value                    string
}

func (e entry) name() string {
	if e.subsection == "" {
		return e.section + "." + e.key
	}
	return e.section + "." + e.subsection + "." + e.key
}

// readConfig lets git read the file: its syntax has more to it than meets the eye.
func readConfig(ctx context.Context, path string) ([]entry, error) {
	// Git's own message for a file that is missing does not say so.
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the site's configuration: %w", err)
	}
	f.Close()
	cmd := exec.CommandContext(ctx, "git", "config", "--file", path, "--null", "--list")
	cmd.Dir = "/"
	cmd.Env = append(gitrepo.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = errors.New(strings.TrimSpace(strings.TrimPrefix(string(exit.Stderr), "fatal: ")))
		}
		return nil, fmt.Errorf("reading the site's configuration %s: %w", path, err)
	}
	var entries []entry
	for item := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		if len(item) == 0 {
			continue
		}
		name, value, _ := strings.Cut(string(item), "\n")
		e := entry{value: value}
		e.section, e.key, _ = strings.Cut(name, ".")
		if i := strings.LastIndexByte(e.key, '.'); i >= 0 {
			e.subsection, e.key = e.key[:i], e.key[i+1:]
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (c *Config) set(e entry) error {
	if e.section == "repository" && e.key == "path" {
		return c.addRepository(e.subsection, e.value)
	}
	// Git prints keys in lower case.
	switch e.name() {
	case "site.name":
		c.Site = e.value
		if strings.Contains(e.value, "/") || refdb.CheckRef("refs/sites/"+e.value) != nil {
			return fmt.Errorf("%q can't be a site's name: give one that could be a branch's, without %q", e.value, "/")
		}
	case "site.database":
		c.Database = e.value
	case "site.databasefile":
		return setPath(&c.DatabaseFile, e.value)
	case "site.socket":
		return setPath(&c.Socket, e.value)
	case "site.state":
		return setPath(&c.State, e.value)
	case "site.root":
		return setPath(&c.Root, e.value)
	case "site.timeout":
		return setDuration(&c.Timeout, e.value, hookLimit)
	case "site.lockwait":
		return setDuration(&c.LockWait, e.value, hookLimit)
	case "site.stoptimeout":
		return setDuration(&c.StopTimeout, e.value, time.Hour)
	case "site.gitexe":
		if e.value == "" || strings.Contains(e.value, "/") {
			return fmt.Errorf("%q is not the name of a program, without its directory", e.value)
		}
		c.gitExes = append(c.gitExes, e.value)
	case "guard.project":
		return c.projects.add(e.value)
	case "guard.ref":
		return c.refs.add(e.value)
	case "guard.skipref":
		return c.skipRefs.add(e.value)
	default:
		return errors.New("there is no such key: see docs/GIT.md for those there are")
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
	if c.Root == "" {
		return nil
	}
	root, err := filepath.EvalSymlinks(c.Root)
	if err != nil {
		return fmt.Errorf("site.root: %w", err)
	}
	c.root = root
	return nil
}
