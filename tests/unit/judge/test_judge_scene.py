"""The scene: every rule fires on what it is for and is silent without it; an item that is missing is never a PASS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from k3lib.judge import place, scene
from k3lib.judge.drift import PlaceFacts
from k3lib.judge.scene_facts import LoggedError, SceneFacts
from k3lib.judge.scene_items import compute_scene_items
from k3lib.judge.start import SessionFacts
from k3lib.judge.verdict import Verdict
from k3lib.probe.fingerprint import Subject, compose_fingerprint
from k3lib.report.scene import (
    table_changes,
    table_command,
    table_evidence,
    table_first_error,
    table_gpus,
    table_items,
    table_request,
    table_variables,
    table_views,
)
from k3lib.report.sentences import render_verdict
from k3lib.spec.campaign import Campaign, EnginePlace, ModelSource
from k3lib.spec.change_note import ChangeNote
from k3lib.spec.request import FrozenRequest, Message
from k3lib.spec.session import Arm, SceneSpec, SessionPlan
from k3lib.spec.settings import EngineSettings
from k3lib.spec.snapshot import Snapshot
from k3lib.spec.vocabulary import EngineKind, Objective, Outcome, StageName

Change = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], object]


def nothing(host: dict[str, Any], inside: dict[str, Any], kept: dict[str, Any]) -> None:
    """The scene as it should be."""


def build(change: Change = nothing, kind: EngineKind = EngineKind.DOCKER, release: str = "0.33.0") -> SessionFacts:
    """A whole scene of eight GPUs in one container, with one thing changed."""
    gpus = [
        {"index": n, "vendor": "nvidia", "uuid": f"GPU-{n}", "name": "NVIDIA B300", "memory_total_bytes": 287 << 30}
        for n in range(8)
    ]
    driver = {"vendor": "nvidia", "loaded": "580.95", "library": "580.95", "asked": "580.95", "on_disk": "580.95"}
    container = {
        "name": "k3", "id": "c0ffee12", "image": "vllm/vllm-openai:kimi-k3", "image_id": "sha256:a1",
        "tag_image_id": "sha256:a1", "digests": ["r@sha256:d1"], "command": ["vllm", "serve", "/models/k3"],
    }  # fmt: skip
    host: dict[str, Any] = {
        "taken_at": "2026-11-20T08:00:00+00:00", "took_s": 1.0, "place": {"kind": "host"}, "host": {"name": "n1"},
        "drivers": [driver], "gpus": gpus, "gpu_processes": [], "containers": [container],
        "changes": [{"at": "2026-11-19T08:00:00", "kind": "package", "what": "upgrade vim 1 → 2", "source": "dpkg"}],
    }  # fmt: skip
    inside: dict[str, Any] = {
        "taken_at": "2026-11-20T08:00:02+00:00", "took_s": 1.0, "place": {"kind": "container"}, "host": {},
        "drivers": [{**driver, "on_disk": None}], "gpus": [dict(gpu) for gpu in gpus],
    }  # fmt: skip
    kept: dict[str, Any] = {
        "container": "k3", "command": ["vllm", "serve", "/models/k3"], "command_from": "container k3",
        "first_error": LoggedError(file="scene/first-error.log", line=50, time="11-20 09:00:44", text="out of memory"),
        "return_point": "20261119T080000Z-30_minimal_start",
    }  # fmt: skip
    change(host, inside, kept)
    views = {"": Snapshot.model_validate(host)} | ({"container": Snapshot.model_validate(inside)} if inside else {})
    begin = compose_fingerprint(Subject(model="m", release=release, container="k3"), views)
    return SessionFacts(
        plan=plan(kind, release), trials=[], debug_variables=[], place=PlaceFacts(begin=begin),
        scene=SceneFacts(views=views, **kept),
    )  # fmt: skip


def plan(kind: EngineKind, release: str) -> SessionPlan:
    """A session of stage 10."""
    base = EngineSettings(prefix_caching=False)
    campaign = Campaign(
        name="here", objective=Objective.POC, engine=EnginePlace(kind=kind), model=ModelSource(name="m"),
        base=base, request="minimal.yaml",
    )  # fmt: skip
    request = FrozenRequest(
        name="hi", messages=[Message(role="user", content="Hi")], max_tokens=8, temperature=0.0, timeout_s=60.0
    )
    return SessionPlan(
        stage=StageName.SCENE, spec=SceneSpec(), campaign=campaign, arms=[Arm(name="base", settings=base)],
        request=request, request_id=request.request_id("m"), release=release,
    )  # fmt: skip


def missing(facts: SessionFacts) -> set[str]:
    """The items that are missing."""
    return {item.key for item in compute_scene_items(facts) if item.kept is False}


def test_a_whole_scene_is_exploitable() -> None:
    """All eight are there."""
    assert [True] * 8 == [item.kept for item in compute_scene_items(build())]
    assert Outcome.PASS is scene.judge_items(build()).outcome


def blind(host: dict[str, Any], inside: dict[str, Any], kept: dict[str, Any]) -> None:
    """A host that could not be asked about GPUs, driver, containers and changes."""
    host.update(
        drivers=[], gpus=None, containers=None, changes=[],
        reasons={"gpus": "not on PATH", "containers": "no answer", "changes": "permission denied"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        (lambda h, i, k: h["containers"][0].update(image_id=None), {"image"}),
        (lambda h, i, k: h["drivers"][0].update(loaded=None), {"driver"}),
        (lambda h, i, k: i.clear(), {"host-and-container"}),
        (lambda h, i, k: i.update(taken_at="2026-11-20T08:05:00+00:00"), {"host-and-container"}),
        (lambda h, i, k: k.update(command=None), {"command"}),
        (lambda h, i, k: h.update(gpus=[]), {"gpus"}),
        (lambda h, i, k: k.update(first_error=None), {"first-error"}),
        (blind, {"image", "driver", "host-and-container", "gpus", "changes"}),
    ],
)
def test_a_missing_item_is_named(change: Change, keys: set[str]) -> None:
    """Without it the session is not exploitable (R-10)."""
    facts = build(change)
    assert keys == missing(facts)
    verdict = scene.judge_items(facts)
    assert Outcome.FAIL is verdict.outcome
    assert keys == set(verdict.facts["missing"])


def test_nothing_at_all_never_passes() -> None:
    """An empty scene of a real engine misses all but the request."""
    facts = SessionFacts(plan=plan(EngineKind.ATTACH, "unknown"), trials=[], debug_variables=[], scene=SceneFacts())
    assert {"image", "driver", "host-and-container", "command", "gpus", "first-error", "changes"} == missing(facts)


@pytest.mark.parametrize(
    ("kind", "release", "absent"),
    [
        (EngineKind.REHEARSAL, "0.33.0+rehearsal", {"image", "driver", "host-and-container", "gpus", "first-error"}),
        (EngineKind.LOCAL, "0.32.0+cpu", {"driver", "host-and-container", "gpus", "first-error"}),
    ],
)
def test_what_cannot_exist_closes_no_gate(kind: EngineKind, release: str, absent: set[str]) -> None:
    """A model has no image, a processor no GPU driver; that nothing failed yet is said by hand."""

    def change(host: dict[str, Any], inside: dict[str, Any], kept: dict[str, Any]) -> None:
        blind(host, inside, kept)
        host.update(changes=[], reasons={})
        inside.clear()
        kept.update(container="", first_error=None, nothing_failed="a first run")

    facts = build(change, kind, release)
    assert set() == missing(facts)
    assert absent == {item.key for item in compute_scene_items(facts) if item.kept is None}
    assert Outcome.PASS is scene.judge_items(facts).outcome


def busy(host: dict[str, Any], inside: dict[str, Any], kept: dict[str, Any]) -> None:
    """Somebody else's process on a GPU."""
    host["gpu_processes"] = [{"pid": 7, "gpu": "GPU-3", "name": "train.py", "memory_bytes": 71 << 30}]


