//go:build linux || darwin

package heartbeat

import "golang.org/x/sys/unix"

// systemClock returns a clock that also runs while the machine is suspended, which Go's own does
// not. The error is that of the first reading.
func systemClock() (func() Instant, error) {
	_, err := readClock()
	return func() Instant {
		now, _ := readClock()
		return now
	}, err
}

// readClock returns the clock's reading. With an error it returns never, so that every lease
// expires.
func readClock() (Instant, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(suspendClock, &ts); err != nil {
		return never, err
	}
	return Instant(ts.Nano()), nil
}
