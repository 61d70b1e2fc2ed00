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


def ref_of(m: JSON) -> Ref:
    time = m.get("time")
    return Ref(m["name"], m.get("value", ""), datetime.fromisoformat(time) if time else None)


def refs_of(all_refs: Sequence[JSON]) -> dict[str, Ref]:
    return {m["name"]: ref_of(m) for m in all_refs}


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
