//go:build linux

package sites

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// A makerRig is a site at which `site clone` is killed, beside clients that push to where the repository is to be.
type makerRig struct {
	*cluster
	project string
	path    string
	dir     string // of the git that kills the maker, and of repositories that were moved away
	round   int

	pushing      sync.WaitGroup
	stop         chan struct{}
	mu           sync.Mutex
	acknowledged map[string]string
}

// newMakerRig returns a rig whose clients push until its end.
func newMakerRig(t *testing.T) *makerRig {
	t.Helper()
	all, err := gits()
	g := must(t, all, err)[0]
	m := &makerRig{
		cluster: newCluster(t, g, design{extra: storing}), project: "new/project", dir: shortDir(t),
		stop: make(chan struct{}), acknowledged: map[string]string{},
	}
	m.path = m.us.repo(m.project)
	m.eu.create(m.project)
	// The maker's git counts its calls, and kills the maker before one of them, or after it.
	writeScript(t, filepath.Join(m.dir, "git"), fmt.Sprintf(`
echo x >>%[1]s/calls
n=$(wc -l <%[1]s/calls)
[ "before $n" = "$REFDB_TEST_KILL" ] && { kill -9 $PPID; exit 1; }
%[2]s/git "$@"
status=$?
[ "after $n" = "$REFDB_TEST_KILL" ] && kill -9 $PPID
exit $status
`, m.dir, g.dir))
	for client := range 2 {
		m.pushing.Go(func() { m.push(fmt.Sprintf("refs/heads/client-%d", client)) })
	}
	t.Cleanup(m.end)
	return m
}

// push pushes new refs that begin with prefix, until the rig's end.
func (m *makerRig) push(prefix string) {
	for n := 0; ; n++ {
		ref := fmt.Sprintf("%s-%d", prefix, n)
		_, refused := m.g.try(m.h.dir, "push", "--quiet", m.path, m.h.b+":"+ref)
		if refused == nil {
			m.mu.Lock()
			m.acknowledged[ref] = m.h.b
			m.mu.Unlock()
		}
		select {
		case <-m.stop:
			return
		case <-time.After(20 * time.Millisecond): // most pushes find no repository, and would take the whole processor
		}
	}
}

func (m *makerRig) end() {
	select {
	case <-m.stop:
	default:
		close(m.stop)
		m.pushing.Wait()
	}
}

// clone runs a maker. Kill says when its git kills it, watch, unless nil, when the test does.
func (m *makerRig) clone(kill string, watch func() bool) (killed bool, err error) {
	m.Helper()
	m.awayWithIt()
	if err := os.RemoveAll(filepath.Join(m.dir, "calls")); err != nil {
		m.Fatal(err)
	}
	cmd := m.us.command("site", "clone", m.project)
	cmd.Env = append(cmd.Env, "PATH="+m.dir+":"+os.Getenv("PATH"), "REFDB_TEST_KILL="+kill)
	maker := launch(m, cmd)
	for watch != nil {
		if watch() {
			maker.kill()
			break
		}
		select {
		case <-maker.ended:
			watch = nil
		default:
		}
	}
	if !maker.wait(m) {
		err = fmt.Errorf("%s: %s", maker.ProcessState, maker.out)
	}
	status := maker.ProcessState.Sys().(syscall.WaitStatus)
	return status.Signaled(), err
}

// awayWithIt moves the repository away, as a disk that is unmounted.
func (m *makerRig) awayWithIt() {
	m.Helper()
	m.round++
	if err := os.Rename(m.path, filepath.Join(m.dir, strconv.Itoa(m.round))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.Fatal(err)
	}
}

// calls returns how often the last maker has called git.
func (m *makerRig) calls() int {
	m.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, "calls"))
	return strings.Count(string(must(m, text, err)), "\n")
}

// takesNoPush pushes to all that is below the root and that git takes for a repository: only what is at the path may accept anything.
func (m *makerRig) takesNoPush(when string) {
	m.Helper()
	err := filepath.WalkDir(m.us.root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a lock file of a client's git
		}
		if err != nil || !e.IsDir() {
			return err
		}
		if _, err := os.Stat(filepath.Join(path, "HEAD")); err != nil {
			return nil
		}
		if path != m.path && path != m.us.repo(project) {
			if _, refused := m.g.try(m.h.dir, "push", "--quiet", path, m.h.a+":refs/heads/stray"); refused == nil {
				m.Errorf("killed %s: %s takes a push", when, path)
			}
		}
		return fs.SkipDir
	})
	if err != nil {
		m.Fatal(err)
	}
}

