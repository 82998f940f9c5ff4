"""The rules of the scene: is everything kept, do the sources agree, what does the place hide (R-10 to R-17, R-25)?"""

from __future__ import annotations

from datetime import datetime, timedelta

from k3lib.judge.scene_facts import SceneFacts, why_no_gpu
from k3lib.judge.scene_items import compute_scene_items
from k3lib.judge.start import SessionFacts
from k3lib.judge.verdict import Evidence, Verdict
from k3lib.spec.snapshot import Change
from k3lib.spec.vocabulary import Outcome

_WEEK = timedelta(days=7)
_GROUP_OF_CHANGE = {
    "driver-load": "driver",
    "image": "image",
    "container": "image",
    "boot": "site",
    "unit": "site",
    "file": "script",
    "job": "scheduler",
}


def judge_items(facts: SessionFacts) -> Verdict:
    """Are all eight items kept? Without one of them the session is not exploitable (R-10)."""
    items = compute_scene_items(facts)
    missing = [item.key for item in items if item.kept is False]
    absent = [item.key for item in items if item.kept is None]
    return Verdict(
        rule="scene.items",
        sources=["R-10", "R-25"],
        outcome=Outcome.FAIL if missing else Outcome.PASS,
        case="missing" if missing else "kept",
        facts={"missing": missing, "absent": absent, "n": len(items) - len(missing) - len(absent)},
        evidence=[item.evidence[0] for item in items if item.evidence],
    )


def judge_driver(facts: SessionFacts) -> Verdict:
    """Is the loaded driver also the one that programs talk to, on the host and in the container (R-12)?"""
    scene = _scene(facts)
    if why_no_gpu(facts.plan.campaign.engine.kind, facts.plan.release, facts.plan.campaign.base.flat()):
        return Verdict(rule="scene.driver", sources=["R-12"], outcome=Outcome.NOT_APPLICABLE, case="none")
    told = {view or "host": d.versions for view, s in scene.views.items() for d in s.drivers if d.versions}
    if not told:
        return Verdict(rule="scene.driver", sources=["R-12"], outcome=Outcome.SKIP, case="unknown")
    running = {v for versions in told.values() for part, v in versions.items() if part != "on_disk"}
    waiting = sorted({v["on_disk"] for v in told.values() if "on_disk" in v} - running)
    half = len(running) > 1
    case = "half" if half else "waiting" if waiting else "one"
    return Verdict(
        rule="scene.driver",
        sources=["R-12"],
        outcome=Outcome.FAIL if half else Outcome.WARN if waiting else Outcome.PASS,
        case=case,
        facts={"versions": sorted(running), "waiting": waiting, "told": told},
        evidence=[_file(view) for view in scene.views],
    )


def judge_container_view(facts: SessionFacts) -> Verdict:
    """Does the container see the GPUs that its host sees (R-13)?"""
    scene = _scene(facts)
    outside = {view: s.gpus for view, s in scene.hosts.items() if s.gpus}
    if not scene.inside or not outside:
        return Verdict(rule="scene.container_view", sources=["R-13"], outcome=Outcome.NOT_APPLICABLE, case="none")
    inside = {view: s.gpus for view, s in scene.inside.items() if s.gpus is not None}
    if not inside:
        return Verdict(rule="scene.container_view", sources=["R-13"], outcome=Outcome.SKIP, case="unknown")
    host_sees, container_sees = sum(map(len, outside.values())), sum(map(len, inside.values()))
    blind = host_sees > 0 and container_sees == 0
    fewer = 0 < container_sees < host_sees
    set_to = sorted({f"{v.variable}={v.value}" for s in scene.inside.values() for v in s.visibility})
    return Verdict(
        rule="scene.container_view",
        sources=["R-13", "R-12"],
        outcome=Outcome.FAIL if blind else Outcome.WARN if fewer else Outcome.PASS,
        case="blind" if blind else "fewer" if fewer else "all",
        facts={"host": host_sees, "container": container_sees, "visible": set_to},
        evidence=[_file(view) for view in scene.views],
    )


