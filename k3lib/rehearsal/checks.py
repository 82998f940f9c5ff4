"""
What vLLM 0.33.0 refuses in a chat request, with its texts, types and status codes.

Kimi K3 takes `reasoning_effort` low, high or max; `none`, or `chat_template_kwargs` with `thinking: false`, turns
thinking off. Source: vLLM 0.33.0 renderers/kimi_k3.py:26,47-63.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k3lib.rehearsal.config import EngineConfig

_EFFORTS = ("low", "high", "max")
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "model": str,
    "messages": list,
    "stream": bool,
    "stream_options": dict,
    "tools": list,
    "tool_choice": (str, dict),
    "reasoning_effort": str,
    "chat_template_kwargs": dict,
    "ignore_eos": bool,
    "stop": (str, list),
    "cache_salt": str,
}


class Refusal(Exception):
    """A request that vLLM refuses: its text, type, status and the parameter it names."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param


def check_types(body: Mapping[str, Any]) -> None:
    """Fields of a wrong type, refused as a validation error that names the field."""
    for key, kinds in _FIELDS.items():
        value = body.get(key)
        if value is None and key != "messages":
            continue
        if not isinstance(value, kinds) or (key == "messages" and not value):
            raise _invalid(key, value)
    for message in body["messages"]:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _invalid("messages", message)
        for key in ("content", "tool_calls"):
            parts = message.get(key)
            if not (parts is None or (key == "content" and isinstance(parts, str)) or _is_list_of(parts, dict)):
                raise _invalid(key, parts)
    if isinstance(body.get("stop"), list) and not _is_list_of(body["stop"], str):
        raise _invalid("stop", body["stop"])
    if body.get("n", 1) not in (1, None):
        raise Refusal("The rehearsal engine answers with one choice only. (parameter=n)", param="n")


def _invalid(key: str, value: Any) -> Refusal:
    kind = "missing" if value is None else "type_error"
    text = f"1 validation error: {{'type': '{kind}', 'loc': ('body', '{key}'), 'input': {str(value)[:80]!r}}}"
    return Refusal(text, kind="Bad Request", param=key)


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(part, kind) for part in value)


def check_tools(body: Mapping[str, Any], config: EngineConfig) -> None:
    """Tools need names, a parser where the model chooses, and a choice that names one of them."""
    tools, choice = body.get("tools"), body.get("tool_choice", "auto")
    if not tools:
        return
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)]
    names = [function.get("name") for function in functions if isinstance(function, dict)]
    if len(names) != len(tools) or not _is_list_of(names, str):
        raise _invalid("tools", tools)
    if choice == "auto" and not config.tool_parser:
        raise Refusal('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    if choice == "required" and not config.tool_parser:
        raise Refusal('tool_choice="required" requires --tool-call-parser to be set')
    if isinstance(choice, dict) and (choice.get("function") or {}).get("name") not in names:
        raise Refusal(
            "The tool specified in `tool_choice` does not match any of the specified `tools`", param="tool_choice"
        )


def read_effort(body: Mapping[str, Any]) -> str | None:
    """How hard the model thinks: low, high, max, or None for not at all."""
    options = body.get("chat_template_kwargs") or {}
    if options.get("thinking") is False or options.get("enable_thinking") is False:
        return None
    effort = body.get("reasoning_effort") or options.get("thinking_effort") or "max"
    if effort == "none":
        return None
    if effort not in _EFFORTS:
        raise Refusal(f"Kimi K3 supports thinking_effort values: {', '.join(_EFFORTS)}", param="reasoning_effort")
    return str(effort)


def read_limit(body: Mapping[str, Any], prompt_tokens: int, max_model_len: int) -> int:
    """Output tokens at most: as asked, or what the context leaves."""
    asked = body.get("max_completion_tokens") or body.get("max_tokens")
    if asked is not None and (not isinstance(asked, int) or isinstance(asked, bool) or asked < 1):
        text = f"max_tokens must be at least 1, got {asked}. (parameter=max_tokens, value={asked})"
        raise Refusal(text, param="max_tokens")
    if asked is not None and asked > max_model_len:
        text = (
            f"max_tokens={asked} cannot be greater than max_model_len={max_model_len}. Please request fewer output "
            "tokens. "
            f"(parameter=max_tokens, value={asked})"
        )
        raise Refusal(text, param="max_tokens")
    if prompt_tokens >= max_model_len:
        text = (
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains at least "
            f"{prompt_tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce "
            "the length "
            f"of the input prompt. (parameter=input_tokens, value={prompt_tokens})"
        )
        raise Refusal(text, param="input_tokens")
    if asked is not None and prompt_tokens + asked > max_model_len:
        text = (
            f"This model's maximum context length is {max_model_len} tokens. However, you requested {asked} output "
            "tokens and "
            f"your prompt contains at least {prompt_tokens} input tokens, for a total of at least "
            f"{prompt_tokens + asked} "
            "tokens. Please reduce the length of the input prompt or the number of requested output tokens. "
            f"(parameter=input_tokens, value={prompt_tokens})"
        )
        raise Refusal(text, param="input_tokens")
    return asked or max_model_len - prompt_tokens
