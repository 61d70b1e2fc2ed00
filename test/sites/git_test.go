//go:build linux

package sites

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A git is a version of git.
type git struct {
	version      string // 2.39.5
	major, minor int
	dir          string // of the binary
	exec         string // of git's own programs
	env          []string
}

// gits returns all versions found, each once.
var gits = sync.OnceValues(func() ([]*git, error) {
	candidates := filepath.SplitList(os.Getenv("GIT_FOR_TEST"))
	if path, err := exec.LookPath("git"); err == nil {
		candidates = append([]string{path}, candidates...)
	}
	for _, pattern := range []string{"/usr/local/bin/git", "/usr/bin/git", "/opt/git*/bin/git"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, found...)
	}
	var all []*git
	seen := make(map[string]bool)
	for _, path := range candidates {
		g, err := newGit(path)
		if err != nil {
			return nil, err
		}
		if !seen[g.version] {
			seen[g.version] = true
			all = append(all, g)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no git: install it, or set GIT_FOR_TEST")
	}
	return all, nil
})

var versionPattern = regexp.MustCompile(`git version ((\d+)\.(\d+)[^ \n]*)`)

// newGit returns the git at that path: a binary, or the directory of one.
func newGit(path string) (*git, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.IsDir() {
		path = filepath.Join(path, "git")
	}
	dir, err := work()
	if err != nil {
		return nil, err
	}
	g := &git{dir: filepath.Dir(path)}
	home, err := os.MkdirTemp(dir, "home")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(home, "config")
	const settings = `[user]
	name = Tester
	email = tester@example.com
[init]
	defaultBranch = main
	templateDir = ~/template
[safe]
	directory = *
[protocol "file"]
	allow = always
[gc]
	auto = 0
[maintenance]
	auto = false
`
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	// Without sample hooks: to copy them would be most of what making a repository takes.
	for _, sub := range []string{"hooks", "info"} {
		if err := os.MkdirAll(filepath.Join(home, "template", sub), 0o755); err != nil {
			return nil, err
		}
	}
	// The machine's settings have no effect.
	g.env = []string{
		"PATH=" + g.dir + ":" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C", "TZ=UTC", "TMPDIR=" + os.TempDir(),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + config, "GIT_TERMINAL_PROMPT=0", hookLimitVariable + "=" + patience.String(),
	}
	out, err := g.try(home, "version")
	if err != nil {
		return nil, err
	}
	m := versionPattern.FindStringSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("%s says %q", path, out)
	}
	g.version = m[1]
	g.major, _ = strconv.Atoi(m[2])
	g.minor, _ = strconv.Atoi(m[3])
	g.exec, err = g.try(home, "--exec-path")
	return g, err
}

// hookLimitVariable is how long hooks wait for the daemon.
const hookLimitVariable = "REFDB_HOOK_TIMEOUT"

// within returns g with hooks that wait that long.
func (g *git) within(limit time.Duration) *git {
	limited := *g
	limited.env = append(slices.Clone(g.env), hookLimitVariable+"="+limit.String())
	return &limited
}

// since reports whether this is that version or a later one.
func (g *git) since(major, minor int) bool {
	return g.major > major || g.major == major && g.minor >= minor
}

// measured reports whether the behaviour of g is known: that of 2.51 and later, or
// that of 2.39 and earlier.
func (g *git) measured() (newer, known bool) {
	return g.since(2, 51), g.since(2, 51) || !g.since(2, 40)
}

// reftable reports whether it can store refs that way.
func (g *git) reftable() bool { return g.since(2, 45) }

func (g *git) command(dir string, args ...string) *exec.Cmd {
	return g.commandContext(context.Background(), dir, args...)
}

func (g *git) commandContext(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(g.dir, "git"), args...)
	cmd.Dir, cmd.Env = dir, g.env
	return cmd
}

// try runs git in dir and returns what it printed, without white space at the ends.
func (g *git) try(dir string, args ...string) (string, error) {
	cmd := g.command(dir, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s in %s: %w: %s", strings.Join(args, " "), dir, err, complaint.Bytes())
	}
	return strings.TrimSpace(out.String()), nil
}

// run is try for a command that must succeed.
func (g *git) run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := g.try(dir, args...)
	return must(t, out, err)
}

// feed runs git with that input.
func (g *git) feed(t testing.TB, dir, input string, args ...string) string {
	t.Helper()
	cmd := g.command(dir, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s in %s: %v: %s", strings.Join(args, " "), dir, err, out)
	}
	return strings.TrimSpace(string(out))
}

// eachGit runs test with each version of git.
func eachGit(t *testing.T, test func(t *testing.T, g *git)) {
	t.Helper()
	all, err := gits()
	for _, g := range must(t, all, err) {
		t.Run(g.version, func(t *testing.T) {
			t.Parallel()
			test(t, g)
		})
	}
}

// A storage is how a repository keeps its objects' names and refs.
type storage struct{ objects, refs string }

func (s storage) String() string { return s.objects + "-" + s.refs }

var files = storage{"sha1", "files"}

// storages returns the storages that this git knows.
func (g *git) storages() []storage {
	all := []storage{files, {"sha256", "files"}}
	if g.reftable() {
		all = append(all, storage{"sha1", "reftable"}, storage{"sha256", "reftable"})
	}
	return all
}

// eachStorage runs test with each git and each storage that it knows.
func eachStorage(t *testing.T, test func(t *testing.T, g *git, s storage)) {
	eachGit(t, func(t *testing.T, g *git) {
		for i, s := range g.storages() {
			t.Run(s.String(), func(t *testing.T) {
				if testing.Short() && i > 0 {
					t.Skip("left out by -short: the same with repositories of another format; make test-all runs it")
				}
				test(t, g, s)
			})
		}
	})
}

// initBare makes an empty bare repository.
func (g *git) initBare(t testing.TB, dir string, s storage) {
	t.Helper()
	args := []string{"init", "--quiet", "--bare", "--object-format=" + s.objects}
	if s.refs != "files" {
		args = append(args, "--ref-format="+s.refs)
	}
	g.run(t, filepath.Dir(dir), append(args, dir)...)
}

// refs returns the values of all refs of a repository, except for those that are the site's own.
func (g *git) refs(t testing.TB, repo string) map[string]string {
	t.Helper()
	values := make(map[string]string)
	for line := range strings.Lines(g.run(t, repo, "for-each-ref", "--format=%(objectname) %(refname)")) {
		value, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(ref, "refs/peer/") && !strings.HasPrefix(ref, "refs/refdb/") {
			values[ref] = value
		}
	}
	return values
}
