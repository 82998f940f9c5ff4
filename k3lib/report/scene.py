"""The tables of a scene: the eight items, host and container side by side, who holds what, what changed when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from k3lib.judge.scene_facts import SceneFacts
from k3lib.judge.scene_items import SceneItem
from k3lib.report.sentences import Language, render_case, render_word
from k3lib.report.tables import Table
from k3lib.spec.accelerators import Gpu
from k3lib.spec.request import FrozenRequest
from k3lib.spec.snapshot import Snapshot
from k3lib.units import format_bytes

_STATE = {True: "kept", False: "missing", None: "absent"}
_MOST_CHANGES = 40


def table_items(items: Sequence[SceneItem], language: Language = "en") -> Table:
    """The eight items: kept, missing, or unable to exist here (R-10)."""
    rows = []
    for item in items:
        where = ", ".join(e.file + (f":{e.line}" if e.line else "") for e in item.evidence)
        rows.append(
            [
                item.number,
                render_word("item", item.key, language),
                render_word("scene", _STATE[item.kept], language),
                render_case(f"scene.item.{item.key}", item.case, item.facts, language)[0],
                where or None,
            ]
        )
    columns = ["#", *(_word(name, language) for name in ("item", "state", "finding", "where"))]
    return Table(columns, rows, _word("items", language))


def table_views(scene: SceneFacts, language: Language = "en") -> Table:
    """Host and container side by side, a column per view: what each sees of driver, GPUs and limits."""
    views = scene.views
    rows = [[render_word("view", name, language), *map(read, views.values())] for name, read in _VIEW_ROWS.items()]
    columns = ["", *(view or render_word("view", "host", language) for view in views)]
    apart = scene.seconds_apart()
    caption = _word("one-view", language) if apart is None else _word("apart", language, apart=f"{apart:.0f}")
    return Table(columns, rows, caption)


def table_gpus(scene: SceneFacts, language: Language = "en") -> Table:
    """Every GPU by UUID, with its place in each view's order, its memory and who holds it."""
    rows: list[list[Any]] = []
    for view, snapshot in scene.hosts.items():
        inside = scene.views.get("container" if not view else f"container-{view}")
        order = [gpu.uuid for gpu in (inside.gpus if inside else None) or []]
        for gpu in snapshot.gpus or []:
            rows.append(_gpu_row(view or "host", gpu, order, snapshot))
    columns = [_word(name, language) for name in
               ("view", "index", "in-container", "uuid", "gpu", "memory", "used", "holders", "trouble")]  # fmt: skip
    why = next((s.reasons["gpus"] for s in scene.hosts.values() if "gpus" in s.reasons), "")
    return Table(columns, rows, _word("gpus", language) if rows else f"{_word('no-gpus', language)} {why}".strip())


def table_variables(scene: SceneFacts, language: Language = "en") -> Table:
    """Variables that can change an engine, apart from its command, each with its origin (R-16)."""
    rows: list[list[Any]] = [[_word("declared", language), n, v, None] for n, v in scene.environment.items()]
    for view, snapshot in scene.views.items():
        for variable in snapshot.variables:
            mark = _word("debug", language) if variable.debug else None
            origin = f"{view}: {variable.origin}" if view else variable.origin
            rows.append([origin, variable.name, variable.value, mark])
    return Table(
        [_word(n, language) for n in ("origin", "variable", "value", "mark")], rows, _word("variables", language)
    )


def table_command(scene: SceneFacts, language: Language = "en") -> Table:
    """The engine's command, word for word."""
    words = scene.command or []
    lines: list[str] = []
    for word in words:
        if word.startswith("-") or not lines or len(lines) < 2:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return Table(
        [_word("word", language)], [[line] for line in lines], f"{_word('command', language)} {scene.command_from}"
    )


def table_first_error(scene: SceneFacts, language: Language = "en") -> Table:
    """The first error of the given log, with its line and time (R-07)."""
    first = scene.first_error
    if first is None:
        return Table(
            [_word("finding", language)], [], scene.log_reason or scene.nothing_failed or _word("no-log", language)
        )
    block = f"{first.block[0]}–{first.block[1]}" if first.block else None
    rows = [[first.line, first.time, block, first.text, first.phase, first.last_milestone, first.because]]
    columns = [_word(n, language) for n in ("line", "time", "block", "text", "phase", "milestone", "because")]
    return Table(columns, rows, first.file)


