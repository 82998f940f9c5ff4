"""What the constraints of the recipe look at: what is intended, and what was seen of the machines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

from pydantic import Field

from k3lib.judge.conditions import Condition
from k3lib.knowledge.capacity import Layout
from k3lib.knowledge.recipe import find_gpu, find_image, find_judged_model, load_recipe
from k3lib.knowledge.recipe_schema import JudgedModel, RecipeGpu, RecipeImage, Strategy, Vendor
from k3lib.knowledge.versions import Release, parse_release
from k3lib.spec.accelerators import Gpu
from k3lib.spec.campaign import Control
from k3lib.spec.model import Fact
from k3lib.spec.settings import EngineSettings
from k3lib.spec.snapshot import Container, Snapshot, Software
from k3lib.spec.vocabulary import EngineKind, HostLink, Objective

SHARD_SHARED_EXPERTS = "VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT"


class ImageName(Fact):
    """
    An image as it is named.

    Args:
        text: As given.
        repository: Without tag and digest.
        tag: The tag; None where only a digest is given. An image named bare has the tag `latest`.
        digest: `sha256:…`, or None.
    """

    text: str
    repository: str
    tag: str | None
    digest: str | None


def parse_image(text: str) -> ImageName:
    """
    The parts of an image's name.

    >>> parse_image("localhost:5000/vllm:a@sha256:12").repository, parse_image("vllm/vllm-openai").tag
    ('localhost:5000/vllm', 'latest')
    """
    name, _, digest = text.partition("@")
    head, slash, last = name.rpartition("/")
    repository, colon, tag = last.partition(":")
    implied = None if digest else "latest"
    return ImageName(
        text=text, repository=f"{head}{slash}{repository}", tag=tag if colon else implied, digest=digest or None
    )


class CompatibilityFacts(Fact):
    """
    Everything that stage 20 judges; each rule names what it misses.

    Args:
        kind: How the engine is reached.
        objective: What the campaign is for.
        model: Repository or folder of the weights.
        architecture: From its config.json, or None.
        release: Of the engine, as its program or the campaign says.
        settings: The campaign's base.
        image: The image as named, or empty.
        link: What carries tokens between hosts; None is not known.
        hosts: Hosts that were looked at.
        containers: Engine containers that were looked at from inside.
        modelled: Name of the rehearsal's machine profile; None if the machines are real.
        weights_folder: Where the weights are, or are to be; empty is not known.
        weights_bytes: What is there already, or None if it was not read.
        today: The day of the session.
        recipe_max_age_days: Above this the recipe is called old.
        control: What the team may change, six answers.
        conditions: What was said beside an answer, `driver` to "in six weeks".
        ordered: What was ordered of a rented node; empty if nothing is to be accepted.
        machine_conditions: What is wrong with the machines by themselves.
        reasons: Field to why it is None.
    """

    kind: EngineKind
    objective: Objective
    model: str
    architecture: str | None = None
    release: str
    settings: EngineSettings
    image: str = ""
    link: HostLink | None = None
    hosts: list[Snapshot] = Field(default_factory=list)
    containers: list[Snapshot] = Field(default_factory=list)
    modelled: str | None = None
    weights_folder: str = ""
    weights_bytes: int | None = None
    today: date
    recipe_max_age_days: int
    control: Control = Control()
    conditions: dict[str, str] = Field(default_factory=dict)
    ordered: dict[str, Any] = Field(default_factory=dict)
    machine_conditions: list[Condition] = Field(default_factory=list)
    reasons: dict[str, str] = Field(default_factory=dict)

    @property
    def judged(self) -> JudgedModel | None:
        """The recipe's model that this is, or None: the recipe judges no other."""
        return find_judged_model(self.model, self.architecture)

    @property
    def machines(self) -> list[Snapshot]:
        """The hosts; where none was looked at from outside, what their containers show of them."""
        return self.hosts or self.containers

    @property
    def pretends(self) -> bool:
        """True if the rehearsal's pretend machine was asked for its driver, beyond the GPUs of its profile."""
        return self.modelled is not None and any(place.drivers for place in self.machines)

    @property
    def gpus(self) -> list[Gpu] | None:
        """The GPUs of all machines that answer; None if one of them could not be asked, or none was looked at."""
        if not self.machines or any(host.gpus is None for host in self.machines):
            return None
        return [gpu for host in self.machines for gpu in host.gpus or [] if gpu.lost is None]

    @property
    def kinds(self) -> set[str | None]:
        """The recipe's names of the GPUs seen; None among them is a GPU that the recipe does not know."""
        return {find_gpu(gpu.name or "") for gpu in self.gpus or []}

    @property
    def gpu_kind(self) -> str | None:
        """The recipe's name of the GPUs, if they are all of one kind that it knows."""
        kinds = self.kinds
        return next(iter(kinds)) if len(kinds) == 1 else None

    @property
    def recipe_gpu(self) -> RecipeGpu | None:
        """What the recipe says of these GPUs."""
        return load_recipe().hardware.get(self.gpu_kind or "")

    @property
    def vendor(self) -> Vendor | None:
        """Whose GPUs these are; None if nobody knows, or both are there."""
        vendors = {gpu.vendor for gpu in self.gpus or []} or {d.vendor for host in self.machines for d in host.drivers}
        return next(iter(vendors)) if len(vendors) == 1 else None

    @property
    def named_image(self) -> ImageName | None:
        """The image's name in its parts; None if none was named."""
        return parse_image(self.image) if self.image else None

    @property
    def recipe_image(self) -> RecipeImage | None:
        """What the recipe says of the image."""
        return find_image(self.named_image.repository, self.named_image.tag) if self.named_image else None

    @property
    def running(self) -> Container | None:
        """The container of the named image that a runtime shows, a running one first."""
        every = [c for host in self.machines for c in host.containers or [] if c.image == self.image and self.image]
        return next(iter(sorted(every, key=lambda c: not c.running)), None)

    @property
    def layout(self) -> Layout:
        """How the model is spread, one where the base says nothing."""
        s = self.settings
        return Layout(
            tensor=s.tensor_parallel or 1,
            pipeline=s.pipeline_parallel or 1,
            data=s.data_parallel or 1,
            expert=bool(s.expert_parallel),
            replicate_shared_experts=self.replicates_shared_experts,
        )

    @property
    def replicates_shared_experts(self) -> bool:
        """True if every rank holds the shared experts whole: sequence-parallel MoE, and no variable that cuts them."""
        s = self.settings
        sequence_parallel = bool(s.expert_parallel) and (s.tensor_parallel or 1) > 1 and (s.data_parallel or 1) > 1
        return sequence_parallel and s.environment.get(SHARD_SHARED_EXPERTS, "0") == "0"

    @property
    def gpus_per_host(self) -> int | None:
        """GPUs in one host: as many as were seen in one, or more where the recipe knows that one of them is missing."""
        seen = [len(host.gpus) for host in self.machines if host.gpus]
        known = [self.recipe_gpu.gpus_per_host] if self.recipe_gpu else []
        return max(seen + known, default=None)

    @property
    def hosts_needed(self) -> int | None:
        """Hosts that the layout fills; None if nobody knows how many GPUs a host has."""
        per_host = self.gpus_per_host
        return -(-self.layout.gpus // per_host) if per_host else None

    @property
    def hosts_planned(self) -> int:
        """Hosts that the base plans for."""
        layout, settings = self.layout, self.settings
        spread = -(-layout.data // settings.data_parallel_local) if settings.data_parallel_local else 1
        return max(settings.nodes or 1, spread)

    @property
    def spans_hosts(self) -> bool:
        """True if one engine needs, or plans for, more than one host."""
        return max(self.hosts_planned, self.hosts_needed or 1) > 1

    @property
    def strategy(self) -> Strategy:
        """The recipe's name of the layout."""
        layout = self.layout
        if layout.expert:
            return "multi_node_dep" if layout.data > 1 else "multi_node_tep"
        if layout.pipeline > 1:
            return "multi_node_tp_pp"
        if layout.data > 1:
            return "multi_node_tp_dp"
        return "multi_node_tp" if self.spans_hosts else "single_node_tp"

    @property
    def software(self) -> Software | None:
        """The Python environment that really executes: the container's, else the host's; None if none was asked."""
        places = [*self.containers, *(self.machines if self.kind is EngineKind.LOCAL else [])]
        asked = [s for place in places for s in place.software if "vllm" in s.packages]
        return asked[0] if asked else None

    @property
    def engine_release(self) -> Release:
        """The release that really executes, as far as it was asked; else what campaign or program say."""
        seen = self.software.packages.get("vllm") if self.software else None
        return parse_release(seen or self.release)

    @property
    def image_cuda(self) -> str | None:
        """CUDA inside the image: as its torch says, else as the recipe knows the tag; `13` if only that is known."""
        seen = self.software.torch_cuda if self.software else None
        return seen or (self.recipe_image.cuda if self.recipe_image else None)

    def variables(self) -> Iterator[tuple[str, str, str]]:
        """Name, value and origin of every variable that reaches the engine: the base's, then those found set."""
        for name, value in self.settings.environment.items():
            yield name, value, "campaign"
        for place in [*self.containers, *self.machines]:
            for variable in place.variables:
                yield variable.name, variable.value, variable.origin
