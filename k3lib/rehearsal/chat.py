"""
One chat request from its body to its answer, streamed or whole.

The answer is known before the first token is made, so its length is; the engine only decides when each token comes.
Source of the fields: vLLM 0.33.0 entrypoints/openai/chat_completion/protocol.py:86,598.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from k3lib.rehearsal.answers import Answer, compose_answer
from k3lib.rehearsal.arguments import VERSION
from k3lib.rehearsal.checks import Refusal, check_tools, check_types, read_effort, read_limit
from k3lib.rehearsal.config import EngineConfig
from k3lib.rehearsal.engine import Request
from k3lib.rehearsal.failures import DEAD, RuntimeFailure
from k3lib.rehearsal.tokenizer import count_images, render_messages
from k3lib.rehearsal.wire import Exchange

_FINGERPRINT = f"vllm-{VERSION}"


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
    """

    model: str
    request: Request
    answer: Answer
    pieces: list[Mapping[str, Any]]
    stream: bool
    include_usage: bool
    cached_tokens_in_usage: bool
    identity: str
    created: int


def read_chat(body: Mapping[str, Any], config: EngineConfig, max_model_len: int, seed: int) -> ChatCall:
    """
    Check a request and decide its answer.

    Raises:
        Refusal: With vLLM's text: unknown model 404; too long, tools without a parser, a bad field 400.
    """
    check_types(body)
    messages = body["messages"]
    model = body.get("model") or config.served_names[0]
    if model not in config.served_names:
        names = ", ".join(config.served_names)
        text = f"The model `{model}` does not exist. Valid aliases: {names}."
        raise Refusal(text, status=404, kind="NotFoundError", param="model")
    check_tools(body, config)
    effort = read_effort(body)
    prompt = render_messages(messages, body.get("tools") or ())
    max_tokens = read_limit(body, len(prompt), max_model_len)
    answer = compose_answer(body, effort, seed)
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
        identity=f"chatcmpl-{uuid.uuid4().hex[:16]}",
        created=int(time.time()),
    )


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
    words = [stop] if isinstance(stop, str) else stop or []
    text = ""
    for index, piece in enumerate(pieces):
        before = len(text)
        text += piece.get("content") or ""
        found = [position for word in words if word and (position := text.find(word)) >= 0]
        if found:
            return [*pieces[:index], {"content": text[before : min(found)]}] if min(found) > before else pieces[:index]
    return pieces


def finish_reason(call: ChatCall) -> str:
    """`tool_calls` for a complete call of a tool, else what the engine says."""
    called = call.answer.tool_name is not None and call.request.finish_reason == "stop"
    return "tool_calls" if called else call.request.finish_reason


def _usage(call: ChatCall, completion_tokens: int) -> dict[str, Any]:
    request, details = call.request, None
    if call.cached_tokens_in_usage:
        details = {"cached_tokens": request.cached_tokens, "created_cache_tokens": 0, "multimodal_tokens": None}
    return {
        "prompt_tokens": request.prompt_tokens,
        "total_tokens": request.prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": details,
        "completion_tokens_details": None,
    }


async def _tokens(call: ChatCall) -> int:
    """Wait for the engine's next token; its number, or a dead engine."""
    number = await call.request.steps.get()
    if number is None:
        raise RuntimeFailure
    return number


async def write_chat(call: ChatCall, exchange: Exchange) -> None:
    """
    The whole answer at once.

    Raises:
        RuntimeFailure: The engine died before it was done.
    """
    while await _tokens(call) < call.request.output_tokens:
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
            "system_fingerprint": _FINGERPRINT,
            "usage": _usage(call, call.request.output_tokens),
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        },
    )


def _joined(call: ChatCall, key: str) -> str | None:
    text = "".join(piece[key] for piece in call.pieces if key in piece)
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


async def stream_chat(call: ChatCall, exchange: Exchange) -> None:
    """The answer as server-sent events, a chunk per token; a death on the way is an event, then `[DONE]`."""
    number = await _tokens(call)
    exchange.start_stream("text/event-stream; charset=utf-8")
    await exchange.write(_event(call, [_choice({"role": "assistant", "content": ""}, first=True)], first=True))
    try:
        sent = 0
        while True:
            while sent < number:
                await exchange.write(_chunk(call, sent))
                sent += 1
            if sent >= call.request.output_tokens:
                break
            number = await _tokens(call)
        if call.include_usage:
            await exchange.write(_event(call, [], _usage(call, sent)))
    except RuntimeFailure:
        error = {"message": DEAD, "type": "InternalServerError", "param": None, "code": 500}
        await exchange.write(f"data: {json.dumps({'error': error})}\n\n".encode())
    await exchange.write(b"data: [DONE]\n\n")
    exchange.end_stream()


def _chunk(call: ChatCall, index: int) -> bytes:
    delta = call.pieces[index] or {"content": ""}
    last = index + 1 == call.request.output_tokens
    return _event(call, [_choice(delta, finish_reason(call) if last else None)])


def _choice(delta: Mapping[str, Any], finish: str | None = None, *, first: bool = False) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return choice if first else choice | {"token_ids": None}


def _event(
    call: ChatCall, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None, *, first: bool = False
) -> bytes:
    chunk: dict[str, Any] = {
        "id": call.identity,
        "object": "chat.completion.chunk",
        "created": call.created,
        "model": call.model,
        "choices": choices,
        "system_fingerprint": _FINGERPRINT,
    }
    if first:
        chunk |= {"prompt_token_ids": None, "prompt_text": None}
    if usage is not None:
        chunk["usage"] = usage
    return f"data: {json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()
