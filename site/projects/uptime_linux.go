package projects

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is a clock that also counts while the machine sleeps, as the time of a lease must.
func Uptime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}
