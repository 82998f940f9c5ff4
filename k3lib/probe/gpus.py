"""GPUs and who holds them, from NVML, nvidia-smi, amd-smi and the PCI bus; where two differ, both are kept."""

from __future__ import annotations

from k3lib.logs.amd_smi import AmdState, parse_amd_smi, parse_rocm_smi
from k3lib.logs.nvidia_smi import (
    normalize_pci,
    parse_links,
    parse_list,
    parse_lost,
    parse_quantity,
    parse_rows,
    parse_state,
)
from k3lib.probe.nvml_answers import read_nvml_gpus
from k3lib.probe.sources import Sources
from k3lib.spec.accelerators import Disagreement, Gpu

_QUERY = ("index", "uuid", "pci", "name", "memory_total", "memory_used", "driver", "capability")
_MIB = 1024**2
_COMPARED = ("name", "memory_total_bytes", "ecc", "mig", "capability", "pci")


def read_gpus(sources: Sources, reasons: dict[str, str]) -> list[Gpu] | None:
    """
    Every GPU that somebody names.

    Args:
        sources: A collection.
        reasons: Gets the reason if nobody could be asked.

    Returns:
        NVIDIA's, then AMD's, each in its driver's order, then those that do not answer; None if nobody could be asked.
    """
    nvidia, amd = _read_nvidia(sources), read_amd(sources)
    if nvidia is None and amd is None:
        tools = ("nvml", "nvidia-smi-xml", "amd-smi-list")
        reasons["gpus"] = "; ".join([*(sources.reason(name) for name in tools), *_describe_bus(sources)])
        return None
    found = [*(nvidia or []), *(amd.gpus if amd else ())]
    answering = [gpu for gpu in found if not gpu.lost]
    lost = _find_lost(sources, answering)
    # NVML tells no address of a GPU that it has lost; nvidia-smi and the bus do.
    unnamed = [gpu for gpu in found if gpu.lost][sum(gpu.vendor == "nvidia" for gpu in lost) :]
    return [*_with_numa(sources, answering), *lost, *unnamed]


def _describe_bus(sources: Sources) -> list[str]:
    """Boards that the machine has although nobody can be asked about them."""
    bus = (sources.data("devices") or {}).get("pci") or []
    drivers = [f"{entry.get('pci')} ({entry.get('driver') or 'no driver'})" for entry in bus]
    return [f"on the PCI bus: {', '.join(drivers)}"] if drivers else []


def read_amd(sources: Sources) -> AmdState | None:
    """What amd-smi said, or rocm-smi where that is all there is."""
    names = ("amd-smi-list", "amd-smi-static", "amd-smi-metric", "amd-smi-process", "amd-smi-version")
    return parse_amd_smi(*(sources.text(name) for name in names)) or parse_rocm_smi(sources.text("rocm-smi"))


def find_disagreements(sources: Sources) -> list[Disagreement]:
    """
    Where NVML, `nvidia-smi -q -x` and `nvidia-smi -L` tell a different story. Values that move are not compared.

    Args:
        sources: A collection.

    Returns:
        Empty if they agree or only one answered.
    """
    told = {"nvml": read_nvml_gpus(sources), "nvidia-smi": _state_gpus(sources)}
    both = {name: gpus for name, gpus in told.items() if gpus is not None}
    orders = {name: [gpu.uuid for gpu in gpus if not gpu.lost] for name, gpus in both.items()}
    if sources.ok("nvidia-smi-list"):
        orders["nvidia-smi -L"] = [gpu.uuid for gpu in parse_list(sources.text("nvidia-smi-list"))]
    found = []
    if len({len(order) for order in orders.values()}) > 1:
        found.append(Disagreement(what="count", gpu=None, values={k: str(len(v)) for k, v in orders.items()}))
    elif len({tuple(order) for order in orders.values()}) > 1:
        found.append(Disagreement(what="order", gpu=None, values={k: " ".join(map(str, v)) for k, v in orders.items()}))
    if len(both) == 2:
        others = {gpu.uuid: gpu for gpu in both["nvidia-smi"]}
        for gpu in both["nvml"]:
            if gpu.uuid and (other := others.get(gpu.uuid)):
                found += _compare(gpu, other)
    return found


def _compare(nvml: Gpu, smi: Gpu) -> list[Disagreement]:
    found = []
    for field in _COMPARED:
        one, two = getattr(nvml, field), getattr(smi, field)
        # nvidia-smi prints whole MiB, rounded.
        close = isinstance(one, int) and isinstance(two, int) and abs(one - two) < _MIB
        if one is not None and two is not None and one != two and not close:
            found.append(Disagreement(what=field, gpu=nvml.uuid, values={"nvml": str(one), "nvidia-smi": str(two)}))
    return found


