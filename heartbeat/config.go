package heartbeat

import (
	"errors"
	"fmt"
	"time"
)

// A Config contains the intervals of a keeper's beats and of the expiry of leases.
type Config struct {
	// Interval is the time between two ticks, at most a third of StaleAfter.
	Interval time.Duration
	// StaleAfter is the age of the last beat above which other holders may take the item.
	StaleAfter time.Duration
	// Margin is how much earlier than StaleAfter the lease ends in this process. It compensates for
	// clocks that run at different speeds, and leaves the holder time to stop. It is at least a
	// fifth of StaleAfter, which is the default, and small enough that the lease lasts for two
	// intervals.
	Margin time.Duration
	// Now is the clock, which must never step back. On Linux and macOS the default counts the time
	// for which the machine was suspended. Elsewhere it is Go's monotonic clock, which may not
	// count it.
	Now func() Instant
}

// complete returns c with its defaults filled in, or an error if c is invalid.
func (c Config) complete() (Config, error) {
	if c.Margin == 0 {
		c.Margin = c.StaleAfter / 5
	}
	switch {
	case c.Interval <= 0 || c.StaleAfter <= 0:
		return c, errors.New("heartbeat: interval and stale-after must be positive")
	case c.Interval > c.StaleAfter/3:
		return c, fmt.Errorf("heartbeat: an interval of %s is more than a third of stale-after, %s", c.Interval, c.StaleAfter)
	case c.Margin < c.StaleAfter/5:
		return c, fmt.Errorf("heartbeat: a margin of %s is less than a fifth of stale-after, %s", c.Margin, c.StaleAfter)
	case c.Interval > (c.StaleAfter-c.Margin)/2:
		return c, fmt.Errorf("heartbeat: a margin of %s leaves a lease less than two intervals of %s", c.Margin, c.Interval)
	}
	if c.Now == nil {
		clock, err := systemClock()
		if err != nil {
			return c, fmt.Errorf("heartbeat: read the clock: %w", err)
		}
		c.Now = clock
	}
	return c, nil
}
