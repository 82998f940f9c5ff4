"""
What nvidia-smi prints: the whole state as XML, the short list, queries as CSV, and its complaints.

Comes from `nvidia-smi -q -x` (document types v11, v12 and v13 read: R535, R580, R590), `-L`, `--query-gpu`,
`--query-compute-apps`, `nvlink -s` and the plain table. Sample lines:

    <gpu id="00000000:1A:00.0"><product_name>NVIDIA B300 SXM6 AC</product_name><uuid>GPU-5c1f…</uuid>
    <fb_memory_usage><total>275040 MiB</total><reserved>580 MiB</reserved><used>0 MiB</used></fb_memory_usage>
    GPU 0: NVIDIA B300 SXM6 AC (UUID: GPU-5c1f…)
    GPU-5c1f…, 4121, VLLM::Worker_TP0, 246718 MiB
    Failed to initialize NVML: Driver/library version mismatch
    Unable to determine the device handle for GPU0000:1A:00.0: GPU is lost.  Reboot the system to recover this GPU

A value that nvidia-smi does not tell (`N/A`, `[Not Supported]`, `Requested functionality has been deprecated`) is None.
Empty or torn input means that nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from k3lib.spec.accelerators import Gpu, GpuFabric, GpuProcess, GpuSlice

_MIB = 1024**2
_UNITS = {"B": 1, "KiB": 1024, "MiB": _MIB, "GiB": 1024**3}
_QUANTITY = re.compile(r"^(-?\d+(?:\.\d+)?)\s*([A-Za-z%]*)$")
_IDLE = "gpu_idle"
_THROTTLE = re.compile(r"^clocks_(?:event|throttle)_reason_")
_LIST = re.compile(r"^GPU (\d+): (.+?) \(UUID: (GPU-[0-9a-fA-F-]+)\)", re.M)
_SLICE = re.compile(r"^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[0-9A-Za-z/-]+)\)", re.M)
_LINK = re.compile(r"^\s+Link \d+: (\S+)", re.M)
_HEADER = re.compile(r"Driver Version:\s*(\S+).*?CUDA (?:UMD )?Version:\s*(\S+)", re.S)
_LOST = re.compile(
    r"[Uu]nable to determine the device handle for (?:GPU|gpu)\s*(?:\d+:\s+)?"
    r"((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)?:?\s*(.*)"
)


@dataclass(frozen=True)
class NvidiaState:
    """
    One `nvidia-smi -q -x`.

    Args:
        driver: Version of the driver, or None.
        cuda: Highest CUDA version it supports, or None.
        attached: How many GPUs it counts, or None; more than `gpus` if one does not answer.
        gpus: Those described, in order.
        processes: Who holds memory on them.
    """

    driver: str | None
    cuda: str | None
    attached: int | None
    gpus: tuple[Gpu, ...]
    processes: tuple[GpuProcess, ...]


@dataclass(frozen=True)
class ListedGpu:
    """One line of `nvidia-smi -L`, with its MIG devices as profile and UUID."""

    index: int
    name: str
    uuid: str
    slices: tuple[tuple[str, str], ...] = ()


def normalize_pci(text: str | None) -> str | None:
    """
    A bus address in one form: domain of four digits, lower case, with function.

    >>> normalize_pci("00000000:1A:00.0"), normalize_pci("0000:1a:00"), normalize_pci("N/A")
    ('0000:1a:00.0', '0000:1a:00.0', None)
    """
    found = re.match(r"(?:([0-9a-fA-F]+):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.(\d))?$", (text or "").strip())
    if not found:
        return None
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function or 0}"


def parse_quantity(text: str | None) -> float | None:
    """
    A value with its unit as bytes, hertz, watts or degrees.

    Args:
        text: `275040 MiB`, `1965 MHz`, `181.40 W`, `33 C`, `[N/A]`, or None.

    Returns:
        The number in base units; None for anything that is no number.

    >>> parse_quantity("2 MiB"), parse_quantity("1965 MHz"), parse_quantity("[N/A]")
    (2097152.0, 1965000000.0, None)
    """
    found = _QUANTITY.match((text or "").strip())
    if not found:
        return None
    value, unit = float(found[1]), found[2]
    return value * (1_000_000 if unit == "MHz" else _UNITS.get(unit, 1))


def parse_state(text: str) -> NvidiaState | None:
    """
    Reads `nvidia-smi -q -x`.

    Args:
        text: What was printed; lines before the document are passed over.

    Returns:
        The state; None if there is no whole document.
    """
    # From its root element on: without a prolog a document cannot declare entities that blow it up a millionfold.
    start = text.find("<nvidia_smi_log")
    if start < 0:
        return None
    try:
        root = ElementTree.fromstring(text[start:])
    except (ElementTree.ParseError, ValueError):
        return None
    gpus, processes = [], []
    for index, element in enumerate(root.iter("gpu")):
        gpu = _read_gpu(index, element)
        gpus.append(gpu)
        processes += _read_processes(gpu.uuid, element)
    return NvidiaState(
        driver=_said(root, "driver_version"),
        cuda=_said(root, "cuda_version"),
        attached=_whole(_said(root, "attached_gpus")),
        gpus=tuple(gpus),
        processes=tuple(processes),
    )


def parse_list(text: str) -> list[ListedGpu]:
    """
    Reads `nvidia-smi -L`.

    >>> parse_list("GPU 0: NVIDIA B200 (UUID: GPU-aa)")
    [ListedGpu(index=0, name='NVIDIA B200', uuid='GPU-aa', slices=())]
    """
    below = dict(_blocks(text))
    return [
        ListedGpu(int(index), name, uuid, tuple(_SLICE.findall(below[uuid])))
        for index, name, uuid in _LIST.findall(text)
    ]


def parse_rows(text: str, names: Sequence[str]) -> list[dict[str, str | None]]:
    """
    Reads CSV of a query without a header.

    Args:
        text: What was printed.
        names: Columns in order; a comma inside the last but one is taken for part of it only if the counts agree.

    Returns:
        A row per line with as many fields as names; None for what nvidia-smi does not tell.

    >>> parse_rows("0, GPU-aa, [N/A]", ["index", "uuid", "memory"])
    [{'index': '0', 'uuid': 'GPU-aa', 'memory': None}]
    """
    rows = []
    for line in text.splitlines():
        fields = [_known(field) for field in line.split(",")]
        if len(fields) == len(names):
            rows.append(dict(zip(names, fields, strict=True)))
    return rows


def parse_header(text: str) -> tuple[str | None, str | None]:
    """
    Driver and CUDA version of the plain table; R610 and later write `CUDA UMD Version`.

    >>> parse_header("| NVIDIA-SMI 580.95.05   Driver Version: 580.95.05   CUDA Version: 13.0 |")
    ('580.95.05', '13.0')
    """
    found = _HEADER.search(text[:2000])
    return (_known(found[1]), _known(found[2])) if found else (None, None)


def parse_lost(text: str) -> list[tuple[str | None, str]]:
    """
    GPUs that nvidia-smi names as not answering.

    Returns:
        Bus address or None, and its sentence, for each.

    >>> parse_lost("Unable to determine the device handle for GPU0000:1A:00.0: GPU is lost.  Reboot the system")
    [('0000:1a:00.0', 'GPU is lost.  Reboot the system')]
    """
    return [(normalize_pci(found[1]), found[2].strip() or found[0].strip()) for found in _LOST.finditer(text)]


def parse_links(text: str) -> dict[str, tuple[int, int]]:
    """
    Reads `nvidia-smi nvlink -s`.

    Returns:
        UUID to the links that are up, and all links; a GPU without links is left out.

    >>> parse_links("GPU 0: NVIDIA B200 (UUID: GPU-aa)\\n\\t Link 0: 53.125 GB/s\\n\\t Link 1: <inactive>\\n")
    {'GPU-aa': (1, 2)}
    """
    found = {}
    for uuid, block in _blocks(text):
        links = _LINK.findall(block)
        if links:
            found[uuid] = (sum(state != "<inactive>" for state in links), len(links))
    return found


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """The lines below each GPU's heading."""
    heads = list(_LIST.finditer(text))
    ends = [*(head.start() for head in heads), len(text)][1 : len(heads) + 1]
    for head, end in zip(heads, ends, strict=True):
        yield head[3], text[head.end() : end]