def _read_nvidia(sources: Sources) -> list[Gpu] | None:
    """nvidia-smi's GPUs filled up with what only NVML or the query tells; NVML's exact bytes win over whole MiB."""
    smi, nvml = _state_gpus(sources), read_nvml_gpus(sources)
    rows = {row["uuid"] or "": row for row in parse_rows(sources.text("nvidia-smi-gpus"), _QUERY)}
    if smi is None and nvml is None and rows:
        smi = [_read_row(row) for row in rows.values()]
    if smi is None or nvml is None:
        base = smi if smi is not None else nvml
    else:
        exact = {gpu.uuid: gpu for gpu in nvml if gpu.uuid}
        known = {gpu.uuid for gpu in smi}
        base = [_fill(gpu, exact.get(gpu.uuid or "")) for gpu in smi] + [gpu for gpu in nvml if gpu.uuid not in known]
    if base is None:
        return None
    return [
        gpu.model_copy(update={"capability": gpu.capability or rows.get(gpu.uuid or "", {}).get("capability")})
        for gpu in base
    ]


def _fill(gpu: Gpu, nvml: Gpu | None) -> Gpu:
    if nvml is None:
        return gpu
    missing = {name: getattr(nvml, name) for name in Gpu.model_fields if getattr(gpu, name) is None}
    exact = {
        name: getattr(nvml, name)
        for name in ("memory_total_bytes", "memory_used_bytes")
        if getattr(nvml, name) is not None and abs(getattr(nvml, name) - (getattr(gpu, name) or 0)) < _MIB
    }
    return gpu.model_copy(update={**missing, **exact})


def _state_gpus(sources: Sources) -> list[Gpu] | None:
    state = parse_state(sources.text("nvidia-smi-xml"))
    if state is None:
        return None
    slices = {one.uuid: one.slices for one in parse_list(sources.text("nvidia-smi-list"))}
    links = parse_links(sources.text("nvidia-smi-links"))
    named = [_name_slices(gpu, slices.get(gpu.uuid or "", ())) for gpu in state.gpus]
    return [_with_links(gpu, links.get(gpu.uuid or "")) for gpu in named]


def _with_links(gpu: Gpu, links: tuple[int, int] | None) -> Gpu:
    return gpu.model_copy(update={"links_active": links[0], "links": links[1]}) if links else gpu


def _name_slices(gpu: Gpu, named: tuple[tuple[str, str], ...]) -> Gpu:
    if len(named) != len(gpu.slices):
        return gpu
    pairs = zip(gpu.slices, named, strict=True)
    return gpu.model_copy(update={"slices": [s.model_copy(update={"profile": p, "uuid": u}) for s, (p, u) in pairs]})


def _read_row(row: dict[str, str | None]) -> Gpu:
    def whole(key: str) -> int | None:
        value = parse_quantity(row[key])
        return None if value is None else round(value)

    return Gpu(
        index=whole("index"), vendor="nvidia", uuid=row["uuid"], name=row["name"], pci=normalize_pci(row["pci"]),
        memory_total_bytes=whole("memory_total"), memory_used_bytes=whole("memory_used"), capability=row["capability"],
    )  # fmt: skip


def _find_lost(sources: Sources, known: list[Gpu]) -> list[Gpu]:
    """GPUs that a tool names as lost, and boards on the bus that no tool lists although it lists others."""
    lost: dict[str | None, str] = {}
    for name in ("nvidia-smi-xml", "nvidia-smi-list", "nvidia-smi"):
        lost.update(parse_lost(sources.said(name)))
    seen = {gpu.pci for gpu in known}
    bus = (sources.data("devices") or {}).get("pci") or []
    vendors = {"0x10de": "nvidia", "0x1002": "amd"}
    answering = {gpu.vendor for gpu in known}
    for entry in bus:
        pci = normalize_pci(entry.get("pci"))
        if pci not in seen and vendors.get(entry.get("vendor")) in answering:
            driver = entry.get("driver") or "no driver"
            lost.setdefault(pci, f"on the PCI bus ({driver}), and its tools do not list it")
    kinds = {normalize_pci(entry.get("pci")): vendors.get(entry.get("vendor")) for entry in bus}
    return [
        Gpu(index=None, vendor="amd" if kinds.get(pci) == "amd" else "nvidia", pci=pci, lost=why)
        for pci, why in lost.items()
        if pci not in seen
    ]


def _with_numa(sources: Sources, gpus: list[Gpu]) -> list[Gpu]:
    bus = (sources.data("devices") or {}).get("pci") or []
    nodes = {normalize_pci(entry.get("pci")): entry.get("numa") for entry in bus}

    def node(gpu: Gpu) -> int | None:
        told = nodes.get(gpu.pci)
        return int(told) if told and told.isdigit() else gpu.numa  # the kernel writes -1 for "none"

    return [gpu.model_copy(update={"numa": node(gpu)}) for gpu in gpus]
