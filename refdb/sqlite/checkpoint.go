package sqlite

import (
	"context"
	"time"
)

const (
	// logStep is the size from which the log is truncated. If a reader prevents that, the driver
	// retries when the log is twice as large, or after logPause, so that writers are blocked only
	// for a small part of the time.
	logStep  = 8 << 20
	logPause = 10 * time.Second

	// logWait is how long writers then wait for readers.
	logWait = 500 * time.Millisecond

	// logKept is the size to which SQLite truncates a longer log when it restarts the log. It is
	// less than logStep, so that the rest is not taken for a long log.
	logKept = 4 << 20
)

// checkpoint truncates the log if it has become large. SQLite copies the log into the file by
// itself, but restarts it only at a moment without a reader, and overlapping readers leave no such
// moment. TRUNCATE blocks writers until the readers of older versions have finished. Readers that
// start meanwhile read the newest version, and afterwards only the file. So checkpoint waits no
// longer than the longest read, and at most logWait.
func (d *Driver) checkpoint(logSize int64) {
	switch {
	case logSize == 0: // nothing was committed
		return
	case logSize < d.blockedSize:
		d.blockedSize = 0 // SQLite has restarted it
	}
	if logSize < logStep || logSize < 2*d.blockedSize && time.Since(d.checkpointed) < logPause {
		return
	}
	blocked := true
	err := d.anchor.query(context.Background(), func(r row) { blocked = r.int(0) != 0 }, "PRAGMA wal_checkpoint(TRUNCATE)")
	d.blockedSize, d.checkpointed = 0, time.Now()
	if err != nil || blocked {
		d.blockedSize = logSize
	}
}
