"""What a host must have beside its GPUs: memory, shared memory, room for the weights."""

from __future__ import annotations

from k3lib.judge.compatibility_constraint import Finding, constraint, fails, passes, skips, warns
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.knowledge.model import load_model_facts
from k3lib.knowledge.recipe import load_recipe
from k3lib.spec.snapshot import Mount, Snapshot
from k3lib.spec.vocabulary import EngineKind

_WHOLE = 0.99
"""A folder with at least this share of the checkpoint's bytes holds all shards; sizes are public to two digits."""


@constraint("host_memory", "R-14", real=True)
def judge_host_memory(facts: CompatibilityFacts) -> Finding:
    """Has each host the memory to read the weights through? Nobody publishes a minimum, so this only warns."""
    if not facts.machines:
        return skips("host")
    model, ranks = load_model_facts(), min(facts.layout.gpus, facts.gpus_per_host or facts.layout.gpus)
    floor = ranks * model.checkpoint_bytes // model.checkpoint_shards
    source = load_recipe().cite(load_recipe().computed.host_memory_source)
    least: int | None = None
    for place in [*facts.hosts, *facts.containers]:
        host = place.host
        if host.memory_bytes is None:
            return skips("host-memory", host.name, place.reasons.get("host.memory_bytes"))
        allowed = min(host.memory_bytes, host.memory_limit_bytes or host.memory_bytes)
        told = {"host": host.name, "bytes": allowed, "floor_bytes": floor, "ranks": ranks, "source": source}
        if allowed < floor:
            return warns("small", **told)
        if host.memory_limit_bytes is not None and host.memory_limit_bytes < model.checkpoint_bytes:
            return warns("limited", **told)
        least = min(allowed, least or allowed)
    return passes("room", bytes=least, floor_bytes=floor, ranks=ranks)


@constraint("shared_memory", "R-14", real=True)
def judge_shared_memory(facts: CompatibilityFacts) -> Finding:
    """Is /dev/shm large enough for several ranks, as the engine will see it? Docker's own default is not."""
    if facts.layout.gpus == 1:
        return passes("one-rank")
    sizes = _shm_sizes(facts)
    if not sizes:
        return skips("shm")
    limits = load_recipe().project_defaults
    told = {
        "bytes": min(sizes),
        "default_bytes": limits.shm_default_bytes,
        "advised_bytes": limits.shm_advised_bytes,
        "source": load_recipe().cite(limits.shm_source),
    }
    if min(sizes) <= limits.shm_default_bytes:
        return fails("default", **told)
    return warns("small", **told) if min(sizes) < limits.shm_advised_bytes else passes("room", **told)


def _shm_sizes(facts: CompatibilityFacts) -> list[int]:
    inside = [place.host.shm_size_bytes for place in facts.containers]
    if not inside and facts.running and facts.running.shm_bytes is not None:
        inside = [facts.running.shm_bytes]
    shares_host = facts.kind is EngineKind.LOCAL or bool(facts.running and facts.running.ipc == "host")
    if not inside and shares_host:
        inside = [host.host.shm_size_bytes for host in facts.machines]
    return [size for size in inside if size is not None]


@constraint("disk", "R-14", real=True)
def judge_disk(facts: CompatibilityFacts) -> Finding:
    """Is there room for the checkpoint where the weights are to be, or are they there already?"""
    needed = load_model_facts().checkpoint_bytes
    present = facts.weights_bytes
    told = {"folder": facts.weights_folder, "needed_bytes": needed, "present_bytes": present}
    if facts.judged is not None and not facts.judged.arithmetic:
        return skips("checkpoint-size", facts.judged.name)
    if present is not None and present >= _WHOLE * needed:
        return passes("there", **told)
    if not facts.weights_folder:
        return skips("weights-folder")
    free: list[int] = []
    for host in facts.machines:
        mount = find_mount(host, facts.weights_folder)
        if mount is None or mount.free_bytes is None:
            return skips("free-space", host.host.name)
        free.append(mount.free_bytes)
    if not free:
        return skips("host")
    told["free_bytes"] = min(free)
    return fails("too-small", **told) if min(free) + (present or 0) < needed else passes("room", **told)


def find_mount(place: Snapshot, folder: str) -> Mount | None:
    """The file system that a folder stands on, the innermost one; None if it was not looked at."""
    inside = [m for m in place.host.mounts if folder == m.path or folder.startswith(m.path.rstrip("/") + "/")]
    return max(inside, key=lambda mount: len(mount.path), default=None)
