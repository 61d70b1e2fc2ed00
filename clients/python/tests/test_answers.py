"""What each answer means for a caller: the table of docs/SERVICE.md, "What an answer means"."""

from __future__ import annotations

import itertools
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from unittest import mock

from refdb_client import (
    Client,
    InvalidRequestError,
    Lock,
    LockedError,
    LostError,
    MismatchError,
    OutcomeUnknownError,
    OutOfRangeError,
    PermissionDeniedError,
    RefdbError,
    RefUpdate,
    RefusedError,
    UnauthenticatedError,
    UnavailableError,
)

from .fake import LOCK, NONE, PROXY, TOKEN, Answer, Case, Request, events, failure, ok

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
    "a past that was pruned": Row(get, [failure(400, "out_of_range")], OutOfRangeError),
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

    def test_a_wait_is_made_of_repeats_of_one_request(self) -> None:
        server = self.fake()

        def answer(request: Request) -> Answer:
            self.time.sleep(float(request.body["wait"].removesuffix("s")))
            return LOCKED

        server.rest = answer
        with self.assertRaises(LockedError):
            self.client(server).acquire("p", "r", lease=3600, wait=70)
        self.assertEqual(["30.000s", "30.000s", "10.000s"], [r.body.pop("wait") for r in server.requests])
        self.assertEqual(1, len({str(r.body) for r in server.requests}))

    def test_a_wait_does_not_use_up_the_lease(self) -> None:
        server = self.fake(LOCKED, ok(acquired={"lock": LOCK}))
        self.client(server).acquire("p", "r", lease=30, wait=70)
        self.assertEqual("10.000s", server.requests[0].body["wait"])

    def test_a_refusal_after_a_wait_says_that_an_attempt_had_no_answer(self) -> None:
        server = self.fake(NONE, LOCKED)

        def answer(request: Request) -> Answer:
            self.time.sleep(30)
            return LOCKED

        server.rest = answer
        with self.assertRaises(LockedError) as caught:
            self.client(server).acquire("p", "r", lease=3600, wait=60)
        self.assertTrue(caught.exception.earlier_unknown)

    def test_a_wait_that_gets_no_answer_is_repeated(self) -> None:
        server = self.fake()

        def answer(request: Request) -> Answer:
            if len(server.requests) > 1:
                return ok(acquired={"lock": LOCK})
            self.time.sleep(65)
            return NONE

        server.rest = answer
        self.assertEqual(HELD, self.client(server).acquire("p", "r", wait=60).lock)
        self.assertEqual(2, len(server.requests))

    def test_a_process_goes_on_with_the_request_of_an_earlier_one(self) -> None:
        server = self.fake(ok(acquired={"lock": LOCK}))
        server.always(ok(acquired={"lock": LOCK}, released={}))
        client = self.client(server)
        client.acquire("p", "r", request_id="of-an-earlier-process")
        with client.lock("p", "r", request_id="of-an-earlier-process"), client.lease("p", "n", request_id="of-an-earlier-process"):
            pass
        ids = [r.body["requestId"] for r in server.requests if r.method == "Acquire"]
        self.assertEqual(["of-an-earlier-process"] * 3, ids)

    def test_an_answer_of_another_form_says_nothing_about_what_was_done(self) -> None:
        parts: tuple[object, ...] = ({}, {"lock": {}}, {"lock": LOCK | {"token": "x"}}, {"lock": LOCK, "values": [7]}, 7, None)
        for part in parts:
            with self.subTest(part), self.assertRaises(OutcomeUnknownError):
                acquire(self.client(self.fake(ok(acquired=part)), retry_for=0))
        for answer in (ok(locked=7), ok(mismatched={"mismatches": [{}]}), ok(lost=[]), ok(unknown=None), ok(updated=7)):
            with self.subTest(answer.content), self.assertRaises(OutcomeUnknownError):
                update(self.client(self.fake(answer), retry_for=0))
        for answer in (ok(refs=7), ok(refs=[{}]), ok(refs=[{"name": "r", "time": "then"}])):
            with self.subTest(answer.content), self.assertRaises(UnavailableError):
                get(self.client(self.fake(answer), retry_for=0))

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


    def test_the_past_is_read_as_of_one_position(self) -> None:
        server = self.fake(ok(refs=[{"name": "a"}], nextPageToken="a", position="7"), ok(refs=[{"name": "b"}], position="7"))
        self.assertEqual(["a", "b"], list(self.client(server).at("p", datetime(2026, 1, 31, tzinfo=timezone.utc))))
        first, second = (r.body for r in server.requests)
        self.assertEqual(("2026-01-31T00:00:00+00:00", "7", "a"), (first["time"], second["position"], second["pageToken"]))
        with self.assertRaises(ValueError):
            self.client(server).at("p", datetime(2026, 1, 31))

    def test_the_log_has_all_pages(self) -> None:
        one = {"ref": "a", "new": "1", "position": "8", "by": "ci"}
        server = self.fake(ok(changes=[one], nextPageToken="8"), ok(nextPageToken="7"), ok(changes=[{"ref": "b", "old": "1", "position": "6"}]))
        first, second = self.client(server).log("p")
        self.assertEqual((8, "ci", 6, "1"), (first.position, first.by, second.position, second.old))


