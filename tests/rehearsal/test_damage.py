"""One damaged, running or half-made folder does not take other sessions with it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import psutil
import pytest

from k3lib.record.paths import SessionPaths

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import House

START = "params/rehearsal/30_minimal_start.yaml"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the one session that is run lies, for every test to take a copy of."""
    return tmp_path_factory.mktemp("kept") / "outputs"


@pytest.fixture
def closed(house: House, kept: Path) -> SessionPaths:
    """A session that ended in order."""
    if not kept.exists():
        ran = house.k3("run", START)
        assert 0 == ran.returncode, ran.stderr
        shutil.copytree(house.outputs, kept)
    shutil.copytree(kept, house.outputs, dirs_exist_ok=True)
    return SessionPaths(house.sessions()[0])


def rewrite(file: Path, **changes: object) -> None:
    """Other values in a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_bytes()) | changes))


def test_a_damaged_record_takes_no_later_session_with_it(house: House, closed: SessionPaths) -> None:
    """The week runs on, the index names the session that has no record, and the damaged one renders again."""
    closed.record.write_text("{")
    week = house.k3("week", "rehearsal")
    assert 0 == week.returncode, week.stderr
    assert 3 == len(house.sessions())
    index = (house.outputs / "rehearsal" / "index.html").read_text()
    assert "no record" in index
    assert all(session.name in index for session in house.sessions())
    assert 0 == house.k3("render", closed.name).returncode
    assert "no record" not in (house.outputs / "rehearsal" / "index.html").read_text()


def test_a_damaged_trial_is_left_out_with_the_reason(house: House, closed: SessionPaths) -> None:
    """Its evidence counts for nothing, the session is no longer comparable, and both commands still read it."""
    closed.trial(1).launch.write_text('{"arm": "base"}')
    shown = house.k3("show", closed.name)
    assert 0 == shown.returncode, shown.stderr
    assert 0 == house.k3("render", closed.name).returncode
    record = house.record(closed.folder)
    assert ([], False) == (record["trials"], record["comparable"])
    assert any("trial 1 is left out" in reason and "launch.json" in reason for reason in record["reasons"])


def test_a_running_session_is_not_rendered_and_a_killed_one_is_finished(house: House, closed: SessionPaths) -> None:
    """A manifest does not make a session that has no ending a closed one."""
    me = psutil.Process()
    rewrite(closed.state, state="running", ended_at=None, pid=me.pid, pid_started=me.create_time())
    before = closed.manifest.read_bytes()
    refused = house.k3("render", closed.name)
    assert (2, 4) == (refused.returncode, len(refused.stderr.splitlines())), refused.stderr
    assert "still running" in refused.stderr
    assert before == closed.manifest.read_bytes()
    rewrite(closed.state, pid_started=0.0)
    again = house.k3("run", START)
    assert 0 == again.returncode, again.stderr
    info = house.record(closed.folder)["session"]
    assert "killed" == info["state"]
    assert info["ended_at"] is not None


def test_a_folder_without_a_notebook_says_so(house: House, closed: SessionPaths) -> None:
    """What is rebuilt is named, and no page that does not exist; the raw log is its owner's only."""
    closed.notebook.unlink()
    closed.html.unlink()
    said = house.k3("render", closed.name)
    assert 0 == said.returncode, said.stderr
    assert "no notebook in the folder" in said.stdout
    assert "notebook.html" not in said.stdout
    assert 0o600 == closed.trial(1).raw_log.stat().st_mode & 0o777


def test_our_own_error_names_its_kind_once(house: House) -> None:
    """A trial whose folder cannot be made is a failed session, its reason the error's first line."""
    house.edit("rehearsal/30_minimal_start.yaml", lambda content: content.update(trials=1))
    notebook = house.root / "notebooks" / "30_minimal_start.ipynb"
    content = json.loads(notebook.read_text())
    [cell] = [c for c in content["cells"] if "run_trials()" in "".join(c["source"])]
    cell["source"] = [
        "import k3lib.workbook.trial as trial\n",
        "from k3lib.errors import RecordError\n",
        "def full(*_):\n",
        "    raise RecordError('the disk is full', expected='space', evidence='none', next='free some')\n",
        "trial.create_trial = full\n",
        *cell["source"],
    ]
    notebook.write_text(json.dumps(content))
    assert 1 == house.k3("run", START).returncode
    info = house.record(house.sessions()[0])["session"]
    assert ("failed", "RecordError: the disk is full") == (info["state"], info["reason"])
