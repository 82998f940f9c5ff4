"""A house of one's own: params and notebooks copied, outputs apart, so that no test meets another."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
K3 = [sys.executable, "-m", "k3lib.cli"]


def pytest_configure() -> None:
    """In the background of a shell Ctrl-C is ignored, and every child inherits that; the tests of Ctrl-C need it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class House:
    """A copy of the workbook's folders, and how to run a command in it."""

    root: Path

    @property
    def outputs(self) -> Path:
        """Where its archives go."""
        return self.root / "outputs"

    @property
    def environment(self) -> dict[str, str]:
        """Ours, pointed at this house."""
        return os.environ | {"K3_ROOT": str(self.root), "K3_OUTPUTS": str(self.outputs)}

    def k3(self, *words: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """One command, to its end."""
        return subprocess.run(
            [*K3, *words], env=self.environment, cwd=self.root, capture_output=True, text=True, timeout=timeout_s
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """One command, in the background."""
        return subprocess.Popen(
            [*K3, *words],
            env=self.environment,
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def edit(self, file: str, change: Callable[[dict[str, Any]], object]) -> Path:
        """Change a parameter file of this house."""
        path = self.root / "params" / file
        content = yaml.safe_load(path.read_text())
        change(content)
        path.write_text(yaml.safe_dump(content))
        return path

    def sessions(self, campaign: str = "rehearsal") -> list[Path]:
        """The campaign's session folders, oldest first."""
        return sorted(p.parent for p in (self.outputs / campaign).glob("*/spec.json"))

    def record(self, session: Path) -> dict[str, Any]:
        """A session's record."""
        read: dict[str, Any] = orjson.loads((session / "record.json").read_bytes())
        return read

    def processes(self) -> list[str]:
        """Command lines of everything that still runs for this house."""
        found = []
        for process in psutil.process_iter():
            try:
                if str(self.root) in " ".join(process.environ().values()) and process.pid != os.getpid():
                    found.append(" ".join(process.cmdline()))
            except psutil.Error:
                continue
        return found


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A fresh house whose calendars are two short stages; a test that wants another one copies it in."""
    shutil.copytree(ROOT / "params", tmp_path / "params")
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    made = House(tmp_path)
    for campaign in ("rehearsal", "cpu"):
        for file in (tmp_path / "params" / campaign).glob("[12]0_*.yaml"):
            file.unlink()
    for stage in ("30_minimal_start", "40_single_request"):
        made.edit(f"rehearsal/{stage}.yaml", lambda content: content.update(trials=1))
        made.edit(f"cpu/{stage}.yaml", lambda content: content.update(trials=1))
    return made
