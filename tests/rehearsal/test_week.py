"""The calendar on the rehearsal engine, from parameter files to archives."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import orjson

from k3lib.notebook.document import read_embedded_record
from k3lib.record.manifest import verify_manifest
from k3lib.record.paths import SessionPaths

if TYPE_CHECKING:
    from conftest import House


def test_a_week_ends_in_archives(house: House) -> None:
    """Both stages pass; each archive is whole, says rehearsal, and nothing runs on."""
    ran = house.k3("week", "rehearsal", "--json")
    assert 0 == ran.returncode, ran.stderr
    rows = orjson.loads(ran.stdout)["sessions"]
    assert ["PASS", "PASS"] == [row["outcome"] for row in rows]
    for session in house.sessions():
        paths = SessionPaths(session)
        assert [] == verify_manifest(paths)
        assert read_embedded_record(paths.notebook) == house.record(session)
        assert "REHEARSAL" in paths.html.read_text()
        assert 0o700 == paths.trial(1).raw.stat().st_mode & 0o777
        raw, redacted = paths.trial(1).raw_log.read_bytes(), paths.trial(1).log.read_bytes()
        assert raw.count(b"\n") == redacted.count(b"\n")
    assert (house.outputs / "rehearsal" / "index.html").exists()
    assert [] == house.processes()


def test_a_second_pass_overwrites_nothing(house: House) -> None:
    """A calendar that has passed is left alone; a failed stage is tried again in a folder of its own."""
    first = house.k3("week", "rehearsal")
    before = house.sessions()
    again = house.k3("week", "rehearsal")
    assert (0, 0) == (first.returncode, again.returncode)
    assert before == house.sessions()
    assert "Nothing was left to do" in again.stdout


def test_a_closed_gate_stops_the_week(house: House) -> None:
    """When the start fails, the request is not sent, and the reason is printed."""
    house.edit("rehearsal/campaign.yaml", lambda c: c["engine"].update(rehearsal={"scenario": "oom-weights"}))
    ran = house.k3("week", "rehearsal")
    assert 3 == ran.returncode
    assert 1 == len(house.sessions())
    assert "weights" in ran.stdout


def test_stage_40_alone_is_refused(house: House) -> None:
    """Without a passed start the gate is closed: four lines, exit code 3, no folder; a reason opens it, recorded."""
    refused = house.k3("run", "params/rehearsal/40_single_request.yaml")
    assert 3 == refused.returncode
    assert 4 == len(refused.stderr.strip().splitlines())
    assert [] == house.sessions()
    house.edit("rehearsal/40_single_request.yaml", lambda c: c.update(accept_gate="only the request matters today"))
    opened = house.k3("run", "params/rehearsal/40_single_request.yaml")
    assert 0 == opened.returncode, opened.stderr
    record = house.record(house.sessions()[0])
    assert "only the request matters today" == record["gate"]["accepted"]
    assert not record["comparable"]


def test_plain_papermill_makes_the_same_record(house: House) -> None:
    """papermill alone runs the same checks and leaves the same record; an unknown name is refused."""
    papermill = [sys.executable, "-m", "papermill", "--no-progress-bar", "--log-level", "ERROR"]
    notebook = str(house.root / "notebooks/30_minimal_start.ipynb")
    file = house.root / "params/rehearsal/30_minimal_start.yaml"
    ran = subprocess.run(
        [*papermill, notebook, "out.ipynb", "-f", str(file)],
        env=house.environment, cwd=house.root, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert 0 == ran.returncode, ran.stderr
    by_hand = house.record(house.sessions()[0])
    assert read_embedded_record(house.root / "out.ipynb") == by_hand
    assert 0 == house.k3("run", str(file)).returncode
    by_runner = house.record(house.sessions()[1])
    # Only the second of the two has a stable session before it.
    said = [
        [(v["rule"], v["outcome"], v["sentence"]) for v in record["verdicts"] if v["rule"] != "place.since_stable"]
        for record in (by_hand, by_runner)
    ]
    assert said[0] == said[1]
    house.edit("rehearsal/30_minimal_start.yaml", lambda c: c.update(trails=2))
    refused = subprocess.run(
        [*papermill, notebook, "bad.ipynb", "-f", str(file)],
        env=house.environment, cwd=house.root, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert 0 != refused.returncode
    assert "no parameter trails" in refused.stderr
    assert 2 == len(house.sessions())


def test_render_rebuilds_the_record(house: House) -> None:
    """From its folder alone a session's record is built again, word for word."""
    house.k3("run", "params/rehearsal/30_minimal_start.yaml")
    session = house.sessions()[0]
    before = house.record(session)
    (session / "record.json").unlink()
    assert 0 == house.k3("render", str(session)).returncode
    after = house.record(session)
    assert {k: v for k, v in before.items() if k != "gate"} == {k: v for k, v in after.items() if k != "gate"}
    assert [] == verify_manifest(SessionPaths(session))
