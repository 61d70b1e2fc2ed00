//go:build !linux && !darwin

package heartbeat

import "time"

// systemClock returns Go's monotonic clock. On systems where it stands still
// during suspend, a suspended holder may believe in its lease for too long: only
// fenced writes are safe there.
func systemClock() (func() Instant, error) {
	start := time.Now()
	return func() Instant { return Instant(time.Since(start)) }, nil
}
