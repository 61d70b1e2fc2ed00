"""Locks that a client holds, under a clock that the test moves."""

from __future__ import annotations

import os
import sys
import threading
import time
import unittest
from collections.abc import Callable
from unittest import mock

from refdb_client import (
    DELETED,
    Acquired,
    Client,
    ForkedError,
    HeldLock,
    Lock,
    LostError,
    MismatchError,
    OutcomeUnknownError,
    RefUpdate,
    clock,
)

from .fake import LOCK, NONE, Answer, Case, Request, failure, ok

PATIENCE = 120.0  # only a test that fails reaches it
HELD = Lock("p", ("r",), "/ci/x", 7)
LEASE = 3600.0
STANDS = 0.8 * LEASE  # for so long a lease stands by the client's clock
RENEWED = STANDS / 3  # after so long it is renewed

ACQUIRED = ok(acquired={"lock": LOCK, "values": [{"name": "r", "value": "1"}], "leaseTime": "3600s"})
EXTENDED = ok(extended={})
RELEASED = ok(released={})
LOST = ok(lost={"refs": ["r"]})
DOWN = failure(503, "unavailable", "nothing was done")


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.t = 1000.0

    def now(self) -> float:
        return self.t


class Locks(Case):
    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        patch = mock.patch("refdb_client.clock.now", self.clock.now)
        patch.start()
        self.addCleanup(patch.stop)
        self.lost: list[HeldLock] = []
        self.extend = EXTENDED  # the answer to each Extend
        self.update = ok(updated={})
        self.release = RELEASED
        self.server = self.fake()
        self.server.rest = self.answer

    def answer(self, request: Request) -> Answer:
        answers = {"Acquire": ACQUIRED, "Extend": self.extend, "Update": self.update, "Release": self.release}
        return answers[request.method]

    def held(self, lease: float = LEASE) -> HeldLock:
        return self.client(self.server, retry_for=0).lock("p", "r", lease=lease, on_lost=self.lost.append)

    def await_(self, what: str, met: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not met():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.01)

    def sent(self, method: str) -> int:
        return [r.method for r in self.server.requests].count(method)

    def test_a_lock_is_acquired_renewed_and_released(self) -> None:
        with self.held() as lock:
            self.assertEqual(("p", ("r",), 7, "1"), (lock.lock.project, lock.lock.refs, lock.token, lock.values["r"].value))
            self.assertEqual(STANDS, lock.remaining())
            for n in (1, 2, 3):
                self.clock.t += RENEWED
                self.await_("it is renewed", lambda: self.sent("Extend") == n and lock.remaining() == STANDS)
            lock.check()
        self.assertEqual(1, self.sent("Release"))
        self.assertEqual(0, lock.remaining())
        self.assertEqual([], self.lost)

    def test_failures_are_repeated_until_the_lease_ends(self) -> None:
        self.extend = DOWN
        with self.held() as lock:
            self.clock.t += RENEWED
            self.await_("it is tried", lambda: self.sent("Extend") == 1)
            self.assertEqual(STANDS - RENEWED, lock.remaining())
            self.extend = EXTENDED

            def renewed() -> bool:
                self.clock.t += 1  # when it is tried again depends on when the failure came
                return lock.remaining() > STANDS - RENEWED

            self.await_("it is renewed", renewed)
        self.assertEqual([], self.lost)

    def test_a_lock_that_is_not_renewed_in_time_is_lost_and_stays_lost(self) -> None:
        for name, answer in {"no answer": NONE, "nothing was done": DOWN, "no right": failure(403, "permission_denied")}.items():
            with self.subTest(name):
                self.extend = answer
                lost, releases = len(self.lost), self.sent("Release")
                with self.assertRaises(LostError):
                    with self.held() as lock:
                        self.clock.t += STANDS - 1
                        lock.check()
                        self.clock.t += 1
                        with self.assertRaises(LostError):
                            lock.check()
                        self.await_("on_lost is called", lambda: len(self.lost) == lost + 1)
                        self.extend = EXTENDED
                        with self.assertRaises(LostError):
                            lock.update([RefUpdate("r", "1", DELETED)])
                        self.assertEqual(0, lock.remaining())
                self.assertEqual(releases, self.sent("Release"))
                self.assertIs(lock, self.lost[-1])
        self.assertEqual(0, self.sent("Update"))

    def test_an_answer_that_comes_after_the_lease_revives_nothing(self) -> None:
        arrived, go_on = threading.Event(), threading.Event()

        def answer(request: Request) -> Answer:
            if request.method == "Extend":
                arrived.set()
                go_on.wait(PATIENCE)
            return self.answer(request)

        self.server.rest = answer
        with self.assertRaises(LostError):
            with self.held() as lock:
                self.clock.t += RENEWED
                self.assertTrue(arrived.wait(PATIENCE))
                self.clock.t += STANDS
                self.await_("on_lost is called although the request hangs", lambda: self.lost == [lock])
                go_on.set()
                self.await_("the answer is read", lambda: not any("renews" in t.name for t in threading.enumerate()))
                self.assertEqual(0, lock.remaining())

    def test_a_lock_that_the_server_has_lost_is_lost_at_once(self) -> None:
        self.extend = LOST
        with self.assertRaises(LostError):
            with self.held() as lock:
                self.clock.t += RENEWED
                self.await_("on_lost is called", lambda: self.lost == [lock])
                with self.assertRaises(LostError):
                    lock.check()

    def test_a_lock_that_the_release_finds_lost_has_not_guarded_the_work(self) -> None:
        self.release = LOST
        with self.assertRaises(LostError):
            with self.held():
                pass

    def test_a_release_without_an_answer_leaves_the_lock_to_its_lease(self) -> None:
        self.release = NONE
        with self.assertLogs("refdb_client") as logged:
            with self.held():
                pass
        self.assertIn("stands until its lease ends", logged.output[0])

    def test_a_release_that_an_earlier_attempt_made_is_no_loss(self) -> None:
        client = self.client(self.server)
        self.server.script = [ACQUIRED, NONE, LOST]
        with client.lock("p", "r", lease=LEASE):
            pass
        self.assertEqual(2, self.sent("Release"))

    def test_the_error_of_the_work_is_not_hidden(self) -> None:
        self.release = LOST
        with self.assertRaises(ZeroDivisionError) as caught:
            with self.held():
                raise ZeroDivisionError
        self.assertEqual(1, self.sent("Release"))
        self.assertIn("the lock was lost", caught.exception.__notes__[0])

    def test_an_update_is_fenced(self) -> None:
        with self.held() as lock:
            lock.update([RefUpdate("r", "1", "2")])
        (request,) = (r for r in self.server.requests if r.method == "Update")
        self.assertEqual((LOCK, False), (request.body["under"], request.body["release"]))

    def test_a_lock_that_an_update_finds_lost_is_lost(self) -> None:
        self.update = LOST
        for update in (HeldLock.update, HeldLock.update_and_release):
            with self.assertRaises(LostError):
                with self.held() as lock:
                    with self.assertRaises(LostError):
                        update(lock, [RefUpdate("r", "1", "2")])
                    self.await_("on_lost is called", lambda: self.lost[-1:] == [lock])
                    self.assertEqual(0, lock.remaining())
        self.assertEqual(0, self.sent("Release"))

    def test_an_update_that_releases_the_lock_ends_it(self) -> None:
        with self.held() as lock:
            lock.update_and_release([RefUpdate("r", "1", "2")])
            self.assertEqual(0, lock.remaining())
        self.assertEqual(0, self.sent("Release"))

    def test_a_refused_update_leaves_the_lock(self) -> None:
        self.update = ok(mismatched={"mismatches": [{"ref": "r", "value": "3"}]})
        with self.held() as lock:
            with self.assertRaises(MismatchError):
                lock.update_and_release([RefUpdate("r", "1", "2")])
            self.clock.t += RENEWED
            self.await_("it is renewed", lambda: lock.remaining() == STANDS)
        self.assertEqual(1, self.sent("Release"))

    def test_a_renewal_that_overtakes_the_release_is_no_loss(self) -> None:
        asked, extended = threading.Event(), threading.Event()

        def answer(request: Request) -> Answer:
            if request.method == "Update":
                asked.set()
                extended.wait(PATIENCE)
            elif request.method == "Extend":
                return LOST  # the update has released the lock already
            return self.answer(request)

        self.server.rest = answer
        with self.held() as lock:
            worker = threading.Thread(target=lock.update_and_release, args=([RefUpdate("r", "1", "2")],))
            worker.start()
            self.assertTrue(asked.wait(PATIENCE))
            self.clock.t += RENEWED

            def again() -> bool:
                self.clock.t += 1
                return self.sent("Extend") > 1  # so the first answer was read

            self.await_("it is tried", again)
            extended.set()
            worker.join(PATIENCE)
            self.assertEqual(0, lock.remaining())
        self.assertEqual([], self.lost)

    def test_a_lock_whose_lease_ended_before_the_answer_came_is_not_entered(self) -> None:
        def answer(request: Request) -> Answer:
            if request.method == "Acquire":
                self.clock.t += STANDS
            return self.answer(request)

        self.server.rest = answer
        with self.assertRaises(LostError):
            with self.held():
                self.fail("it is entered")
        self.assertEqual(["Acquire", "Release"], [r.method for r in self.server.requests])

    def test_a_lock_that_can_t_be_watched_is_released(self) -> None:
        with mock.patch("threading.Thread.start", side_effect=RuntimeError("can't start new thread")):
            lock = self.held()
            with self.assertRaisesRegex(RuntimeError, "new thread"):
                # The fake server needs threads, too.
                with mock.patch.object(lock._client, "_release_until") as released, mock.patch.object(lock, "_acquire") as acquired:
                    acquired.return_value = Acquired(HELD, {}, LEASE, self.clock.t)
                    lock.__enter__()
        released.assert_called_once()

    def test_a_lock_that_was_released_does_not_pass_for_one_that_stands(self) -> None:
        with self.held() as lock:
            lock.update_and_release([RefUpdate("r", "1", "2")])
            for use in (HeldLock.check, lambda lock: lock.update([])):
                with self.assertRaisesRegex(LostError, "released"):
                    use(lock)
        with self.assertRaisesRegex(LostError, "released"):
            lock.check()
        self.assertEqual(1, self.sent("Update"))

    def test_a_lock_that_is_asked_about_too_early_is_not_lost(self) -> None:
        lock = self.held()
        self.assertEqual(0, lock.remaining())
        with self.assertRaises(RuntimeError):
            lock.check()
        with lock:
            lock.check()
            self.assertEqual(STANDS, lock.remaining())

    def test_a_release_ends_with_the_lease(self) -> None:
        def answer(request: Request) -> Answer:
            if request.method != "Release":
                return self.answer(request)
            self.clock.t += min(7, int(request.headers["Connect-Timeout-Ms"]) / 1000)
            return NONE

        self.server.rest = answer
        with self.assertLogs("refdb_client"):
            with self.client(self.server).lock("p", "r", lease=10):
                began = self.clock.t
        self.assertLessEqual(self.clock.t - began, 8)

    def test_an_update_that_may_have_released_the_lock_is_no_loss(self) -> None:
        """Neither for the renewals nor for the release at the end."""
        for renewed in (True, False):
            for answers in ([NONE], [NONE, LOST]):
                with self.subTest(renewed=renewed, answers=len(answers)):
                    self.extend = self.release = LOST
                    client = self.client(self.server, retry_for=60 if len(answers) > 1 else 0)
                    with client.lock("p", "r", lease=LEASE, on_lost=self.lost.append) as lock:
                        with self.server.lock:
                            self.server.script = list(answers)
                        with self.assertRaises(OutcomeUnknownError):
                            lock.update_and_release([RefUpdate("r", "1", "2")])
                        if renewed:
                            self.clock.t += RENEWED
                            self.await_("it ends", lambda: lock.remaining() == 0)
                            with self.assertRaises(LostError):
                                lock.check()
                    self.assertEqual([], self.lost)

    def test_a_lease_is_held_as_a_lock_is(self) -> None:
        with self.client(self.server).lease("p", "nightly", shared=True, lease=20) as lease:
            lease.check()
        with self.client(self.server).lease("p", "nightly"):
            pass
        acquired = [r.body for r in self.server.requests if r.method == "Acquire"]
        self.assertEqual(["LEASE_MODE_SHARED", "LEASE_MODE_EXCLUSIVE"], [a["lease"]["mode"] for a in acquired])
        self.assertEqual(("nightly", "20.000s", False), (acquired[0]["lease"]["name"], acquired[0]["leaseTime"], "refs" in acquired[0]))

    def test_a_lock_is_for_one_with_statement(self) -> None:
        lock = self.held()
        with self.assertRaises(RuntimeError):
            lock.lock
        with lock:
            pass
        with self.assertRaises(RuntimeError):
            with lock:
                pass

    def test_a_forked_process_can_neither_use_nor_release_the_lock(self) -> None:
        client = self.client(self.server)
        uses: dict[str, Callable[[HeldLock], object]] = {
            "check": HeldLock.check,
            "remaining": HeldLock.remaining,
            "token": lambda lock: lock.token,
            "update": lambda lock: lock.update([]),
            "enter": HeldLock.__enter__,
            "get": lambda lock: client.get("p", "r"),
        }
        with client.lock("p", "r", lease=LEASE) as lock:
            before = len(self.server.requests)
            child = os.fork()
            if child == 0:
                os._exit(misuse(lock, client, uses))
            _, status = os.waitpid(child, 0)
            self.assertEqual(0, os.waitstatus_to_exitcode(status))
            self.assertEqual(before, len(self.server.requests))
            lock.check()
        self.assertEqual(1, self.sent("Release"))


def misuse(lock: HeldLock, client: Client, uses: dict[str, Callable[[HeldLock], object]]) -> int:
    """Uses a lock in a forked process, and returns 0 if each use is refused, and its end does nothing."""
    for name, use in uses.items():
        try:
            use(lock)
        except ForkedError:
            continue
        except BaseException as error:
            print(f"{name}: {error!r}", file=sys.stderr)
            return 1
        print(f"{name} is not refused", file=sys.stderr)
        return 1
    lock.__exit__(None, None, None)
    client.__exit__(None, None, None)
    return 0


class Clocks(unittest.TestCase):
    @unittest.skipUnless(sys.platform == "linux", "left out: the clock of Linux")
    def test_the_clock_counts_the_time_for_which_the_machine_was_suspended(self) -> None:
        with mock.patch("time.clock_gettime", return_value=5.0) as read:
            self.assertEqual(5.0, clock.now())
        read.assert_called_once_with(time.CLOCK_BOOTTIME)