def _known(text: str | None) -> str | None:
    text = (text or "").strip()
    silent = text.strip("[]").lower()
    if not silent or silent in (
        "n/a",
        "none",
        "not supported",
        "unknown",
        "unknown error",
        "err!",
        "insufficient permissions",
    ):
        return None
    return None if silent.startswith(("requested functionality", "gpu requires reset", "not found")) else text


def _said(element: ElementTree.Element, path: str) -> str | None:
    return _known(element.findtext(path))


def _whole(text: str | None) -> int | None:
    value = parse_quantity(text)
    return None if value is None else round(value)


def _flag(text: str | None, yes: str) -> bool | None:
    return None if text is None else text == yes


def _read_gpu(index: int, element: ElementTree.Element) -> Gpu:
    def said(path: str) -> str | None:
        return _said(element, path)

    action, busy = said("gpu_recovery_action"), parse_quantity(said("utilization/gpu_util"))
    reset = said("gpu_reset_status/reset_required")
    return Gpu(
        index=index,
        vendor="nvidia",
        uuid=said("uuid"),
        name=said("product_name"),
        pci=normalize_pci(said("pci/pci_bus_id") or element.get("id")),
        memory_total_bytes=_whole(said("fb_memory_usage/total")),
        memory_used_bytes=_whole(said("fb_memory_usage/used")),
        ecc=_flag(said("ecc_mode/current_ecc"), "Enabled"),
        ecc_uncorrected=_sum_uncorrected(element.find("ecc_errors/volatile")),
        ecc_uncorrected_ever=_sum_uncorrected(element.find("ecc_errors/aggregate")),
        repair_pending=_any_yes(
            element, "remapped_rows/remapped_row_pending", "retired_pages/pending_retirement",
            "retired_pages/pending_blacklist", "ecc_errors/channel_repair_pending", "ecc_errors/tpc_repair_pending",
        ),
        repair_failed=_flag(said("remapped_rows/remapped_row_failure"), "Yes"),
        recovery=action or ("GPU Reset" if reset == "Yes" else None),
        mig=_flag(said("mig_mode/current_mig"), "Enabled"),
        slices=[_read_slice(one) for one in element.iterfind("mig_devices/mig_device")],
        compute_mode=said("compute_mode"),
        persistence=_flag(said("persistence_mode"), "Enabled"),
        sm_clock_hz=_whole(said("clocks/sm_clock")),
        sm_clock_max_hz=_whole(said("max_clocks/sm_clock")),
        power_w=parse_quantity(_first(element, "instant_power_draw", "average_power_draw", "power_draw")),
        power_limit_w=parse_quantity(_first(element, "current_power_limit", "power_limit")),
        temperature_c=parse_quantity(said("temperature/gpu_temp")),
        utilization_fraction=None if busy is None else busy / 100,
        throttles=_read_throttles(element),
        fabric=_read_fabric(element),
        firmware=said("vbios_version"),
    )  # fmt: skip