def judge_sources(facts: SessionFacts) -> Verdict:
    """Do NVML and nvidia-smi tell the same story of the same GPU?"""
    scene = _scene(facts)
    if not any(s.gpus for s in scene.views.values()):
        return Verdict(rule="scene.sources", sources=["R-12"], outcome=Outcome.NOT_APPLICABLE, case="none")
    differ = [d for s in scene.views.values() for d in s.disagreements]
    return Verdict(
        rule="scene.sources",
        sources=["R-12"],
        outcome=Outcome.WARN if differ else Outcome.PASS,
        case="differ" if differ else "agree",
        facts={"what": [f"{d.what}: {d.values}" for d in differ[:4]]},
        evidence=[_file(view) for view, s in scene.views.items() if s.disagreements],
    )


def judge_attribution(facts: SessionFacts) -> Verdict:
    """Hidden cost 1, diagnosis: how many things changed together in the last week (R-15)?"""
    scene = _scene(facts)
    without_gpu = why_no_gpu(facts.plan.campaign.engine.kind, facts.plan.release, facts.plan.campaign.base.flat())
    if without_gpu == "rehearsal":
        return Verdict(rule="scene.attribution", sources=["R-15"], outcome=Outcome.NOT_APPLICABLE, case="modelled")
    changes = [c for c in scene.changes() if _recent(c, scene)]
    if not changes and all("changes" in s.reasons for s in scene.hosts.values()):
        return Verdict(rule="scene.attribution", sources=["R-15"], outcome=Outcome.SKIP, case="none")
    groups = sorted({_group_of_change(c) for c in changes if _matters(c)} - ({"driver"} if without_gpu else set()))
    return Verdict(
        rule="scene.attribution",
        sources=["R-15"],
        outcome=Outcome.WARN if len(groups) > 1 else Outcome.PASS,
        case="several" if len(groups) > 1 else "one" if groups else "quiet",
        facts={"groups": groups, "n": len(changes)},
        evidence=[Evidence(file="scene/changes.json", text=f"{c.at} {c.what}"[:200]) for c in changes[-5:]],
    )


def judge_images(facts: SessionFacts) -> Verdict:
    """Hidden cost 2, comparison: does one image run everywhere, and is it what its tag names today (R-15)?"""
    scene = _scene(facts)
    running = {view or "host": c for view, c in scene.containers() if c.image_id}
    if not running:
        return Verdict(rule="scene.images", sources=["R-15"], outcome=Outcome.NOT_APPLICABLE, case="none")
    ids = {c.image_id for c in running.values()}
    moved = sorted(v for v, c in running.items() if c.tag_image_id and c.tag_image_id != c.image_id)
    case = "several" if len(ids) > 1 else "moved" if moved else "one"
    return Verdict(
        rule="scene.images",
        sources=["R-15"],
        outcome=Outcome.FAIL if len(ids) > 1 else Outcome.WARN if moved else Outcome.PASS,
        case=case,
        facts={"ids": sorted(str(i) for i in ids), "moved": moved},
        evidence=[_file(view) for view, _ in scene.containers()],
    )


def judge_sharing(facts: SessionFacts) -> Verdict:
    """Hidden cost 3, sharing: does anybody else hold a GPU (R-15, R-63)?"""
    if why_no_gpu(facts.plan.campaign.engine.kind, facts.plan.release, facts.plan.campaign.base.flat()):
        return Verdict(rule="scene.sharing", sources=["R-15"], outcome=Outcome.NOT_APPLICABLE, case="none")
    scene = _scene(facts)
    if not any(s.gpu_processes is not None for s in scene.hosts.values()):
        return Verdict(rule="scene.sharing", sources=["R-15"], outcome=Outcome.SKIP, case="unknown")
    held = [c for c in facts.place.conditions() if c.kind in ("foreign-process", "leftover-process")]
    return Verdict(
        rule="scene.sharing",
        sources=["R-15", "R-63"],
        outcome=Outcome.WARN if held else Outcome.PASS,
        case="shared" if held else "alone",
        facts={"names": sorted({name for c in held for name in c.facts["names"]})},
        evidence=[_file(view) for view in scene.hosts] if held else [],
    )


