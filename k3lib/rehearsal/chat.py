"""
One chat request from its body to its whole answer; `stream.py` sends it in pieces.

The answer is known before the first token is made, so its length is; the engine only decides when each token comes.
Source of the fields: vLLM 0.33.0 entrypoints/openai/chat_completion/protocol.py:86,598; bodies of vLLM 0.32.0.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from k3lib.rehearsal.answers import Answer, compose_answer
from k3lib.rehearsal.checks import check_model, check_tools, check_types, read_effort, read_limit
from k3lib.rehearsal.config import EngineConfig, Stage
from k3lib.rehearsal.failures import RuntimeFailure
from k3lib.rehearsal.request import Request, Token
from k3lib.rehearsal.tokenizer import count_images, render_messages
from k3lib.rehearsal.wire import Exchange

_GARBLED = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "nopqrstuvwxyzabcdefghijklmNOPQRSTUVWXYZABCDEFGHIJKLM5678901234",
)


@dataclass(frozen=True)
class ChatCall:
    """
    A checked request and the answer it will get.

    Args:
        model: Name it was asked under.
        request: As the engine sees it.
        answer: What will be said.
        pieces: Delta of each generated token, in order; an empty one is a token without text.
        stream, include_usage: As asked.
        cached_tokens_in_usage: Whether the server tells.
        counts_reasoning: Whether a parser tells thinking from content, so that its tokens are counted.
        fingerprint: Of the system; the release, and that it is a rehearsal.
        corrupts: Whether the answer comes out wrong if the prompt was found in the cache.
    """

    model: str
    request: Request
    answer: Answer
    pieces: list[Mapping[str, Any]]
    stream: bool
    include_usage: bool
    cached_tokens_in_usage: bool
    counts_reasoning: bool
    fingerprint: str
    corrupts: bool
    identity: str
    created: int

    def delta(self, index: int) -> Mapping[str, Any]:
        """What the client gets with one token."""
        piece = self.pieces[index]
        return _garble(piece) if self.corrupts and self.request.cached_tokens else piece


def read_chat(body: Mapping[str, Any], config: EngineConfig, max_model_len: int, stage: Stage) -> ChatCall:
    """
    Check a request and decide its answer.

    Raises:
        Refusal: With vLLM's text: unknown model 404; too long, tools without a parser, a bad field 400.
    """
    check_types(body)
    messages = body["messages"]
    model = check_model(body, config)
    check_tools(body, config)
    effort = read_effort(body)
    prompt = render_messages(messages, body.get("tools") or ())
    max_tokens = read_limit(body, len(prompt), max_model_len)
    answer = compose_answer(body, effort, stage.seed)
    pieces = list(_deltas(answer, config))
    if body.get("ignore_eos"):
        pieces += [{"content": " …"}] * max(0, max_tokens - len(pieces))
    pieces = _apply_stop(pieces, body.get("stop"))
    # The end token takes a place of its own: a limit equal to the text's length ends with `length`, as it does in vLLM.
    stopped = len(pieces) < max_tokens and not body.get("ignore_eos")
    count = len(pieces) + 1 if stopped else max_tokens
    reason = "stop" if stopped else "length"
    salt = f"{body.get('cache_salt') or ''}{_image_salt(messages)}"
    return ChatCall(
        model=model,
        request=Request(prompt, count, max_tokens, reason, salt),
        answer=answer,
        pieces=[*pieces[:count], {}][:count],
        stream=bool(body.get("stream")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        cached_tokens_in_usage=config.cached_tokens_in_usage,
        counts_reasoning=bool(config.reasoning_parser),
        fingerprint=f"vllm-{config.profile.version}",
        corrupts=stage.changes.corrupts_cached,
        identity=f"chatcmpl-{uuid.uuid4().hex[:16]}",
        created=int(time.time()),
    )


def _garble(piece: Mapping[str, Any]) -> Mapping[str, Any]:
    """Text of the same length that means nothing, as a corrupted state gives it; a tool's call is left alone."""
    return {key: text.translate(_GARBLED) if isinstance(text, str) else text for key, text in piece.items()}