def note(undo: str | None, irreversible: bool = False) -> Change:
    """A change in the journal."""
    entry = ChangeNote(at="2026-11-19T08:00:00+00:00", who="ana", what="flashed", undo=undo, irreversible=irreversible)
    return lambda host, inside, kept: kept.update(notes=[entry])


def changed(*what: str) -> Change:
    """Packages that were upgraded in the week before."""
    entries = [{"at": "2026-11-18T08:00:00", "kind": "package", "what": w, "source": "dpkg"} for w in what]
    return lambda host, inside, kept: host.update(changes=entries)


RULES: list[tuple[Callable[[SessionFacts], Verdict], Change, Outcome, str]] = [
    (scene.judge_driver, nothing, Outcome.PASS, "one"),
    (scene.judge_driver, lambda h, i, k: h["drivers"][0].update(on_disk="595.20"), Outcome.WARN, "waiting"),
    (scene.judge_driver, lambda h, i, k: h["drivers"][0].update(library="595.20"), Outcome.FAIL, "half"),
    (scene.judge_driver, lambda h, i, k: i["drivers"][0].update(library="595.20"), Outcome.FAIL, "half"),
    (scene.judge_driver, lambda h, i, k: (h.update(drivers=[]), i.update(drivers=[])), Outcome.SKIP, "unknown"),
    (scene.judge_container_view, nothing, Outcome.PASS, "all"),
    (scene.judge_container_view, lambda h, i, k: i.update(gpus=[]), Outcome.FAIL, "blind"),
    (scene.judge_container_view, lambda h, i, k: i.update(gpus=i["gpus"][:4]), Outcome.WARN, "fewer"),
    (scene.judge_container_view, lambda h, i, k: i.update(gpus=None), Outcome.SKIP, "unknown"),
    (scene.judge_container_view, lambda h, i, k: i.clear(), Outcome.NOT_APPLICABLE, "none"),
    (scene.judge_sources, nothing, Outcome.PASS, "agree"),
    (scene.judge_sources, lambda h, i, k: h.update(disagreements=[
        {"what": "count", "gpu": None, "values": {"nvml": "7", "nvidia-smi": "8"}}]), Outcome.WARN, "differ"),
    (scene.judge_attribution, nothing, Outcome.PASS, "quiet"),
    (scene.judge_attribution, changed("upgrade nvidia-driver-580"), Outcome.PASS, "one"),
    (scene.judge_attribution, changed("upgrade nvidia-driver-580", "upgrade docker-ce"), Outcome.WARN, "several"),
    (scene.judge_attribution, blind, Outcome.SKIP, "none"),
    (scene.judge_images, nothing, Outcome.PASS, "one"),
    (scene.judge_images, lambda h, i, k: h["containers"][0].update(tag_image_id="sha256:b2"), Outcome.WARN, "moved"),
    (scene.judge_images, lambda h, i, k: h.update(containers=[]), Outcome.NOT_APPLICABLE, "none"),
    (scene.judge_sharing, nothing, Outcome.PASS, "alone"),
    (scene.judge_sharing, busy, Outcome.WARN, "shared"),
    (scene.judge_sharing, lambda h, i, k: h.update(gpu_processes=None), Outcome.SKIP, "unknown"),
    (scene.judge_variables, nothing, Outcome.PASS, "listed"),
    (scene.judge_variables, lambda h, i, k: i.update(variables=[
        {"name": "NCCL_DEBUG", "value": "TRACE", "origin": "this process", "debug": True}]), Outcome.WARN, "debug"),
    (scene.judge_restarts, nothing, Outcome.PASS, "none-found"),
    (scene.judge_restarts, lambda h, i, k: h.update(restarters=[
        {"kind": "docker", "name": "k3", "policy": "always"}]), Outcome.WARN, "found"),
    (scene.judge_return_point, nothing, Outcome.PASS, "known"),
    (scene.judge_return_point, lambda h, i, k: k.update(return_point=None), Outcome.PASS, "none"),
    (scene.judge_return_point, note(None), Outcome.WARN, "unsaid"),
    (scene.judge_return_point, note(None, irreversible=True), Outcome.WARN, "lasting"),
    (scene.judge_return_point, note("flash again"), Outcome.PASS, "known"),
    (place.judge_conditions, nothing, Outcome.PASS, "clean"),
    (place.judge_conditions, busy, Outcome.WARN, "found"),
    (place.judge_during, nothing, Outcome.SKIP, "none"),
    (place.judge_since_stable, nothing, Outcome.NOT_APPLICABLE, "none"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "change", "outcome", "case"), RULES)
