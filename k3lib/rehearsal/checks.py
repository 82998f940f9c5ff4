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
_KINDS: dict[type | tuple[type, ...], tuple[str, str]] = {
    str: ("string_type", "Input should be a valid string"),
    list: ("list_type", "Input should be a valid list"),
    dict: ("dict_type", "Input should be a valid dictionary"),
    bool: ("bool_parsing", "Input should be a valid boolean, unable to interpret input"),
    int: ("int_parsing", "Input should be a valid integer, unable to parse string as an integer"),
    (int, float): ("float_parsing", "Input should be a valid number, unable to parse string as a number"),
    (str, list): ("string_type", "Input should be a valid string"),
    (str, dict): ("literal_error", "Input should be 'none', 'auto' or 'required'"),
}
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
    "temperature": (int, float),
    "top_p": (int, float),
    "max_tokens": int,
    "max_completion_tokens": int,
    "n": int,
}


class Refusal(Exception):
    """A request that vLLM refuses: its text, type, status and the parameter it names."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param


def invalid(*entries: tuple[str, str, str, object]) -> Refusal:
    """
    A body that does not fit its model, as vLLM words pydantic's findings.

    Args:
        entries: Type, place, message and input of each finding.

    Source: bodies of vLLM 0.32.0.

    >>> print(invalid(("missing", "body.messages", "Field required", {"model": "m"})))
    1 validation error:
      {'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', 'input': '<dict of 1 items>'}
    """
    lines = [
        f"{{'type': {kind!r}, 'loc': {place!r}, 'msg': {message!r}, 'input': {_shown(value)!r}}}"
        for kind, place, message, value in entries
    ]
    count = f"{len(lines)} validation error{'s' if len(lines) > 1 else ''}"
    return Refusal("\n  ".join([f"{count}:", *lines]), kind="Bad Request", param=entries[0][1])


def _shown(value: object) -> str:
    return f"<{type(value).__name__} of {len(value)} items>" if isinstance(value, dict | list) else str(value)


def check_types(body: Mapping[str, Any]) -> None:
    """Fields of a wrong type, refused as a validation error that names the field."""
    if body.get("messages") is None:
        raise invalid(("missing", "body.messages", "Field required", body))
    for key, kinds in _FIELDS.items():
        value = body.get(key)
        if value is not None and not _is_a(value, kinds):
            raise invalid((_KINDS[kinds][0], f"body.{key}", _KINDS[kinds][1], value))
    for index, message in enumerate(body["messages"]):
        _check_message(index, message)
    if isinstance(body.get("stop"), list) and not _is_list_of(body["stop"], str):
        raise invalid(("string_type", "body.stop.list[str].0", _KINDS[str][1], body["stop"]))
    if not body["messages"]:
        raise Refusal("Cannot apply chat template to an empty conversation. Provide at least one message.")
    _check_sampling(body)


def _is_a(value: object, kinds: type | tuple[type, ...]) -> bool:
    # Python counts True as a number; JSON does not.
    return isinstance(value, kinds) and (kinds is bool or not isinstance(value, bool))


def _check_message(index: int, message: object) -> None:
    place = f"body.messages.{index}.ChatCompletionDeveloperMessageParam"
    if not isinstance(message, dict):
        raise invalid(("dict_type", place, _KINDS[dict][1], message))
    if not isinstance(message.get("role"), str):
        raise invalid(("missing", f"{place}.role", "Field required", message))
    for key in ("content", "tool_calls"):
        parts = message.get(key)
        if not (parts is None or (key == "content" and isinstance(parts, str)) or _is_list_of(parts, dict)):
            raise invalid(("list_type", f"{place}.{key}", _KINDS[list][1], parts))


def _check_sampling(body: Mapping[str, Any]) -> None:
    if body.get("stream_options") is not None and not body.get("stream"):
        text = "Stream options can only be defined when `stream=True`. (parameter=stream_options)"
        raise Refusal(text, param="stream_options")
    temperature, top_p, choices = body.get("temperature"), body.get("top_p"), body.get("n") or 1
    if temperature is not None and temperature < 0:
        value = float(temperature)
        text = f"temperature must be non-negative, got {value}. (parameter=temperature, value={value})"
        raise Refusal(text, param="temperature")
    if top_p is not None and not 0 < top_p <= 1:
        value = float(top_p)
        raise Refusal(f"top_p must be in (0, 1], got {value}. (parameter=top_p, value={value})", param="top_p")
    if choices > 1 and temperature == 0:
        raise Refusal(f"n must be 1 when using greedy sampling, got {choices}.")
    if choices != 1:
        raise Refusal("The rehearsal engine answers with one choice only. (parameter=n)", param="n")


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(part, kind) for part in value)


def check_model(body: Mapping[str, Any], config: EngineConfig) -> str:
    """
    The served name that a request asks for; the first one if it asks for none.

    Raises:
        Refusal: It is not served; 404.
    """
    model = body.get("model") or config.served_names[0]
    if model not in config.served_names:
        text = f"The model `{model}` does not exist. Valid aliases: {', '.join(config.served_names)}."
        raise Refusal(text, status=404, kind="NotFoundError", param="model")
    return str(model)


def check_tools(body: Mapping[str, Any], config: EngineConfig) -> None:
    """Tools need names, a parser where the model chooses, and a choice that names one of them."""
    tools, choice = body.get("tools"), body.get("tool_choice", "auto")
    if not tools:
        return
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)]
    names = [function.get("name") for function in functions if isinstance(function, dict)]
    if len(names) != len(tools) or not _is_list_of(names, str):
        raise invalid(("missing", "body.tools.0.function", "Field required", tools[0]))
    if choice == "auto" and not config.tool_parser:
        raise Refusal('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    if choice == "required" and not config.tool_parser:
        raise Refusal('tool_choice="required" requires --tool-call-parser to be set')
    if isinstance(choice, dict):
        named = (choice.get("function") or {}).get("name")
        if named not in names:
            text = "The tool specified in `tool_choice` does not match any of the specified `tools`"
            raise Refusal(f"{text} (parameter=tool_choice)", param="tool_choice")
        if not config.tool_parser:
            raise Refusal(f'tool_choice=function "{named}" requires --tool-call-parser to be set')


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
    given = [body[key] for key in ("max_completion_tokens", "max_tokens") if body.get(key) is not None]
    asked: int | None = given[0] if given else None
    if asked is not None and asked < 1:
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