def judge_variables(facts: SessionFacts) -> Verdict:
    """Which variables reach the engine, from where, and is one of them for debugging (R-16, R-17)?"""
    scene = _scene(facts)
    every = [v for s in scene.views.values() for v in s.variables]
    debug = sorted({f"{v.name}={v.value} ({v.origin})" for v in every if v.debug})
    return Verdict(
        rule="scene.variables",
        sources=["R-16", "R-17"],
        outcome=Outcome.WARN if debug else Outcome.PASS,
        case="debug" if debug else "listed",
        facts={"debug": debug, "n": len({v.name for v in every}), "declared": len(scene.environment)},
        evidence=[_file(view) for view, s in scene.views.items() if s.variables],
    )


def judge_restarts(facts: SessionFacts) -> Verdict:
    """Does anything start the engine again by itself (R-19)? Two starts then look like one."""
    found = [f"{r.kind} {r.name}: {r.policy}" for s in _scene(facts).hosts.values() for r in s.restarters]
    return Verdict(
        rule="scene.restarts",
        sources=["R-19"],
        outcome=Outcome.WARN if found else Outcome.PASS,
        case="found" if found else "none-found",
        facts={"names": found},
        evidence=[_file(view) for view, s in _scene(facts).hosts.items() if s.restarters],
    )


def judge_return_point(facts: SessionFacts) -> Verdict:
    """Is there a level to go back to, and is something in the journal that cannot be undone (R-10, R-25, R-34)?"""
    scene = _scene(facts)
    lasting = [n.what for n in scene.notes if n.irreversible]
    unsaid = [n.what for n in scene.notes if n.way_back == "unknown"]
    case = "lasting" if lasting else "unsaid" if unsaid else "known" if scene.return_point else "none"
    return Verdict(
        rule="scene.return_point",
        sources=["R-10", "R-25", "R-34"],
        outcome=Outcome.WARN if lasting or unsaid else Outcome.PASS,
        case=case,
        facts={"point": scene.return_point, "lasting": lasting, "unsaid": unsaid},
        evidence=[Evidence(file="scene/changes.json", text=what[:200]) for what in [*lasting, *unsaid][:5]],
    )


def _scene(facts: SessionFacts) -> SceneFacts:
    return facts.scene or SceneFacts()


def _recent(change: Change, scene: SceneFacts) -> bool:
    """Within the week before the look; a time that cannot be read counts, so that nothing is hidden."""
    looked = max((datetime.fromisoformat(s.taken_at) for s in scene.views.values()), default=None)
    try:
        at = datetime.fromisoformat(change.at)
    except ValueError:
        return True
    if looked is None:
        return True
    return looked.replace(tzinfo=None) - at.replace(tzinfo=None) <= _WEEK


def _matters(change: Change) -> bool:
    """A package that no engine touches is no cause to attribute."""
    return change.kind != "package" or _group_of_change(change) != "package"


def _group_of_change(change: Change) -> str:
    if change.kind != "package":
        return _GROUP_OF_CHANGE[change.kind]
    words = change.what.lower()
    if any(word in words for word in ("nvidia", "cuda", "amdgpu", "rocm")):
        return "driver"
    if any(word in words for word in ("docker", "containerd", "podman")):
        return "runtime"
    if any(word in words for word in ("linux-image", "kernel", "ofed", "rdma", "mlnx", "libibverbs")):
        return "site"
    return "package"


def _file(view: str) -> Evidence:
    return Evidence(file=f"scene/{view or 'host'}.json")
