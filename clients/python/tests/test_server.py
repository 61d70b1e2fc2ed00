"""The calls, against a real server."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import partial
from unittest import mock

from refdb_client import (
    DELETED,
    Client,
    InvalidRequestError,
    LockedError,
    LostError,
    MismatchError,
    OutcomeUnknownError,
    OutOfRangeError,
    PermissionDeniedError,
    Ref,
    RefUpdate,
    UnauthenticatedError,
    clock,
)
from refdb_client.messages import JSON
from refdb_client.transport import Transport

from .real import PATIENCE, Case, Server

ONE, TWO, THREE = "1" * 40, "2" * 40, "3" * 40
MAIN = "refs/heads/main"
DEPLOY = "refs/locks/deploy"


class Calls(Case):
    def setUp(self) -> None:
        super().setUp()
        self.put("p", MAIN, ONE)
        self.ci = self.subject("ci", ("lock", "p", "*"), ("write", "p", "*"))
        self.other = self.subject("other", ("lock", "p", "*"))
        self.third = self.subject("third", ("lock", "p", "*"))
        self.reader = self.subject("reader", ("read", "p", "refs/heads/*"))
        self.server = self.serve()

    def client(self, token_file: object, server: Server | None = None) -> Client:
        client = Client((server or self.server).url, token_file=str(token_file))
        self.addCleanup(client.close)
        return client

    def answers(self, client: Client) -> list[JSON]:
        """Returns a list to which the answers to the client are added."""
        post, answers = client._transport.post, list[JSON]()

        def send(method: str, request: JSON, timeout: float) -> JSON:
            answer = post(method, request, timeout)
            answers.append(answer)
            return answer

        patch = mock.patch.object(client._transport, "post", send)
        patch.start()
        self.addCleanup(patch.stop)
        return answers

    def await_(self, what: str, met: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not met():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.01)

    def test_refs_are_read_and_updated(self) -> None:
        ci = self.client(self.ci)
        refs = ci.get("p", MAIN, "refs/heads/none")
        self.assertEqual((ONE, ""), (refs[MAIN].value, refs["refs/heads/none"].value))
        self.assertIsNotNone(refs[MAIN].time)
        ci.update("p", [RefUpdate(MAIN, ONE, TWO), RefUpdate("refs/heads/new", "", ONE)])
        with self.assertRaises(MismatchError) as caught:
            ci.update("p", [RefUpdate(MAIN, ONE, THREE)])
        self.assertEqual([(MAIN, ONE, TWO)], [(m.ref, m.expected, m.value) for m in caught.exception.mismatches])
        ci.update("p", [RefUpdate("refs/heads/new", ONE, DELETED)])
        self.assertEqual([(MAIN, TWO)], [(r.name, r.value) for r in ci.list("p", "refs/heads/")])
        self.assertTrue(ci.is_up_to_date("p", MAIN, TWO))
        self.assertFalse(ci.is_up_to_date("p", MAIN, ONE))

    def test_a_repeated_update_is_made_once(self) -> None:
        ci, request = self.client(self.ci), "of-this-test-alone"
        ci.update("p", [RefUpdate(MAIN, ONE, TWO)], request_id=request)
        ci.update("p", [RefUpdate(MAIN, TWO, ONE)])
        ci.update("p", [RefUpdate(MAIN, ONE, TWO)], request_id=request)
        self.assertEqual(ONE, ci.get("p", MAIN)[MAIN].value)

    def test_a_list_has_all_pages(self) -> None:
        ci = self.client(self.ci)
        names = [f"refs/heads/b{n:04}" for n in range(1500)]
        for page in (names[:1000], names[1000:]):
            ci.update("p", [RefUpdate(name, "", ONE) for name in page])
        self.assertEqual(names, [r.name for r in ci.list("p", "refs/heads/b")])

    def test_failures_have_their_types(self) -> None:
        reader, wrong = self.client(self.reader), self.dir / "wrong"
        with self.assertRaises(PermissionDeniedError):
            reader.get("q", MAIN)
        with self.assertRaises(PermissionDeniedError):
            with reader.lock("p", DEPLOY):
                pass
        with self.assertRaises(InvalidRequestError):
            self.client(self.ci).acquire("p", DEPLOY, lease=0.1)
        wrong.write_text("refdb_wrong")
        with self.assertRaises(UnauthenticatedError):
            self.client(wrong).get("p", MAIN)
        self.assertIsInstance(reader.get("p", MAIN)[MAIN], Ref)

    def test_one_client_has_a_lock_at_a_time(self) -> None:
        ci, other = self.client(self.ci), self.client(self.other)
        with ci.lock("p", DEPLOY, MAIN, lease=3600) as lock:
            self.assertEqual(ONE, lock.values[MAIN].value)
            with self.assertRaises(LockedError) as caught:
                with other.lock("p", DEPLOY, wait=0):
                    pass
            self.assertEqual([(DEPLOY, "ci")], [(h.ref, h.subject) for h in caught.exception.holders])
            lock.update([RefUpdate(MAIN, ONE, TWO)])
            first = lock.token
        with other.lock("p", DEPLOY, lease=3600, wait=0) as lock:
            self.assertGreater(lock.token, first)

    def test_a_lock_is_waited_for(self) -> None:
        ci, other = self.client(self.ci), self.client(self.other)
        order = []

        def wait() -> None:
            with other.lock("p", DEPLOY, lease=3600):
                order.append("other")

        with mock.patch("refdb_client.client._LONGEST_WAIT", 0.2), ThreadPoolExecutor() as threads:
            with ci.lock("p", DEPLOY, lease=3600):
                answers = self.answers(other)
                waiting = threads.submit(wait)
                self.await_("it waits", lambda: len(answers) > 0)
                order.append("ci")
            waiting.result(PATIENCE)
        self.assertEqual(["ci", "other"], order)

    def test_a_client_that_waits_in_several_requests_has_one_place(self) -> None:
        ci = self.client(self.ci)
        waiting = {"other": self.client(self.other), "third": self.client(self.third)}
        held = []

        def wait(name: str) -> None:
            with waiting[name].lock("p", DEPLOY, lease=3600):
                held.append(name)

        with mock.patch("refdb_client.client._LONGEST_WAIT", 0.2), ThreadPoolExecutor() as threads:
            with ci.lock("p", DEPLOY, lease=3600):
                asked = {name: self.answers(client) for name, client in waiting.items()}
                ends = [threads.submit(wait, name) for name in waiting]
                self.await_("both have repeated their requests", lambda: all(len(answers) >= 3 for answers in asked.values()))
                with sqlite3.connect(self.dir / "refs.db") as database:
                    ((places,),) = database.execute("SELECT waiting FROM locks WHERE ref = ?", (DEPLOY,))
                self.assertEqual(2, len(json.loads(places)), places)
            for end in ends:
                end.result(PATIENCE)
        self.assertEqual(["other", "third"], sorted(held))

    def test_a_client_that_waits_finds_the_lock_of_its_delayed_request(self) -> None:
        ci, other = self.client(self.ci), self.client(self.other)
        held = ci.acquire("p", DEPLOY, lease=3600)
        delayed: list[JSON] = []
        post = Transport.post

        def send(transport: Transport, method: str, request: JSON, timeout: float) -> JSON:
            if not delayed:
                delayed.append(request)
                raise OutcomeUnknownError("no answer")
            if len(delayed) == 1 and request["wait"] == "0.300s":  # the second request
                delayed.append(request)
            elif len(delayed) == 2:  # before the third request, the first one arrives
                ci.release(held.lock)
                delayed.append(post(other._transport, method, delayed[0], timeout))
            return post(transport, method, request, timeout)

        with mock.patch("refdb_client.client._LONGEST_WAIT", 0.3), mock.patch.object(other._transport, "post", partial(send, other._transport)):
            acquired = other.acquire("p", DEPLOY, lease=3600, wait=PATIENCE)
        self.assertEqual(delayed[2]["acquired"]["lock"]["token"], str(acquired.lock.token))

    def test_an_update_under_a_lost_lock_changes_nothing(self) -> None:
        ci = self.client(self.ci)
        lost = threading.Event()
        with self.assertRaises(LostError):
            with ci.lock("p", MAIN, lease=3600, on_lost=lambda lock: lost.set()) as lock:
                ci.release(lock.lock)  # as an operator would end it
                with self.assertRaises(LostError):
                    lock.update([RefUpdate(MAIN, ONE, TWO)])
        self.assertTrue(lost.wait(PATIENCE))
        self.assertEqual(ONE, ci.get("p", MAIN)[MAIN].value)

    def test_an_update_releases_its_lock(self) -> None:
        ci, other = self.client(self.ci), self.client(self.other)
        with ci.lock("p", MAIN, lease=3600) as lock:
            lock.update_and_release([RefUpdate(MAIN, ONE, TWO)])
            other.release(other.acquire("p", MAIN).lock)

    def test_a_lock_outlives_its_server(self) -> None:
        second = self.serve("second")
        ci = self.client(self.ci)
        acquired = ci.acquire("p", DEPLOY, lease=3600)
        self.server.kill()
        there = self.client(self.ci, second)
        there.extend(acquired.lock)
        there.release(acquired.lock)

    def test_calls_go_on_after_a_restart_of_the_server(self) -> None:
        ci = self.client(self.ci)
        with ci.lock("p", DEPLOY, lease=3600) as lock:
            self.assertEqual(0, self.server.stop())
            with ThreadPoolExecutor() as threads:
                extended = threads.submit(ci.extend, lock.lock)
                self.server = self.serve()
                extended.result(PATIENCE)

    def test_a_lock_is_renewed(self) -> None:
        ci, passed = self.client(self.ci), 0.0
        now = clock.now
        with mock.patch("refdb_client.clock.now", lambda: now() + passed):
            with ci.lock("p", DEPLOY, lease=3600) as lock:
                answers = self.answers(ci)
                passed = 1000
                self.await_("it is renewed", lambda: len(answers) > 0 and lock.remaining() > 2000)
                self.assertEqual([{"extended": {}}], answers)

    def test_leases_exclude_each_other_by_their_modes(self) -> None:
        ci, other = self.client(self.ci), self.client(self.other)
        with ci.lease("p", "nightly", shared=True) as first, other.lease("p", "nightly", shared=True, wait=0):
            with self.assertRaises(LockedError):
                with other.lease("p", "nightly", wait=0):
                    self.fail("it is exclusive")
            first.update([RefUpdate(MAIN, ONE, TWO)])
        with other.lease("p", "nightly", wait=PATIENCE), self.assertRaises(LockedError):
            with ci.lease("p", "nightly", shared=True, wait=0):
                self.fail("the other one is exclusive")

    def test_the_history_is_read(self) -> None:
        ci = self.client(self.ci)
        ci.update("p", [RefUpdate(MAIN, ONE, TWO), RefUpdate("refs/heads/new", "", ONE)])
        ci.update("p", [RefUpdate(MAIN, TWO, THREE)])
        latest, before, first = ci.log("p", MAIN)
        self.assertEqual([(TWO, THREE, "ci"), (ONE, TWO, "ci")], [(c.old, c.new, c.by) for c in (latest, before)])
        self.assertEqual(4, len(list(ci.log("p"))))
        self.assertEqual(TWO, ci.at("p", before.position, MAIN)[MAIN].value)
        self.assertEqual({MAIN: TWO, "refs/heads/new": ONE}, {r.name: r.value for r in ci.at("p", before.position, prefix="refs/h").values()})
        assert latest.time is not None
        self.assertEqual(THREE, ci.at("p", latest.time, MAIN)[MAIN].value)
        with self.assertRaises(OutOfRangeError):
            ci.at("p", datetime(2001, 1, 1, tzinfo=timezone.utc), MAIN)

    def test_changes_are_followed_through_another_server(self) -> None:
        second = self.serve("second")
        ci, there = self.client(self.ci), self.client(self.ci, second)
        watch = ci.watch("p", cursor="begin")
        seen = next(batch for batch in watch if batch.changes)
        self.assertEqual([(MAIN, ONE)], [(c.ref, c.new) for c in seen.changes])
        there.update("p", [RefUpdate(MAIN, ONE, TWO)])
        following = there.watch("p", cursor=seen.cursor)
        self.addCleanup(watch.close)
        self.addCleanup(following.close)
        for changes in (watch, following):
            self.assertEqual([TWO], [c.new for c in next(batch for batch in changes if batch.changes).changes])
        self.assertEqual(0, self.server.stop())
        there.update("p", [RefUpdate(MAIN, TWO, THREE)])
        self.server = self.serve()
        for changes in (watch, following):
            self.assertEqual([THREE], [c.new for c in next(batch for batch in changes if batch.changes).changes])

    def test_a_watch_from_a_cursor_of_another_database_ends(self) -> None:
        with self.assertRaises((InvalidRequestError, OutOfRangeError)):
            list(self.client(self.ci).watch("p", cursor="nonsense"))
        with self.assertRaises(PermissionDeniedError):
            list(self.client(self.reader).watch("q"))
