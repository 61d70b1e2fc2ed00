package refdb

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
	"github.com/globalrefdb/globalrefdb/refdb/recovery"
)

// Defaults of [Options]. They are those of Gerrit's spanner-refdb plugin. Locks
// that the plugin took are judged by them.
const (
	DefaultHeartbeat  = 2 * time.Second
	DefaultStaleAfter = driver.DefaultStaleAfter
)

const (
	maxSiteBytes = 200
)

// Options configure a [DB]. The zero value works in production.
type Options struct {
	// Site names this process's site; all processes of a site can be listed and
	// purged by it. It holds no "/". Default: the host's name.
	Site string

	// By says on whose behalf this process changes refs, such as a user's name: it is recorded
	// in the history. At most 200 bytes of UTF-8 without control characters. Default: nobody's.
	By string

	// Heartbeat is how often all of this process's locks are renewed.
	// Default: 2 s or, if less, a fifth of StaleAfter. At most a third of StaleAfter.
	Heartbeat time.Duration

	// StaleAfter is how long this process's locks stand without a beat before
	// others may take them. It is recorded with each lock, so that processes
	// with different settings work together. Gerrit's spanner-refdb plugin
	// ignores it and uses 30 s. Default 30 s, at least 100 ms.
	StaleAfter time.Duration

	// MaxWait is the longest that [DB.Lock] waits, for the locks and for the
	// database. Default: until its context ends.
	MaxWait time.Duration

	// Logger gets what an operator should know: locks lost or reclaimed, beats
	// that fail. Names appear as digests only. Default: nothing is logged.
	Logger *slog.Logger

	// DigestKey keys the digests. If all processes of an installation have the
	// same key, the logs of several sites can be matched. Default: random.
	DigestKey []byte

	// Journal keeps what this process knows the database to hold. With it the site is a witness: it
	// is waited for when the database's server was replaced. Default: the last writes, in memory;
	// nobody waits for this process.
	Journal recovery.Journal

	// Observe is called once for every finished operation, for metrics: package
	// metrics has one for Prometheus. It must return quickly and may be called concurrently.
	Observe func(Event)
}

// resolve returns o with defaults in place of zeros, or an error wrapping ErrInvalid.
func (o Options) resolve(hostname string) (Options, error) {
	if o.Site == "" {
		o.Site = strings.ReplaceAll(hostname, "/", "-")
	}
	if o.StaleAfter == 0 {
		o.StaleAfter = DefaultStaleAfter
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = min(DefaultHeartbeat, o.StaleAfter/5)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Site == "" || len(o.Site) > maxSiteBytes || !utf8.ValidString(o.Site) || strings.ContainsAny(o.Site, "/\x00") {
		return o, fmt.Errorf("%w site %q: give 1 to %d bytes of UTF-8 without \"/\" and NUL", ErrInvalid, o.Site, maxSiteBytes)
	}
	if err := engine.CheckStaleAfter(o.StaleAfter); err != nil {
		return o, err
	}
	switch {
	case o.Heartbeat <= 0 || o.Heartbeat > o.StaleAfter/3:
		return o, fmt.Errorf("%w heartbeat interval %s: it must be positive and at most a third of stale-after (%s)",
			ErrInvalid, o.Heartbeat, o.StaleAfter)
	case o.MaxWait < 0:
		return o, fmt.Errorf("%w wait limit %s: it can't be negative", ErrInvalid, o.MaxWait)
	}
	return o, engine.CheckBy(o.By)
}
