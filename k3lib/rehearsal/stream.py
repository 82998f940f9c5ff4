"""
A chat answer as server-sent events, a chunk per token.

What is the same in every chunk of an answer is encoded once: 256 streams at 50 tokens a second leave 20 ms for 256
chunks, and the last of them is as late as all before it took together.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import orjson

from k3lib.rehearsal.chat import ChatCall, finish_reason, next_token, usage_of
from k3lib.rehearsal.failures import DEAD, RuntimeFailure
from k3lib.rehearsal.pacing import Pacing
from k3lib.rehearsal.wire import Exchange

_END = b"data: [DONE]\n\n"
_OPEN = b',"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'


class _Chunks:
    """Encodes the chunks of one answer."""

    def __init__(self, call: ChatCall) -> None:
        self._call = call
        self._same = {
            "id": call.identity,
            "object": "chat.completion.chunk",
            "created": call.created,
            "model": call.model,
        }
        self._head = b"data: " + orjson.dumps(self._same)[:-1] + b',"choices":[{"index":0,"delta":'

    def first(self) -> bytes:
        """The role, before any token."""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return self._whole([choice], {"prompt_token_ids": None, "prompt_text": None})

    def token(self, index: int) -> bytes:
        """One token; the last one says why the answer ends."""
        delta = self._call.delta(index) or {"content": ""}
        if index + 1 < self._call.request.output_tokens:
            return self._head + orjson.dumps(delta) + _OPEN
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish_reason(self._call),
            "stop_reason": None,
            "token_ids": None,
        }
        # The system's fingerprint stands in the very last chunk: this one, unless usage follows.
        return self._whole([choice], {} if self._call.include_usage else self._fingerprint)

    def usage(self) -> bytes:
        """What the answer cost, after everything else."""
        usage = _without_nulls(usage_of(self._call, self._call.request.output_tokens))
        return self._whole([], {"usage": usage, **self._fingerprint})

    @property
    def _fingerprint(self) -> dict[str, Any]:
        return {"system_fingerprint": self._call.fingerprint}

    def _whole(self, choices: list[dict[str, Any]], rest: Mapping[str, Any]) -> bytes:
        return b"data: " + orjson.dumps({**self._same, "choices": choices, **rest}) + b"\n\n"


async def stream_chat(call: ChatCall, exchange: Exchange, pacing: Pacing | None = None) -> None:
    """
    The answer, a chunk per token; a death on the way is an event, then `[DONE]`.

    Raises:
        RuntimeFailure: The engine died before the first token.
    """
    token, chunks, clock = await next_token(call), _Chunks(call), asyncio.get_running_loop().time
    exchange.start_stream("text/event-stream; charset=utf-8")
    await exchange.write(chunks.first())
    try:
        sent = 0
        while True:
            while sent < token.number:
                await exchange.write(chunks.token(sent))
                sent += 1
            if pacing:
                pacing.record(token.due_s, clock())
            if sent >= call.request.output_tokens:
                break
            token = await next_token(call)
        if call.include_usage:
            await exchange.write(chunks.usage())
    except RuntimeFailure:
        error = {"message": DEAD, "type": "InternalServerError", "param": None, "code": 500}
        await exchange.write(f"data: {json.dumps({'error': error})}\n\n".encode())
    await exchange.write(_END)
    exchange.end_stream()


def _without_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """Usage as a stream tells it: what has no value is left out, at every depth."""
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in data.items()
        if value is not None
    }
