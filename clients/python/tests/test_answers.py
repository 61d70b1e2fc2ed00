"""What each answer means for a caller: the table of docs/SERVICE.md, "What an answer means"."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest import mock

from refdb_client import (
    Client,
    InvalidRequestError,
    Lock,
    LockedError,
    LostError,
    MismatchError,
    OutcomeUnknownError,
    PermissionDeniedError,
    RefdbError,
    RefUpdate,
    RefusedError,
    UnauthenticatedError,
    UnavailableError,
)

from .fake import LOCK, NONE, PROXY, TOKEN, Answer, Case, Request, failure, ok

HELD = Lock("p", ("r",), "/ci/x", 7)
NOT_DONE = failure(503, "unavailable", "the database does not answer: nothing was done")
UNCLEAR = failure(503, "unavailable", "upstream reset")
UNKNOWN = ok(unknown={"advice": "read, and decide"})
LOCKED = ok(locked={"holders": [{"ref": "r", "owner": "/other/x", "subject": "other", "age": "1.5s", "staleAfter": "60s"}]})


def update(c: Client) -> None:
    c.update("p", [RefUpdate("r", "", "1" * 40)])


def release(c: Client) -> None:
    c.release(HELD)


def extend(c: Client) -> None:
    c.extend(HELD)


def acquire(c: Client) -> None:
    c.acquire("p", "r")


def get(c: Client) -> None:
    c.get("p", "r")


@dataclass
class Row:
    """A call, the answers that it gets, and what it raises after how many requests."""

    call: Callable[[Client], None]
    answers: list[Answer]
    raises: type[RefdbError] | None = None
    requests: int = 1
    earlier_unknown: bool = False
    rest: Answer | None = field(default=None)  # what all further requests get


ROWS = {
    "done": Row(update, [ok(updated={})]),
    "done with an empty result": Row(release, [ok(released={})]),
    "refs are locked": Row(update, [LOCKED], LockedError),
    "refs have other values": Row(update, [ok(mismatched={"mismatches": [{"ref": "r", "value": "2"}]})], MismatchError),
    "the lock is lost": Row(extend, [ok(lost={"refs": ["r"]})], LostError),
    "no token": Row(update, [failure(401, "unauthenticated")], UnauthenticatedError),
    "no right": Row(update, [failure(403, "permission_denied")], PermissionDeniedError),
    "an invalid request": Row(update, [failure(400, "invalid_argument")], InvalidRequestError),
    "a frozen project": Row(update, [failure(400, "failed_precondition")], InvalidRequestError),
    "nothing was done, then done": Row(update, [NOT_DONE, NOT_DONE, ok(updated={})], requests=3),
    "too many calls, then done": Row(update, [failure(429, "resource_exhausted"), ok(updated={})], requests=2),
    "no answer, then done": Row(update, [NONE, ok(updated={"repeatedRequest": True})], requests=2),
    "a proxy's answer, then done": Row(acquire, [PROXY, ok(acquired={"lock": LOCK, "leaseTime": "60s"})], requests=2),
    "a proxy's page with status 200, then done": Row(update, [Answer(200, "<html>", "text/html"), ok(updated={})], requests=2),
    "unknown, then done": Row(update, [UNKNOWN, ok(updated={})], requests=2),
    "an internal error, then done": Row(extend, [failure(500, "internal"), ok(extended={})], requests=2),
    "a result of a later version, then done": Row(update, [ok(postponed={}), ok(updated={})], requests=2),
    "no answer, then refused": Row(update, [NONE, LOCKED], LockedError, 2, earlier_unknown=True),
    "nothing was done, then refused": Row(update, [NOT_DONE, LOCKED], LockedError, 2),
    "unavailable by somebody else, then refused": Row(update, [UNCLEAR, LOCKED], LockedError, 2, earlier_unknown=True),
    "no answer, then no token": Row(update, [NONE, failure(401, "unauthenticated")], OutcomeUnknownError, 2),
    "never anything": Row(update, [], UnavailableError, -1, rest=NOT_DONE),
    "never an answer": Row(update, [], OutcomeUnknownError, -1, rest=NONE),
    "no answer, then never anything": Row(update, [NONE], OutcomeUnknownError, -1, rest=NOT_DONE),
    "a read without an answer, then done": Row(get, [NONE, ok(refs=[])], requests=2),
    "a read without an answer, then no token": Row(get, [NONE, failure(401, "unauthenticated")], UnauthenticatedError, 2),
    "a read never answered": Row(get, [], UnavailableError, -1, rest=PROXY),
}


class Time:
    """A time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.t = 1000.0

    def now(self) -> float:
        return self.t

    def sleep(self, seconds: float) -> None:
        self.t += seconds


