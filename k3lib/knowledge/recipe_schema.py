"""The shape of `recipe.yaml`: what is published about running Kimi K3 on vLLM, each value with its source."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Literal

from pydantic import BaseModel, Field, model_validator

from k3lib.knowledge.settings import MinorText
from k3lib.knowledge.versions import Release
from k3lib.spec.model import Strict
from k3lib.spec.settings import EngineSettings
from k3lib.spec.vocabulary import HostLink

Vendor = Literal["nvidia", "amd"]
Strategy = Literal[
    "single_node_tp", "multi_node_tp", "multi_node_tp_dp", "multi_node_tep", "multi_node_tp_pp", "multi_node_dep"
]


class Source(Strict):
    """
    Where a value is written.

    Args:
        text: Repository and file, release and line, or issue.
        commit: The commit it was read at, or None.
        dated: The day of that text, or None where it is not known.
    """

    text: str
    commit: str | None = None
    dated: date | None = None

    def __str__(self) -> str:
        return ", ".join(str(part) for part in (self.text, self.commit and f"commit {self.commit}", self.dated) if part)


class _Sourced(Strict):
    source: str
    """Key of the file's sources."""


class State(Strict):
    """
    The recipe that is judged against.

    Args:
        repository, file, commit: Where it is.
        committed: The day of that commit.
        page_dated: The date the page itself shows.
    """

    repository: str
    file: str
    commit: str
    committed: date
    page_dated: date

    def age_days(self, today: date) -> int:
        """Days from the commit to a day."""
        return (today - self.committed).days


class JudgedModel(_Sourced):
    """
    A model that the recipe is about.

    Args:
        name: Repository.
        precision: Of its weights.
        vram_minimum_gb: The recipe's own figure for all GPUs together, GB.
        arithmetic: Whether our memory formulas hold for it.
    """

    name: str
    precision: str
    vram_minimum_gb: int
    arithmetic: bool


class RecipeImage(_Sourced):
    """
    An image that the recipe or its site names.

    Args:
        repository, tag: As pulled.
        vendor: Whose GPUs it runs on.
        cuda: CUDA inside, `13.0`; `13` where its minor release is not known; None without CUDA.
        behaves_as: Minor release of vLLM, or None where the tag moves with the releases.
    """

    repository: str
    tag: str
    vendor: Vendor
    cuda: str | None = None
    behaves_as: MinorText | None = None


class Misspelling(_Sourced):
    """A repository as the guide writes it wrongly, and the one that is meant."""

    spelled: str
    meant: str


class RecipeGpu(_Sourced):
    """
    One kind of GPU as the recipe knows it.

    Args:
        vendor: `nvidia` or `amd`.
        block: The block of settings for it, or None.
        status: `verified`, `floor` (only a minimum is given), or `refused` (the image has no code for it).
        min_gpus: The fewest that the recipe starts with, or None.
        capability: Compute capability, or the gfx name on AMD.
        printed: Memory as the recipe's site prints it, without a unit; None where it prints none.
        gpus_per_host: GPUs in one host.
        host: Architecture of its hosts.
    """

    vendor: Vendor
    block: str | None
    status: Literal["verified", "floor", "refused"]
    min_gpus: int | None
    capability: str
    printed: int | None
    gpus_per_host: int
    host: Literal["x86_64", "aarch64"]


class Capabilities(Strict):
    """Compute capabilities that the images hold code for, and those seen to be refused."""

    supported: list[str]
    refused: list[str]
    supported_source: str
    refused_source: str


class StrategyFacts(_Sourced):
    """
    A layout that the recipe offers.

    Args:
        min_gpus: The fewest it takes.
        only_on: GPUs it is offered on; empty is all.
        not_on: GPUs it is not offered on.
    """

    min_gpus: int
    only_on: list[str] = Field(default_factory=list)
    not_on: list[str] = Field(default_factory=list)

    def offered_on(self, gpu: str) -> bool:
        """True if the recipe offers this layout on this GPU."""
        return gpu not in self.not_on and (not self.only_on or gpu in self.only_on)


class Block(_Sourced):
    """
    What the recipe's command says in one case.

    Args:
        settings: In the words of our settings.
        unset: Variables that every site fills in for itself.
    """

    settings: EngineSettings
    unset: list[str] = Field(default_factory=list)


class Driver(Strict):
    """
    What the host's driver must be.

    Args:
        branch: The recipe's own minimum, a branch number.
        by_cuda_major: NVIDIA's minimum branch for each major release of CUDA.
        by_cuda_source: Key of the file's sources.
        forward_variable: Makes vLLM use the image's forward-compatibility libraries.
    """

    branch: Number
    by_cuda_major: dict[int, int]
    by_cuda_source: str
    forward_variable: Text


class Number(_Sourced):
    """A number with its source."""

    value: int | float


class Text(_Sourced):
    """A word with its source."""

    value: str


class ReadyTimeout(_Sourced):
    """The front end's patience with the engine at start-up, seconds: by default, and as advised."""

    default_s: int
    advised_s: int


