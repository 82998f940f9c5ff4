"""What a running engine says about itself: /version, /v1/models and /metrics, read once."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from k3lib.logs.metrics import CACHE_CONFIG, Metrics, parse_metrics
from k3lib.measure.http import Getter, HttpAnswer
from k3lib.spec.results import EndpointState, ServedModel


def read_endpoint(base_url: str, *, timeout_s: float = 5.0, api_key: str | None = None) -> EndpointState:
    """
    The engine's own account of its state.

    Args:
        base_url: Address of the engine, with or without `/v1`.
        timeout_s: For connecting and for each read, seconds.
        api_key: Sent as a bearer token, or None.

    Returns:
        What it told; for each thing it did not tell, the reason.

    Raises:
        SpecError: The address is not one.
    """
    with Getter(base_url, timeout_s=timeout_s, api_key=api_key) as getter:
        version, models, metrics = (getter.get(path) for path in ("/version", "/v1/models", "/metrics"))
    reasons: dict[str, str] = {}
    text = parse_metrics(metrics.body) if metrics.error is None else None
    if text is None:
        reasons["metric_families"] = reasons["cache_config"] = f"/metrics: {metrics.error}"
    return EndpointState(
        base_url=base_url,
        read_at=datetime.now().astimezone().isoformat(timespec="milliseconds"),
        version=_read_version(version, reasons),
        models=_read_models(models, reasons),
        cache_config=None if text is None else _agreed_cache_config(text, reasons),
        metric_families=None if text is None else list(text.families),
        reasons=reasons,
    )


def _read_version(answer: HttpAnswer, reasons: dict[str, str]) -> str | None:
    body = _json_of(answer, "/version", "version", reasons)
    version = body.get("version")
    if isinstance(version, str):
        return version
    reasons.setdefault("version", "/version holds no version")
    return None


def _read_models(answer: HttpAnswer, reasons: dict[str, str]) -> list[ServedModel] | None:
    body = _json_of(answer, "/v1/models", "models", reasons)
    entries = body.get("data")
    if not isinstance(entries, list):
        reasons.setdefault("models", "/v1/models holds no list")
        return None
    return [
        ServedModel(id=entry["id"], root=_text(entry.get("root")), max_model_len=_count(entry.get("max_model_len")))
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    ]


def _agreed_cache_config(metrics: Metrics, reasons: dict[str, str]) -> dict[str, str] | None:
    """The labels on which all engines agree; the reasons name the others with their values."""
    configs = metrics.cache_configs()
    if not configs:
        reasons["cache_config"] = f"/metrics holds no {CACHE_CONFIG}; the Rust front end does not print it"
        return None
    agreed: dict[str, str] = {}
    for label in sorted({label for config in configs for label in config} - {"engine"}):
        values = list(dict.fromkeys(config.get(label, "(absent)") for config in configs))
        if len(values) == 1:
            agreed[label] = values[0]
        else:
            reasons[f"cache_config.{label}"] = f"the engines differ: {', '.join(values)}"
    return agreed


def _json_of(answer: HttpAnswer, path: str, field: str, reasons: dict[str, str]) -> dict[str, Any]:
    if answer.error is not None:
        reasons[field] = f"{path}: {answer.error}"
        return {}
    body = answer.json()
    if not isinstance(body, dict):
        reasons[field] = f"{path} is not a JSON object"
        return {}
    return body


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
