"""The sweep finds what carries the trial's mark, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from k3lib.launch.leftovers import find_marked, sweep_leftovers

Wait = Callable[[Callable[[], bool], float], float]


@contextmanager
def sleeper(env: dict[str, str], stdout: int | IO[bytes] = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps; it is gone afterwards."""
    words = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
    process = subprocess.Popen(words, env=env, stdout=stdout)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_empty_token() -> None:
    """An empty token is refused: it would match what is not ours."""
    with pytest.raises(ValueError, match="empty token"):
        sweep_leftovers("")


def test_only_the_whole_token_counts(wait_until: Wait) -> None:
    """A process of another trial, even with a similar token, lives on."""
    with sleeper({"K3_TRIAL": "token-one"}) as ours, sleeper({"K3_TRIAL": "token-one-b"}) as other:
        wait_until(lambda: [ours.pid] == find_marked("token-one"), 5)
        said = f"pid {ours.pid}: {sys.executable} -I -S -c import time; time.sleep(60)"
        assert [said] == sweep_leftovers("token-one")
        assert ours.wait(5) < 0
        assert other.poll() is None
    assert [] == sweep_leftovers("token-one")


def test_the_log_is_a_mark(tmp_path: Path) -> None:
    """A process that lost its environment is found by the log it writes to; a reader of the log is not."""
    log = tmp_path / "engine.log"
    with log.open("wb") as file, sleeper({}, stdout=file) as writer, log.open("rb") as reader:
        assert [writer.pid] == find_marked("no-such-token", log)
        assert [writer.pid] == find_marked("no-such-token", reader.fileno())
        assert [] == find_marked("no-such-token")
        assert [] == find_marked("no-such-token", tmp_path / "other.log")


def test_a_log_that_is_no_file_marks_nobody() -> None:
    """Everybody writes to /dev/null: it is no mark."""
    with sleeper({}), open(os.devnull, "wb") as nowhere:
        assert [] == find_marked("no-such-token", nowhere.fileno())


def test_our_own_output_is_no_mark(tmp_path: Path) -> None:
    """Where our own output goes others write by right: a shell, a make, a terminal's pipe."""
    program = (
        "import sys; from pathlib import Path; from k3lib.launch.leftovers import find_marked;"
        "Path(sys.argv[1]).write_text(str(find_marked('no-such-token', 1)))"
    )
    with (tmp_path / "out.log").open("wb") as out, sleeper({}, stdout=out):
        subprocess.run([sys.executable, "-c", program, str(tmp_path / "found")], stdout=out, check=True)
    assert "[]" == (tmp_path / "found").read_text()