def _image_salt(messages: list[dict[str, Any]]) -> str:
    """Other images, another prefix: the pixels are not in the tokens, so they are in the hash."""
    if not any(count_images(message) for message in messages):
        return ""
    return json.dumps([part for message in messages if count_images(message) for part in message["content"]])


def _deltas(answer: Answer, config: EngineConfig) -> Iterator[Mapping[str, Any]]:
    # Without a reasoning parser vLLM leaves the thinking in the content.
    key = "reasoning" if config.reasoning_parser else "content"
    for piece in answer.reasoning:
        yield {key: piece}
    if answer.reasoning and key == "content":
        yield {"content": "\n\n"}
    for piece in answer.content:
        yield {"content": piece}
    if answer.tool_name is not None:
        identity = f"functions.{answer.tool_name}:0"
        function = {"name": answer.tool_name, "arguments": ""}
        yield {"tool_calls": [{"index": 0, "id": identity, "type": "function", "function": function}]}
        for piece in answer.tool_arguments:
            yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


def _apply_stop(pieces: list[Mapping[str, Any]], stop: str | list[str] | None) -> list[Mapping[str, Any]]:
    """Cut the content at the first stop string, which is not part of the answer."""
    words = [word for word in ([stop] if isinstance(stop, str) else stop or []) if word]
    if not words:
        return pieces
    text = ""
    for index, piece in enumerate(pieces):
        before = len(text)
        text += piece.get("content") or ""
        found = [position for word in words if (position := text.find(word)) >= 0]
        if found:
            return [*pieces[:index], {"content": text[before : min(found)]}] if min(found) > before else pieces[:index]
    return pieces


def finish_reason(call: ChatCall) -> str:
    """`tool_calls` for a complete call of a tool, else what the engine says."""
    called = call.answer.tool_name is not None and call.request.finish_reason == "stop"
    return "tool_calls" if called else call.request.finish_reason


def usage_of(call: ChatCall, completion_tokens: int) -> dict[str, Any]:
    request, details = call.request, None
    if call.cached_tokens_in_usage:
        details = {"cached_tokens": request.cached_tokens, "created_cache_tokens": 0, "multimodal_tokens": None}
    thought = sum("reasoning" in piece for piece in call.pieces[:completion_tokens])
    return {
        "prompt_tokens": request.prompt_tokens,
        "total_tokens": request.prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": thought} if call.counts_reasoning else None,
    }


async def next_token(call: ChatCall) -> Token:
    """
    Wait for the engine's next token.

    Raises:
        RuntimeFailure: The engine is dead.
    """
    token = await call.request.steps.get()
    if token is None:
        raise RuntimeFailure
    return token


async def write_chat(call: ChatCall, exchange: Exchange) -> None:
    """
    The whole answer at once.

    Raises:
        RuntimeFailure: The engine died before it was done.
    """
    while (await next_token(call)).number < call.request.output_tokens:
        pass
    message: dict[str, Any] = {
        "role": "assistant",
        "content": _joined(call, "content"),
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": _joined(call, "reasoning"),
    }
    if tool_calls := _joined_tool_calls(call):
        message["tool_calls"] = tool_calls
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": finish_reason(call),
        "stop_reason": None,
        "token_ids": None,
        "routed_experts": None,
    }
    exchange.send_json(
        200,
        {
            "id": call.identity,
            "object": "chat.completion",
            "created": call.created,
            "model": call.model,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": call.fingerprint,
            "usage": usage_of(call, call.request.output_tokens),
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        },
    )


def _joined(call: ChatCall, key: str) -> str | None:
    deltas = (call.delta(index) for index in range(len(call.pieces)))
    text = "".join(delta[key] for delta in deltas if key in delta)
    return text or None


def _joined_tool_calls(call: ChatCall) -> list[dict[str, Any]]:
    parts = [piece["tool_calls"][0] for piece in call.pieces if "tool_calls" in piece]
    if not parts:
        return []
    arguments = "".join(part["function"]["arguments"] for part in parts)
    first = parts[0]
    return [
        {"id": first["id"], "type": "function", "function": {"name": first["function"]["name"], "arguments": arguments}}
    ]
