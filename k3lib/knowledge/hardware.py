"""Accelerators and machine profiles, typed; the numbers and their sources are in `hardware.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from k3lib.errors import KnowledgeError
from k3lib.knowledge.data import malformed, read_knowledge

_FILE = "hardware.yaml"
_KindT = TypeVar("_KindT")


@dataclass(frozen=True)
class Gpu:
    """
    One accelerator.

    Args:
        name: `B300`.
        memory_gib: What the driver reports, GiB.
        vendor: `nvidia` or `amd`.
        fp8_kv: Whether the official recipe for it sets an fp8 KV cache.
        product, architecture, capability: What the vendor's tool says of it.
        power_w: Its power limit, watts.
        source: Where the memory figure is from.
    """

    name: str
    memory_gib: float
    vendor: str
    fp8_kv: bool
    product: str
    architecture: str
    capability: str
    power_w: int
    source: str


@dataclass(frozen=True)
class Machine:
    """
    A machine, or several nodes used as one.

    Args:
        name: `8xB300`.
        gpu: Its accelerator.
        gpus: How many, over all nodes.
        nodes: Hosts; a GB300 tray holds four GPUs, so eight are two hosts.
        context_gib: Held per GPU before the engine asks for memory, GiB.
        storage_bytes_per_s: Read rate of the weights by all ranks together.
    """

    name: str
    gpu: Gpu
    gpus: int
    nodes: int
    context_gib: float
    storage_bytes_per_s: float


@dataclass(frozen=True)
class Driver:
    """
    A driver as a pretend machine has it.

    Args:
        name: `loaded`, `too-old` or `half-upgraded`.
        module: Version of the loaded kernel module.
        nvml, libcuda: Versions of the libraries on disk.
        cuda: Highest CUDA version of the module.
        source: Why these.
    """

    name: str
    module: str
    nvml: str
    libcuda: str
    cuda: str
    source: str


@dataclass(frozen=True)
class ImageBuild:
    """
    A build that an image's tag points at, or has.

    Args:
        name: As a scenario names it.
        tag: Repository and tag.
        digest: Of the build.
        created: When it was built, ISO 8601.
    """

    name: str
    tag: str
    digest: str
    created: str


@cache
def load_gpus() -> dict[str, Gpu]:
    """
    The known accelerators by name.

    >>> load_gpus()["B300"].memory_gib
    267.7
    """
    entries = read_knowledge(_FILE).get("gpus") or {}
    return {name: _build(Gpu, name, {"name": name, **entry}) for name, entry in entries.items()}


@cache
def load_machines() -> dict[str, Machine]:
    """
    The known machines by name.

    >>> load_machines()["8xGB300"].nodes
    2
    """
    gpus = load_gpus()
    machines = {}
    for name, entry in (read_knowledge(_FILE).get("machines") or {}).items():
        if entry.get("gpu") not in gpus:
            raise malformed(_FILE, f"{name}: gpu one of {', '.join(gpus)}", repr(entry.get("gpu")))
        machines[name] = _build(Machine, name, {**entry, "name": name, "gpu": gpus[entry["gpu"]]})
    return machines


def find_machine(name: str) -> Machine:
    """
    One machine.

    Raises:
        KnowledgeError: No such profile; the message lists those there are.
    """
    machines = load_machines()
    if name not in machines:
        raise KnowledgeError(
            f"no machine profile {name!r}",
            expected=f"one of {', '.join(machines)}",
            evidence=f"asked for {name!r}",
            next="choose one of these, or add it to k3lib/knowledge/hardware.yaml",
        )
    return machines[name]


def find_driver(name: str) -> Driver:
    """
    One driver.

    Raises:
        KnowledgeError: No such driver in the file.

    >>> find_driver("half-upgraded").libcuda
    '580.126.09'
    """
    return _find(Driver, "drivers", name)


def find_image(name: str) -> ImageBuild:
    """
    One build of the image.

    Raises:
        KnowledgeError: No such build in the file.
    """
    return _find(ImageBuild, "images", name)


def _find(kind: type[_KindT], section: str, name: str) -> _KindT:
    entries = read_knowledge(_FILE).get(section) or {}
    if name not in entries:
        raise malformed(_FILE, f"{section}: {name}", f"only {', '.join(entries)}")
    return _build(kind, name, {"name": name, **entries[name]})


_NUMBERS = ("memory_gib", "power_w", "gpus", "nodes", "context_gib", "storage_bytes_per_s")


def _build(kind: type[_KindT], name: str, entry: dict[str, Any]) -> _KindT:
    for key in _NUMBERS:
        # YAML 1.1 reads 1.3e9 as a word and only 1.3e+9 as a number: exactly the slip this finds.
        if key in entry and (isinstance(entry[key], str) or not entry[key] > 0):
            raise malformed(_FILE, f"{name}: {key} a number above 0", repr(entry[key]))
    try:
        return kind(**entry)
    except TypeError as error:
        raise malformed(_FILE, f"{name}: the fields of {kind.__name__}", str(error)) from error
