"""The collector, run against pretend machines, finds what is there and says what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.machines import CASES, build_machine, describe, look, snapshot_of

from k3lib.probe.snapshot import read_snapshot

MACHINES = sorted(path.name for path in CASES.iterdir() if (path / "machine.yaml").exists())


def differences(expected: Any, found: Any, where: str) -> list[str]:
    """Where what was found is not as expected; a mapping names what must be, `count` and `last` ask about a list."""
    if isinstance(expected, dict) and isinstance(found, list):
        parts = {key: len(found) if key == "count" else found[-1 if key == "last" else key] for key in expected}
        return differences(expected, parts, where)
    if isinstance(expected, dict) and isinstance(found, dict):
        return [line for key in expected for line in differences(expected[key], found.get(key), f"{where}.{key}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = zip(expected, found, strict=True)
        return [line for n, (one, other) in enumerate(pairs) for line in differences(one, other, f"{where}[{n}]")]
    return [] if expected == found else [f"{where}: {expected!r} expected, {found!r} found"]


def test_there_are_machines() -> None:
    """The corpus is not empty, and every machine says what is expected of it."""
    assert 12 <= len(MACHINES)
    assert [] == [name for name in MACHINES if not (CASES / name / "expected.yaml").exists()]


@pytest.mark.parametrize("name", MACHINES)
def test_machine(name: str, tmp_path: Path, library: Path) -> None:
    """A look at the machine gives what its case expects."""
    expected = yaml.safe_load((CASES / name / "expected.yaml").read_text())
    found = snapshot_of(name, tmp_path, library).model_dump(mode="json")
    assert [] == differences(expected, found, name)


def test_nothing_is_invented_where_nothing_answers(tmp_path: Path, library: Path) -> None:
    """On a laptop what is None has its reason."""
    snapshot = snapshot_of("laptop", tmp_path, library)
    assert {"gpus", "gpu_processes", "containers", "kernel_events"} <= snapshot.reasons.keys()
    assert "nvidia-smi -q -x: not on PATH" in snapshot.reasons["gpus"]


def test_boards_without_a_driver_are_named(tmp_path: Path, library: Path) -> None:
    """Where no tool answers, the reason names the boards that the PCI bus shows."""
    reasons = snapshot_of("no_driver", tmp_path, library).reasons
    assert "on the PCI bus: 0000:1a:00.0 (no driver), 0000:40:00.0 (no driver)" in reasons["gpus"]


def test_without_nvml_the_tools_are_enough(tmp_path: Path) -> None:
    """Without pynvml's library the GPUs are nvidia-smi's, and its whole mebibytes stand."""
    snapshot = snapshot_of("16xb200_node2", tmp_path, None)
    assert [183359 << 20] * 8 == [gpu.memory_total_bytes for gpu in snapshot.gpus or []]
    assert [18] * 5 + [17, 18, 18] == [gpu.links_active for gpu in snapshot.gpus or []]
    assert not snapshot.sources["nvml"].ok


def test_two_sources_that_differ_are_both_kept(tmp_path: Path, library: Path) -> None:
    """NVML and nvidia-smi that tell another memory size of one GPU are shown side by side."""
    about = describe("8xb300")
    about["nvidia"]["each"] = {2: {"nvml_memory_mib": 137520}}
    found = read_snapshot(look(build_machine("8xb300", tmp_path, library, about)))
    (one,) = found.disagreements
    assert ("memory_total_bytes", {"nvml": str(137520 << 20), "nvidia-smi": str(275040 << 20)}) == (
        one.what,
        one.values,
    )


def test_another_order_is_a_difference(tmp_path: Path, library: Path) -> None:
    """GPUs that `nvidia-smi -L` lists in another order than the rest differ in order."""
    about = describe("8xgb300_tray1")
    machine = build_machine("8xgb300_tray1", tmp_path, library, about)
    listed = look(machine).sources["nvidia-smi-list"].text or ""
    turned = "".join(reversed(listed.splitlines(keepends=True)))
    (tmp_path / "again").mkdir()
    about["commands"]["nvidia-smi -L"] = turned
    found = read_snapshot(look(build_machine("8xgb300_tray1", tmp_path / "again", library, about)))
    assert ["order"] == [one.what for one in found.disagreements]


def test_the_look_changes_nothing(tmp_path: Path, library: Path) -> None:
    """Every file of the machine is after the look what it was before."""
    machine = build_machine("co_tenant", tmp_path, library)

    def state() -> dict[str, tuple[float, bytes]]:
        every = (path for path in machine.root.rglob("*") if path.is_file())
        return {str(path): (path.stat().st_mtime, path.read_bytes()) for path in every}

    before = state()
    look(machine)
    assert before == state()
