package moves

import (
	"io"
	"os"
)

// OpenSmall is Open with another size of segments.
func OpenSmall(dir, boot, note string, limit int64) (*Log, []*Begun, error) {
	return open(dir, boot, note, limit)
}

// FillDisk lets writes fail as on a full disk, until a new epoch begins.
func (l *Log) FillDisk() error {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = full
	return err
}

// Writes counts writes of the list to its file from now on.
func (l *Log) Writes() (count func() int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &counted{WriteCloser: l.out}
	l.out = c
	return func() int { return c.n }
}

type counted struct {
	io.WriteCloser
	n int
}

func (c *counted) Write(p []byte) (int, error) {
	c.n++
	return c.WriteCloser.Write(p)
}
