package sqlite

import (
	"context"
	"time"
)

const (
	// logStep is how large the log may grow before it is emptied with some
	// insistence. If a reader does not let it, that is tried again when the log is
	// twice as large, or after logPause: writers are to wait for a small part of the time.
	logStep  = 8 << 20
	logPause = 10 * time.Second

	// logWait is how long writers then wait for readers.
	logWait = 500 * time.Millisecond

	// logKept is what SQLite leaves of a longer log when it starts at its beginning
	// again: less than logStep, so that this is not taken for a long one.
	logKept = 4 << 20
)

// trim empties the log if it has become large. SQLite copies it into the file by
// itself, but starts it anew only at a moment without a reader, and readers that
// overlap leave none. TRUNCATE keeps writers out until the readers of older
// versions have left; those that come meanwhile read the newest one, and after
// that the file alone. So it waits for no longer than the longest read, and
// at most logWait.
func (d *Driver) trim(size int64) {
	switch {
	case size == 0: // nothing was committed
		return
	case size < d.untrimmed:
		d.untrimmed = 0 // it was started anew
	}
	if size < logStep || size < 2*d.untrimmed && time.Since(d.tried) < logPause {
		return
	}
	blocked := true
	err := d.anchor.query(context.Background(), func(r row) { blocked = r.int(0) != 0 }, "PRAGMA wal_checkpoint(TRUNCATE)")
	d.untrimmed, d.tried = 0, time.Now()
	if err != nil || blocked {
		d.untrimmed = size
	}
}
