"""AMD GPUs through amd-smi's JSON, which is the same on every ROCm release; a sample takes about a second."""

from __future__ import annotations

import shutil
import subprocess

from k3lib.logs.amd_smi import parse_amd_smi
from k3lib.spec.accelerators import GpuSample, Vendor

_LIMIT_S = 10.0


class AmdSmiReader:
    """
    The GPUs that amd-smi lists, open for sampling.

    The Python binding must be that of the ROCm library loaded, and breaks where the two differ; the program does not.

    Raises:
        OSError: There is no amd-smi, or it does not answer; the message says why.
    """

    vendor: Vendor = "amd"

    def __init__(self) -> None:
        program = shutil.which("amd-smi")
        if program is None:
            raise OSError("amd-smi is not on PATH")
        self._program = program
        # Names do not change while a trial runs.
        self._listed = self._ask("list")

    def close(self) -> None:
        """Nothing is held open."""

    def sample(self) -> list[GpuSample]:
        """Every GPU now, in amd-smi's order; empty if it did not answer this time."""
        try:
            metric = self._ask("metric", "--usage", "--mem-usage", "--power", "--clock", "--temperature")
        except OSError:
            return []
        state = parse_amd_smi(self._listed, "", metric, "", "")
        return [
            GpuSample(
                uuid=gpu.uuid or gpu.pci or f"index {gpu.index}",
                memory_used_bytes=gpu.memory_used_bytes,
                memory_total_bytes=gpu.memory_total_bytes,
                utilization_fraction=gpu.utilization_fraction,
                sm_clock_hz=gpu.sm_clock_hz,
                power_w=gpu.power_w,
                temperature_c=gpu.temperature_c,
                throttles=gpu.throttles,
            )
            for gpu in (state.gpus if state else ())
        ]

    def _ask(self, *words: str) -> str:
        try:
            ran = subprocess.run(
                [self._program, *words, "--json"], capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise OSError(f"amd-smi {words[0]}: no answer within {_LIMIT_S:g} s") from late
        if ran.returncode != 0:
            raise OSError(f"amd-smi {words[0]} ended with {ran.returncode}: {(ran.stderr or ran.stdout).strip()[:200]}")
        return ran.stdout
