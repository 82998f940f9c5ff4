"""nbval opens and runs the committed notebooks as JupyterLab would: every cell ends without an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_all_cells_of_all_notebooks_run_one_after_the_other(tmp_path: Path) -> None:
    """Lax: outputs are not compared, the records are the real gate. A dead kernel fails after 60 s, not 2,000."""
    words = ["-p", "no:cacheprovider", "-o", "addopts=", "-q", "--nbval-lax", "--nbval-cell-timeout", "60", "notebooks"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        env={**os.environ, "K3_OUTPUTS": str(tmp_path / "outputs")},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert 0 == done.returncode, done.stdout[-4000:] + done.stderr[-2000:]
