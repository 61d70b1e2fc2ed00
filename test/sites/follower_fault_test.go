//go:build linux

package sites

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testfifo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// A follower that is killed after it has unpacked the objects, and before a ref has moved, continues,
// whether or not its git outlives it.
func TestAFollowerThatIsKilledBetweenUnpackingAndMovingGoesOn(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 3, 0), extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	for i, git := range movedBy {
		c.us.killWhileItFollows(git, func() {
			c.eu.pushed("--force", c.h.leaves[i]+":refs/heads/main", c.h.leaves[i]+fmt.Sprintf(":refs/heads/%d", i))
		}, func() {
			c.us.git("cat-file", "-e", c.h.leaves[i])
			if value := c.us.refs(project)["refs/heads/main"]; value == c.h.leaves[i] {
				t.Errorf("main is %s", value)
			}
		})
		c.us.follows(project)
	}
}

// movedBy is what becomes of a git whose daemon is killed.
var movedBy = []string{"goes on", "is killed, too", "goes on once the next daemon runs"}

// killWhileItFollows kills a daemon while its git moves main, and starts the next one. Push makes
// another site move main and create a branch; look is called while git moves main.
func (s *server) killWhileItFollows(git string, push, look func()) {
	t := s.c
	t.Helper()
	stall := testfifo.New(t, s.repo(project), "refs/heads/main")
	push()
	stall.Wait(t)
	look()
	s.kill()
	pid := moverOf(t, s.repo(project))
	switch git {
	case "goes on":
		stall.Drain()
		stall.Remove(t)
		s.start()
	case "is killed, too": // as on a machine that is short of memory; its lock files stay
		kill9(t, pid)
		stall.Remove(t)
		s.start()
	default:
		s.start()
		stall.Drain()
		stall.Remove(t)
	}
}

// moverOf returns the git that moves refs of a repository.
func moverOf(t testing.TB, repo string) (pid int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if text, _ := os.ReadFile(path); strings.Contains(string(text), "--git-dir="+repo+"\x00") && strings.Contains(string(text), "\x00update-ref\x00") {
			pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	if pid == 0 {
		t.Fatal("no git moves refs")
	}
	return pid
}

// A tmpfs is a small file system in memory.
type tmpfs struct {
	testing.TB
	at string
}

// onTmpfs moves what is in a directory to a file system of that many bytes.
func onTmpfs(t testing.TB, dir string, size int) tmpfs {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("root only can mount a small file system: what a full disk does is not looked at")
	}
	before := filepath.Join(shortDir(t), "before")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
	}
	run("cp", "-a", dir, before)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0755", size)); err != nil {
		t.Skipf("no file system can be mounted here, so what a full disk does is not looked at: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	run("cp", "-a", before+"/.", dir)
	run("chown", "--reference", before, dir)
	return tmpfs{t, dir}
}

func (d tmpfs) free() int {
	d.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.at, &s); err != nil {
		d.Fatal(err)
	}
	return int(s.Bavail) * int(s.Bsize)
}

// fill leaves that many bytes free, until release is called.
func (d tmpfs) fill(left int) (release func()) {
	d.Helper()
	path := filepath.Join(d.at, "filler")
	if err := os.WriteFile(path, make([]byte, max(0, d.free()-left)), 0o600); err != nil {
		d.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			d.Error(err)
		}
	}
}

// why is why a project is behind.
func (s *server) why(project string) (reason string, err error) {
	status, err := s.status()
	for _, b := range status.Behind {
		if b.Project == project {
			reason = b.Reason
		}
	}
	return reason, err
}

// A repository that needs more room than there is waits, says so, takes no room from the others, and goes on by itself.
func TestAFollowerWhoseDiskIsFullWaitsForRoomAndHoldsUpNoOther(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a repository on a disk of its own, some 10 s; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 0, 0), extra: storing, projects: []string{project, "other"}})
	v := &variety{cluster: c}
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	c.us.stop()
	disk := onTmpfs(t, c.us.root, 64<<20)
	c.us.start()
	large := commitOfSize(t, c, 6<<20, c.h.a)
	// More objects than git unpacks one by one, with a large one among them.
	entries := []string{"100644 blob " + g.run(t, c.h.dir, "rev-parse", commitOfSize(t, c, 5<<20, c.h.a)+":file") + "\tlarge"}
	for i := range 150 {
		entries = append(entries, v.file("100644", fmt.Sprint(i), fmt.Sprint(i)))
	}
	many := v.commit(v.tree(entries...), c.h.a)
	for n, value := range map[string]string{"one-by-one": large, "as-a-pack": many} {
		const left = 3 << 20
		release := disk.fill(left)
		before := c.us.refs(project)
		c.eu.pushed(value + ":refs/heads/" + n)
		eventually(t, "us says that its disk is full", func() error {
			reason, err := c.us.why(project)
			if !strings.Contains(reason, "the disk is too full") {
				err = errors.Join(err, fmt.Errorf("%w: %q", errBehind, reason))
			}
			return err
		})
		for i := range 8 { // meanwhile it is tried again
			g.run(t, c.h.dir, "push", "--quiet", "--force", c.eu.repo("other"), v.commit(v.tree(v.file("100644", "f", fmt.Sprint(n, i))))+":refs/heads/main")
			c.us.follows("other")
		}
		eventually(t, "what was written in vain is gone", func() error {
			if free := disk.free(); free < left-(512<<10) {
				return fmt.Errorf("%d bytes are free, of %d", free, left)
			}
			return nil
		})
		sameRefs(t, "us", c.us.refs(project), before)
		release()
		c.us.follows(project)
	}
	c.us.must("site", "check")
}

// Two sites may create heads/d and heads/d/x at once, of which a repository can hold one. It holds up no other ref, and ends with one of them.
func TestNamesThatExcludeEachOtherHoldUpNoOtherRef(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing})
	c.eu.pushed(c.h.a+":refs/heads/main", c.h.b+":refs/heads/other")
	c.us.follows(project)
	err = c.db.Update(t.Context(), project, []refdb.Update{
		{Ref: "refs/heads/d", New: refdb.Value(c.h.a)}, {Ref: "refs/heads/d/x", New: refdb.Value(c.h.b)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*server{c.eu, c.us} {
		s.behind(project, "refs/heads/d")
		s.pushed(c.h.c + ":refs/heads/from-" + s.name)
		eventually(t, "the other site has another ref", func() error {
			if got := s.other().refs(project)["refs/heads/from-"+s.name]; got != c.h.c {
				return fmt.Errorf("%w: %q", errBehind, got)
			}
			return nil
		})
	}
	for _, ref := range []string{"refs/heads/d", "refs/heads/d/x"} {
		if c.us.refs(project)[ref] != "" {
			c.us.pushed(":" + ref)
			break
		}
	}
	c.us.follows(project)
	c.eu.follows(project)
}