class Answers(Case):
    def setUp(self) -> None:
        super().setUp()
        self.time = Time()
        for name, value in {"refdb_client.clock.now": self.time.now, "refdb_client.client.time.sleep": self.time.sleep}.items():
            patch = mock.patch(name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_each_answer(self) -> None:
        for name, row in ROWS.items():
            with self.subTest(name):
                server = self.fake(*row.answers)
                if row.rest is not None:
                    server.always(row.rest)
                client = self.client(server)
                began, raised = self.time.t, None
                try:
                    row.call(client)
                except RefdbError as error:
                    raised = error
                self.assertIs(row.raises, None if raised is None else type(raised), raised)
                if row.requests >= 0:
                    self.assertEqual(row.requests, len(server.requests))
                else:
                    self.assertGreater(len(server.requests), 5)
                    self.assertLessEqual(self.time.t - began, 60)
                if isinstance(raised, RefusedError):
                    self.assertEqual(row.earlier_unknown, raised.earlier_unknown)
                self.assertEqual(1, len({str(r.body) for r in server.requests}), "a repeat differs")

    def test_a_server_that_is_away_has_done_nothing(self) -> None:
        server = self.fake()
        client = self.client(server)
        server.close()
        with self.assertRaises(UnavailableError):
            update(client)

    def test_updates_and_acquisitions_have_request_ids_of_their_own(self) -> None:
        server = self.fake(ok(updated={}), ok(updated={}), ok(acquired={"lock": LOCK}), ok(updated={}))
        client = self.client(server)
        update(client)
        update(client)
        acquire(client)
        client.update("p", [RefUpdate("r", "1", "2")], request_id="of-an-earlier-process")
        ids = [r.body["requestId"] for r in server.requests]
        self.assertEqual(4, len(set(ids)))
        self.assertEqual("of-an-earlier-process", ids[3])

    def test_a_refusal_names_the_holders(self) -> None:
        with self.assertRaisesRegex(LockedError, "r by other") as caught:
            acquire(self.client(self.fake(LOCKED)))
        (holder,) = caught.exception.holders
        self.assertEqual(("/other/x", 1.5, 60.0, False), (holder.owner, holder.age, holder.stale_after, holder.pending_change))

    def test_a_lease_counts_from_before_the_answered_request_was_sent(self) -> None:
        server = self.fake(NONE)

        def answer(request: Request) -> Answer:
            self.time.sleep(20)
            return ok(acquired={"lock": LOCK})

        server.rest = answer
        acquired = self.client(server).acquire("p", "r")
        self.assertEqual(self.time.t - 20, acquired.sent)

    def test_a_wait_is_made_of_requests_of_at_most_30_seconds_with_ids_of_their_own(self) -> None:
        server = self.fake()

        def answer(request: Request) -> Answer:
            self.time.sleep(float(request.body["wait"].removesuffix("s")))
            return LOCKED

        server.rest = answer
        with self.assertRaises(LockedError):
            self.client(server).acquire("p", "r", wait=70)
        self.assertEqual(["30.000s", "30.000s", "10.000s"], [r.body["wait"] for r in server.requests])
        self.assertEqual(3, len({r.body["requestId"] for r in server.requests}))

    def test_a_server_that_ends_waits_at_once_is_not_flooded(self) -> None:
        server = self.fake()
        server.always(LOCKED)
        with self.assertRaises(LockedError):
            self.client(server).acquire("p", "r", wait=10)
        self.assertLessEqual(len(server.requests), 102)

    def test_the_server_learns_when_the_client_gives_up(self) -> None:
        server = self.fake(LOCKED)
        with self.assertRaises(LockedError):
            self.client(server).acquire("p", "r")
        self.assertEqual("35000", server.requests[0].headers["Connect-Timeout-Ms"])

    def test_a_list_has_all_pages(self) -> None:
        one = {"name": "a", "value": "1", "time": "2026-01-31T12:00:00.123456789Z"}
        server = self.fake(ok(refs=[one], nextPageToken="a"), ok(refs=[{"name": "b"}]))
        first, second = self.client(server).list("p")
        self.assertEqual(("a", "1", "b", ""), (first.name, first.value, second.name, second.value))
        self.assertIsNotNone(first.time)
        self.assertEqual(["", "a"], [r.body["pageToken"] for r in server.requests])


class Secrets(Case):
    def test_the_token_is_sent_and_shown_nowhere(self) -> None:
        server = self.fake(ok(refs=[]), failure(401, "unauthenticated", "unknown token"))
        client = self.client(server)
        with self.assertLogs(level=logging.DEBUG) as logged:
            client.get("p", "r")
            with self.assertRaises(UnauthenticatedError) as caught:
                client.get("p", "r")
        self.assertEqual("Bearer " + TOKEN, server.requests[0].headers["Authorization"])
        shown = repr(client) + repr(vars(client)) + "".join(logged.output) + "".join(traceback.format_exception(caught.exception))
        self.assertNotIn(TOKEN, shown)

    def test_a_token_that_was_replaced_is_read_again(self) -> None:
        server = self.fake(ok(refs=[]), ok(refs=[]))
        client = self.client(server)
        client.get("p", "r")
        with open(self.token_file.name, "w") as file:
            file.write("refdb_another")
        client.get("p", "r")
        self.assertEqual("Bearer refdb_another", server.requests[1].headers["Authorization"])

    def test_a_file_without_a_token_is_named_and_not_shown(self) -> None:
        client = self.client(self.fake())
        for text in ("", TOKEN + "\n" + TOKEN, TOKEN + "\x00", TOKEN + "é"):
            with open(self.token_file.name, "w") as file:
                file.write(text)
            with self.assertRaisesRegex(UnauthenticatedError, re.escape(self.token_file.name)) as caught:
                client.get("p", "r")
            self.assertNotIn(TOKEN, "".join(traceback.format_exception(caught.exception)))

    def test_no_token_crosses_a_network_in_plain_text(self) -> None:
        for url in ("http://refdb.example.com", "http://10.0.0.1:9480", "ftp://localhost", "refdb.example.com"):
            with self.assertRaisesRegex(ValueError, "without TLS"):
                Client(url, token_file=self.token_file.name)
        for url in ("http://localhost:1", "http://127.0.0.2:1", "http://[::1]:1", "https://refdb.example.com", "unix:/refdb.sock"):
            Client(url, token_file=self.token_file.name).close()