def test_a_rule_fires_and_is_silent(
    rule: Callable[[SessionFacts], Verdict], change: Change, outcome: Outcome, case: str
) -> None:
    """What it found can be said in both languages, with the facts that it gives."""
    verdict = rule(build(change))
    assert (outcome, case) == (verdict.outcome, verdict.case)
    assert render_verdict(verdict, "en")[0] != render_verdict(verdict, "fr")[0]


def test_a_driver_is_no_cause_where_there_is_none() -> None:
    """Packages of a GPU driver explain nothing of an engine on the processor, and nothing at all of a model."""
    change = changed("upgrade nvidia-driver-580", "upgrade docker-ce")
    assert ["runtime"] == scene.judge_attribution(build(change, EngineKind.LOCAL, "0.32.0+cpu")).facts["groups"]
    modelled = scene.judge_attribution(build(change, EngineKind.REHEARSAL, "0.33.0+rehearsal"))
    assert (Outcome.NOT_APPLICABLE, "modelled") == (modelled.outcome, modelled.case)


def test_two_images_under_one_name_are_no_series() -> None:
    """A node that kept an older layer of the tag is found by the id of what runs (R-15)."""
    facts = build()
    assert facts.scene is not None
    other = facts.scene.views[""].model_copy(deep=True)
    assert other.containers is not None
    second = other.containers[0].model_copy(update={"image_id": "sha256:b2", "tag_image_id": "sha256:b2"})
    views = {**facts.scene.views, "node-2": other.model_copy(update={"containers": [second]})}
    both = SessionFacts(
        plan=facts.plan, trials=[], debug_variables=[], scene=facts.scene.model_copy(update={"views": views})
    )
    assert (Outcome.FAIL, "several") == ((verdict := scene.judge_images(both)).outcome, verdict.case)


@pytest.mark.parametrize("change", [nothing, blind, busy, note(None, irreversible=True)])
def test_every_table_can_be_drawn_in_both_languages(change: Change) -> None:
    """Whole or blind, a scene has its tables, and French headings are not English ones."""
    facts = build(change)
    assert facts.scene is not None
    items = compute_scene_items(facts)
    drawn = {
        language: [
            table_items(items, language), table_views(facts.scene, language), table_gpus(facts.scene, language),
            table_command(facts.scene, language), table_variables(facts.scene, language),
            table_first_error(facts.scene, language), table_changes(facts.scene, language),
            table_request(facts.plan.request, "m", language), table_evidence(items, facts.scene, {}, language),
        ]
        for language in ("en", "fr")
    }  # fmt: skip
    for english, french in zip(*drawn.values(), strict=True):
        assert str(english)
        assert english.columns != french.columns or english.caption != french.caption
