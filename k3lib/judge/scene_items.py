"""The eight items that must be kept before anything is changed (R-10), each computed, none ticked by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from k3lib.judge.scene_facts import SceneFacts, why_no_gpu
from k3lib.judge.start import SessionFacts
from k3lib.judge.verdict import Evidence
from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import EngineKind

SAME_MOMENT_S = 60.0
"""Snapshots further apart than this are not of the same moment; editable, printed where it matters."""

_NO_IMAGE = (EngineKind.REHEARSAL, EngineKind.LOCAL)


class SceneItem(Fact):
    """
    One of the eight.

    Args:
        number: 1 to 8.
        key: Its name.
        kept: True, False, or None where it cannot exist for this kind of engine.
        case: Which sentence fits.
        facts: Values that the sentence needs.
        evidence: Where it is kept.
    """

    number: int
    key: str
    kept: bool | None
    case: str
    facts: dict[str, Any] = Field(default_factory=dict)
    evidence: list[Evidence] = Field(default_factory=list)


def compute_scene_items(facts: SessionFacts) -> list[SceneItem]:
    """
    The eight items as this session shows them.

    Args:
        facts: A session of stage 10.

    Returns:
        Eight items in the method's order; empty for a session without a scene.
    """
    if facts.scene is None:
        return []
    found = [find(facts, facts.scene) for find in _FINDERS]
    return [item.model_copy(update={"number": number}) for number, item in enumerate(found, start=1)]


def _item(key: str, kept: bool | None, case: str, evidence: list[Evidence] | None = None, **facts: Any) -> SceneItem:
    return SceneItem(number=0, key=key, kept=kept, case=case, facts=facts, evidence=evidence or [])


def _absent(key: str, why: str) -> SceneItem:
    return _item(key, None, "cannot-exist", why=why)


def _image(facts: SessionFacts, scene: SceneFacts) -> SceneItem:
    """Image name and immutable id; a program in an environment is frozen by its release and packages."""
    kind = facts.plan.campaign.engine.kind
    if kind is EngineKind.REHEARSAL:
        return _absent("image", "rehearsal")
    named = [(view, c) for view, c in scene.containers() if c.image and c.image_id]
    if named:
        view, container = named[0]
        return _item("image", True, "kept", [_file(view)], image=container.image, id=container.image_id)
    if kind in _NO_IMAGE and not scene.container:
        release = facts.plan.release
        known = release != "unknown"
        return _item("image", known, "environment" if known else "missing", [_file("")], release=release, why="")
    why = next((s.reasons["containers"] for s in scene.hosts.values() if "containers" in s.reasons), "")
    return _item("image", False, "missing", why=why)


def _driver(facts: SessionFacts, scene: SceneFacts) -> SceneItem:
    """The driver that is loaded, which is not the one that is installed."""
    if why := _without_gpu(facts):
        return _absent("driver", why)
    loaded = {view: d.loaded for view, s in scene.hosts.items() for d in s.drivers if d.loaded}
    if loaded and loaded.keys() == scene.hosts.keys():
        return _item("driver", True, "kept", [_file(view) for view in loaded], versions=sorted(set(loaded.values())))
    lacking = sorted(scene.hosts.keys() - loaded.keys())
    return _item("driver", False, "missing", views=[view or "host" for view in lacking])


def _views(facts: SessionFacts, scene: SceneFacts) -> SceneItem:
    """nvidia-smi, or its like, on the host and in the container, of the same moment."""
    if why := _without_gpu(facts):
        return _absent("host-and-container", why)
    seen = {view for view, s in scene.views.items() if s.gpus is not None}
    outside, inside = seen & scene.hosts.keys(), seen & scene.inside.keys()
    in_container = bool(scene.container or scene.inside or facts.plan.campaign.engine.kind is EngineKind.DOCKER)
    apart = scene.seconds_apart()
    evidence = [_file(view) for view in sorted(seen)]
    if outside and not in_container and facts.plan.campaign.engine.kind in _NO_IMAGE:
        return _item("host-and-container", True, "host-only", evidence)
    if not (outside and inside):
        lacking = ["host"] * (not outside) + ["container"] * (not inside)
        return _item("host-and-container", False, "missing", evidence, views=lacking)
    if apart is not None and apart > SAME_MOMENT_S:
        return _item("host-and-container", False, "apart", evidence, apart_s=apart, most_s=SAME_MOMENT_S)
    return _item("host-and-container", True, "kept", evidence, apart_s=apart)


def _command(facts: SessionFacts, scene: SceneFacts) -> SceneItem:
    if scene.command is None:
        return _item("command", False, "missing")
    evidence = [Evidence(file="scene/command.json", text=" ".join(scene.command)[:300])]
    return _item(
        "command",
        True,
        "kept",
        evidence,
        source=scene.command_from,
        n=len(scene.command),
        variables=len(scene.environment),
    )


def _gpus(facts: SessionFacts, scene: SceneFacts) -> SceneItem:
    """Number and logical order."""
    if why := _without_gpu(facts):
        return _absent("gpus", why)
    counted = {view: len(s.gpus) for view, s in scene.hosts.items() if s.gpus}
    if not counted or counted.keys() != scene.hosts.keys():
        lacking = sorted(scene.hosts.keys() - counted.keys()) or [""]
        why = next((s.reasons["gpus"] for s in scene.hosts.values() if "gpus" in s.reasons), "")
        return _item("gpus", False, "missing", views=[view or "host" for view in lacking], why=why)
    evidence = [_file(view) for view in counted]
    return _item("gpus", True, "kept", evidence, n=sum(counted.values()), hosts=len(counted))


def _first_error(facts: SessionFacts, scene: SceneFacts) -> SceneItem:
    if scene.first_error is not None:
        first = scene.first_error
        evidence = [Evidence(file=first.file, line=first.line, text=first.text[:300])]
        case = "kept" if first.time else "kept-without-time"
        return _item("first-error", True, case, evidence, line=first.line, time=first.time, text=first.text[:200])
    if scene.nothing_failed:
        return _item("first-error", None, "nothing-failed", why=scene.nothing_failed)
    if facts.plan.campaign.engine.kind is EngineKind.REHEARSAL and scene.log is None:
        return _absent("first-error", "rehearsal")
    return _item("first-error", False, "missing", why=scene.log_reason or "")


def _request(facts: SessionFacts, scene: SceneFacts) -> SceneItem:
    """The representative request, its approximate length and its output limit."""
    request = facts.plan.request
    size = len(request.encoded(facts.plan.served_model))
    return _item(
        "request",
        True,
        "kept",
        [Evidence(file="spec.json", text=facts.plan.request_id)],
        id=facts.plan.request_id,
        bytes=size,
        max_tokens=request.max_tokens,
        tokens=-(-size // 4),
    )


def _changes(facts: SessionFacts, scene: SceneFacts) -> SceneItem:
    """Time of each change, and whether there is a way back."""
    blind = [view for view, s in scene.hosts.items() if "changes" in s.reasons and not s.changes]
    found = scene.changes()
    if not scene.notes and not found and (blind or not scene.hosts):
        return _item("changes", False, "missing")
    lasting = [note.what for note in scene.notes if note.irreversible]
    return _item(
        "changes",
        True,
        "kept",
        [Evidence(file="scene/changes.json")],
        notes=len(scene.notes),
        found=len(found),
        return_point=scene.return_point,
        lasting=lasting,
    )


def _without_gpu(facts: SessionFacts) -> str | None:
    return why_no_gpu(facts.plan.campaign.engine.kind, facts.plan.release, facts.plan.campaign.base.flat())


def _file(view: str) -> Evidence:
    return Evidence(file=f"scene/{view or 'host'}.json")


_FINDERS: list[Callable[[SessionFacts, SceneFacts], SceneItem]] = [
    _image,
    _driver,
    _views,
    _command,
    _gpus,
    _first_error,
    _request,
    _changes,
]
