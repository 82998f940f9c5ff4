"""Memory alone can exclude a machine for Kimi K3, and never promises one."""

from __future__ import annotations

import pytest

from k3lib.judge.fit import estimate_fit
from k3lib.spec.accelerators import Gpu, GpuSlice

MIB = {"NVIDIA GB300": 284208, "NVIDIA B300 SXM6 AC": 275040, "NVIDIA B200": 183359, "NVIDIA H200": 143771,
       "AMD Instinct MI355X": 294896, "NVIDIA L40S": 46068, "NVIDIA GB200": 189471}  # fmt: skip


def gpus(count: int, name: str, **more: object) -> list[Gpu]:
    """So many of one kind, with the memory that its driver reports."""
    about = {"vendor": "amd" if "AMD" in name else "nvidia", "name": name, "memory_total_bytes": MIB[name] << 20}
    return [Gpu.model_validate({"index": n, **about, **more}) for n in range(count)]


@pytest.mark.parametrize(
    ("case", "count", "name"),
    [
        ("may-fit", 8, "NVIDIA GB300"),
        ("may-fit", 8, "NVIDIA B300 SXM6 AC"),
        ("may-fit", 8, "AMD Instinct MI355X"),
        ("may-fit", 16, "NVIDIA B200"),
        ("may-fit", 16, "NVIDIA H200"),
        ("more-hosts", 4, "NVIDIA GB300"),
        ("more-hosts", 7, "NVIDIA B300 SXM6 AC"),
        ("more-hosts", 8, "NVIDIA B200"),
        ("more-hosts", 8, "NVIDIA H200"),
        ("more-hosts", 8, "NVIDIA GB200"),
        ("too-small", 8, "NVIDIA L40S"),
    ],
)
def test_kinds(case: str, count: int, name: str) -> None:
    """Eight B300, GB300 or MI355X are not excluded, eight B200 or H200 need company, eight L40S are too small."""
    assert case == estimate_fit(gpus(count, name)).case


def test_the_recipe_says_how_many() -> None:
    """For a kind that the recipe knows the number needed is the recipe's; for another one there is none."""
    assert (16, None) == (estimate_fit(gpus(8, "NVIDIA H200")).needed, estimate_fit(gpus(8, "NVIDIA L40S")).needed)


def test_what_cannot_be_told_is_not_judged() -> None:
    """No answer is unknown, no GPU is none, parts and several kinds are not added up, lost GPUs do not count."""
    assert "unknown" == estimate_fit(None).case
    assert "none" == estimate_fit([]).case
    assert "unknown" == estimate_fit(gpus(8, "NVIDIA GB300", memory_total_bytes=None)).case
    assert "mixed" == estimate_fit([*gpus(8, "NVIDIA GB300"), *gpus(1, "NVIDIA H200")]).case
    assert "cut" == estimate_fit(gpus(8, "NVIDIA GB300", slices=[GpuSlice()])).case
    assert "none" == estimate_fit(gpus(8, "NVIDIA GB300", lost="gone")).case
    assert 7 == estimate_fit([*gpus(7, "NVIDIA GB300"), *gpus(1, "NVIDIA GB300", lost="gone")]).gpus


def test_eight_ranks_must_each_hold_their_share() -> None:
    """Eight GPUs that together hold the weights but not each its share are excluded at TP8."""
    sizes = [210, 210, 210, 210, 210, 210, 210, 180]
    uneven = [Gpu(index=n, vendor="nvidia", name="Future", memory_total_bytes=s << 30) for n, s in enumerate(sizes)]
    assert "one-rank" == estimate_fit(uneven).case
