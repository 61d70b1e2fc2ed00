"""One attempt to make a call, and what its answer says about what was done."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import ssl
from typing import Any, NoReturn

import httpx

from .errors import (
    FailedError,
    InvalidRequestError,
    OutcomeUnknownError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from .messages import JSON

# For connecting, and for sending a request, in seconds.
_CONNECT = 10.0
_SEND = 20.0

_FAILURES: dict[tuple[int, str], type[FailedError]] = {
    (401, "unauthenticated"): UnauthenticatedError,
    (403, "permission_denied"): PermissionDeniedError,
    (400, "invalid_argument"): InvalidRequestError,
    (400, "failed_precondition"): InvalidRequestError,
    (429, "resource_exhausted"): UnavailableError,
}

# The errors that httpx raises before it has sent anything.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)


class Transport:
    """The connections to a server. Its methods may be called by any thread."""

    def __init__(self, url: str, token_file: str | os.PathLike[str], ca_file: str | os.PathLike[str] | None) -> None:
        self._token_file = token_file
        timeout = httpx.Timeout(_CONNECT, write=_SEND)
        limits = httpx.Limits(max_connections=None)  # waits for locks must not hold up renewals
        if url.startswith("unix:"):
            self._http = httpx.Client(
                base_url="http://refdb", transport=httpx.HTTPTransport(uds=url.removeprefix("unix:"), limits=limits), timeout=timeout
            )
            return
        parsed = httpx.URL(url)
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
            "Authorization": "Bearer " + self._token(),
            "Content-Type": "application/json",
            "Connect-Protocol-Version": "1",
            "Connect-Timeout-Ms": str(max(1, int(timeout * 1000))),
        }
        try:
            answer = self._http.post(
                "/refdb.v1.RefdbService/" + method,
                content=json.dumps(request),
                headers=headers,
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

    def _token(self) -> str:
        """Reads the token, which may have been replaced. Errors don't show it."""
        try:
            with open(self._token_file, encoding="ascii") as file:
                token = file.read(4096).strip()
        except OSError as error:
            raise UnauthenticatedError(f"the token can't be read: {error}") from error
        except UnicodeDecodeError:
            token = ""
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise UnauthenticatedError(f"{os.fspath(self._token_file)} does not have a token")
        return token


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
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


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