def _first(element: ElementTree.Element, *names: str) -> str | None:
    found = (_said(element, f"{group}/{name}") for group in ("gpu_power_readings", "power_readings") for name in names)
    return next((text for text in found if text is not None), None)


def _any_yes(element: ElementTree.Element, *paths: str) -> bool | None:
    known = [text for path in paths if (text := _said(element, path)) is not None]
    return "Yes" in known if known else None


def _sum_uncorrected(element: ElementTree.Element | None) -> int | None:
    found = element if element is not None else ()
    counts = [_whole(_known(one.text)) for one in found if "uncorrectable" in one.tag]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _read_slice(element: ElementTree.Element) -> GpuSlice:
    return GpuSlice(memory_bytes=_whole(_said(element, "fb_memory_usage/total")))


def _read_throttles(element: ElementTree.Element) -> list[str] | None:
    group = element.find("clocks_event_reasons")
    group = group if group is not None else element.find("clocks_throttle_reasons")
    if group is None:
        return None
    active = [_THROTTLE.sub("", one.tag) for one in group if (one.text or "").strip() == "Active"]
    return [name for name in active if name != _IDLE]


def _read_fabric(element: ElementTree.Element) -> GpuFabric | None:
    state = _said(element, "fabric/state")
    if state is None:
        return None
    cluster = _said(element, "fabric/clusterUuid")
    return GpuFabric(
        state=state,
        status=_said(element, "fabric/status"),
        cluster=cluster if cluster and cluster.strip("0-") else None,
        clique=_said(element, "fabric/cliqueId"),
    )


def _read_processes(gpu: str | None, element: ElementTree.Element) -> list[GpuProcess]:
    found = []
    for one in element.iterfind("processes/process_info"):
        pid = _whole(_said(one, "pid"))
        if pid is not None:
            memory = _whole(_said(one, "used_memory"))
            found.append(GpuProcess(pid=pid, gpu=gpu, memory_bytes=memory, name=_said(one, "process_name")))
    return found
