"""One look at an engine's health, with a deadline that holds even against a server that drips bytes."""

from __future__ import annotations

import socket
import time


def read_status(host: str, port: int, path: str, timeout_s: float) -> int | None:
    """
    The status code of one GET.

    Only the status line is read: an engine that hangs, or sends a byte now and then, can't hold us.

    Args:
        host: Address to connect to.
        port: Its port.
        path: Path, `/health`.
        timeout_s: For connecting, asking and reading together, seconds.

    Returns:
        The code; None if no answer came in time.
    """
    deadline = time.monotonic() + timeout_s
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode()
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.settimeout(_left(deadline))
            connection.sendall(request)
            return _parse_status(_receive_line(connection, deadline))
    except (OSError, ValueError):
        return None


def _receive_line(connection: socket.socket, deadline: float) -> bytes:
    received = b""
    while b"\n" not in received and len(received) < 1024:
        connection.settimeout(_left(deadline))
        part = connection.recv(1024)
        if not part:
            break
        received += part
    return received.partition(b"\n")[0]


def _parse_status(line: bytes) -> int | None:
    words = line.split()
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") else None


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
