"""The compiled pretend NVML, as a fixture that a conftest takes over by importing it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fakes.machines import build_library


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pretend libnvidia-ml.so.1, compiled for these tests."""
    if shutil.which("cc") is None:
        if "cc" in os.environ.get("K3_REQUIRE", ""):
            pytest.fail("K3_REQUIRE names cc, and there is no C compiler")
        pytest.skip("no C compiler, so no pretend NVML")
    return build_library(tmp_path_factory.mktemp("nvml"))
