package moves

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OpenSmall is Open with another maximum size of segments.
func OpenSmall(dir, boot, note string, limit int64) (*Log, []*Begun, error) {
	return open(dir, boot, note, limit)
}

// FillDisk makes writes fail as on a full disk, until a new epoch begins.
func (l *Log) FillDisk() error {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer full.Close()
	return l.divert(int(full.Fd()))
}

// Writes counts the writes of the list to its file from now on.
func (l *Log) Writes() (count func() int, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err == nil {
		err = errors.Join(l.divert(ends[0]), unix.Close(ends[0]))
	}
	n := 0
	return func() int {
		for {
			if _, _, err := unix.Recvfrom(ends[1], make([]byte, 1), unix.MSG_DONTWAIT); err != nil {
				return n
			}
			n++
		}
	}, err
}

// divert makes the list write to another file, given by its descriptor.
func (l *Log) divert(to int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	path, err := filepath.EvalSymlinks(l.out.Last().Path)
	if err != nil {
		return err
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range open {
		var fd int
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || target != path {
			continue
		}
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil {
			return err
		}
		return unix.Dup3(to, fd, unix.O_CLOEXEC)
	}
	return fmt.Errorf("%s is not open", path)
}
