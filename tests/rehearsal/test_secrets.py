"""What people put into their parameters stays theirs: a secret is used, and leaves `raw/` nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import House

BY_SHAPE = "hf_" + "QwErTyUiOpAsDfGh"
BY_NAME = "open-sesame-of-mine"
OF_A_PROXY = "pa55-of-bob"
IN_A_NOTE = "sk-" + "note0123456789abcdef"
IN_A_REASON = "ghp_" + "0123456789abcdefGHIJ"
UNDER_A_HARMLESS_NAME = "hf_" + "ZxCvBnMaSdFgHjKl"
SECRETS = (BY_SHAPE, BY_NAME, OF_A_PROXY, IN_A_NOTE, IN_A_REASON, UNDER_A_HARMLESS_NAME)


def test_no_secret_of_the_parameters_leaves_raw(house: House) -> None:
    """Tokens in variables, notes and reasons stand in no file that is shown or bundled, nor on the screen."""
    _plant(house)
    house.edit("rehearsal/30_minimal_start.yaml", lambda s: s.update(accept_gate=f"as agreed, {IN_A_REASON}"))
    ran = house.k3("run", "params/rehearsal/30_minimal_start.yaml")
    assert 0 == ran.returncode, ran.stderr
    assert [] == [f"{secret} in {file}" for file in _shown(house.outputs) for secret in SECRETS if _holds(file, secret)]
    assert [] == [secret for secret in SECRETS if secret in ran.stdout + ran.stderr]
    variables = house.record(house.sessions()[0])["plan"]["arms"][0]["settings"]["environment"]
    assert {"HF_TOKEN", "MY_SECRET", "HTTPS_PROXY", "VLLM_EXTRA"} == set(variables)
    assert variables["HTTPS_PROXY"].endswith("@proxy.example:3128")


def test_a_changed_secret_is_a_change(house: House) -> None:
    """Another token is the one changed variable, named without being told, whether it has a shape or only a name."""
    _plant(house)
    assert 0 == house.k3("run", "params/rehearsal/30_minimal_start.yaml").returncode
    other = "another-sesame-of-mine"
    house.edit("rehearsal/30_minimal_start.yaml", lambda s: s.update(change={"environment.MY_SECRET": [other]}))
    ran = house.k3("run", "params/rehearsal/30_minimal_start.yaml")
    assert 0 == ran.returncode, ran.stderr
    assert [] == [str(file) for file in _shown(house.outputs) if _holds(file, other) or _holds(file, BY_NAME)]
    plan = house.record(house.sessions()[1])["plan"]
    assert ["environment.MY_SECRET"] == [difference["key"] for difference in plan["differences"]]


def test_a_week_knows_what_it_has_done(house: House) -> None:
    """A calendar with secrets in it is not run twice: what is kept is compared as it was kept."""
    _plant(house)
    (house.root / "params/rehearsal/40_single_request.yaml").unlink()
    assert 0 == house.k3("week", "rehearsal").returncode
    again = house.k3("week", "rehearsal", "--json")
    assert 1 == len(house.sessions())
    assert house.sessions()[0].name in orjson.dumps(orjson.loads(again.stdout)).decode()


def _plant(house: House) -> None:
    def campaign(content: dict[str, Any]) -> None:
        content["base"]["environment"] = {
            "HF_TOKEN": BY_SHAPE,
            "MY_SECRET": BY_NAME,
            "HTTPS_PROXY": f"http://bob:{OF_A_PROXY}@proxy.example:3128",
            "VLLM_EXTRA": UNDER_A_HARMLESS_NAME,
        }

    house.edit("rehearsal/campaign.yaml", campaign)
    house.edit(
        "rehearsal/30_minimal_start.yaml",
        lambda s: s.update(note=f"the key is {IN_A_NOTE}"),
    )


def _shown(outputs: Path) -> list[Path]:
    return [file for file in outputs.rglob("*") if file.is_file() and "raw" not in file.parent.parts]


def _holds(file: Path, secret: str) -> bool:
    return secret.encode() in file.read_bytes()
