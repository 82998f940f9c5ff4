"""The figures of the model: exact where vLLM has a formula, in the derived ranges where sizes are assumed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from k3lib.rehearsal.figures import compute_capacity, list_figures

EXACT = {
    "hybrid block, TP8 fp8": "1,536 tokens",
    "hybrid block, TP8 bf16": "768 tokens",
    "hybrid block, TP4 fp8": "2,944 tokens",
    "hybrid block, TP1 fp8": "11,392 tokens",
    "hybrid block, TP8 fp8, 8 draft tokens": "1,664 tokens",
    "blocks of a request of 131,072 tokens, TP8 fp8": "95",
    "blocks of a request of 1,048,576 tokens, TP8 fp8": "692",
    "one block on one rank, TP8 fp8": "20.25 MiB",
    "padding of a state, TP8 fp8": "8.68%",
    "padding layers": "3, at most 4.35%",
}


def test_exact_figures_stand_beside_their_source() -> None:
    """Block sizes, blocks per request, block bytes and padding are exact, and no figure stands without a source."""
    figures = {one.name: one for one in list_figures()}
    assert EXACT == {name: figures[name].value for name in EXACT}
    assert all("vLLM 0.33.0" in figures[name].source for name in EXACT)
    assert all(one.source for one in figures.values())


@pytest.mark.parametrize(
    ("name", "kv_gib", "long", "medium"),
    [
        ("8xB300, TP8, fp8", (53, 67), (3.9, 4.9), (28, 36)),
        ("8xGB300, TP8, fp8", (61, 75), (4.5, 5.5), (33, 40)),
        ("8xMI355X, TP8, bf16", (53, 67), (1.9, 2.5), (15, 19)),
        ("16xB200, TP8 PP2, fp8", (50, 60), None, None),
        ("16xH200, TP8 DP2, bf16", (20, 25), None, None),
    ],
)
def test_capacity_is_in_the_derived_ranges(
    name: str, kv_gib: tuple[float, float], long: tuple[float, float] | None, medium: tuple[float, float] | None
) -> None:
    """What a deployment leaves for requests is in the range worked out by hand from the same official numbers."""
    room = compute_capacity(name)
    assert kv_gib[0] <= room.kv_gib <= kv_gib[1]
    for count, expected in ((room.long, long), (room.medium, medium)):
        if expected is not None:
            assert count is not None
            assert expected[0] <= count <= expected[1]


def test_the_command_prints_them() -> None:
    """`figures` prints a line for each."""
    words = [sys.executable, "-m", "k3lib.rehearsal", "figures"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert len(list(list_figures())) == len(ran.stdout.splitlines())
    assert "11,392 tokens" in ran.stdout
