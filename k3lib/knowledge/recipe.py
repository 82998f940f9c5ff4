"""
What is published about running Kimi K3 on vLLM, and how to find something in it; the values are in `recipe.yaml`.

Nothing here judges: a machine is compared with these values in `judge/`.
"""

from __future__ import annotations

import re
from functools import cache

from k3lib.knowledge.package_data import read_facts
from k3lib.knowledge.recipe_schema import JudgedModel, Recipe, RecipeImage
from k3lib.knowledge.settings import VariableCarrier, concept_of_variable, setting_facts
from k3lib.knowledge.versions import Release


@cache
def load_recipe() -> Recipe:
    """
    The recipe, its blog and their contradictions, as read last.

    Raises:
        KnowledgeError: The file that ships with this package is malformed.

    >>> load_recipe().block_of("B200", "multi_node_tp_pp").gpu_memory_utilization
    0.9
    """
    return read_facts("recipe.yaml", Recipe)


def find_gpu(name: str) -> str | None:
    """
    The recipe's name of a GPU, from the name a driver gives it; None where the recipe does not know it.

    >>> [find_gpu(name) for name in ("NVIDIA GB300", "NVIDIA B300 SXM6 AC", "AMD Instinct MI355X", "NVIDIA L40S")]
    ['GB300', 'B300', 'MI355X', None]
    """
    words = set(re.split(r"[^A-Za-z0-9]+", name.upper()))
    return next((kind for kind in load_recipe().hardware if kind in words), None)


def find_judged_model(name: str, architecture: str | None = None) -> JudgedModel | None:
    """
    The recipe's model that a name or a folder is; None where the recipe is not about it.

    Args:
        name: Repository or folder.
        architecture: From its config.json, or None where it was not read. A folder of another architecture is no K3.

    >>> find_judged_model("/srv/weights/Kimi-K3/").name, find_judged_model("moonshotai/Kimi-K3.1-Pro")
    ('moonshotai/Kimi-K3', None)
    """
    if architecture is not None and "KimiK3" not in architecture:
        return None
    short = name.rstrip("/").rsplit("/", 1)[-1].lower()
    return next((model for model in load_recipe().models if model.name.rsplit("/", 1)[-1].lower() == short), None)


def find_image(repository: str, tag: str | None) -> RecipeImage | None:
    """
    The recipe's image of this repository and tag, or None.

    >>> find_image("vllm/vllm-openai", "kimi-k3").cuda
    '13.0'
    """
    return next((i for i in load_recipe().images if (i.repository, i.tag) == (repository, tag)), None)


def find_dead_variables(names: list[str], release: Release) -> list[tuple[str, str | None, str]]:
    """
    Variables that a release does not know, though they once carried something for K3.

    Args:
        names: Variables that are set.
        release: The engine's release.

    Returns:
        Name, what carries the setting instead or None, and the source; in the order of `names`.

    >>> from k3lib.knowledge.versions import parse_release
    >>> [name for name, _, _ in find_dead_variables(["VLLM_USE_V1"], parse_release("0.33.0"))]
    ['VLLM_USE_V1']
    """
    recipe = load_recipe()
    spans = {span.name: span for span in recipe.variables}
    dead: list[tuple[str, str | None, str]] = []
    for name in names:
        if name in spans and spans[name].dead_in(release):
            dead.append((name, spans[name].instead, recipe.cite(spans[name].source)))
        elif (concept := concept_of_variable(name)) is not None:
            carriers = setting_facts().carriers[concept]
            now = next((c for c in carriers if release.known and release.within(c.since, c.until)), None)
            if now is not None and not isinstance(now, VariableCarrier):
                dead.append((name, now.name, setting_facts().sources[now.source]))
    return dead
