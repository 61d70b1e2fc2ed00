"""The messages of the API that callers see, and their form in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

DELETED = "0" * 40
"""The value of a deleted ref. RefUpdate.new is DELETED to delete a ref."""


@dataclass(frozen=True)
class Ref:
    """What a ref holds."""

    name: str
    value: str  # "" if the database does not know the ref; only zeros if it was deleted
    time: datetime | None  # of its last change, by the database's clock, if that was recorded


@dataclass(frozen=True)
class Lock:
    """One acquisition of a lock.

    Of two tokens of a ref the larger one is the later. A resource that remembers the largest token that it has
    seen, and refuses smaller ones, can't be changed by a holder that lost its lock.
    """

    project: str
    refs: tuple[str, ...]
    owner: str
    token: int


@dataclass(frozen=True)
class Acquired:
    """A lock that was acquired, and what the database has of its refs."""

    lock: Lock
    values: Mapping[str, Ref]
    lease: float  # seconds
    sent: float  # when the request was sent, by refdb_client.clock.now(): the lease counts from then


@dataclass(frozen=True)
class Holder:
    """Who has the lock on a ref."""

    ref: str
    owner: str
    subject: str  # "" if the holder is no client of a server
    age: float  # seconds since the lock was last renewed
    stale_after: float  # seconds: the age above which others may take it over
    pending_change: bool  # the lock announces a change in a site's repository, and does not end by time


@dataclass(frozen=True)
class RefUpdate:
    """A change of a ref from the value that the caller expects."""

    ref: str
    old: str  # "" or only zeros if the ref must not exist
    new: str  # only zeros to delete it


@dataclass(frozen=True)
class Change:
    """A ref took another value."""

    ref: str
    old: str  # as Ref.value
    new: str  # as Ref.value; "" if the ref was removed together with its project
    position: int  # in the order of all changes; changes of one transaction have the same
    time: datetime | None  # by the database's clock
    by: str  # the subject, or the user at a site, for whom the change was made; "" if that was not recorded
    owner: str  # the process that made the change; "" if that was not recorded


@dataclass(frozen=True)
class Changes:
    """What Client.watch yields: changes in the order of their positions, or none."""

    changes: tuple[Change, ...]
    cursor: str  # the place behind them, from which another watch goes on; "" if the server does not know it yet


@dataclass(frozen=True)
class Mismatch:
    """A ref that has another value than expected."""

    ref: str
    expected: str
    value: str


JSON = Mapping[str, Any]


def duration(seconds: float) -> str:
    return f"{seconds:.3f}s"


def seconds_of(text: str) -> float:
    return float(text.removesuffix("s"))


def time_of(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def ref_of(m: JSON) -> Ref:
    return Ref(m["name"], m.get("value", ""), time_of(m.get("time")))


def refs_of(all_refs: Sequence[JSON]) -> dict[str, Ref]:
    return {m["name"]: ref_of(m) for m in all_refs}


def refs_in(page: JSON) -> dict[str, Ref]:
    return refs_of(page.get("refs", ()))


def change_of(m: JSON) -> Change:
    old, new, by, owner = m.get("old", ""), m.get("new", ""), m.get("by", ""), m.get("owner", "")
    return Change(m["ref"], old, new, int(m.get("position", 0)), time_of(m.get("time")), by, owner)


def changes_in(page: JSON) -> tuple[Change, ...]:
    return tuple(map(change_of, page.get("changes", ())))


def batch_of(m: JSON) -> Changes:
    return Changes(changes_in(m), m.get("cursor", ""))


def next_page(page: JSON) -> str:
    token = page.get("nextPageToken", "")
    if not isinstance(token, str):
        raise TypeError("a page token is a text")
    return token


def lock_of(m: JSON) -> Lock:
    return Lock(m["project"], tuple(m["refs"]), m["owner"], int(m["token"]))


def lock_json(lock: Lock) -> JSON:
    return {"project": lock.project, "refs": lock.refs, "owner": lock.owner, "token": str(lock.token)}


def holder_of(m: JSON) -> Holder:
    return Holder(
        ref=m["ref"],
        owner=m.get("owner", ""),
        subject=m.get("subject", ""),
        age=seconds_of(m.get("age", "0s")),
        stale_after=seconds_of(m.get("staleAfter", "0s")),
        pending_change=m.get("pendingChange", False),
    )


def mismatch_of(m: JSON) -> Mismatch:
    return Mismatch(m["ref"], m.get("expected", ""), m.get("value", ""))


def update_json(u: RefUpdate) -> JSON:
    return {"ref": u.ref, "old": u.old, "new": u.new}
