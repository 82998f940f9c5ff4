"""Is this environment on a supported path? The constraints in their order, and what they say together."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from k3lib.judge import compatibility_driver as driver
from k3lib.judge import compatibility_engine as engine
from k3lib.judge import compatibility_hardware as hardware
from k3lib.judge import compatibility_host as host
from k3lib.judge import compatibility_image as image
from k3lib.judge import compatibility_memory as memory
from k3lib.judge import compatibility_network as network
from k3lib.judge.compatibility_constraint import Constraint, Finding, constraint, fails, passes, skips, warns
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.judge.start import SessionFacts
from k3lib.judge.verdict import Verdict
from k3lib.knowledge.recipe import load_recipe
from k3lib.spec.vocabulary import Outcome


@constraint("look", "R-10", "R-14", any_model=True)
def judge_look(facts: CompatibilityFacts) -> Finding:
    """Where do these facts come from: machines that were looked at, or a model of some?"""
    if facts.modelled is not None:
        return warns("modelled", machine=facts.modelled)
    if not facts.machines:
        return skips("host", why=facts.reasons.get("hosts"))
    gpus = facts.gpus
    told = {
        "hosts": len(facts.hosts),
        "containers": len(facts.containers),
        "gpus": None if gpus is None else len(gpus),
        "names": sorted({gpu.name or "?" for gpu in gpus or []}),
        "taken_at": min(place.taken_at for place in facts.machines),
    }
    return passes("looked", **told)


@constraint("recipe_age", "R-14")
def judge_recipe_age(facts: CompatibilityFacts) -> Finding:
    """How old is the recipe that this is judged by? An old one warns and never blocks by itself."""
    state = load_recipe().state
    age_days = state.age_days(facts.today)
    told = {
        "age_days": age_days,
        "limit_days": facts.recipe_max_age_days,
        "commit": state.commit,
        "committed": state.committed.isoformat(),
        "page_dated": state.page_dated.isoformat(),
    }
    return warns("old", **told) if age_days > facts.recipe_max_age_days else passes("fresh", **told)


CONSTRAINTS: list[Constraint] = [
    judge_look,
    judge_recipe_age,
    driver.judge_host_container,
    driver.judge_driver_loaded,
    driver.judge_driver_branch,
    driver.judge_driver_cuda,
    hardware.judge_hardware,
    hardware.judge_compute_capability,
    hardware.judge_gpu_count,
    hardware.judge_hosts,
    hardware.judge_strategy,
    memory.judge_memory_reported,
    memory.judge_memory_total,
    memory.judge_weights_fit,
    image.judge_image_name,
    image.judge_image_digest,
    image.judge_image_architecture,
    engine.judge_release,
    engine.judge_dead_variables,
    engine.judge_cache_default,
    engine.judge_parsers,
    engine.judge_ready_timeout,
    engine.judge_utilization,
    network.judge_link,
    network.judge_all_to_all,
    network.judge_moe_backend,
    network.judge_speculation,
    host.judge_host_memory,
    host.judge_shared_memory,
    host.judge_disk,
]

ESSENTIAL = (
    "look",
    "driver_branch",
    "driver_cuda",
    "hardware",
    "compute_capability",
    "gpu_count",
    "memory_total",
    "weights_fit",
    "release",
)
"""Without an answer to each of these nothing is said of the path: an empty look must never pass."""

_BESIDE = ("recipe_age",)
"""An old recipe is said beside the path and never weighs on it."""


def of_session(judge: Constraint) -> Callable[[SessionFacts], Verdict]:
    """A constraint as a rule of stage 20."""

    @wraps(judge)
    def rule(facts: SessionFacts) -> Verdict:
        if facts.compatibility is None:
            raise LookupError("only stage 20 has the facts that this rule judges")
        return judge(facts.compatibility)

    return rule


def judge_constraints(facts: CompatibilityFacts) -> list[Verdict]:
    """What each constraint finds, in order."""
    return [judge(facts) for judge in CONSTRAINTS]


@constraint("path", "R-14", "R-60")
def judge_path(facts: CompatibilityFacts) -> Finding:
    """Is this environment on a supported path? What the constraints say together, and what is unknown."""
    found = {v.rule.removeprefix("compatibility."): v for v in judge_constraints(facts)}
    by_outcome = {outcome: [name for name, v in found.items() if v.outcome is outcome] for outcome in Outcome}
    unknown = [name for name in by_outcome[Outcome.SKIP] if name in ESSENTIAL]
    told = {
        "failed": by_outcome[Outcome.FAIL],
        "warned": [name for name in by_outcome[Outcome.WARN] if name not in _BESIDE],
        "unknown": by_outcome[Outcome.SKIP],
        "passed": len(by_outcome[Outcome.PASS]),
        "not_applicable": by_outcome[Outcome.NOT_APPLICABLE],
    }
    if told["failed"]:
        return fails("off", **told)
    if unknown:
        return Finding(Outcome.SKIP, "unknown", {**told, "essential": unknown})
    return warns("with-warnings", **told) if told["warned"] else passes("on", **told)
