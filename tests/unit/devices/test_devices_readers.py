"""GPUs are sampled through the real bindings, and what does not answer says why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from fakes.machines import PretendMachine, build_machine

SAMPLE = """
import json, sys
sys.path[:0] = {path!r}
from k3lib.devices.readers import open_readers
readers, reasons = open_readers()
samples = {{reader.vendor: [sample.model_dump() for sample in reader.sample()] for reader in readers}}
lost = [getattr(reader, "lost", {{}}) for reader in readers]
for reader in readers * 2:
    reader.close()
print(json.dumps([samples, reasons, lost, [reader.sample() for reader in readers if reader.vendor == "nvidia"]]))
"""


def sample(machine: PretendMachine) -> list[object]:
    """What a program on that machine reads: samples, reasons, lost GPUs, samples after closing."""
    argv = [sys.executable, "-c", SAMPLE.format(path=[str(Path(__file__).parents[3])])]
    ran = subprocess.run(argv, env=machine.env, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    answer: list[object] = json.loads(ran.stdout)
    return answer


def test_nvidia(tmp_path: Path, library: Path) -> None:
    """NVML's samples are in base units; AMD, which is not there, has its reason; closing twice is harmless."""
    samples, reasons, _, after = sample(build_machine("co_tenant", tmp_path, library))
    assert isinstance(samples, dict)
    assert 8 == len(samples["nvidia"])
    third = samples["nvidia"][2]
    assert (71680 << 20, 275040 << 20, 120_000_000, 181.0, ["sw_power_cap"]) == (
        third["memory_used_bytes"], third["memory_total_bytes"], third["sm_clock_hz"], third["power_w"],
        third["throttles"],
    )  # fmt: skip
    assert {"amd": "amd-smi is not on PATH"} == reasons
    assert [[]] == after


def test_a_lost_gpu_does_not_stop_the_others(tmp_path: Path, library: Path) -> None:
    """Seven of eight are sampled, and the eighth is named with NVML's word."""
    samples, _, lost, _ = sample(build_machine("lost_gpu", tmp_path, library))
    assert isinstance(samples, dict)
    assert 7 == len(samples["nvidia"])
    assert [{"3": "GPU is lost"}] == lost


def test_a_driver_that_does_not_answer(tmp_path: Path, library: Path) -> None:
    """NVML that cannot be opened is a reason, not a crash."""
    samples, reasons, _, _ = sample(build_machine("half_upgraded_driver", tmp_path, library))
    assert {} == samples
    assert isinstance(reasons, dict)
    assert "NVML: RM has detected an NVML/RM version mismatch." == reasons["nvidia"]


def test_amd(tmp_path: Path) -> None:
    """amd-smi's samples are in base units too."""
    samples, reasons, _, _ = sample(build_machine("8xmi355x", tmp_path, None))
    assert isinstance(samples, dict)
    assert isinstance(reasons, dict)
    first = samples["amd"][0]
    assert (8, 283 << 20, 239.0, 132_000_000) == (
        len(samples["amd"]), first["memory_used_bytes"], first["power_w"], first["sm_clock_hz"]
    )  # fmt: skip
    assert "NVML" in reasons["nvidia"]
