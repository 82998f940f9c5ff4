"""The tables of stage 20: what was looked at, the estimate, the recipe beside the base, control, and an acceptance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from k3lib.judge.compatibility_acceptance import compare_delivery
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.judge.compatibility_memory import describe_layout, estimate_memory
from k3lib.judge.control import QUESTIONS, DossierItem
from k3lib.judge.verdict import Verdict
from k3lib.knowledge.recipe import load_recipe
from k3lib.report.sentences import Language, render_case, render_verdict, render_word
from k3lib.report.tables import Table
from k3lib.spec.snapshot import Snapshot
from k3lib.units import GIB, format_bytes

_word = partial(render_word, "compatibility")


def table_places(facts: CompatibilityFacts, language: Language = "en") -> Table:
    """A row per host and container that was looked at, or the modelled machine."""
    keys = ("place", "architecture", "gpus", "memory-gib", "driver", "cuda", "host-memory", "shm", "taken")
    rows = [
        [f"{_word(place.place.kind, language)} {place.host.name or ''}".strip(), *_place_row(place, language)]
        for place in [*facts.hosts, *facts.containers]
    ]
    caption = _word("modelled-caption" if facts.modelled else "hosts-caption", language)
    return Table([_word(key, language) for key in keys], rows, caption)


def _place_row(place: Snapshot, language: Language) -> list[Any]:
    gpus = place.gpus
    names = sorted({gpu.name or "?" for gpu in gpus or []})
    sizes = sorted({round(gpu.memory_total_bytes / GIB, 1) for gpu in gpus or [] if gpu.memory_total_bytes})
    driver = place.drivers[0] if place.drivers else None
    counted = _word("nobody", language) if gpus is None else f"{len(gpus)} × {', '.join(names)}" if gpus else "0"
    return [
        place.host.machine,
        counted,
        ", ".join(map(str, sizes)) or None,
        (driver.loaded or driver.asked or driver.error) if driver else None,
        driver.cuda if driver else None,
        format_bytes(place.host.memory_bytes),
        format_bytes(place.host.shm_size_bytes),
        place.taken_at,
    ]


def table_topic(verdicts: Sequence[Verdict], names: Sequence[str], caption: str, language: Language = "en") -> Table:
    """What the rules of one question found, in their order; rules that say the same stand in one row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for name, verdict in ((verdict.rule.removeprefix("compatibility."), verdict) for verdict in verdicts):
        if name in names:
            rows.setdefault((verdict.outcome.value, *render_verdict(verdict, language)), []).append(name)
    shown = [[outcome, ", ".join(rules), text, step or None] for (outcome, text, step), rules in rows.items()]
    return Table([_word(key, language) for key in ("outcome", "rule", "finding", "next")], shown, caption)


def table_memory(facts: CompatibilityFacts, language: Language = "en") -> Table:
    """The memory of one GPU as arithmetic: an explanation and an estimate, never a proof (R-08, R-14)."""
    columns = [_word(key, language) for key in ("item", "gib", "origin")]
    estimate = estimate_memory(facts)
    if estimate is None:
        return Table(columns, [], _word("no-memory", language))
    layout = describe_layout(facts)
    assumed = _word("assumed", language)
    lines = [
        ("reported", estimate.memory_bytes, _word("by-profile" if facts.modelled else "by-driver", language)),
        ("usable", estimate.usable_bytes, _word("share", language, value=estimate.utilization)),
        ("weights", estimate.weights_bytes, _word("arithmetic", language, layout=layout)),
        ("spread", estimate.spread_bytes, _word("arithmetic", language, layout="EP")),
        ("runtime", estimate.runtime_bytes, assumed),
        ("cache", estimate.cache_bytes, _word("difference", language)),
    ]
    rows = [[_word(key, language), round(size / GIB, 1), origin] for key, size, origin in lines]
    return Table(columns, rows, _word("memory-caption", language))


def table_recipe(facts: CompatibilityFacts, language: Language = "en") -> Table:
    """Each setting of the recipe's command beside the campaign's base; a difference is no fault, it is to be known."""
    recipe = load_recipe()
    wanted, base = recipe.block_of(facts.gpu_kind, facts.strategy).flat(), facts.settings.flat()
    unsaid = _word("unsaid", language)
    rows = [
        [
            key,
            _shown(wanted.get(key), unsaid),
            _shown(base.get(key), unsaid),
            _word(_reading(key, wanted, base), language),
        ]
        for key in [*wanted, *(key for key in base if key not in wanted)]
    ]
    source = recipe.cite(recipe.blocks["base"].source)
    caption = _word("recipe-caption", language, gpu=facts.gpu_kind or "?", strategy=facts.strategy, source=source)
    return Table([_word(key, language) for key in ("setting", "recipe-says", "base-says", "reading")], rows, caption)


def _reading(key: str, wanted: dict[str, Any], base: dict[str, Any]) -> str:
    if key in wanted and key in base:
        return "same" if wanted[key] == base[key] else "differs"
    return "recipe-only" if key in wanted else "base-only"


def _shown(value: Any, unsaid: str) -> str:
    """As a campaign file would write it."""
    return unsaid if value is None else value if isinstance(value, str) else json.dumps(value)


def table_contradictions(language: Language = "en") -> Table:
    """What is published and does not go together: both sides with their sources, and how it is read here."""
    recipe = load_recipe()
    rows = []
    for found in recipe.contradictions:
        topic, reading = getattr(found.topic, language), getattr(found.reading, language)
        for side in found.sides:
            rows.append([topic, getattr(side.says, language), recipe.cite(side.source), reading])
            topic = reading = ""
    columns = [_word(key, language) for key in ("topic", "says", "source", "we-read")]
    return Table(columns, rows, _word("contradictions-caption", language))


def table_control(facts: CompatibilityFacts, language: Language = "en") -> Table:
    """The six questions in order, with the answers."""
    rows = []
    for number, question in enumerate(QUESTIONS, start=1):
        answer = getattr(facts.control, question)
        said = "nobody" if answer is None else "yes" if answer else "no"
        rows.append(
            [number, _say("question", question, language), _word(said, language), facts.conditions.get(question)]
        )
    columns = [_word(key, language) for key in ("number", "question", "answer", "condition")]
    return Table(columns, rows, _word("control-caption", language))


def table_dossier(items: Sequence[DossierItem], language: Language = "en") -> Table:
    """The six items of a dossier with their status (R-50)."""
    words = {True: "confirmed", False: "refuted", None: "open"}
    rows = [
        [
            number,
            _say("dossier", item.key, language),
            _word(words[item.confirmed], language),
            ", ".join(item.rules) or _word("later", language),
        ]
        for number, item in enumerate(items, start=1)
    ]
    columns = [_word(key, language) for key in ("number", "topic", "status", "rules")]
    return Table(columns, rows, _word("dossier-caption", language))


def table_acceptance(facts: CompatibilityFacts, language: Language = "en") -> Table:
    """Every line of the order beside what came."""
    words = {True: "kept", False: "short", None: "nobody"}
    lines = compare_delivery(facts)
    rows = [[line.name, line.ordered, line.delivered, _word(words[line.kept], language)] for line in lines]
    columns = [_word(key, language) for key in ("line", "ordered", "delivered", "reading")]
    return Table(columns, rows, _word("acceptance-caption" if lines else "no-order", language))


def _say(topic: str, key: str, language: Language) -> str:
    return render_case(topic, key, {}, language)[0]
