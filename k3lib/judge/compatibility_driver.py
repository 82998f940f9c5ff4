"""Driver, CUDA and the way of the GPUs into the container: what must be right before any memory setting is touched."""

from __future__ import annotations

from collections.abc import Iterator

from k3lib.judge.compatibility_constraint import Finding, constraint, fails, not_applicable, passes, skips, warns
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.knowledge.recipe import load_recipe
from k3lib.spec.accelerators import Driver
from k3lib.spec.snapshot import Snapshot
from k3lib.spec.vocabulary import EngineKind

MEMORY_OPTIONS = ("gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype")
"""Settings that nobody may touch while the GPUs do not reach the container (R-13)."""


@constraint("host_container", "R-13", "R-25", real=True, pretended=True)
def judge_host_container(facts: CompatibilityFacts) -> Finding:
    """Does the container see the GPUs that its host sees? If not, the runtime comes first."""
    if facts.kind is EngineKind.LOCAL:
        return not_applicable("no-container")
    check = container_check(facts)
    if not facts.hosts or not facts.containers:
        return skips("container-gpus" if facts.hosts else "host", check=check)
    for container in facts.containers:
        host = next((h for h in facts.hosts if h.host.boot_id == container.host.boot_id), facts.hosts[0])
        outside, inside = _count(host), 0 if _has_no_runtime(container) else _count(container)
        if outside is None or inside is None:
            asked = host if outside is None else container
            key = "gpus" if outside is None else "container-gpus"
            return skips(key, asked.host.name, asked.reasons.get("gpus"), check=check)
        if outside and not inside:
            why = container.reasons.get("gpus") or next((d.error for d in container.drivers if d.error), None)
            return fails("none", outside=outside, check=check, forbidden=list(MEMORY_OPTIONS), why=why).seen(why)
        if inside < outside:
            needed = min(facts.layout.gpus, facts.gpus_per_host or facts.layout.gpus)
            make = fails if inside < needed else warns
            return make("fewer", outside=outside, inside=inside, needed=needed, check=check)
    return passes("same", n=sum(_count(container) or 0 for container in facts.containers))


def _has_no_runtime(container: Snapshot) -> bool:
    """
    True if the GPU runtime put nothing into the container: neither its tool nor its library is there.

    The kernel module shows in /proc of every container and is no sign.
    """
    put_in = any(driver.asked or driver.library for driver in container.drivers)
    return container.gpus is None and "gpus" in container.reasons and not put_in


def container_check(facts: CompatibilityFacts) -> str:
    """The command that shows the GPUs inside the image; it goes past the image's entry point."""
    image = facts.image or (facts.running.image if facts.running else None) or "IMAGE"
    return load_recipe().container_checks[facts.vendor or "nvidia"].value.format(image=image)


@constraint("driver_loaded", "R-12", real=True, pretended=True)
def judge_driver_loaded(facts: CompatibilityFacts) -> Finding:
    """Is one driver loaded, and is it the one that the programs talk to? Installed is not loaded."""
    if not facts.machines:
        return skips("host")
    seen = []
    for name, driver in _drivers(facts):
        if driver is None:
            return skips("driver", name)
        versions = driver.versions
        spoken = {where: version for where, version in versions.items() if where != "on_disk"}
        if len(set(spoken.values())) > 1:
            return fails("half-upgraded", host=name, versions=spoken).seen(driver.error)
        if not spoken:
            return fails("not-loaded", host=name, why=driver.error, on_disk=driver.on_disk).seen(driver.error)
        seen.append(next(iter(spoken.values())))
        if driver.on_disk and driver.on_disk != seen[-1]:
            return warns("waits", host=name, loaded=seen[-1], on_disk=driver.on_disk)
    if len(set(seen)) > 1:
        return warns("hosts-differ", versions=dict(zip([host for host, _ in _drivers(facts)], seen, strict=True)))
    return passes("one", version=seen[0])


@constraint("driver_branch", "R-14", vendor="nvidia", real=True, pretended=True)
def judge_driver_branch(facts: CompatibilityFacts) -> Finding:
    """Is the host's driver of the branch that the recipe asks for?"""
    recipe = load_recipe()
    wanted = int(recipe.driver.branch.value)
    if not facts.machines:
        return skips("host")
    for name, driver in _drivers(facts):
        version = _version(driver)
        if version is None:
            return skips("driver", name, driver.error if driver else None)
        if _branch(version) < wanted:
            source = recipe.cite(recipe.driver.branch.source)
            told = {"host": name, "version": version, "wanted": wanted, "source": source}
            return warns("forward", **told) if forward_compatibility(facts) else fails("old", **told)
    versions = sorted({str(_version(driver)) for _, driver in _drivers(facts)})
    return passes("new-enough", versions=versions, wanted=wanted)


@constraint("driver_cuda", "R-14", vendor="nvidia", real=True, pretended=True)
def judge_driver_cuda(facts: CompatibilityFacts) -> Finding:
    """Does the loaded driver support the CUDA that the image was built with?"""
    if not facts.machines:
        return skips("host")
    image = facts.image_cuda
    if image is None and facts.kind is EngineKind.REHEARSAL and not facts.image:
        return not_applicable("no-image", kind=facts.kind.value)
    if image is None:
        return skips("image-cuda", facts.image or None)
    lowest: str | None = None
    for name, driver in _drivers(facts):
        said, version = driver.cuda if driver else None, _version(driver)
        told = {"host": name, "image": image, "driver": version, "cuda": said}
        enough = _supports(said, version, image)
        if enough is None:
            return skips("driver-cuda", name) if said is None else skips("image-cuda-minor", facts.image)
        if not enough:
            forward = forward_compatibility(facts)
            return warns("forward", **told) if forward else fails("old", **told, variable=_forward_variable())
        lowest = said or version
    return passes("supports", image=image, cuda=lowest)


def forward_compatibility(facts: CompatibilityFacts) -> bool:
    """True if the engine is told to use the image's forward-compatibility libraries; for data-centre GPUs only."""
    return any(
        name == _forward_variable() and value.strip().lower() in ("1", "true") for name, value, _ in facts.variables()
    )


def _supports(cuda: str | None, version: str | None, image: str) -> bool | None:
    """
    Whether a driver supports an image's CUDA. A newer minor release is refused too: PTX built with it does not load.

    Source: NVIDIA CUDA compatibility, minor version compatibility; the branch minimum is that of release x.0.
    """
    wanted = tuple(int(part) for part in image.split("."))
    family = load_recipe().driver.by_cuda_major.get(wanted[0])
    if cuda is None:
        if version is None or family is None:
            return None
        if _branch(version) < family:
            return False
        return True if wanted[1:] == (0,) else None
    given = tuple(int(part) for part in cuda.split("."))
    if len(wanted) == 1:
        return False if given[0] < wanted[0] else True if given[0] > wanted[0] else None
    return given >= wanted


def _drivers(facts: CompatibilityFacts) -> Iterator[tuple[str, Driver | None]]:
    vendor = facts.vendor or "nvidia"
    for number, snapshot in enumerate(facts.machines, start=1):
        yield snapshot.host.name or f"host {number}", snapshot.driver(vendor)


def _version(driver: Driver | None) -> str | None:
    """What is loaded; the tool's answer comes from the loaded module too."""
    return (driver.loaded or driver.asked) if driver else None


def _branch(version: str) -> int:
    return int(version.split(".")[0])


def _count(place: Snapshot) -> int | None:
    return None if place.gpus is None else len([gpu for gpu in place.gpus if gpu.lost is None])


def _forward_variable() -> str:
    return load_recipe().driver.forward_variable.value
