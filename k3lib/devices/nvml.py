"""NVIDIA GPUs through NVML, for samples several times a second; reading opens no context on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from k3lib.spec.accelerators import GpuSample, Vendor

# nvmlClocksEventReasons of NVML 13, bit by bit. Bit 0 is an idle clock, which holds nothing down.
_THROTTLES = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}


def name_throttles(mask: int) -> list[str]:
    """
    What holds a clock down, as nvidia-smi calls it.

    >>> name_throttles(0x1), name_throttles(0x4 | 0x40)
    ([], ['sw_power_cap', 'hw_thermal_slowdown'])
    """
    return [name for bit, name in _THROTTLES.items() if mask & bit]


class NvmlReader:
    """
    The GPUs that NVML lists, open for sampling.

    Raises:
        OSError: There is no NVML, or it does not answer; the message says why.
    """

    vendor: Vendor = "nvidia"

    def __init__(self) -> None:
        import pynvml  # absent and slow on a machine without NVIDIA

        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as problem:
            raise OSError(f"NVML: {problem}") from problem
        self._open = True
        self._gpus: dict[str, Any] = {}
        self.lost: dict[int, str] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
                self._gpus[pynvml.nvmlDeviceGetUUID(gpu)] = gpu
            except pynvml.NVMLError as problem:
                self.lost[index] = str(problem)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give NVML back; a second call does nothing."""
        if self._open:
            self._open, self._gpus = False, {}
            self._tell(self._nvml.nvmlShutdown)

    def sample(self) -> list[GpuSample]:
        """Every GPU now, in NVML's order; what a board does not tell is None."""
        return [self._sample(uuid, gpu) for uuid, gpu in self._gpus.items()]

    def _sample(self, uuid: str, gpu: Any) -> GpuSample:
        nvml = self._nvml
        memory = self._tell(nvml.nvmlDeviceGetMemoryInfo, gpu, nvml.nvmlMemory_v2)
        busy = self._tell(nvml.nvmlDeviceGetUtilizationRates, gpu)
        clock, power = (
            self._tell(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM),
            self._tell(nvml.nvmlDeviceGetPowerUsage, gpu),
        )
        mask = self._tell(nvml.nvmlDeviceGetCurrentClocksEventReasons, gpu)
        return GpuSample(
            uuid=uuid,
            memory_used_bytes=memory.used if memory else None,
            memory_total_bytes=memory.total if memory else None,
            utilization_fraction=busy.gpu / 100 if busy else None,
            sm_clock_hz=None if clock is None else clock * 1_000_000,
            power_w=None if power is None else power / 1000,
            temperature_c=self._tell(nvml.nvmlDeviceGetTemperature, gpu, nvml.NVML_TEMPERATURE_GPU),
            throttles=None if mask is None else name_throttles(mask),
        )

    def _tell(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None
