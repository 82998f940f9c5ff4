"""A real HTTP server on the loopback that plays recorded answers, whole, cut, late or wrong."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

RECORDED = Path(__file__).parent / "recorded"


class Reply:
    """What one route answers: a status and pieces, each after a pause; `cut` breaks the connection off."""

    def __init__(
        self,
        body: bytes | list[bytes] = b"",
        *,
        status: int = 200,
        content_type: str = "application/json",
        pauses_s: list[float] | None = None,
        cut: bool = False,
        drop: bool = False,
    ) -> None:
        self.pieces = [body] if isinstance(body, bytes) else body
        self.status, self.content_type, self.cut, self.drop = status, content_type, cut, drop
        self.pauses_s = pauses_s or [0.0] * len(self.pieces)


class LoopbackEngine:
    """A server whose routes a test sets; keeps every request it received."""

    def __init__(self) -> None:
        self.routes: dict[str, Reply | Callable[[dict[str, Any]], Reply]] = {}
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.stopping = threading.Event()
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(b"")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def _answer(self, sent: bytes) -> None:
                engine.received.append((self.path, dict(self.headers.items()), sent))
                route = engine.routes.get(self.path)
                if route is None:
                    route = Reply(b'{"detail":"Not Found"}', status=404)
                reply = route(json.loads(sent or b"{}")) if callable(route) else route
                if reply.drop:
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece, pause_s in zip(reply.pieces, reply.pauses_s, strict=True):
                    if engine.stopping.wait(pause_s):
                        break
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    self.wfile.flush()
                if reply.cut:
                    self.close_connection = True
                    return
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: object) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A client that hung up is what some tests are about."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def chat(self, reply: Reply | Callable[[dict[str, Any]], Reply]) -> None:
        """Sets the answer of the chat route."""
        self.routes["/v1/chat/completions"] = reply

    def chat_bodies(self) -> list[dict[str, Any]]:
        """What the chat route received, decoded."""
        return [json.loads(body) for path, _, body in self.received if path == "/v1/chat/completions"]

    def close(self) -> None:
        """Ends running answers and the server."""
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()


def recorded(name: str) -> bytes:
    """The body that vLLM sent."""
    return (RECORDED / f"{name}.body").read_bytes()


def events(name: str) -> list[bytes]:
    """A recorded stream, an event a piece."""
    return [event + b"\n\n" for event in recorded(name).split(b"\n\n") if event.strip()]


def stream(pieces: list[bytes], **how: Any) -> Reply:
    """A streamed reply."""
    return Reply(pieces, content_type="text/event-stream; charset=utf-8", **how)


@pytest.fixture
def engine() -> Iterator[LoopbackEngine]:
    double = LoopbackEngine()
    yield double
    double.close()


@pytest.fixture
def replies() -> Any:
    """The words with which a test composes answers."""

    class Words:
        whole = Reply
        streamed = staticmethod(stream)
        recorded = staticmethod(recorded)
        events = staticmethod(events)

    return Words


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Every test ends with the client threads it began with."""
    yield
    deadline = time.monotonic() + 2
    while any(thread.name.startswith("k3-") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "a client thread outlived its test"
        time.sleep(0.01)