def table_request(request: FrozenRequest, served_model: str, language: Language = "en") -> Table:
    """The representative request: identity, size, limits (R-10, R-22)."""
    size = len(request.encoded(served_model))
    rows: list[list[Any]] = [
        [_word("identity", language), request.request_id(served_model)],
        [_word("modality", language), request.modality],
        [_word("messages", language), len(request.messages)],
        [_word("size", language), f"{size:,} B ≈ {-(-size // 4):,}"],
        ["max_tokens", request.max_tokens],
        ["temperature", request.temperature],
        ["timeout_s", request.timeout_s],
    ]
    return Table(["", request.name], rows, _word("request", language))


def table_changes(scene: SceneFacts, language: Language = "en") -> Table:
    """What was noted by hand and what the machine's logs show, newest first, with the way back."""
    noted: list[list[Any]] = [
        [n.at, _word("noted", language), f"{n.what} ({n.who})", n.undo or _word(f"way-{n.way_back}", language)]
        for n in scene.notes
    ]
    found: list[list[Any]] = [[c.at, f"{c.kind} · {c.source}", c.what, None] for c in scene.changes()]
    rows = sorted([*noted, *found], key=lambda row: str(row[0]), reverse=True)
    cut = len(rows) - _MOST_CHANGES
    caption = _word("changes", language) + (_word("older", language, n=cut) if cut > 0 else "")
    columns = [_word(n, language) for n in ("time", "source", "change", "undo")]
    return Table(columns, rows[:_MOST_CHANGES], caption)


def table_evidence(
    items: Sequence[SceneItem], scene: SceneFacts, settings: dict[str, Any], language: Language = "en"
) -> Table:
    """The evidence that a later comparison needs (R-25): what is kept now, and what only a trial can give."""
    by_key = {item.key: item for item in items}
    state = {key: render_word("scene", _STATE[item.kept], language) for key, item in by_key.items()}
    first = scene.first_error
    later = _word("later", language)
    used = [gpu.memory_used_bytes for s in scene.hosts.values() for gpu in s.gpus or []]
    known = [value for value in used if value is not None]
    rows: list[tuple[str, Any]] = [
        ("image", state.get("image")),
        ("driver-pair", f"{state.get('driver')} · {state.get('host-and-container')}"),
        ("command", state.get("command")),
        ("first-error", state.get("first-error")),
        ("last-marker", first.last_milestone if first else None),
        ("memory-before", format_bytes(sum(known)) if known else None),
        ("memory-after", later),
        ("request", state.get("request")),
        ("limits", f"{settings.get('max_model_len')} · {settings.get('max_num_seqs')}"),
        ("changes", state.get("changes")),
        ("return-point", scene.return_point),
        ("return-result", later),
    ]
    shown = [[*render_case("scene.evidence", key, {}, language), value] for key, value in rows]
    return Table([_word(n, language) for n in ("evidence", "why", "state")], shown, _word("evidence-kept", language))


def _word(name: str, language: Language, **facts: Any) -> str:
    return render_word("scene", name, language, **facts)


def _gpu_row(view: str, gpu: Gpu, inside: list[str | None], snapshot: Snapshot) -> list[Any]:
    holders = [f"{p.name or '?'} pid {p.pid}" for p in snapshot.gpu_processes or [] if p.gpu == gpu.uuid]
    trouble = [gpu.lost, gpu.recovery, *(gpu.throttles or [])]
    place = inside.index(gpu.uuid) if gpu.uuid in inside else None
    return [
        view,
        gpu.index,
        place,
        gpu.uuid,
        gpu.name,
        format_bytes(gpu.memory_total_bytes),
        format_bytes(gpu.memory_used_bytes),
        ", ".join(holders) or None,
        ", ".join(t for t in trouble if t) or None,
    ]


def _drivers(part: str) -> Callable[[Snapshot], Any]:
    return lambda s: ", ".join(str(getattr(d, part)) for d in s.drivers if getattr(d, part)) or None


_VIEW_ROWS: dict[str, Callable[[Snapshot], Any]] = {
    "taken": lambda s: s.taken_at,
    "place": lambda s: " ".join(filter(None, [s.place.kind, s.place.runtime, s.place.scheduler])),
    "loaded": _drivers("loaded"),
    "library": _drivers("library"),
    "on-disk": _drivers("on_disk"),
    "cuda": _drivers("cuda"),
    "gpus": lambda s: None if s.gpus is None else len(s.gpus),
    "visible": lambda s: ", ".join(f"{v.variable}={v.value}" for v in s.visibility) or None,
    "kernel": lambda s: s.host.kernel,
    "system": lambda s: s.host.system,
    "memory": lambda s: format_bytes(s.host.memory_bytes),
    "shm": lambda s: format_bytes(s.host.shm_size_bytes),
    "restarts": lambda s: ", ".join(f"{r.kind} {r.name}: {r.policy}" for r in s.restarters) or None,
    "root": lambda s: len(s.root_would_add) or None,
}
