"""Stage 20 through the real command: a modelled machine, the collector's files of others, what closes the gate."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from fakes.machines import build_machine, look

if TYPE_CHECKING:
    from conftest import House

ROOT = Path(__file__).parents[2]
FILE = "rehearsal/20_compatibility.yaml"


@pytest.fixture
def stage(house: House) -> House:
    """A house whose calendar begins with compatibility."""
    shutil.copy(ROOT / "params" / FILE, house.root / "params" / FILE)
    return house


def run(house: House, **changes: Any) -> dict[str, Any]:
    """One session of stage 20, to its end; its record, the exit code and the page's text."""
    house.edit(FILE, lambda content: content.update(changes))
    ran = house.k3("run", f"params/{FILE}", "--json")
    answer = orjson.loads(ran.stdout)
    folder = Path(answer["folder"])
    page = (folder / "notebook.html").read_text("utf-8")
    return {**house.record(folder), "code": ran.returncode, "path": folder, "page": page}


def rule(record: dict[str, Any], name: str) -> dict[str, Any]:
    """One verdict."""
    return next(v for v in record["verdicts"] if v["rule"] == f"compatibility.{name}")


def collect(house: House, *names: str) -> list[str]:
    """Files that the collector wrote on these machines, in the house."""
    files = []
    for name in names:
        folder = house.root / "machines" / name
        folder.mkdir(parents=True)
        file = folder / "host.json"
        file.write_text(look(build_machine(name, folder, None)).model_dump_json())
        files.append(str(file.relative_to(house.root)))
    return files


def test_the_modelled_machine_warns_and_opens_the_gate(stage: House) -> None:
    """Nothing is proof of a GPU, what cannot exist closes nothing, and the next stage may run."""
    record = run(stage)
    assert (0, "WARN", "with-warnings") == (record["code"], record["outcome"], rule(record, "path")["case"])
    assert "PASS" == rule(record, "driver_cuda")["outcome"]
    assert "modelled" == rule(record, "disk")["case"]
    assert "REHEARSAL · a modelled machine" in record["page"]
    assert "ESTIMATE, not a measurement" in record["page"]
    assert 0 == stage.k3("run", "params/rehearsal/30_minimal_start.yaml", "--dry-run").returncode


def test_a_machine_too_small_fails_closes_the_gate_and_says_so(stage: House) -> None:
    """Eight B200 cannot hold the weights; the verdict is another text, and the next stage is refused."""
    stage.edit("rehearsal/campaign.yaml", lambda content: content["engine"].update(rehearsal={"machine": "8xB200"}))
    record = run(stage)
    assert (3, "FAIL") == (record["code"], record["outcome"])
    assert ["memory_total", "weights_fit"] == rule(record, "path")["facts"]["failed"]
    assert "cannot load in any layout" in record["page"]
    assert 3 == stage.k3("run", "params/rehearsal/30_minimal_start.yaml", "--dry-run").returncode


def test_files_of_the_collector_are_judged_instead(stage: House) -> None:
    """Two trays of four GB300 are two arm64 hosts, and a base for one host does not go with them."""
    record = run(stage, evidence=collect(stage, "8xgb300_tray1", "8xgb300_tray2"), link="nvlink")
    assert (2, 8) == (rule(record, "look")["facts"]["hosts"], rule(record, "look")["facts"]["gpus"])
    assert ("needs-more", ["aarch64"]) == (
        rule(record, "hosts")["case"],
        rule(record, "hosts")["facts"]["machines"],
    )
    assert "PASS" == rule(record, "driver_branch")["outcome"]
    raw = record["path"] / "raw"
    assert 0o700 == stat.S_IMODE(raw.stat().st_mode)
    assert ["evidence-1.json", "evidence-2.json"] == sorted(file.name for file in raw.iterdir())


def test_an_order_is_held_against_what_was_delivered(stage: House) -> None:
    """Sixteen were ordered and eight came, with a lost one among them; the page says what the node is for."""
    evidence = collect(stage, "lost_gpu")
    record = run(stage, evidence=evidence, ordered={"gpus": 16, "driver_branch": 580}, image="vllm/vllm-openai:kimi-k3")
    short = {line["name"]: line["delivered"] for line in rule(record, "acceptance")["facts"]["short"]}
    assert {"gpus": 7} == short
    assert "gpu-lost" in " ".join(rule(record, "health")["facts"]["kinds"])
    assert "not-for-k3" == rule(record, "use")["case"]
    assert "The node is not for K3" in record["page"]


def test_evidence_that_is_none_is_refused_with_its_name(stage: House) -> None:
    """Any JSON is not a machine: the session fails as ours, and names the file."""
    (stage.root / "wrong.json").write_text("{}")
    record = run(stage, evidence=["wrong.json"])
    assert (1, "failed") == (record["code"], record["session"]["state"])
    assert "wrong.json is no output of the collector" in record["session"]["reason"]


def test_the_record_is_the_same_when_it_is_judged_again(stage: House) -> None:
    """`k3 render` reads the folder alone, without the machine."""
    first = run(stage, evidence=collect(stage, "8xb300"))
    shutil.rmtree(stage.root / "machines")
    assert 0 == stage.k3("render", first["path"].name).returncode
    again = stage.record(first["path"])
    assert [first["outcome"], first["verdicts"]] == [again["outcome"], again["verdicts"]]
