"""A machine in words: what it has, what can be done with it, what is wrong, what could not be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from k3lib.judge.conditions import Condition
from k3lib.report.drift import render_condition
from k3lib.report.sentences import Language, render_case, render_word
from k3lib.spec.accelerators import Driver, Gpu
from k3lib.spec.snapshot import KernelEvent, Snapshot
from k3lib.units import format_bytes

_LONGEST_REASON = 160
_TOLD_EVENTS = ("oom-kill", "driver-error", "hardware-error")


@dataclass(frozen=True)
class Ability:
    """
    One thing that can be done here, or not.

    Args:
        topic: `docker`, `fit`.
        case: Case of the topic's sentence, `ready`, `absent`.
        facts: What the sentence needs; a number of bytes under a name that ends in `_bytes`.
        place: Where, if more than one place was looked at.
    """

    topic: str
    case: str
    facts: dict[str, Any] = field(default_factory=dict)
    place: str | None = None

    def sentence(self, language: Language = "en") -> str:
        """Its sentence; an estimate says that it is one."""
        shown = {
            k.removesuffix("_bytes"): format_bytes(v) if k.endswith("_bytes") else v for k, v in self.facts.items()
        }
        said = render_case(f"doctor.{self.topic}", self.case, shown, language)[0]
        return f"{said} ({render_word('doctor', 'estimate', language)})" if self.topic == "fit" else said


def describe_abilities(abilities: Sequence[Ability], language: Language = "en") -> list[str]:
    """A line per ability, aligned."""
    names = [render_word("doctor", one.topic, language) + (f" ({one.place})" if one.place else "") for one in abilities]
    width = max(map(len, names), default=0)
    return [f"{name:<{width}}  {one.sentence(language)}" for name, one in zip(names, abilities, strict=True)]


def describe_machine(snapshot: Snapshot, language: Language = "en") -> list[str]:
    """Place, machine, driver and GPUs, a line each."""
    host, place = snapshot.host, snapshot.place
    kind = render_word("doctor", place.kind, language)
    about = [host.name, kind, place.runtime, place.scheduler if place.scheduler != place.runtime else None]
    parts = [host.machine, host.processor, f"{host.processors} CPU" if host.processors else None]
    parts += [format_bytes(host.memory_bytes) if host.memory_bytes else None, host.system, host.kernel]
    rows = [("place", " · ".join(filter(None, about))), ("machine", " · ".join(filter(None, parts)))]
    rows += [("driver", describe_driver(driver, language)) for driver in snapshot.drivers]
    rows.append(("gpus", gpu_ability(snapshot).sentence(language)))
    names = [render_word("doctor", name, language) for name, _ in rows]
    return [f"{name:<{max(map(len, names))}}  {text}" for name, (_, text) in zip(names, rows, strict=True)]


def describe_driver(driver: Driver, language: Language = "en") -> str:
    """A driver in one sentence; one version where all agree, else each with its name."""
    told = driver.versions
    same = next(iter(told.values())) if len(set(told.values())) == 1 else None
    versions = same or ", ".join(f"{name} {version}" for name, version in told.items()) or "—"
    error = " ".join((driver.error or "").split())[:_LONGEST_REASON]
    facts = {"vendor": driver.vendor, "versions": versions, "cuda": driver.cuda, "rocm": driver.rocm, "error": error}
    return render_case("doctor.driver", "seen", facts, language)[0]


def gpu_ability(snapshot: Snapshot) -> Ability:
    """The GPUs of a place as one entry."""
    if snapshot.gpus is None:
        return Ability("gpus", "unknown", {"why": _short(snapshot.reasons.get("gpus", "—"))})
    usable = [gpu for gpu in snapshot.gpus if not gpu.lost]
    if not usable:
        return Ability("gpus", "none")
    names = Counter(gpu.name or "?" for gpu in usable)
    if len(names) > 1:
        return Ability("gpus", "mixed", {"n": len(usable), "names": [f"{n}× {name}" for name, n in names.items()]})
    return Ability("gpus", "seen", _gpu_facts(usable, len(snapshot.gpus) - len(usable)))


def _gpu_facts(usable: list[Gpu], lost: int) -> dict[str, Any]:
    first = usable[0]
    sizes = [gpu.memory_total_bytes for gpu in usable if gpu.memory_total_bytes is not None]
    return {
        "n": len(usable), "name": first.name, "memory_bytes": min(sizes) if sizes else None,
        "capability": first.capability, "lost": lost, "cut": sum(bool(gpu.slices) for gpu in usable),
    }  # fmt: skip


def render_findings(snapshot: Snapshot, conditions: Sequence[Condition], language: Language = "en") -> list[str]:
    """What is wrong or can mislead, worst first, each with its next step."""
    found = []
    for condition in conditions:
        sentence, step = render_condition(condition, language)
        found.append(f"{sentence} {render_word('doctor', 'next', language)} {step}" if step else sentence)
    for one in snapshot.disagreements:
        values = ", ".join(f"{source}: {value}" for source, value in one.values.items())
        facts = {"what": one.what, "gpu": one.gpu, "values": values}
        found.append(render_case("doctor.disagreement", "sources", facts, language)[0])
    return found + _render_events(snapshot.kernel_events or [], language)


def _render_events(events: Sequence[KernelEvent], language: Language) -> list[str]:
    found = []
    for kind in _TOLD_EVENTS:
        these = [event for event in events if event.kind == kind]
        if these:
            facts = {"n": len(these), "kind": kind, "at": these[-1].at or "—", "text": _short(these[-1].text)}
            found.append(render_case("doctor.kernel", "events", facts, language)[0])
    return found


def render_unknown(snapshot: Snapshot, language: Language = "en") -> list[str]:
    """What could not be read and why, and what root would add."""
    lines = [f"{name}: {_short(reason)}" for name, reason in snapshot.reasons.items()]
    if snapshot.root_would_add:
        lines.append(render_case("doctor.root", "more", {"what": snapshot.root_would_add}, language)[0])
    return lines


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 1] + "…"
