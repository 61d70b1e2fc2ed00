"""Finds out whether a process was forked: threads and connections are the parent's."""

import os

from .errors import ForkedError

_forks = 0  # between this process and the one that imported the module


def _count() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count)


class Process:
    """The process that made this object."""

    def __init__(self) -> None:
        self._forks = _forks

    def is_current(self) -> bool:
        """Returns whether this process made the object."""
        return self._forks == _forks

    def check(self) -> None:
        """Raises ForkedError in any other process."""
        if not self.is_current():
            raise ForkedError("the process was forked: a client and its locks belong to the process that made them")
