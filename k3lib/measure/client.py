"""
A connection to one engine through the official client, opened before anything is timed.

Importing the SDK takes about a second and its first request up to a quarter more, so both belong
outside a measured request: `preload` imports it in the background, `warm_up` sends the first one.
The requests run on an event loop in a thread of their own, because a notebook's kernel already runs one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, TypeVar

from k3lib.measure.answer import Answer
from k3lib.measure.failure import explain_failure, explain_incomplete
from k3lib.measure.http import is_loopback, root_of
from k3lib.spec.request import FrozenRequest, Message
from k3lib.spec.results import RequestResult
from k3lib.spec.vocabulary import Probe

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai._types import RequestOptions

T = TypeVar("T")

_LONGEST_TEXT = 2000
_CHAT = "/chat/completions"
_LIMITS = {Probe.FROZEN: "request.timeout_s", Probe.WARM_UP: "warm-up limit"}


@dataclass(frozen=True)
class Exchange:
    """
    One request with everything that came back; only the row is kept in the record.

    Args:
        row: The row of the record.
        answer: The answer, uncut.
    """

    row: RequestResult
    answer: Answer


class Client:
    """
    An open connection to one engine. Close it, or use it in a `with`.

    Args:
        base_url: Address of the engine, with or without `/v1`.
        api_key: Sent as a bearer token; None sends a placeholder, never a key from the environment.

    Raises:
        SpecError: The address is not one.
    """

    def __init__(self, base_url: str, api_key: str | None = None) -> None:
        self.base_url = root_of(base_url)
        self.api_key = api_key
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="k3-client", daemon=True)
        self._thread.start()
        self._sdk = self._run(self._open())

    def send(self, request: FrozenRequest, *, model: str, probe: Probe = Probe.FROZEN) -> RequestResult:
        """
        One request, once, without a retry; whatever goes wrong at the engine is in the row.

        Args:
            request: What to send.
            model: Name the server knows the model by.
            probe: Why it is sent.

        Returns:
            The row.
        """
        return self.exchange(request, model=model, probe=probe).row

    def exchange(self, request: FrozenRequest, *, model: str, probe: Probe) -> Exchange:
        """As `send`, with the uncut answer."""
        return self._run(self._exchange(request, model, probe))

    def warm_up(self, model: str, *, timeout_s: float = 120.0) -> RequestResult:
        """
        The first request, untimed by anybody: it pays for the connection and the SDK's first use.

        Args:
            model: Name the server knows the model by.
            timeout_s: Deadline, seconds.

        Returns:
            The row. Its prompt is short and unlike any other, so it fills no prefix of a measured one.
        """
        ping = FrozenRequest(
            name="warm-up",
            messages=[Message(role="user", content="ping")],
            max_tokens=2,
            temperature=0.0,
            timeout_s=timeout_s,
        )
        return self.send(ping, model=model, probe=Probe.WARM_UP)

    def close(self) -> None:
        """Closes the connection and ends the thread; a second call does nothing."""
        if self._loop.is_closed():
            return
        self._run(self._sdk.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C in the caller also ends the request, which frees the engine's slot
            future.cancel()
            raise

    async def _open(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        return AsyncOpenAI(
            base_url=f"{self.base_url}/v1",
            api_key=self.api_key or "none",
            max_retries=0,  # the default of 2 hides 503s and time-outs
            timeout=None,  # per read, so it is no deadline; the request carries its own
            http_client=DefaultAsyncHttpxClient(trust_env=not is_loopback(self.base_url)),
        )

    async def _exchange(self, request: FrozenRequest, model: str, probe: Probe) -> Exchange:
        import httpx2
        from openai import OpenAIError

        content, answer, error = request.encoded(model), Answer(), None
        send = self._send_streamed if request.stream else self._send_whole
        sent_at, started = datetime.now().astimezone().isoformat(timespec="milliseconds"), perf_counter()
        deadline = asyncio.timeout(request.timeout_s)
        try:
            async with deadline:
                await send(content, answer, started)
            error = explain_incomplete(answer, stream=request.stream)
        except (OpenAIError, httpx2.HTTPError, OSError, ValueError) as problem:
            if deadline.expired():
                error = f"{_LIMITS.get(probe, f'{probe.value} limit')} = {request.timeout_s:g} s"
            else:
                answer.status, error = explain_failure(problem, answer.status)
        total_s = answer.ended_s if error is None else perf_counter() - started
        row = _row(
            request,
            answer,
            probe=probe,
            request_id=request.request_id(model),
            sent_at=sent_at,
            total_s=total_s,
            error=error,
        )
        return Exchange(row, answer)

    async def _send_whole(self, content: bytes, answer: Answer, started: float) -> None:
        body = await self._sdk.post(_CHAT, content=content, cast_to=object, options=_options())
        answer.status = 200
        answer.add(body, perf_counter() - started)

    async def _send_streamed(self, content: bytes, answer: Answer, started: float) -> None:
        from openai import AsyncStream

        stream = await self._sdk.post(
            _CHAT, content=content, cast_to=object, options=_options(), stream=True, stream_cls=AsyncStream[object]
        )
        async with stream:
            answer.status = stream.response.status_code
            async for chunk in stream:
                answer.add(chunk, perf_counter() - started)


def open_client(base_url: str, api_key: str | None = None) -> Client:
    """
    An open connection to an engine, with the SDK imported.

    Args:
        base_url: Address of the engine, with or without `/v1`.
        api_key: Sent as a bearer token, or None.

    Returns:
        The client, to be used in a `with`.

    Raises:
        SpecError: The address is not one.
    """
    return Client(base_url, api_key)


def preload() -> None:
    """Imports the SDK, about a second's work; to be run in a thread while the engine starts."""
    import openai
    import openai.types.chat  # noqa: F401


def _options() -> RequestOptions:
    """Headers of a request; the SDK would add the account that the environment names."""
    from openai import Omit

    return {
        "headers": {
            "Content-Type": "application/json",
            "OpenAI-Organization": Omit(),
            "OpenAI-Project": Omit(),
        }
    }


def _row(request: FrozenRequest, answer: Answer, **outcome: Any) -> RequestResult:
    times = answer.token_times_s if request.stream else []
    return RequestResult(
        status=answer.status,
        ok=outcome["error"] is None,
        stream=request.stream,
        ttft_s=times[0] if times else None,
        itl_s=[after - before for before, after in pairwise(times)],
        prompt_tokens=answer.usage_count("prompt_tokens"),
        completion_tokens=answer.usage_count("completion_tokens"),
        cached_tokens=answer.usage_count("prompt_tokens_details", "cached_tokens"),
        finish_reason=answer.finish_reason,
        text=answer.text[:_LONGEST_TEXT] if answer.choices_seen else None,
        reasoning=answer.reasoning[:_LONGEST_TEXT] or None,
        tool_calls=[(call["name"], call["arguments"]) for _, call in sorted(answer.calls.items())],
        truncated=max(len(answer.text), len(answer.reasoning)) > _LONGEST_TEXT,
        **outcome,
    )
