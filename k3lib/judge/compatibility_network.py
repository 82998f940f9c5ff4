"""What joins the ranks: backends that a network cannot carry, and features that do not go together (R-49)."""

from __future__ import annotations

from k3lib.judge.compatibility_constraint import Finding, constraint, fails, not_applicable, passes, skips, warns
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.knowledge.recipe import load_recipe
from k3lib.spec.vocabulary import HostLink

_DEFAULT_BACKEND = "allgather_reducescatter"
"""What runs where none is named: vLLM 0.32.0 config/parallel.py:219."""


@constraint("all_to_all", "R-49")
def judge_all_to_all(facts: CompatibilityFacts) -> Finding:
    """Can what joins the hosts carry the all-to-all backend? The same number of GPUs can behave otherwise."""
    named = facts.settings.all2all_backend
    if named is None and not (facts.layout.data > 1 and facts.layout.expert):
        return not_applicable("not-used", strategy=facts.strategy)
    if facts.link is None:
        return skips("link")
    backend = named or _DEFAULT_BACKEND
    known = load_recipe().all_to_all.get(backend)
    advised = sorted(name for name, entry in load_recipe().all_to_all.items() if facts.link in entry.advised)
    told = {"backend": backend, "link": facts.link.value, "advised": advised, "named": named is not None}
    if known is None:
        return warns("unlisted", **told)
    told["source"] = load_recipe().cite(known.source)
    if facts.link in known.impossible:
        return fails("impossible", **told)
    if facts.link not in known.advised:
        return warns("not-advised", **told)
    return passes("advised", **told)


@constraint("moe_backend", "R-49")
def judge_moe_backend(facts: CompatibilityFacts) -> Finding:
    """Can the kernels of the experts run between these hosts and on these GPUs?"""
    named = facts.settings.moe_backend
    known = load_recipe().moe_backends.get(named or "")
    if named is None or known is None:
        return not_applicable("no-limit", backend=named)
    told = {"backend": named, "only_on": known.only_on, "source": load_recipe().cite(known.source)}
    if facts.spans_hosts and facts.link is None:
        return skips("link")
    if facts.spans_hosts and facts.link in known.impossible:
        return fails("impossible", **told, link=facts.link.value if facts.link else None)
    if facts.gpu_kind is None:
        return skips("gpu-kind")
    if facts.gpu_kind not in known.only_on:
        return warns("other-gpu", **told, gpu=facts.gpu_kind)
    return passes("fits", **told, gpu=facts.gpu_kind)


@constraint("speculation", "R-27")
def judge_speculation(facts: CompatibilityFacts) -> Finding:
    """Does the draft method go with the layout? DSpark and pipeline parallelism do not."""
    speculation, rule = facts.settings.speculative_config, load_recipe().no_pipeline_with
    if not speculation:
        return not_applicable("none")
    method = str(speculation.get("method", ""))
    told = {"method": method, "pipeline": facts.layout.pipeline, "source": load_recipe().cite(rule.source)}
    if facts.layout.pipeline > 1 and method in rule.methods:
        return fails("with-pipeline", **told)
    return passes("goes", **told)


@constraint("link", "R-48", "R-49")
def judge_link(facts: CompatibilityFacts) -> Finding:
    """Is it known what carries tokens between the hosts, where there is more than one?"""
    if not facts.spans_hosts:
        return not_applicable("one-host")
    if facts.link is None:
        return skips("link")
    up = [nic for host in facts.machines for nic in host.interconnect.nics or [] if nic.up and nic.kind != "ethernet"]
    asked = bool(facts.machines) and all(host.interconnect.nics is not None for host in facts.machines)
    told = {"link": facts.link.value, "adapters": sorted({f"{nic.name} ({nic.kind})" for nic in up})}
    if facts.link is HostLink.RDMA and asked and not up:
        return fails("no-adapter", **told)
    if facts.link is HostLink.ETHERNET:
        return warns("ethernet", **told)
    return passes("known", **told)
