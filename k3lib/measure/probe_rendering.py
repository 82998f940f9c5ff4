"""POC check 2: are the messages rendered whole, and does no marker of the template leak into the answer?"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from k3lib.measure.probe_run import ProbeRun, shorten
from k3lib.spec.request import Message

MARKER = re.compile(r"<\|[^\s|<>]{1,40}\|>|</?tool_call>")
"""A template's own marks, `<|open|>` or `<|im_end|>`; in an answer a parser let them through (vllm#50367)."""

_SYSTEM = Message(role="system", content="You are a careful assistant. Answer in one short sentence.")
_USER = Message(role="user", content="Which colour does a clear sky have at noon?")


def probe_rendering(run: ProbeRun) -> None:
    """
    Compares what /tokenize counts with what the request is billed, with and without a system message.

    Args:
        run: Takes the requests and checks.

    Raises:
        NoAnswerError: The server failed.
    """
    tokens, refusal = _tokenize(run, [_SYSTEM, _USER])
    alone, _ = _tokenize(run, [_USER])
    exchange = run.ask([_SYSTEM, _USER], max_tokens=min(64, run.limits.max_tokens))
    run.check(
        "system-message",
        "server",
        len(tokens) > len(alone) if tokens and alone else None,
        expected="more tokens with a system message than without",
        seen=f"{len(tokens)} and {len(alone)}" if tokens and alone else None,
        reason=refusal,
    )
    counted = exchange.row.prompt_tokens
    run.check(
        "prompt-tokens",
        "server",
        len(tokens) == counted if tokens and counted is not None else None,
        expected="usage.prompt_tokens as /tokenize counts the same messages",
        seen=f"{counted} and {len(tokens)}, token ids {_hash_of(tokens)}" if tokens else f"{counted}",
        reason=refusal or (None if counted is not None else "the server did not tell prompt_tokens"),
    )
    text = exchange.answer.text
    leaked = MARKER.findall(text)
    run.check(
        "no-marker",
        "server",
        not leaked if text else None,
        expected="no marker of the template in the answer's text",
        seen=", ".join(dict.fromkeys(leaked)) or shorten(text),
        reason=None if text else "the answer holds no text",
    )


def _tokenize(run: ProbeRun, messages: list[Message]) -> tuple[list[int], str | None]:
    """The token ids of the rendered messages; empty with the reason where the server does not give them."""
    body: dict[str, Any] = {
        "model": run.model,
        "messages": [message.model_dump(exclude_unset=True) for message in messages],
        "add_generation_prompt": True,
    }
    if "chat_template_kwargs" in run.limits.extra_body:
        body["chat_template_kwargs"] = run.limits.extra_body["chat_template_kwargs"]
    with run.getter() as getter:
        answer = getter.post("/tokenize", body)
    if answer.error is not None:
        return [], f"/tokenize: {answer.error}"
    found: Any = answer.json()
    tokens = found.get("tokens") if isinstance(found, dict) else None
    if not isinstance(tokens, list) or not tokens:
        return [], "/tokenize holds no tokens"
    return tokens, None


def _hash_of(tokens: list[int]) -> str:
    return hashlib.sha256(",".join(map(str, tokens)).encode()).hexdigest()[:16]
