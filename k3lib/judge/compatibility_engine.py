"""The release that really executes, and settings that a release reads otherwise than the recipe meant."""

from __future__ import annotations

from k3lib.judge.compatibility_constraint import Finding, constraint, fails, not_applicable, passes, skips, warns
from k3lib.judge.compatibility_facts import SHARD_SHARED_EXPERTS, CompatibilityFacts
from k3lib.knowledge.recipe import find_dead_variables, load_recipe
from k3lib.knowledge.settings import default_of
from k3lib.knowledge.versions import parse_minor, parse_release, version_facts


@constraint("release", "R-14", "R-61")
def judge_release(facts: CompatibilityFacts) -> Finding:
    """Is the release at least the recipe's? A preview image calls itself 0.1.dev… and is of the 0.27 line."""
    release, wanted = facts.engine_release, load_recipe().min_release
    if not release.known:
        return skips("release", why=release.reason)
    told = {"release": release.text, "wanted": wanted.value, "source": load_recipe().cite(wanted.source)}
    line = ".".join(str(part) for part in release.behaves_as or ())
    if release.development and release.reason is not None:
        return warns("preview", **told, line=line, why=release.reason)
    if release < parse_release(wanted.value):
        return fails("old", **told)
    if release.behaves_as is not None and release.behaves_as > parse_minor(version_facts().looked_at[-1]):
        return warns("newer", **told, line=line, last=version_facts().looked_at[-1])
    return passes("new-enough", **told)


@constraint("dead_variables", "R-16", "C1", any_model=True)
def judge_dead_variables(facts: CompatibilityFacts) -> Finding:
    """Is a variable set that this release no longer knows, or that acts on nothing in this layout?"""
    release, where = facts.engine_release, {name: origin for name, _, origin in facts.variables()}
    if not release.known:
        return skips("release", why=release.reason)
    dead = find_dead_variables(list(where), release)
    told = {
        "release": release.text,
        "dead": [{"name": n, "instead": i, "origin": where[n], "source": s} for n, i, s in dead],
        "idle": [SHARD_SHARED_EXPERTS] if _shard_is_idle(facts, where) else [],
        "n": len(where),
    }
    if dead:
        return warns("dead", **told)
    if told["idle"]:
        return warns("idle", **told, source=load_recipe().cite("shared-expert"))
    return passes("known" if where else "none", **told)


def _shard_is_idle(facts: CompatibilityFacts, where: dict[str, str]) -> bool:
    """It acts with expert parallelism at TP > 1 and MegaMoE or DP > 1; never with PP."""
    layout = facts.layout
    mega = facts.settings.moe_backend in load_recipe().moe_backends
    acts = layout.expert and layout.tensor > 1 and layout.pipeline == 1 and (mega or layout.data > 1)
    return SHARD_SHARED_EXPERTS in where and not acts


@constraint("cache_default", "C1", "R-40")
def judge_cache_default(facts: CompatibilityFacts) -> Finding:
    """Does the base say prefix caching on or off? What holds otherwise depends on the release."""
    said, release = facts.settings.prefix_caching, facts.engine_release
    default = default_of("prefix_caching", release, hybrid=True)
    told = {"said": said, "default": default, "release": release.text}
    return warns("unsaid", **told) if said is None else passes("said", **told)


@constraint("parsers", "R-28")
def judge_parsers(facts: CompatibilityFacts) -> Finding:
    """Does the base name K3's parsers? Without them reasoning and tool calls come back as plain text."""
    wanted = load_recipe().parsers.settings.flat()
    have = facts.settings.flat()
    missing = {key: value for key, value in wanted.items() if have.get(key) != value}
    if missing:
        return warns("incomplete", lacks=missing, source=load_recipe().cite(load_recipe().parsers.source))
    return passes("named", named=wanted)


@constraint("ready_timeout", "R-14")
def judge_ready_timeout(facts: CompatibilityFacts) -> Finding:
    """Is the engine given the time to read 1.56 TB? By default slow storage looks like a crash."""
    said, known = facts.settings.engine_ready_timeout_s, load_recipe().ready_timeout
    told = {"said_s": said, "default_s": known.default_s, "advised_s": known.advised_s}
    told_by = load_recipe().cite(known.source)
    if said is None:
        return warns("default", **told, source=told_by)
    return passes("patient", **told) if said >= known.advised_s else warns("short", **told, source=told_by)


@constraint("utilization", "R-14")
def judge_utilization(facts: CompatibilityFacts) -> Finding:
    """Does TP × PP on Blackwell leave room for the workspace that is taken outside vLLM's pool?"""
    limit = load_recipe().tp_pp_utilization
    block = facts.recipe_gpu.block if facts.recipe_gpu else None
    if facts.strategy != "multi_node_tp_pp" or block not in (None, "blackwell"):
        return not_applicable("not-used", strategy=facts.strategy)
    said = facts.settings.gpu_memory_utilization or load_recipe().blocks["base"].settings.gpu_memory_utilization
    told = {"said": said, "limit": limit.value, "source": load_recipe().cite(limit.source)}
    return warns("high", **told) if said and said > limit.value else passes("leaves", **told)
