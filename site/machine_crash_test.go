package site_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A disk is an ext4 file system in a file, with the site's repositories on it.
type disk struct {
	tb    testing.TB
	image string
}

// onDisk moves the repositories to a disk of their own, which writes nothing by itself for a long time.
func (g *guard) onDisk() disk {
	g.tb.Helper()
	if os.Geteuid() != 0 {
		g.tb.Skip("a file system in a file can be mounted by root only: what a crash of the machine leaves is not looked at")
	}
	dir := g.tb.TempDir()
	d := disk{g.tb, filepath.Join(dir, "disk")}
	sitetest.Run(g.tb, dir, "truncate", "--size=64M", d.image)
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-F", d.image},
		{"mount", "-o", "loop,commit=300", d.image, filepath.Join(dir, "mnt")},
	} {
		os.MkdirAll(filepath.Join(dir, "mnt"), 0o755)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			g.tb.Skipf("there are no loop devices here, so what a crash of the machine leaves is not looked at: %s: %v: %s", args[0], err, out)
		}
	}
	sitetest.Run(g.tb, dir, "cp", "-a", filepath.Join(g.dir, "git")+"/.", "mnt")
	testprogram.AwaitForks()
	sitetest.Run(g.tb, dir, "umount", "mnt")
	d.mount(d.image, filepath.Join(g.dir, "git"))
	return d
}

func (d disk) mount(image, at string) {
	d.tb.Helper()
	if err := os.MkdirAll(at, 0o755); err != nil {
		d.tb.Fatal(err)
	}
	sitetest.Run(d.tb, "", "mount", "-o", "loop,commit=300", image, at)
	d.tb.Cleanup(func() {
		testprogram.AwaitForks()
		sitetest.Run(d.tb, "", "umount", at)
	})
}

// crashed returns where the disk is as the machine finds it if it crashes now.
func (d disk) crashed() (at string) {
	d.tb.Helper()
	dir := d.tb.TempDir()
	sitetest.Run(d.tb, dir, "cp", d.image, "image")
	at = filepath.Join(dir, "mnt")
	d.mount(filepath.Join(dir, "image"), at)
	return at
}

func TestWhatWasAcknowledgedIsInTheRefsAfterACrashOfTheMachine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(g *guard)
		push   string
		gone   bool
	}{
		"an update":             {func(g *guard) { g.set("refs/heads/x", g.commit[0]) }, "c1:refs/heads/x", false},
		"a new ref":             {func(*guard) {}, "c1:refs/heads/x", false},
		"a ref in a new folder": {func(*guard) {}, "c1:refs/heads/a/b/x", false},
		"a deleted ref":         {func(g *guard) { g.set("refs/heads/x", g.commit[0]) }, ":refs/heads/x", true},
		"a deleted packed ref": {func(g *guard) {
			g.set("refs/heads/x", g.commit[0])
			g.git("-c", "core.hooksPath=/dev/null", "pack-refs", "--all")
		}, ":refs/heads/x", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := idleGuard(t, local.SQLite(t), "eu-1")
			g.git("config", "core.fsync", "all")
			c.before(g)
			client := g.client()
			d := g.onDisk()
			g.start()
			said, ok := client.push(c.push)
			if !ok {
				t.Fatal(said)
			}
			repo := filepath.Join(d.crashed(), "team/app.git")
			ref := c.push[strings.IndexByte(c.push, ':')+1:]
			out, _ := exec.Command("git", "--git-dir="+repo, "rev-parse", "--verify", "--quiet", ref).Output()
			want := g.commit[1] + "\n"
			if c.gone {
				want = ""
			}
			if string(out) != want {
				left, _ := filepath.Glob(filepath.Join(repo, "refs/heads/*.lock"))
				t.Errorf("%s is %q, want %q; lock files: %d", ref, out, want, len(left))
			}
			sitetest.Run(t, "", "git", "--git-dir="+repo, "fsck", "--connectivity-only")
			g.halt()
		})
	}
}
