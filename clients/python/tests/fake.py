"""A server of the test's own, whose answers the test writes."""

from __future__ import annotations

import http.server
import json
import tempfile
import threading
import unittest
import urllib.parse
from collections.abc import Callable
from typing import Any

from refdb_client import Client

TOKEN = "refdb_0123456789secret"

LOCK = {"project": "p", "refs": ["r"], "owner": "/ci/x", "token": "7"}


class Request:
    """A request that the server has received."""

    def __init__(self, method: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        self.method, self.body, self.headers = method, body, headers


class Answer:
    """What the server sends: JSON, or a text that is not the server's own."""

    def __init__(self, status: int, body: object, content_type: str = "application/json") -> None:
        self.status = status
        self.content = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.content_type = content_type


NONE = Answer(0, "")
"""The connection ends without an answer."""

PROXY = Answer(503, "upstream connect error", "text/plain")


def failure(status: int, code: str, message: str = "") -> Answer:
    return Answer(status, {"code": code, "message": message})


def ok(**body: object) -> Answer:
    return Answer(200, body)


def events(*events: tuple[str, object]) -> Answer:
    """A stream of events, whose connection then ends."""
    text = "".join(f"event: {kind}\nid: x\ndata: {json.dumps(data)}\n\n" for kind, data in events)
    return Answer(200, text, "text/event-stream")


class Fake:
    """The server. It gives the answers of the script in turn, and then whatever rest returns."""

    def __init__(self, *script: Answer) -> None:
        self.script = list(script)
        self.rest: Callable[[Request], Answer] = lambda r: failure(500, "internal", "the script has ended")
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                self.answer(Request(path, dict(urllib.parse.parse_qsl(query)), dict(self.headers.items())))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.answer(Request(self.path.rpartition("/")[2], body, dict(self.headers.items())))

            def answer(self, request: Request) -> None:
                with fake.lock:
                    fake.requests.append(request)
                    answer = fake.script.pop(0) if fake.script else None
                answer = answer or fake.rest(request)
                if answer is NONE:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.content_type)
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """Says nothing of clients that have closed their connections."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def always(self, answer: Answer) -> None:
        """Gives this answer once the script has ended."""
        self.rest = lambda request: answer

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Case(unittest.TestCase):
    """A test with a server of its own."""

    def setUp(self) -> None:
        self.token_file = tempfile.NamedTemporaryFile("w", suffix=".token")
        self.token_file.write(TOKEN + "\n")
        self.token_file.flush()
        self.addCleanup(self.token_file.close)

    def fake(self, *script: Answer) -> Fake:
        server = Fake(*script)
        self.addCleanup(server.close)
        return server

    def client(self, server: Fake, retry_for: float = 60.0) -> Client:
        client = Client(server.url, token_file=self.token_file.name, retry_for=retry_for)
        self.addCleanup(client.close)
        return client
