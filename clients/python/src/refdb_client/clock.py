"""The clock by which leases end."""

import sys
import time

# Where there is one, a clock that also counts the time for which the machine was suspended.
if sys.platform == "linux":
    _CLOCK = time.CLOCK_BOOTTIME
elif hasattr(time, "CLOCK_MONOTONIC"):  # on macOS it counts that time
    _CLOCK = time.CLOCK_MONOTONIC
else:
    raise ImportError("refdb_client needs Linux, macOS or another system of the kind of Unix")


def now() -> float:
    """Returns seconds since some point in time, which never go back."""
    return time.clock_gettime(_CLOCK)