CHANGES = {"changes": [{"ref": "a", "new": "1", "position": "8"}], "cursor": "c1"}


class Watches(Case):
    def setUp(self) -> None:
        super().setUp()
        self.time = Time()
        for name, value in {"refdb_client.clock.now": self.time.now, "refdb_client.client.time.sleep": self.time.sleep}.items():
            patch = mock.patch(name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_watch_goes_on_from_its_last_cursor(self) -> None:
        breaks = {
            "the connection ends": [events(("changes", CHANGES))],
            "the server stops": [events(("changes", CHANGES), ("end", {"code": "unavailable"}))],
            "the token expires": [events(("changes", CHANGES), ("end", {"code": "unauthenticated"}))],
            "no answer": [events(("changes", CHANGES)), NONE, PROXY],
            "another form": [events(("changes", CHANGES), ("changes", 7))],
            "too many streams": [events(("changes", CHANGES)), Answer(429, "too many", "text/plain")],
        }
        for name, answers in breaks.items():
            with self.subTest(name):
                server = self.fake(*answers, events(("heartbeat", {"cursor": "c2"})))
                got = list(itertools.islice(self.client(server).watch("p", "a", "c0"), 2))
                self.assertEqual([("a", 8)], [(c.ref, c.position) for c in got[0].changes])
                self.assertEqual(["c1", "c2"], [batch.cursor for batch in got])
                cursors = [r.body["cursor"] for r in server.requests]
                self.assertEqual(["c0"] + ["c1"] * len(answers), cursors)

    def test_a_watch_ends_with_a_type(self) -> None:
        ends: dict[str, tuple[list[Answer], type[RefdbError]]] = {
            "the cursor is too old": ([events(("heartbeat", {}), ("end", {"code": "out_of_range"}))], OutOfRangeError),
            "the rule was removed": ([events(("end", {"code": "permission_denied"}))], PermissionDeniedError),
            "the token was revoked": ([events(("end", {"code": "unauthenticated"})), Answer(401, "no", "text/plain")], UnauthenticatedError),
            "an invalid cursor": ([Answer(400, "the cursor", "text/plain")], InvalidRequestError),
            "nobody answers": ([], UnavailableError),
        }
        for name, (answers, raises) in ends.items():
            with self.subTest(name):
                server = self.fake(*answers)
                server.always(PROXY)
                began = self.time.t
                with self.assertRaises(raises) as caught:
                    for _ in self.client(server).watch("p"):
                        pass
                self.assertIs(raises, type(caught.exception))
                self.assertLessEqual(self.time.t - began, 60)


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
        for text in ("", TOKEN + "\n" + TOKEN, TOKEN + "\x00", TOKEN + "é", TOKEN * 400):
            with open(self.token_file.name, "w") as file:
                file.write(text)
            try:  # assertRaises would clear the local variables
                client.get("p", "r")
                self.fail("it is sent")
            except UnauthenticatedError as error:
                self.assertIn(self.token_file.name, str(error))
                frames = [f for f, _ in traceback.walk_tb(error.__traceback__) if "/refdb_client/" in f.f_code.co_filename]
                self.assertGreater(len(frames), 3)
                self.assertNotIn(TOKEN, "".join(traceback.format_exception(error)) + "".join(repr(f.f_locals) for f in frames))

    def test_a_long_token_is_sent_whole(self) -> None:
        server = self.fake(ok(refs=[]))
        with open(self.token_file.name, "w") as file:
            file.write("j" * 8192)
        self.client(server).get("p", "r")
        self.assertEqual("Bearer " + "j" * 8192, server.requests[0].headers["Authorization"])

    def test_nothing_but_the_token_is_sent(self) -> None:
        for url in ("https://user:password@refdb.example.com", "http://user@127.0.0.1:1"):
            with self.assertRaisesRegex(ValueError, "password") as caught:
                Client(url, token_file=self.token_file.name)
            self.assertNotIn("user:", str(caught.exception))
        with self.assertRaises(ValueError):
            Client("https://a:b", token_file=self.token_file.name)

    def test_no_token_crosses_a_network_in_plain_text(self) -> None:
        for url in ("http://refdb.example.com", "http://10.0.0.1:9480", "ftp://localhost", "refdb.example.com"):
            with self.assertRaisesRegex(ValueError, "without TLS"):
                Client(url, token_file=self.token_file.name)
        for url in ("http://localhost:1", "http://127.0.0.2:1", "http://[::1]:1", "https://refdb.example.com", "unix:/refdb.sock"):
            Client(url, token_file=self.token_file.name).close()
