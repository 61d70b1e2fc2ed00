// Package disktest crashes a machine, as far as its disk can tell: tests find what has reached the
// disk.
package disktest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A Disk is a file system in a file, which writes nothing by itself for a long time.
type Disk struct {
	tb    testing.TB
	image string
	// Dir is where it is mounted.
	Dir string
}

// New returns a disk. It skips the test where disks can't be mounted.
func New(tb testing.TB) Disk {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("only root can mount a file system in a file: what a crash of the machine leaves is not looked at")
	}
	d := Disk{tb: tb, image: filepath.Join(tb.TempDir(), "image")}
	d.run("truncate", "--size=8M", d.image)
	d.run("mkfs.ext4", "-q", "-F", d.image)
	d.Dir = d.mount(d.image)
	return d
}

func (d Disk) mount(image string) (at string) {
	d.tb.Helper()
	at = d.tb.TempDir()
	out, err := exec.Command("mount", "-o", "loop,commit=300,noauto_da_alloc", image, at).CombinedOutput()
	if err != nil {
		d.tb.Skipf("there are no loop devices here, so what a crash of the machine leaves is not looked at: %v: %s", err, out)
	}
	d.tb.Cleanup(func() { d.run("umount", at) })
	return at
}

// Sync writes all that is in memory to the disk.
func (d Disk) Sync() {
	d.tb.Helper()
	d.run("sync", "-f", d.Dir)
}

// Crashed returns the directory as the machine would find it after a crash now.
func (d Disk) Crashed() (dir string) {
	d.tb.Helper()
	copied := filepath.Join(d.tb.TempDir(), "image")
	d.run("cp", d.image, copied)
	return d.mount(copied)
}

func (d Disk) run(name string, args ...string) {
	d.tb.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		d.tb.Fatalf("%s: %v: %s", name, err, out)
	}
}
