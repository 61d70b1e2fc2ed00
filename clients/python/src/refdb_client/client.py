"""The calls of the API."""

from __future__ import annotations

import math
import os
import random
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar

from . import clock, messages
from .errors import (
    LockedError,
    LostError,
    MismatchError,
    OutcomeUnknownError,
    RefdbError,
    RefusedError,
    UnavailableError,
)
from .forks import Process
from .held import HeldLock
from .messages import JSON, Acquired, Change, Changes, Lock, Ref, RefUpdate
from .transport import Transport

T = TypeVar("T")

# How long a server may take to answer, beside a wait for locks, in seconds.
_ANSWER = 35.0

# For how long one request waits for locks: at most so many seconds, and at most a third of the lease, which counts
# from before the request. To wait longer, a client repeats the request.
_LONGEST_WAIT = 30.0

# The pauses before a request is repeated, in seconds: they grow from the first to the last.
_FIRST_PAUSE = 0.2
_LAST_PAUSE = 5.0

# The server finds an update of an earlier request for an hour.
_LONGEST_RETRY = 3000.0


class Client:
    """A client of refdb-server. Any thread may use it, but no process that is forked from this one.

    Calls raise a RefdbError, whose class says what was done. A request that gets no answer is repeated, with
    the request ID by which the server knows it again, for retry_for seconds after the first attempt has failed.
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
        return self._read("Get", {"project": project, "refs": refs}, messages.refs_in)

    def list(self, project: str, prefix: str = "") -> Iterator[Ref]:
        """Iterates over the refs that the caller may read whose names start with prefix, in byte order.

        It reads a page at a time, each as of its own point in time.
        """
        token = ""
        while True:
            request = {"project": project, "prefix": prefix, "pageToken": token}
            refs, token = self._read("List", request, lambda m: (messages.refs_in(m), messages.next_page(m)))
            yield from refs.values()
            if not token:
                return

    def log(self, project: str, ref: str = "") -> Iterator[Change]:
        """Iterates over the recorded changes of a ref, or of all refs that the caller may read, newest first.

        It reads a page at a time. A failover of the database may still undo the newest changes.
        """
        token = ""
        while True:
            request = {"project": project, "ref": ref, "pageToken": token}
            changes, token = self._read("Log", request, lambda m: (messages.changes_in(m), messages.next_page(m)))
            yield from changes
            if not token:
                return

    def at(self, project: str, when: int | datetime, *refs: str, prefix: str = "") -> dict[str, Ref]:
        """Returns what refs held at a time, by the database's clock, or right after a position of the history.

        Without refs it returns all that the caller may read whose names start with prefix, and that existed.
        OutOfRangeError says that the history does not go back that far.
        """
        if isinstance(when, datetime) and when.tzinfo is None:
            raise ValueError("when: give a time with a time zone")
        at: JSON = {"time": when.isoformat()} if isinstance(when, datetime) else {"position": str(when)}
        found: dict[str, Ref] = {}
        token = ""
        while True:
            request = {"project": project, "refs": refs, "prefix": prefix, "pageToken": token, **at}
            page, token, position = self._read("At", request, lambda m: (messages.refs_in(m), messages.next_page(m), int(m["position"])))
            found |= page
            if not token:
                return found
            at = {"position": str(position)}

    def watch(self, project: str, prefix: str = "", cursor: str = "") -> Generator[Changes, None, None]:
        """Iterates over the changes of those refs that the caller may read whose names start with prefix, in order.

        It begins after a cursor, with the oldest change in the history ("begin"), or with the next change. It
        yields also without changes, at least every 10 seconds while it is connected. If the connection breaks,
        it goes on from the last cursor, through any server; it raises UnavailableError once it has had no
        answer for retry_for seconds. Its method close ends the stream. OutOfRangeError: the history no longer has what the cursor names; read the
        refs, then watch without a cursor.
        """
        failing, pause = math.inf, _FIRST_PAUSE
        while True:
            self._process.check()
            try:
                with closing(self._transport.events({"project": project, "prefix": prefix, "cursor": cursor})) as events:
                    for event in events:
                        changes = _parsed(messages.batch_of, event)
                        cursor = changes.cursor or cursor
                        failing, pause = math.inf, _FIRST_PAUSE
                        yield changes
                failed: RefdbError = UnavailableError("the connection ended")
            except (OutcomeUnknownError, UnavailableError) as error:
                failed = error
            failing = min(failing, clock.now())
            if clock.now() + pause - failing > self._retry_for:
                raise UnavailableError(f"no changes can be read: {failed}") from failed
            time.sleep(_pause(pause))
            pause = min(1.5 * pause, _LAST_PAUSE)

    def is_up_to_date(self, project: str, ref: str, local: str) -> bool:
        """Returns whether a copy of a ref, which holds local ("" if it lacks the ref), is up to date."""
        return self._read("IsUpToDate", {"project": project, "ref": ref, "local": local}, lambda m: bool(m.get("upToDate", False)))

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

    def acquire(self, project: str, *refs: str, lease: float = 60.0, wait: float = 0.0, request_id: str | None = None) -> Acquired:
        """Locks refs, all or none, for lease seconds, and returns the lock. The refs need not exist.

        The lease counts from before the request was sent. While others hold locks on the refs, acquire waits,
        for wait seconds; then it raises LockedError. Nothing renews the lock: see lock for one that is.

        With the request_id of an earlier acquisition, of the same refs with the same lease, it returns that
        lock, as long as the lock stands, and extends it: so a process can go on after an OutcomeUnknownError.
        """
        return self._acquire({"project": project, "refs": refs}, lease, wait, request_id)

    def _acquire(self, what: JSON, lease: float, wait: float, request_id: str | None) -> Acquired:
        # With one ID, all requests are of one owner, who has one place among those that wait.
        request = {**what, "leaseTime": messages.duration(lease), "requestId": request_id or str(uuid.uuid4())}
        until, unknown = clock.now() + wait, False
        while True:
            asked = clock.now()
            part = max(0.0, min(until - asked, _LONGEST_WAIT, lease / 3))
            try:
                (lock, values), sent = self._send(
                    "Acquire",
                    request | {"wait": messages.duration(part)},
                    lambda m: _result(m, "acquired", lambda a: (messages.lock_of(a["lock"]), messages.refs_of(a.get("values", ())))),
                    part + _ANSWER,
                )
                return Acquired(lock, values, lease, sent)
            except LockedError as error:
                now = clock.now()
                error.earlier_unknown = unknown = unknown or error.earlier_unknown
                if now >= until:
                    raise
                if now - asked < part / 2:  # a server that stops ends waits at once
                    time.sleep(min(_pause(_FIRST_PAUSE), until - now))

    def extend(self, lock: Lock) -> None:
        """Renews a lock for another lease time, which counts from before the request was sent."""
        self._write("Extend", {"lock": messages.lock_json(lock)}, "extended")

    def release(self, lock: Lock) -> None:
        """Ends a lock. LostError says that the lock did not stand until now, unless earlier_unknown is true."""
        self._release_until(lock, math.inf)

    def _release_until(self, lock: Lock, until: float) -> None:
        """Ends a lock, and makes attempts until then at most."""
        self._write("Release", {"lock": messages.lock_json(lock)}, "released", until)

    def lock(
        self,
        project: str,
        *refs: str,
        lease: float = 60.0,
        wait: float = math.inf,
        on_lost: Callable[[HeldLock], None] | None = None,
        request_id: str | None = None,
    ) -> HeldLock:
        """Returns a lock for a with statement, which acquires it, renews it, and releases it at the end.

        While others hold locks on the refs, the with statement waits, for wait seconds; then it raises
        LockedError. It counts leases by a clock that includes the time for which the machine was suspended.
        If the lock can't be renewed in time, another thread calls on_lost once, before others can acquire the
        lock; if the server has it no more, as soon as the client learns that. request_id is as in acquire.

        Only updates under the lock are refused once it is lost. Whatever else the program does meanwhile is
        guarded by the program's clock alone.
        """
        return HeldLock(self, lambda: self.acquire(project, *refs, lease=lease, wait=wait, request_id=request_id), on_lost)

    def lease(
        self,
        project: str,
        name: str,
        *,
        shared: bool = False,
        lease: float = 60.0,
        wait: float = math.inf,
        on_lost: Callable[[HeldLock], None] | None = None,
        request_id: str | None = None,
    ) -> HeldLock:
        """Returns a lock under a name of its own for a with statement, as lock does.

        Several clients hold a shared lease of a name at a time; otherwise one alone. The lease is for 10 to 60
        seconds, and renewed. Updates under it may move any refs.
        """
        named = {"name": name, "mode": "LEASE_MODE_SHARED" if shared else "LEASE_MODE_EXCLUSIVE"}
        return HeldLock(self, lambda: self._acquire({"project": project, "lease": named}, lease, wait, request_id), on_lost)

    def _extend_once(self, lock: Lock, timeout: float) -> float:
        """Makes one attempt to renew a lock, and returns when it was sent."""
        sent = clock.now()
        self._post("Extend", {"lock": messages.lock_json(lock)}, timeout, lambda m: _result(m, "extended", _nothing))
        return sent

    def _read(self, method: str, request: JSON, parse: Callable[[JSON], T]) -> T:
        """Makes a call that changes nothing, and returns what parse makes of the response."""

        def attempt() -> T:
            try:
                return self._post(method, request, _ANSWER, parse)
            except OutcomeUnknownError as error:
                raise UnavailableError(str(error)) from error

        return self._repeat(attempt, math.inf)[0]

    def _write(self, method: str, request: JSON, result: str, until: float = math.inf) -> None:
        """Makes a call that changes something and has no more to say than that."""
        self._send(method, request, lambda m: _result(m, result, _nothing), _ANSWER, until)

    def _send(self, method: str, request: JSON, parse: Callable[[JSON], T], timeout: float, until: float = math.inf) -> tuple[T, float]:
        """Makes a call that changes something; returns what parse makes of the response, and when its last attempt was sent."""
        return self._repeat(lambda: self._post(method, request, min(timeout, max(1.0, until - clock.now())), parse), until)

    def _post(self, method: str, request: JSON, timeout: float, parse: Callable[[JSON], T]) -> T:
        """Makes one attempt of a call."""
        self._process.check()
        return _parsed(parse, self._transport.post(method, request, timeout))

    def _repeat(self, attempt: Callable[[], T], until: float) -> tuple[T, float]:
        """Calls attempt until it returns or raises something definite; returns also when it was called last."""
        pause, first = _FIRST_PAUSE, math.inf
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
            now = clock.now()
            first = min(first, now)  # an attempt that waits for locks may itself take longer than retry_for
            if now + pause > min(until, first + self._retry_for):
                if unknown is None or unknown is failed:
                    raise failed
                raise OutcomeUnknownError(f"{unknown}; then: {failed}") from failed
            time.sleep(_pause(pause))
            pause = min(1.5 * pause, _LAST_PAUSE)


def _pause(longest: float) -> float:
    return random.uniform(longest / 2, longest)


def _parsed(parse: Callable[[JSON], T], message: JSON) -> T:
    """Returns what parse makes of a response; of one of another form the meaning is not known."""
    try:
        return parse(message)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise OutcomeUnknownError("the server's answer is of another form") from error


def _result(response: JSON, name: str, parse: Callable[[JSON], T]) -> T:
    """Returns the result of a response, or raises what the response says instead."""
    if name in response:
        return parse(response[name])
    if "locked" in response:
        raise LockedError([messages.holder_of(h) for h in response["locked"].get("holders", ())])
    if "mismatched" in response:
        raise MismatchError([messages.mismatch_of(m) for m in response["mismatched"].get("mismatches", ())])
    if "lost" in response:
        raise LostError("the lock does not stand any more", response["lost"].get("refs", ()))
    raise OutcomeUnknownError(response["unknown"].get("advice", "") if "unknown" in response else "the server's answer has no result")


def _nothing(result: JSON) -> None:
    """Parses a result that says no more than its name."""
    result.items()
