"""A lock that is renewed while a with statement runs."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from . import clock
from .errors import FailedError, LostError, OutcomeUnknownError, RefdbError, RefusedError
from .forks import Process
from .messages import Acquired, Lock, Ref, RefUpdate

if TYPE_CHECKING:
    from .client import Client

_log = logging.getLogger("refdb_client")

# How much sooner than at the server a lease ends here, as a part of it. It makes up for clocks that run at
# different speeds, and leaves the program time to stop.
_MARGIN = 0.2

# While a thread waits for a point in time, it looks at the clock at least this often, in seconds: the clock of
# threading may stand still while the machine is suspended.
_LOOK = 0.5


class HeldLock:
    """A lock of Client.lock or Client.lease. In the with statement, any thread may use it.

    One thread renews the lock. Another one watches the clock: a request of the first may hang beyond the lease.
    """

    def __init__(
        self,
        client: Client,
        acquire: Callable[[], Acquired],
        on_lost: Callable[[HeldLock], None] | None,
    ) -> None:
        self._client = client
        self._acquire = acquire
        self._on_lost = on_lost
        self._process = Process()
        self._changed = threading.Condition()
        # The condition guards these. The lock is lost once _lost is set, or the clock has reached _until.
        self._lock: Lock | None = None
        self._lease = 0.0
        self._values: Mapping[str, Ref] = {}
        self._until = 0.0
        self._renew_at = 0.0
        self._lost: LostError | None = None
        self._releasing = False  # an update is releasing the lock: that the server has it no more is no loss
        self._unclear = False  # an update may have released the lock: that the server has it no more may be no loss
        self._ended = False

    def __enter__(self) -> Self:
        self._process.check()
        if self._lock is not None:
            raise RuntimeError("a lock is for one with statement: call Client.lock again")
        acquired = self._acquire()
        try:
            with self._changed:
                self._lock, self._values, self._lease = acquired.lock, acquired.values, acquired.lease
                self._extended(acquired.sent)
            self.check()
            for name, work in (("renews", self._renew), ("watches", self._watch)):
                threading.Thread(target=work, name=f"refdb_client {name} a lock", daemon=True).start()
        except BaseException:
            self._end()
            with contextlib.suppress(LostError):
                self._release(clock.now() + self._lease)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._process.is_current():
            return  # the lock is the parent's
        released = self._ended
        lost = self._end()
        if lost is None and not released:
            try:
                self._release(self._until)
            except LostError as found:
                lost = found
        if self._unclear:
            return  # the error of update_and_release has said what is not known
        if lost is not None and error is None:
            raise lost
        if lost is not None and error is not None:
            error.add_note(f"refdb_client: the lock was lost: {lost}")

    def _end(self) -> LostError | None:
        """Ends the renewals, and returns why the lock is lost, if it is."""
        with self._changed:
            lost = None if self._ended else self._find_loss()
            self._ended = True
            self._changed.notify_all()
            return lost

    def _release(self, until: float) -> None:
        """Releases the lock, with attempts until then. Raises LostError if the lock has not stood until now."""
        try:
            self._client._release_until(self.lock, until)
        except LostError as error:
            if not error.earlier_unknown:  # otherwise the earlier request has released it
                raise
        except RefdbError as error:
            _log.warning("a lock could not be released, and stands until its lease ends: %s", type(error).__name__)

    @property
    def lock(self) -> Lock:
        """The lock, for other calls."""
        self._process.check()
        if self._lock is None:
            raise RuntimeError("the lock was not acquired: use it in a with statement")
        return self._lock

    @property
    def token(self) -> int:
        """The token of the lock: later acquisitions have larger ones."""
        return self.lock.token

    @property
    def values(self) -> Mapping[str, Ref]:
        """What those of the refs held that the database had a row for, when the lock was acquired."""
        self._process.check()
        return self._values

    def remaining(self) -> float:
        """Returns for how many seconds the lock stands if it is not renewed any more; 0 if it is lost."""
        self._process.check()
        with self._changed:
            return 0.0 if self._lock is None or self._find_loss() or self._ended else self._until - clock.now()

    def check(self) -> None:
        """Raises LostError if the lock is lost, or was released."""
        held = self.lock
        with self._changed:
            if lost := self._find_loss():
                raise lost
            if self._ended:
                raise LostError("the lock was released", held.refs)

    def update(self, updates: Iterable[RefUpdate]) -> None:
        """Moves locked refs, all or none. The server changes nothing if the lock does not stand any more."""
        self._update(updates, release=False)

    def update_and_release(self, updates: Iterable[RefUpdate]) -> None:
        """Moves locked refs as update does, and releases the lock in the same transaction.

        Even if the request is repeated, it is carried out at most once. If it is refused, the lock stays. After
        an OutcomeUnknownError the lock may stand or not; it is renewed as long as it stands.
        """
        self.check()
        with self._changed:
            self._releasing = True
        try:
            self._update(updates, release=True)
        except FailedError:
            raise
        except BaseException as error:
            self._unclear |= not isinstance(error, RefusedError) or error.earlier_unknown
            raise
        else:
            self._end()
        finally:
            self._releasing = False

    def _update(self, updates: Iterable[RefUpdate], release: bool) -> None:
        self.check()
        try:
            self._client.update(self.lock.project, updates, under=self.lock, release=release)
        except LostError as error:
            if release and error.earlier_unknown:  # the earlier attempt may have released the lock
                raise OutcomeUnknownError("the update may have been made: the lock does not stand any more") from error
            self._lose(error)
            raise

    def _lose(self, error: LostError) -> None:
        """Records that the server has the lock no more."""
        with self._changed:
            if not self._ended and self._find_loss() is None:
                self._lost = None if self._unclear else error
                self._ended = self._unclear
                self._changed.notify_all()

    def _find_loss(self) -> LostError | None:
        """Returns why the lock is lost, if it is: a lock that was lost once stays lost."""
        if self._lock is not None and self._lost is None and not self._ended and clock.now() >= self._until:
            self._lost = LostError("the lock could not be renewed before its lease ended", self._lock.refs)
            self._changed.notify_all()
        return self._lost

    def _extended(self, sent: float) -> None:
        """Records that a request which was sent then has extended the lease."""
        stands = self._lease * (1 - _MARGIN)
        self._until = max(self._until, sent + stands)
        self._renew_at = sent + stands / 3

    def _renew(self) -> None:
        """Renews the lock until it is lost or released."""
        while self._await(lambda: self._renew_at):
            try:
                sent = self._client._extend_once(self.lock, timeout=self._lease * (1 - _MARGIN) / 3)
            except LostError as error:
                if self._releasing:
                    self._renew_later()
                else:
                    self._lose(error)
            except Exception as error:  # whatever it is, the lock stands until its lease ends
                _log.warning("a lock was not renewed: %s", type(error).__name__)
                self._renew_later()
            else:
                with self._changed:
                    if self._find_loss() is None:
                        self._extended(sent)

    def _renew_later(self) -> None:
        with self._changed:
            self._renew_at = clock.now() + self._lease / 20

    def _watch(self) -> None:
        """Calls on_lost when the lock is lost."""
        while self._await(lambda: self._until):
            with self._changed:
                self._find_loss()
        with self._changed:
            lost = self._lost is not None
        if lost and self._on_lost is not None:
            try:
                self._on_lost(self)
            except Exception:
                _log.exception("on_lost failed")

    def _await(self, point: Callable[[], float]) -> bool:
        """Waits until the clock reaches a point, which may move; returns False if the lock is lost or released."""
        with self._changed:
            while not self._ended and self._lost is None:
                left = point() - clock.now()
                if left <= 0:
                    return True
                self._changed.wait(min(left, _LOOK, self._lease * _MARGIN / 2))
            return False
