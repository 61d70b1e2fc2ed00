"""One attempt to make a call, and what its answer says about what was done."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import ssl
from collections.abc import Generator
from typing import Any, NoReturn

import httpx

from .errors import (
    FailedError,
    InvalidRequestError,
    OutcomeUnknownError,
    OutOfRangeError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from .messages import JSON

# For connecting, and for sending a request, in seconds.
_CONNECT = 10.0
_SEND = 20.0

# A stream that has sent nothing for so long, in seconds, is broken: the server sends something every 10 seconds.
_SILENCE = 25.0

# The largest token that the server accepts, in bytes: a JWT may have so many.
_TOKEN = 8192

_FAILURES: dict[tuple[int, str], type[FailedError]] = {
    (401, "unauthenticated"): UnauthenticatedError,
    (403, "permission_denied"): PermissionDeniedError,
    (400, "invalid_argument"): InvalidRequestError,
    (400, "failed_precondition"): InvalidRequestError,
    (400, "out_of_range"): OutOfRangeError,
    (429, "resource_exhausted"): UnavailableError,
}

# Of a request for events, whose failures have no code.
_STREAM_FAILURES: dict[int, type[FailedError]] = {
    400: InvalidRequestError,
    401: UnauthenticatedError,
    403: PermissionDeniedError,
    429: UnavailableError,
}

# How a stream may end so that connecting again is of no use. After "unauthenticated" it may be: the token is read again.
_ENDS: dict[str, type[FailedError]] = {
    "permission_denied": PermissionDeniedError,
    "invalid_argument": InvalidRequestError,
    "failed_precondition": InvalidRequestError,
    "out_of_range": OutOfRangeError,
}

# The errors that httpx raises before it has sent anything.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)


class Transport:
    """The connections to a server. Its methods may be called by any thread."""

    def __init__(self, url: str, token_file: str | os.PathLike[str], ca_file: str | os.PathLike[str] | None) -> None:
        self._token = _Token(token_file)
        timeout = httpx.Timeout(_CONNECT, write=_SEND)
        limits = httpx.Limits(max_connections=None)  # waits for locks must not hold up renewals
        if url.startswith("unix:"):
            self._http = httpx.Client(
                base_url="http://refdb", transport=httpx.HTTPTransport(uds=url.removeprefix("unix:"), limits=limits), timeout=timeout
            )
            return
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ValueError(f"the server's URL: {error}") from error
        if parsed.userinfo:
            raise ValueError("the server's URL has a user or a password: the client sends the token of its file, and nothing else")
        if parsed.scheme == "https":
            context = ssl.create_default_context(cafile=ca_file)
            self._http = httpx.Client(base_url=url, verify=context, timeout=timeout, limits=limits)
        elif parsed.scheme == "http" and _is_loopback(parsed.host):
            self._http = httpx.Client(base_url=url, timeout=timeout, limits=limits, trust_env=False)  # no proxy
        else:
            raise ValueError(f"{url}: without TLS the token could be read on the network: give an https URL, or unix:/path/of/socket")

    def close(self) -> None:
        self._http.close()

    def post(self, method: str, request: JSON, timeout: float) -> JSON:
        """Makes a call, and returns the response.

        Raises FailedError if nothing was done, and OutcomeUnknownError if it is not known what was done. The
        server does not begin anything once the timeout, in seconds, has passed.
        """
        headers = {
            "Content-Type": "application/json",
            "Connect-Protocol-Version": "1",
            "Connect-Timeout-Ms": str(max(1, int(timeout * 1000))),
        }
        try:
            answer = self._http.post(
                "/refdb.v1.RefdbService/" + method,
                content=json.dumps(request),
                headers=headers,
                auth=self._token,
                timeout=httpx.Timeout(min(timeout, _CONNECT), read=timeout, write=min(timeout, _SEND)),
            )
        except _NOT_SENT as error:
            raise UnavailableError(f"the server can't be reached: {error}") from error
        except httpx.HTTPError as error:
            raise OutcomeUnknownError(f"the server did not answer: {error or type(error).__name__}") from error
        message = _object_of(answer)
        if message is not None and answer.status_code == 200:
            return message
        _raise_failure(answer.status_code, message or {})

    def events(self, parameters: dict[str, str]) -> Generator[JSON, None, None]:
        """Iterates over the messages of a stream of changes, until the connection ends.

        Raises UnavailableError and OutcomeUnknownError if connecting again may help, and other errors if not.
        """
        timeout = httpx.Timeout(_CONNECT, read=_SILENCE, write=_SEND)
        try:
            with self._http.stream("GET", "/v1/watch", params=parameters, auth=self._token, timeout=timeout) as answer:
                if answer.status_code != 200:
                    raise _STREAM_FAILURES.get(answer.status_code, OutcomeUnknownError)(f"status {answer.status_code}: {_text_of(answer)}")
                kind = ""
                for line in answer.iter_lines():
                    field, _, value = line.partition(": ")
                    if field == "event":
                        kind = value
                    elif field == "data" and kind in ("changes", "heartbeat"):
                        yield _message_of(value)
                    elif field == "data" and kind == "end":
                        end = _message_of(value)
                        raise _ENDS.get(str(end.get("code", "")), UnavailableError)(str(end.get("message", "")))
        except httpx.HTTPError as error:
            raise UnavailableError(f"the connection broke: {error or type(error).__name__}") from error


class _Token(httpx.Auth):
    """Puts the token into requests, and nowhere else where a traceback with local variables would show it."""

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self._file = file

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = "Bearer " + self._read()
        yield request

    def _read(self) -> str:
        """Reads the token, which may have been replaced. Errors don't show it."""
        try:
            with open(self._file, encoding="ascii") as file:
                token = file.read(_TOKEN + 1).strip()
        except OSError as error:
            raise UnauthenticatedError(f"the token can't be read: {error}") from error
        except UnicodeDecodeError:
            token = ""
        if re.fullmatch(r"[\x21-\x7e]+", token) and len(token) <= _TOKEN:
            return token
        del token
        raise UnauthenticatedError(f"{os.fspath(self._file)} does not have a token, of at most {_TOKEN} bytes")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _object_of(answer: httpx.Response) -> dict[str, Any] | None:
    """Returns the JSON object that the server sent; None if the answer is not the server's."""
    if answer.headers.get("Content-Type", "").split(";")[0] != "application/json":
        return None
    try:
        message = answer.json()
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _text_of(answer: httpx.Response) -> str:
    """Reads the beginning of a short text from a stream."""
    for text in answer.iter_text(300):
        return text.strip()
    return ""


def _message_of(data: str) -> JSON:
    """Returns the object in an event."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise OutcomeUnknownError("an event is of another form")
    return message


def _raise_failure(status: int, message: JSON) -> NoReturn:
    code, text = str(message.get("code", "")), str(message.get("message", ""))
    failure = _FAILURES.get((status, code))
    if (status, code) == (503, "unavailable") and "nothing was done" in text:
        failure = UnavailableError
    if failure is not None:
        raise failure(text or code)
    if code:
        raise OutcomeUnknownError(f"{code}: {text}")
    raise OutcomeUnknownError(f"an answer with the status {status} that is not refdb-server's")
