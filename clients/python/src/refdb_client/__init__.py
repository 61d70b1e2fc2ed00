"""Locks and refs of a global ref database, by way of refdb-server.

    with Client("https://refdb.example.com", token_file="/run/secrets/refdb.token") as client:
        with client.lock("my/project", "refs/locks/deploy") as lock:
            ...
"""

from .client import Client
from .errors import (
    FailedError,
    ForkedError,
    InvalidRequestError,
    LockedError,
    LostError,
    MismatchError,
    OutcomeUnknownError,
    OutOfRangeError,
    PermissionDeniedError,
    RefdbError,
    RefusedError,
    UnauthenticatedError,
    UnavailableError,
)
from .held import HeldLock
from .messages import DELETED, Acquired, Change, Changes, Holder, Lock, Mismatch, Ref, RefUpdate

__all__ = [
    "DELETED",
    "Acquired",
    "Change",
    "Changes",
    "Client",
    "FailedError",
    "ForkedError",
    "HeldLock",
    "Holder",
    "InvalidRequestError",
    "Lock",
    "LockedError",
    "LostError",
    "Mismatch",
    "MismatchError",
    "OutOfRangeError",
    "OutcomeUnknownError",
    "PermissionDeniedError",
    "Ref",
    "RefUpdate",
    "RefdbError",
    "RefusedError",
    "UnauthenticatedError",
    "UnavailableError",
]
