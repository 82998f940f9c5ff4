"""POC check 3: does one tool call come back parsed?"""

from __future__ import annotations

import json
from typing import Any

from k3lib.measure.client import Exchange
from k3lib.measure.probe_rendering import MARKER
from k3lib.measure.probe_run import ProbeRun, shorten
from k3lib.spec.request import Message

_CITIES = ("Oslo", "Paris")
_NAME = "get_weather"
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "The present weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": list(_CITIES)}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
_ASK = [Message(role="user", content="What is the weather in Paris now? Call get_weather to find out.")]


def probe_tool_call(run: ProbeRun) -> None:
    """
    Offers one function, first to the model's own choice, then by name.

    The named choice needs no parser and, where the engine constrains the output, no skill; so a server
    that fails there is at fault, while a model that does not choose the tool may only be weak.

    Args:
        run: Takes the requests and checks.

    Raises:
        NoAnswerError: The server failed.
    """
    auto = run.ask(_ASK, max_tokens=run.limits.max_tokens, tools=[_TOOL], tool_choice="auto")
    _check_call(run, "auto", auto)
    _check_raw_call(run, auto)
    named = {"type": "function", "function": {"name": _NAME}}
    forced = run.ask(_ASK, max_tokens=run.limits.max_tokens, tools=[_TOOL], tool_choice=named)
    _check_named(run, forced)
    _check_call(run, "named", forced)


def _check_call(run: ProbeRun, way: str, exchange: Exchange) -> None:
    row = exchange.row
    reason = _why_untold(exchange)
    run.check(
        f"{way}-call",
        "model",
        None if reason else any(name == _NAME and _fits(arguments) for name, arguments in row.tool_calls),
        expected=f'{_NAME} with arguments that fit its schema, {{"city": "Paris"}} for instance',
        seen=_describe(exchange),
        reason=reason,
    )


def _check_named(run: ProbeRun, exchange: Exchange) -> None:
    names = [name for name, _ in exchange.row.tool_calls]
    reason = _why_untold(exchange)
    run.check(
        "named-call-returned",
        "server",
        None if reason else _NAME in names,
        expected=f"a tool call of {_NAME}, since the request names it",
        seen=_describe(exchange),
        reason=reason,
    )


def _check_raw_call(run: ProbeRun, exchange: Exchange) -> None:
    text = exchange.answer.text
    leaked = MARKER.findall(text)
    run.check(
        "no-raw-call",
        "server",
        not leaked if exchange.row.ok else None,
        expected="no raw tool call in the text",
        seen=", ".join(dict.fromkeys(leaked)) or None,
        reason=None if exchange.row.ok else exchange.row.error,
    )


def _why_untold(exchange: Exchange) -> str | None:
    row = exchange.row
    if not row.ok:
        return f"the server refuses tools: {row.error}; it needs --enable-auto-tool-choice and --tool-call-parser"
    if not row.tool_calls and row.finish_reason == "length" and not row.text:
        return "healthy but truncated: the output limit was spent on reasoning; raise max_tokens"
    return None


def _describe(exchange: Exchange) -> str:
    row = exchange.row
    if row.tool_calls:
        return shorten("; ".join(f"{name}({arguments})" for name, arguments in row.tool_calls))
    return row.error or f"text only, finish reason {row.finish_reason}: {shorten(row.text)}"


def _fits(arguments: str) -> bool:
    try:
        found = json.loads(arguments)
    except ValueError:
        return False
    return isinstance(found, dict) and set(found) == {"city"} and found["city"] in _CITIES
