"""
Scenarios of the rehearsal, typed; the changes themselves are in `rehearsal_scenarios.yaml`.

A scenario changes the machine or a number of the model and nothing else, so the same flags that would cure a real
failure cure the rehearsed one: a smaller `--max-model-len` lets `kv-too-small` start.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from k3lib.errors import KnowledgeError
from k3lib.knowledge.data import malformed, read_knowledge

_FILE = "rehearsal_scenarios.yaml"


@dataclass(frozen=True)
class Changes:
    """
    What differs from the healthy machine; None leaves the machine as it is.

    Args:
        gpu: Name of another accelerator.
        storage_bytes_per_s: Another read rate of the weights.
        kv_left_gib: A profiling peak that leaves this much for the KV cache, GiB.
        first_forward_gib: Memory outside the pool that the first request takes, GiB.
        co_tenant_gib: Memory another process takes on one GPU while the weights load, GiB.
        probability: Chance that a start draws these changes, 0–1.
        answers: False if requests are accepted and never scheduled.
    """

    gpu: str | None = None
    storage_bytes_per_s: float | None = None
    kv_left_gib: float | None = None
    first_forward_gib: float | None = None
    co_tenant_gib: float | None = None
    probability: float = 1.0
    answers: bool = True


@dataclass(frozen=True)
class Scenario:
    """
    One named rehearsal.

    Args:
        name: As in `K3_REHEARSAL_SCENARIO`.
        summary: One sentence for `k3 scenarios`.
        phase: Phase the engine ends in, a value of `k3lib.spec.vocabulary.Phase`.
        exit: Exit code of the first process, or None if it keeps running.
        changes: What differs.
    """

    name: str
    summary: str
    phase: str
    exit: int | None
    changes: Changes


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
    """
    for scenario in list_scenarios():
        if scenario.name == name:
            return scenario
    names = ", ".join(scenario.name for scenario in list_scenarios())
    raise KnowledgeError(
        f"no rehearsal scenario {name!r}",
        expected=f"one of {names}",
        evidence=f"asked for {name!r}",
        next="set K3_REHEARSAL_SCENARIO to one of these; `k3 scenarios` describes them",
    )


def _parse(name: str, entry: Any) -> Scenario:
    try:
        expects, changes = entry["expects"], entry["changes"]
        ending = expects["exit"]
        words = [key for key in set(changes) - {"gpu"} if isinstance(changes[key], str)]
        if words:  # YAML 1.1 reads 1.0e5 as a word and only 1.0e+5 as a number
            raise ValueError(f"not a number: {', '.join(sorted(words))}")
        return Scenario(
            name=name,
            summary=entry["summary"],
            phase=expects["phase"],
            exit=None if ending == "running" else int(ending),
            changes=Changes(**changes),
        )
    except (KeyError, TypeError, ValueError) as error:
        known = ", ".join(field.name for field in fields(Changes))
        raise malformed(_FILE, f"{name}: summary, expects (phase, exit), changes ({known})", str(error)) from error
