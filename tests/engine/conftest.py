"""Real engines for these tests. Absent means skip with a reason; named in K3_REQUIRE, it means failure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from k3lib.launch import tiny_models
from k3lib.launch.cpu_engine import EngineHome, read_stamp

REPOSITORY = Path(__file__).parents[2]


def skip_or_fail(engine: str, reason: str) -> NoReturn:
    """Skip, or fail where K3_REQUIRE (`vllm,docker,slurm`) says that this engine must be there."""
    if engine in os.environ.get("K3_REQUIRE", "").split(","):
        pytest.fail(f"K3_REQUIRE names {engine}: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def cpu_engine() -> EngineHome:
    """The installed vLLM of this checkout."""
    home = EngineHome(REPOSITORY / ".engine")
    if read_stamp(home) is None:
        skip_or_fail("vllm", "no vLLM in .engine; make one: python -m k3lib.launch.cpu_engine install")
    return home


@pytest.fixture(scope="session")
def make_models(cpu_engine: EngineHome) -> list[str]:
    """The command that makes tiny models with the engine's own Python; the caller adds `--into` and `--only`."""
    return [str(cpu_engine.python), tiny_models.__file__]


@pytest.fixture(scope="session")
def tiny_hybrid(cpu_engine: EngineHome, make_models: list[str]) -> Path:
    """The model with three linear-attention layers and a full one, made if it is not there."""
    words = ["--into", str(cpu_engine.models), "--only", "tiny-hybrid"]
    subprocess.run([*make_models, *words], check=True, capture_output=True, timeout=120)
    return cpu_engine.models / "tiny-hybrid"
