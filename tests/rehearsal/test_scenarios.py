"""Planted causes: each must be read in its phase, and the texts of the verdicts must differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import House


def play(house: House, scenario: str, stage: str = "30_minimal_start", **session: Any) -> tuple[int, dict[str, Any]]:
    """Run one session of a scenario; its exit code and record."""
    house.edit("rehearsal/campaign.yaml", lambda c: c["engine"].update(rehearsal={"scenario": scenario}))
    house.edit(f"rehearsal/{stage}.yaml", lambda c: c.update(session))
    ran = house.k3("run", f"params/rehearsal/{stage}.yaml")
    return ran.returncode, house.record(house.sessions()[-1])


@pytest.mark.parametrize(("scenario", "phase"), [("oom-weights", "weights"), ("kv-too-small", "memory")])
def test_a_failing_start_is_read_in_its_phase(house: House, scenario: str, phase: str) -> None:
    """Memory that ends while weights load, and a pool too small for the context, stand in their phases."""
    code, record = play(house, scenario)
    assert 3 == code
    assert "FAIL" == record["outcome"]
    assert [phase] == [trial["failed_phase"] for trial in record["trials"]]
    decisive = next(v for v in record["verdicts"] if v["rule"] == "start.trials")
    assert phase in decisive["sentence"]
    if phase == "weights":
        assert "not fixed by lowering concurrency" in decisive["next"]


def test_a_failing_first_request_is_in_serving(house: House) -> None:
    """The start is fine, the first request kills the engine: serving, with exit code 0 read as a death."""
    code, record = play(house, "oom-first-request", "40_single_request", accept_gate="the start is known to work")
    assert 3 == code
    trial = record["trials"][0]
    assert "serving" == trial["failed_phase"]
    assert "died" == trial["launch"]["ending"]
    assert 0 == trial["launch"]["exit"]["code"]
    assert "FAIL" == next(v["outcome"] for v in record["verdicts"] if v["rule"] == "request.answers")


def test_a_reproduced_failure_is_conclusive(house: House) -> None:
    """A session that came for the failure and saw it every time ends with 0; the gate stays closed all the same."""
    code, record = play(house, "oom-weights", expect_phase="weights", trials=2)
    assert 0 == code
    assert "FAIL" == record["outcome"]
    assert "PASS" == next(v["outcome"] for v in record["verdicts"] if v["rule"] == "start.expected_failure")


def test_a_slow_start_names_the_limit(house: House) -> None:
    """An engine that is not ready in time ends the trial with the limit's name, exit code 5."""
    house.edit("rehearsal/campaign.yaml", lambda c: c["engine"].update(ready_timeout_s=3.0))
    # The engine's own patience would end first: an hour of modelled time is a third of a second here.
    house.edit("rehearsal/campaign.yaml", lambda c: c["base"].update(engine_ready_timeout_s=1_000_000_000))
    code, record = play(house, "slow-start")
    assert 5 == code
    assert "engine.ready_timeout_s = 3 s" == record["trials"][0]["launch"]["limit"]
    assert "timed-out" == record["trials"][0]["launch"]["ending"]


def test_the_verdicts_of_a_healthy_and_a_failing_engine_differ(house: House) -> None:
    """What is rendered comes from the run: no sentence of the trials' rule is the same."""
    _, healthy = play(house, "healthy")
    _, failing = play(house, "kv-too-small", accept_gate="")
    sentences = [
        {v["sentence"] for v in record["verdicts"] if v["rule"] in ("start.trials", "start.effective_state")}
        for record in (healthy, failing)
    ]
    assert set() == sentences[0] & sentences[1]


def test_a_hung_engine_is_one_time_out(house: House) -> None:
    """Health is green and no answer comes: the warm-up's limit ends the trial, by its name, with exit code 5."""
    (house.root / "params/requests/short.yaml").write_text(
        (house.root / "params/requests/minimal.yaml")
        .read_text()
        .replace("name: minimal", "name: short")
        .replace("120.0", "4.0")
    )
    house.edit("rehearsal/campaign.yaml", lambda c: c.update(request="short.yaml"))
    code, record = play(house, "hang", "40_single_request", accept_gate="the start is known to work")
    assert 5 == code
    trial = record["trials"][0]
    assert "the warm-up failed: warm-up limit = 4 s" in trial["failure"]
    assert ["warm-up"] == [row["probe"] for row in trial["requests"]]
