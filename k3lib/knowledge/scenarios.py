"""
Scenarios of the rehearsal, typed; the scenarios themselves are in `rehearsal_scenarios.yaml`.

A scenario changes the machine, a number of the model, or lets a fault strike, so the same flags that would cure a real
failure cure the rehearsed one: a smaller `--max-model-len` lets `kv-too-small` start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from k3lib.errors import KnowledgeError
from k3lib.knowledge.data import malformed, read_knowledge

_FILE = "rehearsal_scenarios.yaml"
_TRIGGERS = frozenset({"start", "request", "requests", "shared-prefix", "long-context", "concurrency"})
_EVIDENCE = frozenset({"log", "requests", "metrics", "machine"})


@dataclass(frozen=True)
class Changes:
    """
    What differs from the healthy machine; the defaults leave it as it is.

    Args:
        gpu: Name of another accelerator.
        storage_bytes_per_s: Another read rate of the weights.
        prefill_tokens_per_s: Another rate of prefill.
        kv_left_gib: A profiling peak that leaves this much for the KV cache, GiB.
        kv_left_requests: The same, in requests of the maximum length.
        hidden_block_fraction: Blocks that the admission gate counts as free and that can't be had, 0–1.
        activation_factor: The activation peak against the model's.
        graph_factor: The captured graphs against the estimate.
        first_forward_gib: Memory outside the pool that the first request takes, GiB.
        context_mib_per_token: Memory outside the pool that a prefill step takes, MiB per token of context.
        sequence_gib: Memory outside the pool that a step takes per running sequence, GiB.
        tenant_gib: Memory that another process holds, GiB.
        tenant_process: Its command line.
        tenant_ranks: `one` GPU, by the seed, or `all`.
        tenant_since: `start`, or `weights` if it comes while they load.
        fault: Name of what strikes, in `rehearsal_faults.yaml`.
        fault_requests: The request that a fault of serving strikes at, from 1.
        answers: False if requests are accepted and never scheduled.
        corrupts_cached: Whether answers after a cache hit are wrong.
        driver: Another driver, a name in `hardware.yaml`.
        image: The build behind the image's tag, a name in `hardware.yaml`.
        environment: Variables that somebody left behind.
        probability: Chance that a start draws these changes, 0–1.
    """

    gpu: str | None = None
    storage_bytes_per_s: float | None = None
    prefill_tokens_per_s: float | None = None
    kv_left_gib: float | None = None
    kv_left_requests: float | None = None
    hidden_block_fraction: float = 0.0
    activation_factor: float = 1.0
    graph_factor: float = 1.0
    first_forward_gib: float | None = None
    context_mib_per_token: float = 0.0
    sequence_gib: float = 0.0
    tenant_gib: float = 0.0
    tenant_process: str = ""
    tenant_ranks: str = "one"
    tenant_since: str = "start"
    fault: str | None = None
    fault_requests: int = 1
    answers: bool = True
    corrupts_cached: bool = False
    driver: str | None = None
    image: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    probability: float = 1.0


@dataclass(frozen=True)
class LogReading:
    """
    What a reader of the log alone may answer.

    Args:
        failed: Whether the log shows a failure at all.
        phase, oom, route, domain: Acceptable answers.
    """

    failed: bool
    phase: tuple[str | None, ...]
    oom: tuple[str, ...]
    route: tuple[str, ...]
    domain: tuple[str | None, ...]


@dataclass(frozen=True)
class Label:
    """
    The ground truth of a scenario, in the vocabulary of triage.

    Args:
        phase: Where the failure stands, a value of `Phase`, or None where nothing fails.
        oom: A value of `Oom`.
        route: What it asks for next, a value of `Route`.
        domain: The specialist, a value of `Domain`, or None where nothing fails.
        trigger: What it takes: `start`, `request`, `requests`, `shared-prefix`, `long-context` or `concurrency`.
        shown_by: The evidence that tells: `log`, `requests`, `metrics` or `machine`.
        exit: Exit code of the first process once it failed, or None if it keeps running.
        log: What the log alone may be read as.
    """

    phase: str | None
    oom: str
    route: str
    domain: str | None
    trigger: str
    shown_by: str
    exit: int | None
    log: LogReading


@dataclass(frozen=True)
class Scenario:
    """
    One named rehearsal.

    Args:
        name: As in `K3_REHEARSAL_SCENARIO`.
        summary: One or two sentences by language, `en` and `fr`.
        changes: What differs.
        label: What it is and how it shows.
    """

    name: str
    summary: Mapping[str, str]
    changes: Changes
    label: Label

    def summary_in(self, language: str) -> str:
        """The summary in a language; in English where there is none in that."""
        return self.summary.get(language, self.summary["en"])


@cache
def list_scenarios() -> tuple[Scenario, ...]:
    """
    All scenarios in the order of the file, healthy first.

    >>> [scenario.name for scenario in list_scenarios()][:2]
    ['healthy', 'oom-weights']
    """
    return tuple(_parse(name, entry) for name, entry in read_knowledge(_FILE).items())


def find_scenario(name: str) -> Scenario:
    """
    One scenario.

    Raises:
        KnowledgeError: No such scenario; the message lists those there are.

    >>> find_scenario("kv-too-small").label.oom
    'kv-cache'
    """
    entries = read_knowledge(_FILE)
    if name in entries:
        return _parse(name, entries[name])
    raise KnowledgeError(
        f"no rehearsal scenario {name!r}",
        expected=f"one of {', '.join(entries)}",
        evidence=f"asked for {name!r}",
        next="set K3_REHEARSAL_SCENARIO to one of these; `k3 scenarios` describes them",
    )


def _parse(name: str, entry: Any) -> Scenario:
    try:
        return Scenario(name, _parse_summary(entry["summary"]), _parse_changes(entry), _parse_label(entry["expects"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        known = ", ".join(field.name for field in fields(Changes))
        raise malformed(_FILE, f"{name}: summary, changes ({known}), expects", str(error)) from error


def _parse_summary(summary: Mapping[str, str]) -> Mapping[str, str]:
    return {"en": summary["en"], "fr": summary["fr"]}


def _parse_changes(entry: Mapping[str, Any]) -> Changes:
    changes = Changes(**entry["changes"])
    for one in fields(Changes):
        value = getattr(changes, one.name)
        # YAML 1.1 reads 1.0e5 as a word and only 1.0e+5 as a number: exactly the slip this finds.
        if isinstance(value, str) and one.name.endswith(("_s", "_gib", "_factor", "_fraction", "_requests", "_token")):
            raise ValueError(f"{one.name} is not a number: {value}")
    if changes.tenant_ranks not in {"one", "all"} or changes.tenant_since not in {"start", "weights"}:
        raise ValueError(f"tenant_ranks {changes.tenant_ranks}, tenant_since {changes.tenant_since}")
    return changes


def _parse_label(expects: Mapping[str, Any]) -> Label:
    ending, log = expects["exit"], expects.get("log", {})
    failed = bool(log.get("failed", True))
    if expects["trigger"] not in _TRIGGERS or expects["shown_by"] not in _EVIDENCE:
        raise ValueError(f"trigger {expects['trigger']}, shown_by {expects['shown_by']}")
    return Label(
        phase=expects["phase"],
        oom=expects["oom"],
        route=expects["route"],
        domain=expects["domain"],
        trigger=expects["trigger"],
        shown_by=expects["shown_by"],
        exit=None if ending == "running" else int(ending),
        log=LogReading(
            failed=failed,
            phase=tuple(log.get("phase", [expects["phase"]] if failed else [None])),
            oom=tuple(log.get("oom", [expects["oom"]] if failed else ["none"])),
            route=tuple(log.get("route", [expects["route"]] if failed else ["none"])),
            domain=tuple(log.get("domain", [expects["domain"]] if failed else [None])),
        ),
    )
