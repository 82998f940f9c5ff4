"""Ctrl-C, SIGTERM and kill -9 of the runner: the notebook says what happened and the kernel is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

RUNNER = """
import sys
from pathlib import Path
from k3lib.notebook.execute import execute_notebook
source = Path(sys.argv[1])
result = execute_notebook(source, source.with_name("out.ipynb"), {}, environment={}, cwd=source.parent)
print(result.state, "|", result.reason)
"""
# The runner's parent adopts orphans, as systemd or a container's init does: the kernel's parent is never process 1.
NESTED = """
import ctypes, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
runner = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
print(runner.pid, flush=True)
time.sleep(60)
"""
SLEEP = """
import os, time
open("pid", "w").write(str(os.getpid()))
try:
    time.sleep(60)
finally:
    open("cleaned", "w").close()
"""
STUBBORN = """
import os, time
open("pid", "w").write(str(os.getpid()))
while True:
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        open("once", "w").write("x")
"""


def wait_for(path: Path, within_s: float = 20.0) -> str:
    """The content of a file that a cell writes, once it is there."""
    deadline = time.monotonic() + within_s
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.02)
    return path.read_text()


def gone_after(pid: int, within_s: float) -> float:
    """Seconds until the process is gone; fails if it stays."""
    started = time.monotonic()
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() - started < within_s, "the kernel outlived its runner"
        time.sleep(0.02)
    return time.monotonic() - started


@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGINT, "interrupted | stopped by Ctrl-C"), (signal.SIGTERM, "interrupted | stopped by SIGTERM")],
)
def test_a_signal_interrupts_the_cell_and_comes_back_as_a_result(build, number: int, expected: str) -> None:
    """The cell cleans up, is marked aborted, later cells stay pending, the kernel is gone."""
    notebook = build(SLEEP, "1")
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(notebook)], stdout=subprocess.PIPE, text=True)
    kernel = int(wait_for(notebook.with_name("pid")))
    runner.send_signal(number)
    printed, _ = runner.communicate(timeout=20)
    assert (expected, 0) == (printed.strip(), runner.returncode)
    cells = {cell.id: cell for cell in nbformat.read(notebook.with_name("out.ipynb"), as_version=4).cells}
    assert ("aborted", "pending") == (cells["c0"].metadata.papermill.status, cells["c1"].metadata.papermill.status)
    assert ["KeyboardInterrupt", "Interrupted"] == [output.ename for output in cells["c0"].outputs]
    assert notebook.with_name("cleaned").exists()
    assert not psutil.pid_exists(kernel)


def test_a_second_signal_does_not_wait_for_the_grace(build) -> None:
    """A cell that swallows the first interrupt is killed at the second, and the notebook says why."""
    notebook = build(STUBBORN)
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(notebook)], stdout=subprocess.PIPE, text=True)
    wait_for(notebook.with_name("pid"))
    runner.send_signal(signal.SIGINT)
    wait_for(notebook.with_name("once"))
    started = time.monotonic()
    runner.send_signal(signal.SIGINT)
    printed, _ = runner.communicate(timeout=12)
    expected = "interrupted | stopped by Ctrl-C; the kernel was killed: a second signal asked for it"
    assert expected == printed.strip()
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("moment", ["in a cell", "while the kernel starts"])
def test_a_kernel_ends_with_a_runner_that_was_killed(build, moment: str) -> None:
    """Within 3 s, also where orphans are adopted by another process than 1; the cell could clean up."""
    notebook = build(SLEEP)
    parent = subprocess.Popen([sys.executable, "-c", NESTED, RUNNER, str(notebook)], stdout=subprocess.PIPE, text=True)
    try:
        runner = int(parent.stdout.readline())
        if moment == "in a cell":
            kernel = int(wait_for(notebook.with_name("pid")))
        else:
            while not (kernels := psutil.Process(runner).children()):
                time.sleep(0.005)
            kernel = kernels[0].pid
        folder = next((Path(word).parent for word in psutil.Process(kernel).cmdline() if "k3-kernel-" in word), None)
        os.kill(runner, signal.SIGKILL)
        gone_after(kernel, within_s=4.0)
        assert notebook.with_name("cleaned").exists() == (moment == "in a cell")
        assert folder is None or not folder.exists()
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    if moment == "in a cell":
        cells = nbformat.read(notebook.with_name("out.ipynb"), as_version=4).cells
        states = {cell.id: cell.metadata.papermill.status for cell in cells}
        assert ("running", "pending") == (states["c0"], states["result"])


def test_plain_papermill_with_our_engine_is_honest_too(build) -> None:
    """`papermill --engine k3`: sys.exit(0) gives exit code 1, and later cells stay pending."""
    notebook = build("import sys\nsys.exit(0)", "1")
    program = str(Path(sys.executable).with_name("papermill"))
    words = [program, "--engine", "k3", "--no-progress-bar", "-p", "trials", "3", "in.ipynb", "out.ipynb"]
    done = subprocess.run(words, cwd=notebook.parent, capture_output=True, text=True, timeout=60)
    assert 1 == done.returncode
    assert "SystemExit" in done.stderr
    assert "without encryption" not in done.stderr
    cells = {cell.id: cell for cell in nbformat.read(notebook.with_name("out.ipynb"), as_version=4).cells}
    assert ("failed", "pending") == (cells["c0"].metadata.papermill.status, cells["c1"].metadata.papermill.status)
    assert "trials = 3" in cells["injected-parameters"].source
