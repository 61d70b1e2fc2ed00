"""refdb-server on a SQLite file, as users have it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import httpx

PATIENCE = 300.0  # only a test that fails reaches it

BIN = os.environ.get("REFDB_TEST_BIN", "")
"""The directory of refdbctl and refdb-server."""


@unittest.skipUnless(BIN, "left out: tests with a real server; REFDB_TEST_BIN names the directory of its programs, as make test-all does")
class Case(unittest.TestCase):
    """A test with a database. Its servers end with it."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory(prefix="refdb-client-")
        self.addCleanup(directory.cleanup)
        self.dir = Path(directory.name)
        self.env = {"PATH": os.environ.get("PATH", ""), "HOME": directory.name, "REFDB_URL": f"sqlite:{self.dir}/refs.db"}
        self.operate("migrate", "up")

    def operate(self, *args: str) -> str:
        """Runs refdbctl, and returns what it prints."""
        done = subprocess.run([f"{BIN}/refdbctl", *args], env=self.env, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(0, done.returncode, f"refdbctl {args}: {done.stdout}{done.stderr}")
        return done.stdout

    def subject(self, name: str, *rules: tuple[str, str, str]) -> Path:
        """Creates a token of a subject with rules (right, projects, refs), and returns its file."""
        file = self.dir / f"{name}.token"
        file.write_text(self.operate("token", "create", name, "--expires", "1h"))
        for right, projects, refs in rules:
            self.operate("access", "allow", name, right, projects, refs)
        return file

    def put(self, project: str, ref: str, value: str) -> None:
        self.operate("refs", "put", project, ref, value, "--old", "none")

    def serve(self, name: str = "server") -> Server:
        """Starts a server, which has read all tokens and rules once it is returned."""
        server = Server(str(self.dir / name), self.env, self.dir)
        self.addCleanup(server.kill)
        server.await_ready()
        return server


class Server:
    """A server at a socket."""

    def __init__(self, socket: str, env: dict[str, str], directory: Path) -> None:
        self.socket = socket
        self.log = open(directory / "server.log", "a+")
        self.process = subprocess.Popen([f"{BIN}/refdb-server", "--listen", socket, "--stop-delay", "0"], env=env, stderr=self.log)
        self.url = "unix:" + socket

    def await_ready(self) -> None:
        """Waits until the server has read the rules."""
        with httpx.Client(transport=httpx.HTTPTransport(uds=self.socket)) as client:
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    if client.get("http://refdb/readyz").status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                if time.monotonic() > until or self.process.poll() is not None:
                    self.log.seek(0)
                    raise AssertionError(f"the server is not ready: {self.log.read()}")
                time.sleep(0.02)

    def stop(self) -> int:
        """Stops the server in good order."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self.log.close()