class AllToAll(_Sourced):
    """What an all-to-all backend is meant for, and what cannot carry it."""

    advised: list[HostLink]
    impossible: list[HostLink] = Field(default_factory=list)


class MoeBackend(_Sourced):
    """Between which hosts, and on which GPUs, kernels of the experts cannot run."""

    impossible: list[HostLink]
    only_on: list[str]


class NoPipeline(_Sourced):
    """Draft methods that do not go with pipeline parallelism."""

    methods: list[str]


class VariableSpan(_Sourced):
    """
    In which releases a variable means something.

    Args:
        name: The variable.
        known_since, known_until: First and last minor release seen with it; None is not known.
        gone_since: First minor release seen without it, or None.
        instead: What carries the setting since, or None.
    """

    name: str
    known_since: MinorText | None = None
    known_until: MinorText | None = None
    gone_since: MinorText | None = None
    instead: str | None = None

    def dead_in(self, release: Release) -> bool | None:
        """True if this release does not know it; None between what was looked at."""
        if self.known_since and release.within(self.known_since, None) is False:
            return True
        if self.gone_since:
            gone = release.within(self.gone_since, None)
            if gone is not False:
                return gone
            return False if self.known_until and release.within(None, self.known_until) else None
        return release.within(self.known_since, None) and False


class ProjectDefaults(Strict):
    """
    Limits of our own, where nobody publishes one.

    Args:
        recipe_max_age_days: Above this a recipe is called old (R-14).
        memory_tolerance_fraction: A GPU may report this much less than its kind does.
        shm_default_bytes: /dev/shm of a container nobody gave more.
        shm_advised_bytes: Below this we warn.
        shm_source: Where Docker's default stands.
        acceptance_minutes: What an acceptance of a rented node should take.
    """

    recipe_max_age_days: int
    memory_tolerance_fraction: float
    shm_default_bytes: int
    shm_advised_bytes: int
    shm_source: str
    acceptance_minutes: int


class Computed(Strict):
    """Where what we compute ourselves is written."""

    weights_source: str
    host_memory_source: str
    hosts_source: str


class Words(Strict):
    """A sentence in two languages."""

    en: str
    fr: str


class Side(_Sourced):
    """One side of a contradiction."""

    says: Words


class Contradiction(Strict):
    """
    Published statements that do not go together; both are kept.

    Args:
        key: Short name.
        topic: What it is about.
        sides: Who says what.
        reading: How the workbook reads it.
    """

    key: str
    topic: Words
    sides: list[Side] = Field(min_length=2)
    reading: Words


class Recipe(Strict):
    """Everything in `recipe.yaml`; each field's meaning stands with its class."""

    schema_version: Literal[1]
    dated: date
    state: State
    sources: dict[str, Source]
    models: list[JudgedModel]
    min_release: Text
    driver: Driver
    images: list[RecipeImage]
    misspelt_repositories: list[Misspelling]
    hardware: dict[str, RecipeGpu]
    capabilities: Capabilities
    strategies: dict[Strategy, StrategyFacts]
    blocks: dict[str, Block]
    parsers: Block
    tp_pp_utilization: Number
    ready_timeout: ReadyTimeout
    all_to_all: dict[str, AllToAll]
    moe_backends: dict[str, MoeBackend]
    no_pipeline_with: NoPipeline
    variables: list[VariableSpan]
    project_defaults: ProjectDefaults
    computed: Computed
    container_checks: dict[Vendor, Text]
    contradictions: list[Contradiction]

    @model_validator(mode="after")
    def _every_source_is_there(self) -> Recipe:
        used = set(_source_keys(self))
        if odd := used ^ self.sources.keys():
            raise ValueError(f"sources without a use, or uses without a source: {sorted(odd)}")
        blocks = {gpu.block for gpu in self.hardware.values() if gpu.block}
        if missing := blocks - self.blocks.keys():
            raise ValueError(f"hardware names no block: {sorted(missing)}")
        return self

    def cite(self, key: str) -> str:
        """A source in one line."""
        return str(self.sources[key])

    def block_of(self, gpu: str | None, strategy: Strategy | None) -> EngineSettings:
        """
        The recipe's settings for a GPU and a layout: its base, then the GPU's block, then the layout's.

        Args:
            gpu: `B300`, or None for the base alone.
            strategy: The layout, or None.
        """
        kind = self.hardware.get(gpu) if gpu else None
        names = ["base", kind.block if kind else None, strategy if strategy in self.blocks else None]
        settings = EngineSettings()
        for name in names:
            if name:
                for key, value in self.blocks[name].settings.flat().items():
                    settings = settings.with_change(key, value)
        return settings


def _source_keys(part: object) -> Iterator[str]:
    """Every source that a part of the recipe names."""
    if isinstance(part, BaseModel) and not isinstance(part, EngineSettings):
        for name in type(part).model_fields:
            value = getattr(part, name)
            if name == "source" or name.endswith("_source"):
                yield value
            elif name != "sources":
                yield from _source_keys(value)
    elif isinstance(part, dict):
        for value in part.values():
            yield from _source_keys(value)
    elif isinstance(part, list):
        for value in part:
            yield from _source_keys(value)
