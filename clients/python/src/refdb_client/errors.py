"""What a call may raise.

Whatever a call raises is a RefdbError, and its class says what was done. Only misuse raises other errors, before
anything is sent: ValueError and TypeError for arguments, RuntimeError for a client that is closed, or a lock outside of
its with statement.

- RefusedError: nothing was changed, because of the state of the refs and locks.
- FailedError: nothing was done.
- OutcomeUnknownError: it is not known what was done, or what may be done later.
"""

from __future__ import annotations

from collections.abc import Sequence

from .messages import Holder, Mismatch


class RefdbError(Exception):
    """The base of all errors of this package."""


class RefusedError(RefdbError):
    """The server refused the request, and nothing was changed.

    The client repeats a request that gets no answer. earlier_unknown is whether that happened before the
    request was refused: then the earlier attempt has not been carried out so far, as far as the server could
    see, but still may be. Of a release, the earlier attempt may have been carried out.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.earlier_unknown = False


class LockedError(RefusedError):
    """Others hold locks on some of the refs, or on refs whose names conflict with them."""

    def __init__(self, holders: Sequence[Holder]) -> None:
        names = ", ".join(f"{h.ref} by {h.subject or h.owner}" for h in holders)
        super().__init__(f"others hold locks: {names}" if names else "others hold locks")
        self.holders = tuple(holders)  # those of refs that the caller may read


class MismatchError(RefusedError):
    """Refs have other values than expected."""

    def __init__(self, mismatches: Sequence[Mismatch]) -> None:
        super().__init__("refs have other values: " + ", ".join(m.ref for m in mismatches))
        self.mismatches = tuple(mismatches)


class LostError(RefusedError):
    """A lock does not stand any more, and nothing was changed under it: stop the work."""

    def __init__(self, reason: str, refs: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.refs = tuple(refs)  # those that are known not to be locked any more


class FailedError(RefdbError):
    """The request failed, and nothing was done."""


class UnauthenticatedError(FailedError):
    """The server does not know the token, or the token has expired or was revoked."""


class PermissionDeniedError(FailedError):
    """No rule allows the subject to make the request."""


class InvalidRequestError(FailedError):
    """The request can't be carried out, for example because the project is frozen."""


class OutOfRangeError(FailedError):
    """The history does not go back that far, or no longer has what the cursor names: read the refs."""


class UnavailableError(FailedError):
    """The server or its database could not be reached, or has too much to do: try again later."""


class OutcomeUnknownError(RefdbError):
    """The request may have been carried out, or may be carried out later: read, and then decide."""


class ForkedError(RefdbError):
    """A process used a client or a lock of the process that it was forked from."""
