"""Two fingerprints in words: a table for a notebook, text for a terminal, in English or French."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from k3lib.judge.conditions import Condition
from k3lib.judge.drift import Drift, DriftReport
from k3lib.report.sentences import Language, render_case, render_word
from k3lib.report.tables import Table
from k3lib.spec.fingerprint import plain_name, view_of
from k3lib.spec.settings import name_changes
from k3lib.units import format_bytes

_MOST_MEMBERS = 6
_LONGEST_VALUE = 60


def render_drift(drift: Drift, language: Language = "en") -> tuple[str, str]:
    """
    One difference in words.

    Args:
        drift: The difference.
        language: `en` or `fr`.

    Returns:
        The sentence and the next step.
    """
    members = drift.facts["members"]
    facts = {
        **_shown(drift.facts),
        "what": _render_members(members, language),
        "others": ", ".join(m["name"] for m in members if not plain_name(m["name"]).startswith("gpu")),
    }
    return render_case("drift", drift.kind, facts, language)


def render_condition(condition: Condition, language: Language = "en") -> tuple[str, str]:
    """One condition of a place in words, and the next step."""
    sentence, next_step = render_case("condition", condition.kind, _shown(condition.facts), language)
    return (f"[{condition.view}] {sentence}" if condition.view else sentence), next_step


def table_drift(report: DriftReport, language: Language = "en") -> Table:
    """Every difference and condition, worst first: in words, what moved, what it voids, what to do."""

    def word(name: str) -> str:
        return render_word("drift", name, language)

    rows = [
        [
            render_word("severity", drift.severity, language),
            drift.group.value if drift.group else drift.members[0].key,
            *_sentence_and_more(render_drift(drift, language), drift.voids, language),
        ]
        for drift in report.differences
    ]
    for heading, conditions in (("condition", report.appeared), ("stayed", report.stayed)):
        rows += [
            [
                render_word("severity", condition.severity, language),
                word(heading),
                *_sentence_and_more(render_condition(condition, language), condition.voids, language),
            ]
            for condition in conditions
        ]
    columns = [word("severity"), word("group"), word("finding"), word("voids"), word("next")]
    return Table(columns, rows, f"{summarize_drift(report, language)} {describe_place(report, language)}")


def table_unknown(report: DriftReport, language: Language = "en") -> Table:
    """Fields that only one side knows: neither equal nor different."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for unknown in report.unknown:
        alike.setdefault((view_of(unknown.name), unknown.known, unknown.reason), []).append(unknown.name)
    rows = [
        [_name_some(names), render_word("drift", known, language), reason]
        for (_, known, reason), names in alike.items()
    ]
    columns = [render_word("drift", name, language) for name in ("field", "known", "reason")]
    return Table(columns, rows, render_word("drift", "one-side", language))


def summarize_drift(report: DriftReport, language: Language = "en") -> str:
    """The comparison in one sentence."""
    if report.differences:
        names = name_changes(report.changes)
        return render_word("drift", "drifted", language, n=len(report.differences), changes=len(names), names=names)
    if report.appeared:
        return render_word("drift", "conditions", language)
    if report.unknown:
        return render_word("drift", "unknown", language, n=len(report.unknown))
    return render_word("drift", "equal", language)


def describe_place(report: DriftReport, language: Language = "en") -> str:
    """Whether it is the same machine, and so whether numbers may be compared (C12)."""
    case = {True: "same", False: "other", None: "unknown"}[report.same_place]
    text = render_word("place", case, language)
    return f"({text})"


def render_drift_text(report: DriftReport, language: Language = "en") -> str:
    """The comparison for a terminal: a paragraph per difference."""
    lines = [f"{summarize_drift(report, language)} {describe_place(report, language)}"]
    voids = render_word("drift", "voids", language)
    following = render_word("drift", "next", language)
    for row in table_drift(report, language).rows:
        severity, moved, sentence, lost, next_step = row
        lines += [
            "",
            f"{severity.upper()}  {moved}",
            f"  {sentence}",
            f"  {voids}: {lost}",
            f"  {following}: {next_step}",
        ]
    if report.unknown:
        lines += ["", str(table_unknown(report, language))]
    return "\n".join(lines)


def _name_some(names: list[str]) -> str:
    rest = len(names) - _MOST_MEMBERS
    return ", ".join(names[:_MOST_MEMBERS]) + (f", … (+{rest})" if rest > 0 else "")


def _sentence_and_more(said: tuple[str, str], voids: str, language: Language) -> list[str]:
    return [said[0], render_word("voids", voids, language), said[1]]


def _shown(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts as a sentence takes them: memory in people's units, versions in one line."""
    shown = dict(facts)
    if "memory_bytes" in shown:
        shown["memory"] = format_bytes(shown["memory_bytes"])
    if "versions" in shown:
        shown["versions"] = ", ".join(f"{part} {version}" for part, version in shown["versions"].items())
    return shown


def _render_members(members: list[dict[str, Any]], language: Language) -> str:
    """`driver.nvidia.loaded 580.82 → 595.20; …`, as many as one can read."""
    leaves = [leaf for m in members for leaf in _leaves(m["name"], m["before"], m["after"])]
    shown = [_render_leaf(*leaf, language) for leaf in leaves[:_MOST_MEMBERS]]
    rest = [f"… (+{len(leaves) - _MOST_MEMBERS})"] if len(leaves) > _MOST_MEMBERS else []
    return "; ".join(shown + rest)


def _leaves(name: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """What differs inside a structured value, with its path; the rest of the value says nothing."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            if before.get(key) != after.get(key):
                yield from _leaves(f"{name}[{key}]", before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) > 1:
        gone, come = [v for v in before if v not in after], [v for v in after if v not in before]
        yield name, (gone or before), (come or after)
    else:
        yield name, before, after


def _render_leaf(name: str, before: Any, after: Any, language: Language) -> str:
    sized = name.endswith("_bytes") and not isinstance(before, str) and not isinstance(after, str)
    told = [
        format_bytes(value) if sized and value is not None else _short(value, language) for value in (before, after)
    ]
    return f"{name} {told[0]} → {told[1]}"


def _short(value: Any, language: Language) -> str:
    if value is None:
        return render_word("drift", "absent", language)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value) or "—"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
