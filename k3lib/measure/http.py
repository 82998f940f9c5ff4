"""
Plain requests to an engine: /version, /v1/models, /metrics, /tokenize. No answer is a value, too.

A proxy from the environment is never used for the loopback: cluster nodes often set `HTTP_PROXY`
without `NO_PROXY`, and the proxy then answers in the engine's name.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from k3lib.errors import SpecError

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True)
class HttpAnswer:
    """
    What came back from a plain request.

    Args:
        status: HTTP status, or None if no answer came.
        body: The body's bytes; empty if no answer came.
        error: Why no answer came, or `HTTP <status>` when it is not a 200; None for a 200.
    """

    status: int | None
    body: bytes
    error: str | None

    def json(self) -> Any:
        """The body as JSON, or None if it is none."""
        import orjson

        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None


def root_of(base_url: str) -> str:
    """
    The address under which the engine's routes stand.

    Args:
        base_url: As a person writes it, with or without `/v1` and a last slash.

    Returns:
        The same without them.

    Raises:
        SpecError: Not an http address.

    >>> root_of("http://127.0.0.1:8000/v1/")
    'http://127.0.0.1:8000'
    """
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SpecError(
            "the address of the engine is not usable",
            expected="http://HOST:PORT",
            evidence=repr(base_url),
            next="give the address the engine prints when it is ready",
        )
    return base_url.rstrip("/").removesuffix("/v1").rstrip("/")


def is_loopback(base_url: str) -> bool:
    """
    Whether an address stays on this machine.

    >>> is_loopback("http://localhost:1"), is_loopback("http://[::1]:1"), is_loopback("http://node7:1")
    (True, True, False)
    """
    host = urlsplit(base_url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Getter:
    """
    A kept connection for plain requests to one engine; never raises for what the engine does.

    Args:
        base_url: Address of the engine.
        timeout_s: For connecting and for each read, seconds.
        api_key: Sent as a bearer token, or None.
    """

    def __init__(self, base_url: str, *, timeout_s: float = 5.0, api_key: str | None = None) -> None:
        import httpx2

        root = root_of(base_url)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client: httpx2.Client = httpx2.Client(
            base_url=root, timeout=timeout_s, headers=headers, trust_env=not is_loopback(root)
        )

    def get(self, path: str) -> HttpAnswer:
        """One GET."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> HttpAnswer:
        """One POST of a JSON object."""
        return self._ask("POST", path, body)

    def close(self) -> None:
        """Lets the connection go."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> HttpAnswer:
        import httpx2

        try:
            response = self._client.request(method, path, json=body)
        except (httpx2.HTTPError, OSError) as problem:
            return HttpAnswer(None, b"", explain_no_answer(problem))
        error = None if response.status_code == 200 else f"HTTP {response.status_code}"
        return HttpAnswer(response.status_code, response.content, error)


def explain_no_answer(problem: BaseException) -> str:
    """
    Why a connection gave no answer, in the words of the operating system where it has any.

    Args:
        problem: What the HTTP client raised.

    Returns:
        One line, such as `[Errno 111] Connection refused`.
    """
    found: BaseException | None = problem
    words = ""
    while found is not None:
        if isinstance(found, BaseExceptionGroup):  # one per address of the name
            found = found.exceptions[-1]
        if isinstance(found, OSError) and found.strerror:
            # asyncio writes its own text over the system's; TLS and resolver numbers are no system's.
            known = (found.errno or 0) > 0 and not isinstance(found, ssl.SSLError)
            return f"[Errno {found.errno}] {os.strerror(found.errno or 0) if known else found.strerror}"
        words = words or " ".join(str(found).split())
        found = found.__cause__ or found.__context__
    return words or type(problem).__name__
