package heartbeat

import "golang.org/x/sys/unix"

// CLOCK_MONOTONIC_RAW is mach_continuous_time. CLOCK_MONOTONIC counts sleep too,
// but is derived from the wall clock, in microseconds.
const suspendClock = unix.CLOCK_MONOTONIC_RAW
