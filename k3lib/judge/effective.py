"""
Does the engine run what was intended? A comparison only; a mismatch voids the trial, unknown never does.

/metrics and /v1/models come first, because they tell the running state; the log second. What neither
tells is unknown, with the reason: under the Rust front end there is no `vllm:cache_config_info`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from k3lib.knowledge.versions import parse_release
from k3lib.logs.values import EngineValues
from k3lib.spec.model import Fact
from k3lib.spec.results import EndpointState, ServedModel


class EffectiveField(Fact):
    """
    One setting, intended and in effect.

    Args:
        name: The setting.
        intended: What was asked for; None where it was left to the engine.
        effective: What runs; None if nobody tells.
        source: Who tells it, or None.
        agrees: None if it cannot be told, or if nothing was asked for.
        reason: Why `agrees` is None, or what else is worth saying.
    """

    name: str
    intended: Any = None
    effective: Any = None
    source: str | None = None
    agrees: bool | None = None
    reason: str | None = None


def compare_effective(
    intended: Mapping[str, Any],
    endpoint: EndpointState | None,
    log_values: EngineValues | Mapping[str, object],
) -> list[EffectiveField]:
    """
    Every intended setting beside what runs, then what runs without having been asked for.

    Args:
        intended: Flat settings as asked, and `served_model`, `model`, `release`; None means left to the engine.
        endpoint: What the engine says of itself, or None if it was not asked.
        log_values: What its log told.

    Returns:
        One row per setting, in a fixed order; a setting that no source ever tells has a reason.

    >>> [row] = compare_effective({"release": "0.32.0+cpu"}, None, {"version": "0.32.0"})
    >>> row.agrees, row.source
    (True, 'log')
    """
    told = log_values if isinstance(log_values, Mapping) else log_values.model_dump()
    rows = []
    for name, question in _QUESTIONS.items():
        row = _compare(name, question, intended.get(name), _Witnesses(intended, endpoint, told))
        if row.intended is not None or row.effective is not None:
            rows.append(row)
    untold = {key: value for key, value in intended.items() if key not in _QUESTIONS and value is not None}
    reason = "neither /metrics nor the log tells it"
    return rows + [EffectiveField(name=key, intended=value, reason=reason) for key, value in untold.items()]


@dataclass(frozen=True)
class _Witnesses:
    """Who can be asked about one start."""

    intended: Mapping[str, Any]
    endpoint: EndpointState | None
    log: Mapping[str, object]

    def label(self, name: str) -> str | None:
        """A label of `vllm:cache_config_info`."""
        config = self.endpoint.cache_config if self.endpoint else None
        return config.get(name) if config else None

    def model(self) -> ServedModel | None:
        """The served model that requests will use, or the only one."""
        models = (self.endpoint.models if self.endpoint else None) or []
        wanted = self.intended.get("served_model")
        named = [model for model in models if model.id == wanted]
        return next(iter(named or models), None)


@dataclass(frozen=True)
class _Question:
    """
    How one setting is found out.

    Args:
        label: Label of `vllm:cache_config_info`, or None.
        read_label: Turns its text into a value.
        endpoint: Another place of the endpoint, with its path; None where there is none.
        log: Name of the value in the log, or None.
        agree: Whether intended and effective are the same; None if that cannot be told.
    """

    label: str | None = None
    read_label: Callable[[str], Any] = str
    endpoint: tuple[str, Callable[[_Witnesses], Any]] | None = None
    log: str | None = None
    agree: Callable[[Any, Any], bool | None] = lambda intended, effective: bool(intended == effective)

    def answers(self, witnesses: _Witnesses) -> list[tuple[Any, str]]:
        """What each witness says, with its name, the first one first."""
        found: list[tuple[Any, str]] = []
        if self.label is not None and (text := witnesses.label(self.label)) is not None:
            found.append((_read(self.read_label, text), f"/metrics {self.label}"))
        if self.endpoint is not None:
            path, ask = self.endpoint
            found.append((ask(witnesses), path))
        if self.log is not None:
            found.append((witnesses.log.get(self.log), "log"))
        return [(value, source) for value, source in found if value is not None]


def _compare(name: str, question: _Question, intended: Any, witnesses: _Witnesses) -> EffectiveField:
    answers = question.answers(witnesses)
    if not answers:
        return EffectiveField(name=name, intended=intended, reason=_why_untold(question, witnesses))
    effective, source = answers[0]
    others = [f"{other} says {value}" for value, other in answers[1:] if question.agree(value, effective) is False]
    agrees = None if intended is None else question.agree(intended, effective)
    reasons = others if agrees is not None else [*others, _why_open(intended, effective)]
    return EffectiveField(
        name=name,
        intended=intended,
        effective=effective,
        source=source,
        agrees=agrees,
        reason="; ".join(reasons) or None,
    )


def _why_untold(question: _Question, witnesses: _Witnesses) -> str:
    endpoint = witnesses.endpoint
    if endpoint is None:
        return "the engine was not asked, and its log does not tell"
    field = "cache_config" if question.label else "version" if question.log == "version" else "models"
    known = endpoint.reasons.get(f"cache_config.{question.label}") or endpoint.reasons.get(field)
    if known:
        return f"{known}; its log does not tell"
    return "neither the endpoint nor the log tells it"


def _why_open(intended: Any, effective: Any) -> str:
    if intended is None:
        return "left to the engine"
    if intended == "auto":
        return "`auto` leaves the choice to the engine"
    return f"{intended} and {effective} cannot be compared"


def _read(reader: Callable[[str], Any], text: str) -> Any:
    try:
        return reader(text)
    except (ValueError, KeyError):  # a release that prints something else: unknown, not wrong
        return None


def _truth(text: str) -> bool:
    return {"True": True, "False": False}[text]


def _interval(text: str) -> int | str:
    return "dense" if text == "None" else int(text)


def _same_release(intended: Any, effective: Any) -> bool | None:
    return parse_release(str(intended)).same_public(parse_release(str(effective)))


_TYPE_NAMES = {"fp8": "fp8_e4m3", "half": "float16", "float": "float32"}


def _same_path(intended: Any, effective: Any) -> bool:
    return str(intended).rstrip("/") == str(effective).rstrip("/")


def _same_type(intended: Any, effective: Any) -> bool | None:
    """Types and formats: the log writes `torch.bfloat16`, `fp8` is short for `fp8_e4m3`, `auto` is open."""
    ours, theirs = (_TYPE_NAMES.get(name, name) for name in (str(intended), str(effective).removeprefix("torch.")))
    return None if ours == "auto" != theirs else ours.removeprefix("torch.") == theirs


def _same_method(intended: Any, effective: Any) -> bool | None:
    """Quantisation: the engine may put a faster kernel of the same method in its place, `awq_marlin` for `awq`."""
    return None if str(effective).startswith(f"{intended}_") else bool(intended == effective)


def _close(intended: Any, effective: Any) -> bool:
    return math.isclose(float(intended), float(effective), rel_tol=1e-6)


def _length(intended: Any, effective: Any) -> bool | None:
    return None if intended == "auto" else bool(intended == effective)


def _served_name(witnesses: _Witnesses) -> str | None:
    model = witnesses.model()
    return model.id if model else None


def _root(witnesses: _Witnesses) -> str | None:
    model = witnesses.model()
    return model.root if model else None


def _served_length(witnesses: _Witnesses) -> int | None:
    model = witnesses.model()
    return model.max_model_len if model else None


def _version(witnesses: _Witnesses) -> str | None:
    return witnesses.endpoint.version if witnesses.endpoint else None


_QUESTIONS: dict[str, _Question] = {
    "release": _Question(endpoint=("/version", _version), log="version", agree=_same_release),
    "model": _Question(endpoint=("/v1/models root", _root), log="model", agree=_same_path),
    "served_model": _Question(endpoint=("/v1/models id", _served_name)),
    "max_model_len": _Question(
        endpoint=("/v1/models max_model_len", _served_length), log="max_model_len", agree=_length
    ),
    "prefix_caching": _Question(label="enable_prefix_caching", read_label=_truth, log="prefix_caching"),
    "retention_interval_tokens": _Question(label="prefix_cache_retention_interval", read_label=_interval),
    "block_size_tokens": _Question(label="block_size", read_label=int, log="block_size_tokens"),
    "prefix_match_unit_tokens": _Question(label="prefix_match_unit", read_label=int),
    "mamba_cache_mode": _Question(label="mamba_cache_mode", log="mamba_cache_mode"),
    "kv_cache_dtype": _Question(label="cache_dtype", log="kv_cache_dtype", agree=_same_type),
    "gpu_memory_utilization": _Question(label="gpu_memory_utilization", read_label=float, agree=_close),
    "num_gpu_blocks_override": _Question(label="num_gpu_blocks_override", read_label=int),
    "tensor_parallel": _Question(log="tensor_parallel"),
    "pipeline_parallel": _Question(log="pipeline_parallel"),
    "data_parallel": _Question(log="data_parallel"),
    "decode_context_parallel": _Question(log="decode_context_parallel"),
    "load_format": _Question(log="load_format", agree=_same_type),
    "dtype": _Question(log="dtype", agree=_same_type),
    "quantization": _Question(log="quantization", agree=_same_method),
    "enforce_eager": _Question(log="enforce_eager"),
    "seed": _Question(log="seed"),
}
