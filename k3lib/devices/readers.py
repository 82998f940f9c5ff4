"""Whatever can be sampled on this machine, opened once."""

from __future__ import annotations

from typing import Protocol

from k3lib.devices.amd import AmdSmiReader
from k3lib.devices.nvml import NvmlReader
from k3lib.spec.accelerators import GpuSample, Vendor


class GpuReader(Protocol):
    """GPUs of one vendor, open for sampling."""

    vendor: Vendor

    def sample(self) -> list[GpuSample]:
        """Every GPU now."""

    def close(self) -> None:
        """Give the library back."""


def open_readers() -> tuple[list[GpuReader], dict[str, str]]:
    """
    A reader for each vendor that answers.

    Returns:
        The readers, and for each vendor without one, why. The caller closes the readers.
    """
    readers: list[GpuReader] = []
    reasons: dict[str, str] = {}
    kinds: tuple[type[NvmlReader] | type[AmdSmiReader], ...] = (NvmlReader, AmdSmiReader)
    for kind in kinds:
        try:
            readers.append(kind())
        except (OSError, ImportError) as problem:
            reasons[kind.vendor] = str(problem)
    return readers, reasons
