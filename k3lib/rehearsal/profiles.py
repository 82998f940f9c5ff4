"""
Which release is played, and what it makes of settings that releases read differently.

`K3_REHEARSAL_RELEASE` names it: the campaign's `engine.version`, as a person wrote it. vLLM's own variables then choose
the model runner and the front end, as they do in a real engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k3lib.errors import KnowledgeError
from k3lib.knowledge.profiles import DEFAULT_RELEASE, CpuModel, Profile, find_profile, list_cpu_models


def read_profile(environment: Mapping[str, str]) -> Profile:
    """
    The release to play, by K3_REHEARSAL_RELEASE, with the model runner and the front end that its variables ask for.

    Raises:
        KnowledgeError: No such release.
    """
    runner = {"0": "v1", "1": "v2"}.get(environment.get("VLLM_USE_V2_MODEL_RUNNER", ""))
    return find_profile(
        environment.get("K3_REHEARSAL_RELEASE") or DEFAULT_RELEASE,
        runner=runner,
        rust=environment.get("VLLM_USE_RUST_FRONTEND") == "1",
    )


def find_cpu_model(model: str) -> CpuModel:
    """
    The tiny model that a folder's name stands for.

    Raises:
        KnowledgeError: The rehearsal has no numbers for it.
    """
    name = model.rstrip("/").rpartition("/")[2]
    for known in list_cpu_models():
        if known.name == name:
            return known
    names = ", ".join(known.name for known in list_cpu_models())
    raise KnowledgeError(
        f"the rehearsal of a CPU build cannot play the model {model!r}",
        expected=f"a folder named {names.replace(', ', ' or ')}",
        evidence=f"model = {model}",
        next="serve one of these, or play a release for GPUs, which stands for Kimi K3 whatever the model's name",
    )


def resolve_caching(asked: bool | None, profile: Profile, cpu_model: CpuModel | None) -> bool:
    """Whether prefixes are cached: as asked, or as this release decides for this kind of model."""
    if asked is not None:
        return asked
    hybrid = cpu_model is None or cpu_model.linear_groups > 0
    return profile.hybrid_caching or not hybrid


def resolve_retention(values: Mapping[str, Any], environment: Mapping[str, str], profile: Profile) -> int | None:
    """Tokens between kept states; None keeps all, 0 only those that a later request is known to need."""
    how = profile.retention
    if how.flag:
        interval: int | None = values[how.flag.replace("-", "_")]
        return interval
    text = environment.get(how.variable or "", "")
    return int(text) if text.isdigit() else how.default
