"""GPU memory against the weights: arithmetic that can exclude a layout and can never prove one (R-08, R-14)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from k3lib.judge.compatibility_constraint import Finding, constraint, fails, not_applicable, passes, skips, warns
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.judge.compatibility_hardware import unseen_hosts, why_no_gpus
from k3lib.knowledge.capacity import activation_bytes, weight_bytes
from k3lib.knowledge.hardware import load_gpus
from k3lib.knowledge.model import load_model_facts
from k3lib.knowledge.recipe import load_recipe
from k3lib.knowledge.settings import default_of
from k3lib.spec.vocabulary import Outcome
from k3lib.units import GIB

_GB = 10**9
_BATCHED_TOKENS = 8192
_PADDING_MATTERS = 1.05
"""Weights grown by padding above this factor are a finding."""


@dataclass(frozen=True)
class MemoryEstimate:
    """
    One rank's memory, an estimate.

    Args:
        memory_bytes: What the driver reports of the smallest GPU.
        utilization: Share that the engine may take.
        weights_bytes: Weights on one rank in this layout.
        spread_bytes: The same if whole experts were spread over the ranks instead of being cut.
        runtime_bytes: Activations, workspaces and graphs, assumed.
    """

    memory_bytes: int
    utilization: float
    weights_bytes: float
    spread_bytes: float
    runtime_bytes: float

    @property
    def usable_bytes(self) -> float:
        """What the engine may take."""
        return self.memory_bytes * self.utilization

    @property
    def left_bytes(self) -> float:
        """What the weights leave; negative if they do not fit."""
        return self.usable_bytes - self.weights_bytes

    @property
    def cache_bytes(self) -> float:
        """What might be left for the KV cache; negative if nothing is."""
        return self.left_bytes - self.runtime_bytes


def estimate_memory(facts: CompatibilityFacts) -> MemoryEstimate | None:
    """
    One rank's memory in this layout.

    Args:
        facts: What is intended and what was seen.

    Returns:
        The estimate; None without GPU memory, or for a model that the formulas are not about.
    """
    judged = facts.judged
    sizes = [gpu.memory_total_bytes for gpu in facts.gpus or []]
    known = [size for size in sizes if size is not None]
    if judged is None or not judged.arithmetic or not known or len(known) < len(sizes):
        return None
    model, layout, settings = load_model_facts(), facts.layout, facts.settings
    said = settings.gpu_memory_utilization or default_of("gpu_memory_utilization", facts.engine_release, hybrid=True)
    base = load_recipe().blocks["base"].settings.gpu_memory_utilization
    runtime = activation_bytes(model, settings.max_num_batched_tokens or _BATCHED_TOKENS)
    return MemoryEstimate(
        memory_bytes=min(known),
        utilization=float(said or base or 1.0),
        weights_bytes=weight_bytes(model, layout),
        spread_bytes=weight_bytes(model, replace(layout, expert=True)),
        runtime_bytes=runtime + model.non_torch_bytes + model.graph_bytes,
    )


@constraint("memory_total", "R-14")
def judge_memory_total(facts: CompatibilityFacts) -> Finding:
    """Is the memory of all GPUs together at least the weights, and the recipe's own figure?"""
    gpus, judged, takes = facts.gpus, facts.judged, facts.layout.gpus
    if not gpus or judged is None:
        return skips("gpu-memory", why=why_no_gpus(facts))
    if len(gpus) < takes and (gap := unseen_hosts(facts)):
        return skips("hosts", gap)
    sizes = sorted(gpu.memory_total_bytes for gpu in gpus if gpu.memory_total_bytes is not None)
    if len(sizes) < len(gpus):
        return skips("gpu-memory")
    total = sum(sizes[: min(takes, len(sizes))])
    weights = load_model_facts().checkpoint_bytes if judged.arithmetic else None
    told = {
        "n": min(takes, len(sizes)),
        "total_gb": round(total / _GB),
        "weights_gb": round(weights / _GB) if weights else None,
        "minimum_gb": judged.vram_minimum_gb,
        "source": load_recipe().cite(judged.source),
    }
    if weights and total < weights:
        return fails("below-weights", **told)
    if total < judged.vram_minimum_gb * _GB:
        return warns("below-recipe", **told)
    return passes("enough", **told)


@constraint("weights_fit", "R-08", "R-14")
def judge_weights_fit(facts: CompatibilityFacts) -> Finding:
    """Do the weights of one rank fit one GPU in this layout? A pass only says that nothing excludes it."""
    judged = facts.judged
    if judged is not None and not judged.arithmetic:
        return not_applicable("no-arithmetic", model=judged.name, precision=judged.precision)
    estimate = estimate_memory(facts)
    if estimate is None:
        return skips("gpu-memory", why=why_no_gpus(facts))
    layout = facts.layout
    told = {
        "weights_gib": estimate.weights_bytes / GIB,
        "usable_gib": estimate.usable_bytes / GIB,
        "memory_gib": estimate.memory_bytes / GIB,
        "utilization": estimate.utilization,
        "left_gib": estimate.left_bytes / GIB,
        "runtime_gib": estimate.runtime_bytes / GIB,
        "spread_gib": estimate.spread_bytes / GIB,
        "layout": describe_layout(facts),
        "source": load_recipe().cite(load_recipe().computed.weights_source),
    }
    padded = not layout.expert and estimate.weights_bytes > _PADDING_MATTERS * estimate.spread_bytes
    if estimate.left_bytes < 0:
        return fails("padding" if padded and estimate.spread_bytes < estimate.usable_bytes else "too-big", **told)
    if padded:
        return warns("padded", **told)
    if estimate.cache_bytes <= 0:
        return warns("tight", **told)
    return passes("not-excluded", **told)


def describe_layout(facts: CompatibilityFacts) -> str:
    """The layout in the field's short words, `TP8 × PP2`."""
    layout = facts.layout
    parts = [
        f"{word}{size}"
        for word, size in (("TP", layout.tensor), ("PP", layout.pipeline), ("DP", layout.data))
        if size > 1
    ]
    return " × ".join(parts or ["TP1"]) + (", expert parallel" if layout.expert else "")


@constraint("memory_reported", "R-14")
def judge_memory_reported(facts: CompatibilityFacts) -> Finding:
    """Does each GPU report the memory that its kind has? The recipe's site prints figures without a unit."""
    gpus, kind = facts.gpus, facts.gpu_kind
    if not gpus or any(gpu.memory_total_bytes is None for gpu in gpus):
        return skips("gpu-memory", why=why_no_gpus(facts))
    if cut := [gpu.index for gpu in gpus if gpu.mig]:
        return fails("cut-up", indices=cut)
    usual = load_gpus().get(kind or "")
    if usual is None:
        return skips("usual-memory", kind, why_no_gpus(facts) if kind is None else None)
    least = min(gpu.memory_total_bytes or 0 for gpu in gpus)
    tolerance = load_recipe().project_defaults.memory_tolerance_fraction
    printed = facts.recipe_gpu.printed if facts.recipe_gpu else None
    told = {
        "gpu": kind,
        "gib": least / GIB,
        "gb": least / _GB,
        "usual_gib": usual.memory_gib,
        "printed": printed,
        "printed_gib": printed * _GB / GIB if printed else None,
    }
    outcome = Outcome.WARN if least < usual.memory_gib * GIB * (1 - tolerance) else Outcome.PASS
    return Finding(outcome, "less" if outcome is Outcome.WARN else "usual", told)