// nothingLost ends the clients, and makes the copy: whatever they were told is in the database.
func (m *makerRig) nothingLost() {
	m.Helper()
	if _, err := m.clone("", nil); err != nil {
		m.Fatal(err)
	}
	accepted := func() (n int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.acknowledged)
	}
	eventually(m, "the copy takes pushes", func() error {
		if accepted() == 0 {
			return errPending
		}
		return nil
	})
	m.end()
	m.settled()
	for ref, value := range m.acknowledged {
		if v, err := m.db.Get(m.Context(), m.project, ref); err != nil || v != refdb.Value(value) {
			m.Errorf("a push of %s was acknowledged, and the database has %q, %v", ref, v, err)
		}
	}
	left, err := os.ReadDir(filepath.Dir(m.path))
	if must(m, left, err); len(left) != 1 {
		m.Errorf("beside the copy is %v", left)
	}
	if hidden, err := filepath.Glob(filepath.Join(m.us.root, ".*")); err != nil || len(hidden) != 1 || filepath.Base(hidden[0]) != config.HooksDir {
		m.Errorf("in the root is %v, %v", hidden, err)
	}
	m.us.must("site", "check", m.project)
}

// Whatever a maker was doing when it was killed: no repository is there that accepts a push of which the database does not hear.
func TestAMakerThatIsKilledAtAnyStepLeavesNothingThatTakesAPush(t *testing.T) {
	t.Parallel()
	m := newMakerRig(t)
	if _, err := m.clone("", nil); err != nil {
		t.Fatal(err)
	}
	calls, step := m.calls(), 1
	if calls < 10 {
		t.Fatalf("the maker has called git %d times", calls)
	}
	if testing.Short() {
		step = calls / 3
	}
	for n := 1; n <= calls; n += step {
		for k, when := range []string{"before", "after"} {
			if testing.Short() && (n/step+k)%2 > 0 {
				continue
			}
			kill := fmt.Sprintf("%s %d", when, n)
			if killed, err := m.clone(kill, nil); !killed {
				t.Errorf("the maker was not killed %s: %v", kill, err)
			}
			m.takesNoPush(kill)
		}
	}
	// Between its calls of git.
	files := []string{"config", "packed-refs", "refdb/own-hooks"}
	if !testing.Short() {
		files = append(files, "hooks/reference-transaction", "HEAD", "objects/pack/*.pack", "refdb/socket")
	}
	for _, file := range files {
		made := func() bool {
			for _, pattern := range []string{config.Unfinished + "*/*/", "*/" + config.Unfinished + "*/", config.Unfinished + "*/*/*/"} {
				if found, err := filepath.Glob(filepath.Join(m.us.root, pattern, file)); err == nil && len(found) > 0 {
					return true
				}
			}
			return false
		}
		m.clone("", made)
		m.takesNoPush("once " + file + " was there")
	}
	m.clone("", func() bool { _, err := os.Lstat(m.path); return err == nil })
	m.takesNoPush("once it was at its path")
	m.nothingLost()
}

// A copy of the past below the root is at a path to which clients may push: nobody would hear of that.
func TestACopyOfThePastBelowTheRootTakesNoPush(t *testing.T) {
	t.Parallel()
	all, err := gits()
	c := newCluster(t, must(t, all, err)[0], design{extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	copied := c.us.repo("before")
	state, err := c.db.HistoryState(t.Context())
	c.us.must("site", "clone", project, "--at", fmt.Sprint(must(t, state, err).Upto), "--to", copied)
	sameRefs(t, "the copy", c.g.refs(t, copied), map[string]string{"refs/heads/main": c.h.a})
	for _, args := range [][]string{{"push", "--quiet", copied, c.h.b + ":refs/heads/main"}, {"--git-dir=" + copied, "update-ref", "-d", "refs/heads/main"}} {
		if _, err := c.g.try(c.h.dir, args...); err == nil || !strings.Contains(err.Error(), "refdbctl site enable "+copied) {
			t.Errorf("git %s: %v", args[0], err)
		}
	}
	// As that says.
	c.us.must("site", "enable", "--new", copied)
	if _, err := c.g.try(c.h.dir, "push", "--quiet", copied, c.h.b+":refs/heads/main"); err != nil {
		t.Error(err)
	}
	if v, err := c.db.Get(t.Context(), "before", "refs/heads/main"); err != nil || v != refdb.Value(c.h.b) {
		t.Errorf("the database has %q, %v", v, err)
	}
	if hidden, err := filepath.Glob(filepath.Join(c.us.root, ".*")); err != nil || len(hidden) != 1 || filepath.Base(hidden[0]) != config.HooksDir {
		t.Errorf("in the root is %v, %v", hidden, err)
	}
}
