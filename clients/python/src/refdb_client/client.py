"""The calls of the API."""

from __future__ import annotations

import math
import os
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

from . import clock, messages
from .errors import LockedError, LostError, MismatchError, OutcomeUnknownError, RefdbError, RefusedError, UnavailableError
from .forks import Process
from .held import HeldLock
from .messages import JSON, Acquired, Lock, Ref, RefUpdate
from .transport import Transport

# How long a server may take to answer, beside a wait for locks, in seconds.
_ANSWER = 35.0

# For how long one request waits for locks. To wait longer, a client asks again.
_LONGEST_WAIT = 30.0

# The pauses before a request is repeated, in seconds: they grow from the first to the last.
_FIRST_PAUSE = 0.2
_LAST_PAUSE = 5.0

# The server finds an update of an earlier request for an hour.
_LONGEST_RETRY = 3000.0


class Client:
    """A client of refdb-server. Any thread may use it, but no process that is forked from this one.

    Calls raise a RefdbError, whose class says what was done. A request that gets no answer is repeated, with
    the request ID by which the server knows it again, for at most retry_for seconds after the first attempt.
    """

    def __init__(
        self,
        url: str,
        *,
        token_file: str | os.PathLike[str],
        ca_file: str | os.PathLike[str] | None = None,
        retry_for: float = 60.0,
    ) -> None:
        """Makes a client, which connects when it is used.

        url is such as https://refdb.example.com or unix:/run/refdb/server.sock; plain HTTP is for loopback
        addresses. token_file is read for each request. ca_file has the certificates of authorities to trust
        instead of the system's.
        """
        if not 0 <= retry_for <= _LONGEST_RETRY:
            raise ValueError(f"retry_for: give 0 to {_LONGEST_RETRY:.0f} seconds")
        self._transport = Transport(url, token_file, ca_file)
        self._retry_for = retry_for
        self._process = Process()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.is_current():
            self.close()

    def close(self) -> None:
        """Closes the connections. Locks that are held are no longer renewed."""
        self._process.check()
        self._transport.close()

    def get(self, project: str, *refs: str) -> dict[str, Ref]:
        """Returns what refs hold, as of one point in time."""
        return messages.refs_of(self._read("Get", {"project": project, "refs": refs}).get("refs", ()))

    def list(self, project: str, prefix: str = "") -> Iterator[Ref]:
        """Iterates over the refs that the caller may read whose names start with prefix, in byte order.

        It reads a page at a time, each as of its own point in time.
        """
        token = ""
        while True:
            page = self._read("List", {"project": project, "prefix": prefix, "pageToken": token})
            yield from map(messages.ref_of, page.get("refs", ()))
            token = page.get("nextPageToken", "")
            if not token:
                return

    def is_up_to_date(self, project: str, ref: str, local: str) -> bool:
        """Returns whether a copy of a ref, which holds local ("" if it lacks the ref), is up to date."""
        return bool(self._read("IsUpToDate", {"project": project, "ref": ref, "local": local}).get("upToDate", False))

    def update(
        self, project: str, updates: Iterable[RefUpdate], *, under: Lock | None = None, release: bool = False, request_id: str | None = None
    ) -> None:
        """Moves refs, all or none, each from the value that the caller expects.

        Under a lock, nothing is changed unless the lock still stands on all updated refs. With release, the
        same transaction releases the lock: then at most one of all repeats is carried out. A process that
        repeats the update of an earlier process, within an hour, gives the request_id of that.
        """
        request = {"project": project, "updates": [messages.update_json(u) for u in updates], "release": release}
        if under is not None:
            request["under"] = messages.lock_json(under)
        self._write("Update", request | {"requestId": request_id or str(uuid.uuid4())}, "updated")

    def acquire(self, project: str, *refs: str, lease: float = 60.0, wait: float = 0.0) -> Acquired:
        """Locks refs, all or none, for lease seconds, and returns the lock. The refs need not exist.

        The lease counts from before the request was sent. While others hold locks on the refs, acquire waits,
        for wait seconds; then it raises LockedError. Nothing renews the lock: see lock for one that is.
        """
        until = clock.now() + wait
        while True:
            left = max(0.0, until - clock.now())
            request = {
                "project": project,
                "refs": refs,
                "leaseTime": messages.duration(lease),
                "wait": messages.duration(min(left, _LONGEST_WAIT)),
                "requestId": str(uuid.uuid4()),
            }
            asked = clock.now()
            try:
                answer, sent = self._write("Acquire", request, "acquired", wait=min(left, _LONGEST_WAIT))
            except LockedError:
                now = clock.now()
                if now >= until:
                    raise
                if now - asked < 1:  # a server that stops ends waits at once
                    time.sleep(min(_pause(_FIRST_PAUSE), until - now))
                continue
            return Acquired(messages.lock_of(answer["lock"]), messages.refs_of(answer.get("values", ())), lease, sent)

    def extend(self, lock: Lock) -> None:
        """Renews a lock for another lease time, which counts from before the request was sent."""
        self._write("Extend", {"lock": messages.lock_json(lock)}, "extended")

    def release(self, lock: Lock) -> None:
        """Ends a lock. LostError says that the lock did not stand until now, unless earlier_unknown is true."""
        self._write("Release", {"lock": messages.lock_json(lock)}, "released")

    def lock(
        self,
        project: str,
        *refs: str,
        lease: float = 60.0,
        wait: float = math.inf,
        on_lost: Callable[[HeldLock], None] | None = None,
    ) -> HeldLock:
        """Returns a lock for a with statement, which acquires it, renews it, and releases it at the end.

        While others hold locks on the refs, the with statement waits, for wait seconds; then it raises
        LockedError. It counts leases by a clock that includes the time for which the machine was suspended.
        If the lock is lost, another thread calls on_lost once, before others can acquire the lock.

        Only updates under the lock are refused once it is lost. Whatever else the program does meanwhile is
        guarded by the program's clock alone.
        """
        return HeldLock(self, project, refs, lease, wait, on_lost)

    def _extend_once(self, lock: Lock, timeout: float) -> float:
        """Makes one attempt to renew a lock, and returns when it was sent."""
        sent = clock.now()
        self._once("Extend", {"lock": messages.lock_json(lock)}, "extended", timeout)
        return sent

    def _read(self, method: str, request: JSON) -> JSON:
        """Makes a call that changes nothing."""

        def attempt() -> JSON:
            try:
                return self._post(method, request, _ANSWER)
            except OutcomeUnknownError as error:
                raise UnavailableError(str(error)) from error

        return self._repeat(attempt)[0]

    def _write(self, method: str, request: JSON, result: str, wait: float = 0.0) -> tuple[JSON, float]:
        """Makes a call that changes something, and returns its result and when its last attempt was sent."""
        return self._repeat(lambda: self._once(method, request, result, wait + _ANSWER))

    def _once(self, method: str, request: JSON, result: str, timeout: float) -> JSON:
        """Makes one attempt of a call, and returns its result, or raises what the response says."""
        response = self._post(method, request, timeout)
        if result in response:
            return _object(response[result])
        if "locked" in response:
            raise LockedError([messages.holder_of(h) for h in response["locked"].get("holders", ())])
        if "mismatched" in response:
            raise MismatchError([messages.mismatch_of(m) for m in response["mismatched"].get("mismatches", ())])
        if "lost" in response:
            raise LostError("the lock does not stand any more", response["lost"].get("refs", ()))
        raise OutcomeUnknownError(_object(response.get("unknown", {})).get("advice", "the server's answer has no result"))

    def _post(self, method: str, request: JSON, timeout: float) -> JSON:
        self._process.check()
        return self._transport.post(method, request, timeout)

    def _repeat(self, attempt: Callable[[], JSON]) -> tuple[JSON, float]:
        """Calls attempt until it returns or raises something definite; returns also when it was called last."""
        began, pause = clock.now(), _FIRST_PAUSE
        unknown: OutcomeUnknownError | None = None  # of the latest attempt of which it is not known what it did
        while True:
            sent = clock.now()
            failed: RefdbError
            try:
                return attempt(), sent
            except OutcomeUnknownError as error:
                failed = unknown = error
            except UnavailableError as error:
                failed = error
            except RefusedError as error:
                error.earlier_unknown = unknown is not None
                raise
            except RefdbError as error:
                if unknown is None:
                    raise
                raise OutcomeUnknownError(f"{unknown}; then: {error}") from error
            if clock.now() + pause - began > self._retry_for:
                if unknown is None or unknown is failed:
                    raise failed
                raise OutcomeUnknownError(f"{unknown}; then: {failed}") from failed
            time.sleep(_pause(pause))
            pause = min(1.5 * pause, _LAST_PAUSE)


def _pause(longest: float) -> float:
    return random.uniform(longest / 2, longest)


def _object(value: object) -> JSON:
    """Returns a part of a response that is an object; of anything else the meaning is not known."""
    if not isinstance(value, dict):
        raise OutcomeUnknownError("the server's answer is of another form")
    return value
