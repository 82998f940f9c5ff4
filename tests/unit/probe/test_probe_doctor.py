"""`k3 doctor` reads any machine, here or collected elsewhere, in two languages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.machines import COLLECTOR, build_machine, look
from typer.testing import CliRunner, Result

from k3lib.cli import app
from k3lib.knowledge.sentences import load_sentences
from k3lib.workbook.doctor import Look, diagnose


def doctor(*words: str) -> Result:
    """The command, as a person types it."""
    return CliRunner().invoke(app, ["doctor", *words])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, library: Path) -> dict[str, Path]:
    """Collections of pretend machines, as files."""
    tmp_path, files = tmp_path_factory.mktemp("saved"), {}
    for name in ("8xgb300_tray1", "8xgb300_tray2", "half_upgraded_driver", "laptop", "co_tenant", "no_driver"):
        (tmp_path / name).mkdir()
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(look(build_machine(name, tmp_path / name, library)).model_dump_json())
    return files


def test_script_is_the_file_itself() -> None:
    """What is printed for another machine is the collector that runs here."""
    assert COLLECTOR.read_text("utf-8") == doctor("--script").stdout


def test_here() -> None:
    """On whatever machine this runs, the text says what can be done with it."""
    told = doctor()
    assert told.exit_code in (0, 3)
    assert "k3 week rehearsal" in told.stdout
    assert "Kimi K3" in told.stdout


def test_two_trays_make_eight(saved: dict[str, Path]) -> None:
    """One tray of four GB300 is not enough, the two together are not excluded by memory."""
    first, second = saved["8xgb300_tray1"], saved["8xgb300_tray2"]
    one, both = diagnose(Look([first])), diagnose(Look([first, second]))
    assert ("more-hosts", 4, 8) == (one.fit.case, one.fit.gpus, one.fit.needed)
    assert ("may-fit", 8) == (both.fit.case, both.fit.gpus)
    assert {"tray1", "tray2", None} == {ability.place for ability in both.abilities}


def test_a_broken_machine_is_an_exit_code(saved: dict[str, Path]) -> None:
    """A half-upgraded driver ends with 3 and its next step; a laptop ends with 0 and has no GPU."""
    broken, laptop = doctor("--from", str(saved["half_upgraded_driver"])), doctor("--from", str(saved["laptop"]))
    assert (3, 0) == (broken.exit_code, laptop.exit_code)
    assert "half upgraded: loaded 580.105.08, library 580.126.09" in broken.stdout
    assert "no: there is no GPU here" in laptop.stdout
    assert "unknown: GPUs or their memory could not be read" in doctor("--from", str(saved["no_driver"])).stdout


def test_who_else_holds_memory(saved: dict[str, Path]) -> None:
    """A stranger and an earlier engine are told apart, each with its process."""
    told = doctor("--from", str(saved["co_tenant"])).stdout
    assert "Somebody else holds GPU memory (140.00 GiB): python3 (pid 88001)" in told
    assert "An earlier engine still holds GPU memory (1.48 GiB): VLLM::Worker_TP0 (pid 4121)" in told


def test_json_is_whole_and_redacted(saved: dict[str, Path]) -> None:
    """--json holds snapshot, conditions and findings of each place, and no home path."""
    told = doctor("--json", "--from", str(saved["co_tenant"]))
    answer = json.loads(told.stdout)
    (place,) = answer["places"].values()
    assert 8 == len(place["snapshot"]["gpus"])
    assert "foreign-process" in {condition["kind"] for condition in place["conditions"]}
    assert {"fit", "docker", "vllm", "slurm", "kubernetes"} == {ability["topic"] for ability in answer["abilities"]}
    assert "f00ba4f00ba4f00ba4" not in told.stdout


def test_french_is_french(saved: dict[str, Path]) -> None:
    """Every line of words differs between the languages; only evidence is the same."""
    english, french = (doctor("--lang", lang, "--from", str(saved["co_tenant"])).stdout for lang in ("en", "fr"))
    assert "Quelqu’un d’autre tient de la mémoire GPU" in french
    assert "Ce que cette machine peut faire" in french
    assert english != french


def test_every_sentence_is_translated() -> None:
    """No sentence of the doctor says the same in both languages, but names."""
    same = [
        (rule, case)
        for rule, cases in load_sentences().items()
        if rule.startswith("doctor.")
        for case, entry in cases.items()
        if entry["en"] == entry["fr"]
    ]
    assert [] == same


@pytest.mark.parametrize("content", ["", "{}", "not JSON"])
def test_a_file_of_something_else(tmp_path: Path, content: str) -> None:
    """A file that the collector did not write is refused in four lines, not diagnosed."""
    file = tmp_path / "host.json"
    file.write_text(content)
    told = doctor("--from", str(file))
    assert told.exit_code != 0
    assert "is no output of the collector" in str(told.exception)
