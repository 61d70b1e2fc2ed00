"""The calls, against a real server."""

from __future__ import annotations

import threading
import time
import time

from refdb_client import (
    DELETED,
    Client,
    InvalidRequestError,
    LockedError,
    LostError,
    MismatchError,
    PermissionDeniedError,
    Ref,
    RefUpdate,
    UnauthenticatedError,
)

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
        self.reader = self.subject("reader", ("read", "p", "refs/heads/*"))
        self.server = self.serve()

    def client(self, token_file: object, server: Server | None = None) -> Client:
        client = Client((server or self.server).url, token_file=str(token_file))
        self.addCleanup(client.close)
        return client

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
        order, entered = [], threading.Event()

        def wait() -> None:
            entered.set()
            with other.lock("p", DEPLOY, lease=3600):
                order.append("other")

        waiting = threading.Thread(target=wait)
        with ci.lock("p", DEPLOY, lease=3600):
            waiting.start()
            self.assertTrue(entered.wait(PATIENCE))
            order.append("ci")
        waiting.join(PATIENCE)
        self.assertEqual(["ci", "other"], order)

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
            calls = threading.Thread(target=lambda: ci.extend(lock.lock))
            calls.start()
            self.server = self.serve()
            calls.join(PATIENCE)
            self.assertFalse(calls.is_alive())

    def test_a_short_lease_is_renewed(self) -> None:
        """The lock stands for several leases. If others can acquire it, the client already knows that it is lost."""
        ci, other = self.client(self.ci), self.client(self.other)
        lost = threading.Event()
        try:
            with ci.lock("p", DEPLOY, lease=2, on_lost=lambda lock: lost.set()) as lock:
                until = time.monotonic() + 5
                while time.monotonic() < until:
                    try:
                        other.acquire("p", DEPLOY, lease=1)
                    except LockedError:
                        time.sleep(0.1)
                    else:
                        self.assertEqual(0, lock.remaining())
                        break
        except LostError:
            self.assertTrue(lost.wait(PATIENCE))
