"""Drivers: what is loaded, what is installed, what answers, and which CUDA a program here may expect."""

from __future__ import annotations

import os
import re

from k3lib.logs.nvidia_smi import parse_header, parse_state
from k3lib.probe.gpus import read_amd
from k3lib.probe.sources import Sources
from k3lib.spec.accelerators import Driver, Vendor

_MODULE = re.compile(r"NVRM version:\s*NVIDIA UNIX (Open )?.*?Kernel Module(?: for \S+)?\s+(\d[\w.]*)")
_MISMATCH = re.compile(r"NVML library version: (\d[\d.]*\d)")
_VERSION_IN_NAME = re.compile(r"\.so\.(\d+\.\d[\w.]*)$")
_PACKAGES: dict[Vendor, re.Pattern[str]] = {
    "nvidia": re.compile(
        r"^(?:lib)?(?:nvidia|cuda-(?:drivers|compat)|libcuda|nvidia-fabric|nvidia-imex)|^kmod-nvidia", re.I
    ),
    "amd": re.compile(r"^(?:amdgpu|rocm-core|rocm-smi|amd-smi|hsa-)", re.I),
}
_MOST_PACKAGES = 60


def read_drivers(sources: Sources) -> list[Driver]:
    """
    The drivers of which there is any trace.

    Args:
        sources: A collection.

    Returns:
        NVIDIA's, AMD's, both, or none.
    """
    found = [_read_nvidia(sources), _read_amd(sources)]
    return [driver for driver in found if driver.versions or driver.error or driver.packages]


def _read_nvidia(sources: Sources) -> Driver:
    module = _MODULE.search(sources.text("/proc/driver/nvidia/version"))
    on_disk = sources.line("nvidia-module")
    state, header = parse_state(sources.text("nvidia-smi-xml")), parse_header(sources.text("nvidia-smi"))
    nvml, libraries = sources.data("nvml") or {}, sources.data("libraries") or {}
    cuda_code = nvml.get("cuda")
    return Driver(
        vendor="nvidia",
        loaded=(module[2] if module else None) or sources.line("/sys/module/nvidia/version"),
        flavour=None if module is None else "open" if module[1] else "proprietary",
        on_disk=on_disk,
        library=_library_version(libraries.get("found") or {}) or _mismatched_library(sources, on_disk),
        asked=(state.driver if state else None) or header[0] or nvml.get("driver"),
        cuda=(state.cuda if state else None) or header[1] or (_cuda_text(cuda_code) if cuda_code else None),
        cuda_here=_cuda_here(sources),
        compatibility=libraries.get("compatibility") or {},
        packages=_packages(sources, "nvidia"),
        error=_complaint(sources, ("nvidia-smi", "nvidia-smi-xml")),
    )


def _read_amd(sources: Sources) -> Driver:
    state = read_amd(sources)
    return Driver(
        vendor="amd",
        loaded=sources.line("/sys/module/amdgpu/version"),
        on_disk=None if not sources.line("/sys/module/amdgpu/version") else sources.line("amdgpu-module"),
        asked=state.driver if state else None,
        rocm=(state.rocm if state else None) or sources.line("/opt/rocm/.info/version"),
        packages=_packages(sources, "amd"),
        error=_complaint(sources, ("amd-smi-list", "amd-smi-static")),
    )


def _library_version(found: dict[str, str]) -> str | None:
    """By the real file of libnvidia-ml.so.1 or libcuda.so.1; a compatibility library is not the driver's."""
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        for path, real in found.items():
            version = _VERSION_IN_NAME.search(real)
            if os.path.basename(path) == name and version and "/compat/" not in real:
                return version[1]
    return None


def _mismatched_library(sources: Sources, on_disk: str | None) -> str | None:
    """
    The library's version as NVML complains of it, where no file of it was seen.

    The message leaves the last number out; it is taken from the module on disk if that one begins so.
    """
    told = _MISMATCH.search(sources.said("nvidia-smi"))
    if told is None:
        return None
    return on_disk if on_disk and on_disk.startswith(f"{told[1]}.") else told[1]


def _cuda_here(sources: Sources) -> str | None:
    answer = sources.data("cuda") or {}
    return _cuda_text(answer["version"]) if answer.get("code") == 0 and answer.get("version") else None


def _cuda_text(code: int) -> str:
    """13020 is 13.2."""
    return f"{code // 1000}.{code % 1000 // 10}"


def _packages(sources: Sources, vendor: Vendor) -> list[str]:
    found = []
    for line in (sources.text("dpkg") + sources.text("rpm")).splitlines():
        name, _, rest = line.partition(" ")
        version, _, state = rest.partition(" ")
        # dpkg also lists what was removed and left its configuration: "rc".
        if _PACKAGES[vendor].match(name) and not state.strip().startswith("rc"):
            found.append(f"{name} {version}")
    return sorted(found)[:_MOST_PACKAGES]


def _complaint(sources: Sources, names: tuple[str, ...]) -> str | None:
    """What a tool that is there said when it could not answer; a tool that is not there has no word."""
    for name in names:
        source = sources.collected.sources.get(name)
        if source is not None and not source.ok and source.reason not in (None, "not on PATH"):
            return source.reason
    return None
