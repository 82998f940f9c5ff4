"""Are these GPUs, this many of them and this layout on a path that the recipe offers?"""

from __future__ import annotations

from k3lib.judge.compatibility_constraint import Finding, constraint, fails, off_path, passes, skips
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.knowledge.recipe import load_recipe


@constraint("hardware", "R-14", "C17")
def judge_hardware(facts: CompatibilityFacts) -> Finding:
    """Does the recipe name these GPUs?"""
    gpus = facts.gpus
    if gpus is None:
        return skips("gpus", why=why_no_gpus(facts))
    if not gpus:
        return fails("none", why=why_no_gpus(facts))
    names = sorted({gpu.name or "?" for gpu in gpus})
    if len(facts.kinds) > 1:
        return off_path(facts, "mixed", names=names).seen(*names)
    known = facts.recipe_gpu
    if known is None:
        return off_path(facts, "unlisted", names=names, known=sorted(load_recipe().hardware)).seen(*names)
    told = {"gpu": facts.gpu_kind, "n": len(gpus), "source": load_recipe().cite(known.source)}
    if known.status == "refused":
        return fails("refused", **told).seen(*names)
    if known.status == "floor":
        return off_path(facts, "floor", **told, minimum=known.min_gpus).seen(*names)
    return passes("verified", **told).seen(*names)


@constraint("compute_capability", "R-14")
def judge_compute_capability(facts: CompatibilityFacts) -> Finding:
    """Do the images hold code for these GPUs?"""
    gpus, known = facts.gpus, load_recipe().capabilities
    if not gpus:
        return skips("capability", why=why_no_gpus(facts))
    found = {gpu.capability for gpu in gpus}
    if None in found:
        return skips("capability")
    names = sorted(str(capability) for capability in found)
    if refused := [name for name in names if name in known.refused]:
        return fails("refused", capabilities=refused, source=load_recipe().cite(known.refused_source))
    if other := [name for name in names if name not in known.supported]:
        return off_path(facts, "unproven", capabilities=other, supported=known.supported)
    return passes("supported", capabilities=names)


@constraint("gpu_count", "R-14", "C17")
def judge_gpu_count(facts: CompatibilityFacts) -> Finding:
    """Are there as many GPUs as the layout takes, and does it take as many as the recipe starts with?"""
    gpus, takes = facts.gpus, facts.layout.gpus
    if gpus is None:
        return skips("gpus", why=why_no_gpus(facts))
    if len(gpus) < takes:
        if gap := unseen_hosts(facts):
            return skips("hosts", gap)
        return fails("too-few", n=len(gpus), takes=takes)
    recipe = load_recipe()
    by_layout = recipe.strategies[facts.strategy].min_gpus if takes > 1 else 0
    by_gpu = (facts.recipe_gpu.min_gpus or 0) if facts.recipe_gpu else 0
    minimum = max(by_layout, by_gpu)
    told = {"n": len(gpus), "takes": takes, "minimum": minimum, "gpu": facts.gpu_kind, "strategy": facts.strategy}
    if takes < minimum:
        return off_path(facts, "below-minimum", **told)
    return passes("enough", **told)


@constraint("hosts", "R-14")
def judge_hosts(facts: CompatibilityFacts) -> Finding:
    """Does the base plan for as many hosts as these GPUs stand in? A tray of an NVL rack holds four."""
    needed, planned = facts.hosts_needed, facts.hosts_planned
    if needed is None:
        return skips("gpus-per-host", why=why_no_gpus(facts))
    machines = sorted({host.host.machine for host in facts.machines if host.host.machine})
    told = {
        "needed": needed,
        "planned": planned,
        "per_host": facts.gpus_per_host,
        "takes": facts.layout.gpus,
        "machines": machines,
        "gpu": facts.gpu_kind,
    }
    if needed > planned:
        return fails("needs-more", **told, source=load_recipe().cite(load_recipe().computed.hosts_source))
    if planned > len(facts.machines) and facts.machines:
        return skips("hosts", unseen_hosts(facts))
    return passes("one" if planned == 1 else "several", **told)


@constraint("strategy", "R-14", "C17")
def judge_strategy(facts: CompatibilityFacts) -> Finding:
    """Does the recipe offer this layout on these GPUs?"""
    if facts.gpu_kind is None:
        return skips("gpu-kind", why=why_no_gpus(facts))
    strategy = load_recipe().strategies[facts.strategy]
    told = {"strategy": facts.strategy, "gpu": facts.gpu_kind, "source": load_recipe().cite(strategy.source)}
    if not strategy.offered_on(facts.gpu_kind):
        return off_path(facts, "not-offered", **told)
    return passes("offered", **told)


def why_no_gpus(facts: CompatibilityFacts) -> str | None:
    """Why the GPUs are not known, as the look at the host says."""
    if not facts.machines:
        return None
    if facts.gpus is not None:
        return ", ".join(sorted({gpu.name or "?" for gpu in facts.gpus}))
    told = [host.reasons["gpus"] for host in facts.machines if "gpus" in host.reasons]
    return "; ".join(told) or None


def unseen_hosts(facts: CompatibilityFacts) -> str | None:
    """How many of how many hosts were not looked at, or None if all were."""
    planned = facts.hosts_planned
    return f"{planned - len(facts.machines)}/{planned}" if len(facts.machines) < planned else None
