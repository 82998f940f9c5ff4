"""Bad input: four lines, exit code 2, and nothing started."""

from __future__ import annotations

import shutil
import socket
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from conftest import House

SESSION = "params/rehearsal/30_minimal_start.yaml"


def refused(house: House, *said: str) -> None:
    """The session is refused before anything starts, and says these words."""
    ran = house.k3("run", SESSION)
    assert 2 == ran.returncode, ran.stderr
    lines = ran.stderr.strip().splitlines()
    assert 4 == len(lines), ran.stderr
    assert ["  expected: ", "  evidence: ", "  next:     "] == [line[:12] for line in lines[1:]]
    for words in said:
        assert words in ran.stderr
    assert [] == house.sessions()
    assert [] == house.processes()


def test_a_misspelt_key_in_a_session(house: House) -> None:
    """The file, the key and the nearest valid one are named."""
    house.edit("rehearsal/30_minimal_start.yaml", lambda c: c.update(trails=3))
    refused(house, "params/rehearsal/30_minimal_start.yaml", "unknown key trails", "expected: trials")


def test_a_misspelt_setting_in_a_campaign(house: House) -> None:
    """A setting deep in the campaign is named with its path."""
    house.edit("rehearsal/campaign.yaml", lambda c: c["base"].update(max_model_length=5))
    refused(house, "campaign.yaml", "base.max_model_length", "max_model_len")


def test_two_changes(house: House) -> None:
    """Two changes in one session are refused with both names."""
    house.edit(
        "rehearsal/30_minimal_start.yaml", lambda c: c.update(change={"prefix_caching": True, "max_num_seqs": 4})
    )
    refused(house, "2 changes in one session", "prefix_caching", "max_num_seqs")


def test_a_duplicate_key(house: House) -> None:
    """A key that stands twice is refused with both lines."""
    path = house.root / SESSION
    path.write_text(path.read_text() + "\ntrials: 3\n")
    refused(house, "the key trials twice")


def test_a_wrong_type(house: House) -> None:
    """A number written as text is refused."""
    house.edit("rehearsal/30_minimal_start.yaml", lambda c: c.update(trials="five"))
    refused(house, "trials")


def test_a_port_in_use(house: House) -> None:
    """A taken port is named with its owner."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        house.edit("rehearsal/campaign.yaml", lambda c: c["engine"].update(port=port))
        refused(house, f"port {port} is in use; no engine was started", "pid ")


@pytest.mark.parametrize("name", ["./models/nothing-here", "/nowhere/at/all"])
def test_a_missing_model_path(house: House, name: str) -> None:
    """A model folder that does not exist is refused."""
    house.edit("rehearsal/campaign.yaml", lambda c: c["model"].update(name=name))
    refused(house, name.removeprefix("."))


@pytest.mark.parametrize("program", ["./no/venv", "no-such-vllm"])
def test_an_absent_vllm(house: House, program: str) -> None:
    """An engine that is not installed is refused, with how to get one."""

    def local(content: dict[str, Any]) -> None:
        content["engine"] = {"kind": "local", "program": program, "version": "0.32.0"}

    house.edit("rehearsal/campaign.yaml", local)
    refused(house, "was not found; no engine was started", "cpu_engine install")


def test_an_unknown_campaign(house: House) -> None:
    """A campaign that is not there is refused with the nearest name."""
    house.edit("rehearsal/30_minimal_start.yaml", lambda c: c.update(campaign="rehersal"))
    refused(house, "no campaign rehersal", "did you mean rehearsal?")


def test_two_variables_against_the_last_stable_session(house: House) -> None:
    """After a stable session, a change on top of an edited base is refused with both names."""
    assert 0 == house.k3("run", SESSION).returncode
    before = house.sessions()
    house.edit("rehearsal/campaign.yaml", lambda c: c["base"].update(max_model_len=8192))
    house.edit("rehearsal/30_minimal_start.yaml", lambda c: c.update(change={"prefix_caching": True}))
    ran = house.k3("run", SESSION)
    assert 2 == ran.returncode
    assert "max_model_len" in ran.stderr
    assert "prefix_caching" in ran.stderr
    assert before == house.sessions()


def test_json_errors(house: House) -> None:
    """With --json the same four parts come as JSON."""
    house.edit("rehearsal/30_minimal_start.yaml", lambda c: c.update(trails=3))
    ran = house.k3("run", SESSION, "--json")
    assert {"error", "what", "expected", "evidence", "next"} == set(yaml.safe_load(ran.stdout))


def test_a_copied_campaign_that_still_names_the_original(house: House) -> None:
    """A session file in one campaign's folder that names another is refused; the original is not run."""
    shutil.copytree(house.root / "params/rehearsal", house.root / "params/mine")
    house.edit("mine/campaign.yaml", lambda c: c.update(name="mine"))
    ran = house.k3("run", "params/mine/30_minimal_start.yaml")
    assert 2 == ran.returncode
    assert "campaign: mine" in ran.stderr
    assert [] == house.sessions()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rehearsal": {"scenario": "nope"}}, "nope"),
        ({"rehearsal": {"machine": "nope"}}, "nope"),
        ({"version": "bananas"}, "engine.version bananas is no release"),
    ],
)
def test_names_that_only_an_engine_would_stumble_over(house: House, change: dict[str, Any], said: str) -> None:
    """A scenario, a machine or a release that does not exist is refused before anything starts."""
    house.edit("rehearsal/campaign.yaml", lambda c: c["engine"].update(change))
    refused(house, said)
