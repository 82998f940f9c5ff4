"""Which image, and is what runs what its name says today?"""

from __future__ import annotations

from k3lib.judge.compatibility_constraint import Finding, constraint, fails, not_applicable, passes, skips, warns
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.knowledge.recipe import load_recipe
from k3lib.spec.vocabulary import EngineKind

_NO_IMAGE = (EngineKind.REHEARSAL, EngineKind.LOCAL)


@constraint("image_name", "R-14")
def judge_image_name(facts: CompatibilityFacts) -> Finding:
    """Is it an image that the recipe names, for these GPUs, and spelt as it exists?"""
    name = facts.named_image
    if name is None:
        return _no_image(facts)
    recipe = load_recipe()
    for wrong in recipe.misspelt_repositories:
        if name.repository == wrong.spelled:
            return fails("misspelt", image=name.text, meant=wrong.meant, source=recipe.cite(wrong.source))
    known = facts.recipe_image
    if known is None:
        listed = [f"{image.repository}:{image.tag}" for image in recipe.images]
        return warns("other", image=name.text, listed=listed)
    told = {"image": name.text, "source": recipe.cite(known.source)}
    if facts.vendor and known.vendor != facts.vendor:
        return fails("other-vendor", **told, vendor=facts.vendor, made_for=known.vendor)
    if known.behaves_as is None:
        return warns("moving", **told)
    return passes("listed", **told)


@constraint("image_digest", "R-10", "R-14")
def judge_image_digest(facts: CompatibilityFacts) -> Finding:
    """Is the image pinned, and does what runs still stand behind its tag? A cached layer can be older than its tag."""
    name, running = facts.named_image, facts.running
    if name is None:
        return _no_image(facts)
    told = {
        "image": name.text,
        "running": running.image_id if running else None,
        "today": running.tag_image_id if running else None,
        "digests": running.digests if running else [],
    }
    if name.digest is not None:
        known = [digest.rpartition("@")[2] for digest in told["digests"] or []]
        if known and name.digest not in known:
            return fails("other-digest", **told).seen(*known)
        return passes("pinned", **told) if known else skips("image-digest", facts.image)
    if running is None or running.image_id is None:
        return skips("image-digest", facts.image)
    if running.tag_image_id is None:
        return warns("unchecked", **told).seen(running.image_id)
    if running.tag_image_id != running.image_id:
        return fails("moved", **told).seen(running.image_id, running.tag_image_id)
    return passes("same", **told).seen(running.image_id)


@constraint("image_architecture", "R-14")
def judge_image_architecture(facts: CompatibilityFacts) -> Finding:
    """Does the image exist for the hosts' processor? Hosts of GB200 and GB300 are arm64."""
    if facts.named_image is None:
        return _no_image(facts)
    machines = sorted({host.host.machine for host in facts.machines if host.host.machine})
    if not machines:
        return skips("host")
    arm = [machine for machine in machines if machine in ("aarch64", "arm64")]
    told = {"image": facts.image, "machines": machines, "gpu": facts.gpu_kind}
    if not arm:
        return not_applicable("not-arm", **told)
    if len(machines) > 1:
        return fails("mixed", **told)
    if facts.containers:
        return passes("runs", **told)
    return skips("image-arm64", facts.image)


def _no_image(facts: CompatibilityFacts) -> Finding:
    if facts.kind in _NO_IMAGE:
        return not_applicable("no-image", kind=facts.kind.value)
    return skips("image-name")
