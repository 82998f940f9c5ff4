"""The campaign's release reaches the engine, and what the engine says of itself comes back as that release."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import House

PREVIEW = "0.1.dev19262+gb6bbf29dd.d20260727.rehearsal"


def test_a_session_plays_the_campaigns_release(house: House) -> None:
    """The retention policy goes by the variable of that release and is in effect; the record says rehearsal."""
    house.edit("rehearsal/campaign.yaml", lambda c: c["engine"].update(version=PREVIEW))
    house.edit("rehearsal/campaign.yaml", lambda c: c["base"].update(prefix_caching=True, retention_interval_tokens=0))
    ran = house.k3("run", "params/rehearsal/30_minimal_start.yaml")
    assert 0 == ran.returncode, ran.stdout + ran.stderr
    session = house.sessions()[-1]
    record = house.record(session)
    assert "rehearsal" == record["session"]["provenance"]
    (trial,) = record["trials"]
    told = {fact["name"]: fact for fact in trial["effective"]}
    assert (PREVIEW, True) == (told["release"]["effective"], told["release"]["agrees"])
    assert (0, True) == (told["retention_interval_tokens"]["effective"], told["retention_interval_tokens"]["agrees"])
    log = (session / "trial-1" / "engine.log").read_text()
    assert f"version {PREVIEW}" in log
    assert "Unknown vLLM environment variable" not in log
    assert "prefix_cache_retention_interval" not in log
    assert "REHEARSAL" in (session / "notebook.html").read_text()


def test_a_release_that_nobody_looked_at_is_refused(house: House) -> None:
    """The engine's own four lines stand in the log; nothing is played that would be a guess."""
    house.edit("rehearsal/campaign.yaml", lambda c: c["engine"].update(version="0.31.0"))
    assert 0 != house.k3("run", "params/rehearsal/30_minimal_start.yaml").returncode
    log = (house.sessions()[-1] / "trial-1" / "engine.log").read_text()
    assert "KnowledgeError: the rehearsal cannot play release '0.31.0'" in log
