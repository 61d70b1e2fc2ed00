package heartbeat

import "golang.org/x/sys/unix"

const suspendClock = unix.CLOCK_BOOTTIME
