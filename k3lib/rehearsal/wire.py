"""
A small HTTP/1.1 server on asyncio: just what the rehearsal's routes need.

Written here because every ready-made server costs more start-up time than the whole engine may take (0.7 s); the price
is that it knows nothing else: no TLS, no HTTP/2, no upgrades.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

_MAX_HEAD_BYTES = 64 << 10
_MAX_BODY_BYTES = 256 << 20


@dataclass(frozen=True)
class HttpRequest:
    """One request, whole."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    keep_alive: bool

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


class BadRequest(Exception):
    """Bytes that are no HTTP request this server takes; carries the status to answer with."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def parse_request(buffer: bytearray) -> HttpRequest | None:
    """
    Take one whole request off the front of the buffer.

    Args:
        buffer: Bytes as they came; what was used is removed.

    Returns:
        The request, or None while it is incomplete.

    Raises:
        BadRequest: 400, 413, 431 or 505.

    >>> data = bytearray(b"GET /health HTTP/1.1\\r\\nHost: x\\r\\n\\r\\nrest")
    >>> parse_request(data).path, bytes(data)
    ('/health', b'rest')
    """
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > _MAX_HEAD_BYTES:
            raise BadRequest(431)
        return None
    method, target, version, headers = _parse_head(bytes(buffer[:end]))
    start = end + 4
    if "chunked" in headers.get("transfer-encoding", "").lower():
        chunked = _parse_chunks(buffer, start)
        if chunked is None:
            return None
        body, stop = chunked
    else:
        length = headers.get("content-length", "0")
        if not length.isdigit():
            raise BadRequest(400)
        stop = start + int(length)
        if int(length) > _MAX_BODY_BYTES:
            raise BadRequest(413)
        if len(buffer) < stop:
            return None
        body = bytes(buffer[start:stop])
    del buffer[:stop]
    connection = headers.get("connection", "").lower()
    keep = "close" not in connection if version == "HTTP/1.1" else "keep-alive" in connection
    return HttpRequest(method, target, headers, body, keep)


def _parse_head(head: bytes) -> tuple[str, str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[1]:
        raise BadRequest(400)
    if words[2] not in {"HTTP/1.0", "HTTP/1.1"}:
        raise BadRequest(505)
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(400)
        headers[name.lower()] = value.strip()
    return words[0], words[1], words[2], headers


def _parse_chunks(buffer: bytearray, start: int) -> tuple[bytes, int] | None:
    parts: list[bytes] = []
    position = start
    while True:
        line_end = buffer.find(b"\r\n", position)
        if line_end < 0:
            return None
        try:
            size = int(bytes(buffer[position:line_end]).split(b";")[0], 16)
        except ValueError as error:
            raise BadRequest(400) from error
        if size < 0 or size + sum(len(part) for part in parts) > _MAX_BODY_BYTES:
            raise BadRequest(413)
        position = line_end + 2
        if len(buffer) < position + size + 2:
            return None
        if size == 0:
            return b"".join(parts), position + 2
        parts.append(bytes(buffer[position : position + size]))
        position += size + 2


class Exchange:
    """
    One request and the way to answer it.

    Args:
        request: What came.
        peer: `127.0.0.1:44004`.
        connection: Where the answer goes.
    """

    def __init__(self, request: HttpRequest, peer: str, connection: Connection) -> None:
        self.request, self.peer, self._connection = request, peer, connection
        self.status: int | None = None
        self.began = time.monotonic()
        self.response_bytes = 0  # as the header says; 0 for a stream

    def send(self, status: int, body: bytes, content_type: str) -> None:
        """A whole answer."""
        self.response_bytes = len(body)
        self._head(status, content_type, f"content-length: {len(body)}")
        if self.request.method != "HEAD":
            self._connection.write(body)

    def send_json(self, status: int, data: Any) -> None:
        """A whole answer as compact JSON, as vLLM's server writes it."""
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        self.send(status, text.encode(), "application/json")

    def start_stream(self, content_type: str) -> None:
        """Begin an answer of unknown length, status 200."""
        self._head(200, content_type, "transfer-encoding: chunked")

    async def write(self, data: bytes) -> None:
        """One chunk; waits while the client does not keep up."""
        self._connection.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._connection.drain()

    def end_stream(self) -> None:
        """The last chunk."""
        self._connection.write(b"0\r\n\r\n")

    def _head(self, status: int, content_type: str, framing: str) -> None:
        self.status = status
        close = "" if self.request.keep_alive else "connection: close\r\n"
        self._connection.write(
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ndate: {formatdate(usegmt=True)}\r\n"
            f"server: k3-rehearsal\r\ncontent-type: {content_type}\r\n{framing}\r\n{close}\r\n".encode()
        )
        self._connection.report(self)


Handler = Callable[[Exchange], Awaitable[None]]


class Connection(asyncio.Protocol):
    """
    One client connection: requests one after the other; a lost connection cancels the request in work.

    Args:
        handler: Answers an exchange.
        report: Called as soon as the status of an answer is known.
        open_connections: Set that this connection stands in while it lives.
    """

    def __init__(self, handler: Handler, report: Callable[[Exchange], None], open_connections: set[Connection]) -> None:
        self._handler, self.report, self._open = handler, report, open_connections
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._continued = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if peer else "-"
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        self._writable.set()
        if self._task:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def write(self, data: bytes) -> None:
        """Bytes to the client; dropped once it is gone."""
        if not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has taken enough."""
        if not self._writable.is_set():
            await self._writable.wait()

    def close(self) -> None:
        """Close after what is buffered has been sent."""
        self._transport.close()

    def _next(self) -> None:
        if self._task or not self._buffer:
            return
        try:
            request = parse_request(self._buffer)
        except BadRequest as error:
            phrase = HTTPStatus(error.status).phrase
            self.write(f"HTTP/1.1 {error.status} {phrase}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
            return self.close()
        if request is not None:
            self._continued = False
            self._task = asyncio.get_running_loop().create_task(self._answer(request))
        elif not self._continued and b"\r\nexpect: 100-continue" in bytes(self._buffer[:_MAX_HEAD_BYTES]).lower():
            self._continued = True
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _answer(self, request: HttpRequest) -> None:
        exchange = Exchange(request, self._peer, self)
        try:
            await self._handler(exchange)
        finally:
            self._task = None
        if not request.keep_alive or exchange.status is None:
            self.close()
        else:
            self._next()
