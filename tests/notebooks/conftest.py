"""The committed notebooks, one parameter each; none at all is a failure, not a pass."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `notebook` each committed notebook."""
    if "notebook" in metafunc.fixturenames:
        assert NOTEBOOKS, "notebooks/ holds no notebook"
        metafunc.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
