"""Stage 10 and the place of a session, through the real commands: nothing leaks, drift is refused or stamped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from k3lib.probe.collection import read_collector

if TYPE_CHECKING:
    from conftest import House

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scene(house: House) -> House:
    """A house whose calendar begins with the scene."""
    shutil.copy(ROOT / "params/rehearsal/10_scene.yaml", house.root / "params/rehearsal")
    return house


def run_scene(house: House, **changes: Any) -> dict[str, Any]:
    """One session of stage 10, to its end, with its record."""
    house.edit("rehearsal/10_scene.yaml", lambda content: content.update(changes))
    ran = house.k3("run", "params/rehearsal/10_scene.yaml", "--json")
    answer: dict[str, Any] = orjson.loads(ran.stdout)
    assert ran.returncode == answer["exit_code"], ran.stderr
    return house.record(Path(answer["folder"]))


def plant(value: Any, seed: list[int], secrets: list[str]) -> Any:
    """The same JSON with a token, a login, a home, an address and a mailbox in every text, each used once."""
    if isinstance(value, str):
        seed[0] += 1
        n = seed[0]
        fresh = [
            f"hf_Planted{n:06d}secret", f"pw{n:06d}Planted", f"planted-home-{n:06d}",
            f"10.{n >> 8 & 255}.{n & 255}.77", f"planted{n:06d}@example.org",
        ]  # fmt: skip
        secrets += fresh
        token, password, home, address, mail = fresh
        return f"{value} {token} https://bot:{password}@hub.example /home/{home}/x {address} {mail}"
    if isinstance(value, list):
        return [plant(item, seed, secrets) for item in value]
    if isinstance(value, dict):
        return {key: plant(item, seed, secrets) for key, item in value.items()}
    return value


def collect_here() -> dict[str, Any]:
    """What the stand-alone collector says of this machine."""
    ran = subprocess.run([sys.executable, "-"], input=read_collector().encode(), capture_output=True, timeout=120)
    collected: dict[str, Any] = orjson.loads(ran.stdout)
    return collected


def outside_raw(folder: Path) -> Iterator[Path]:
    """Every file of a campaign but what lies in a raw/ folder."""
    for file in folder.rglob("*"):
        if file.is_file() and "raw" not in file.relative_to(folder).parts:
            yield file


def test_nothing_planted_leaks(scene: House, tmp_path: Path) -> None:
    """Secrets in every source of the collector, in the log and in a note reach no file outside raw/, and no page."""
    collected, secrets = collect_here(), list[str]()
    seed = [0]
    for source in collected["sources"].values():
        for part in ("text", "data"):
            source[part] = plant(source.get(part), seed, secrets)
    assert seed[0] > 50
    evidence = tmp_path / "node.json"
    evidence.write_text(json.dumps(collected))
    log = tmp_path / "engine.log"
    lines = (ROOT / "tests/cases/logs/k3_oom_graph_capture/engine.log").read_text().splitlines()
    log.write_text("\n".join(plant(line, seed, secrets) for line in lines) + "\n")
    noted = plant("driver upgraded", seed, secrets)
    assert 0 == scene.k3("note", noted, "--campaign", "rehearsal").returncode
    run_scene(scene, evidence=[str(evidence)], log=str(log))
    campaign = scene.outputs / "rehearsal"
    searched = {file: file.read_bytes() for file in outside_raw(campaign)}
    assert {"notebook.ipynb", "notebook.html", "record.json", "journal.jsonl"} <= {f.name for f in searched}
    leaked = {f"{f.name}: {s}" for f, content in searched.items() for s in secrets if s.encode() in content}
    assert set() == leaked
    raw = next(campaign.glob("*/raw"))
    assert 0o700 == raw.stat().st_mode & 0o777
    assert secrets[0].encode() in (raw / "node-2.json").read_bytes()


def test_a_scene_names_what_is_missing(scene: House) -> None:
    """On a rehearsal the scene passes; a real engine without evidence is not exploitable, and says which items."""
    record = run_scene(scene)
    assert "PASS" == record["outcome"]
    assert [None, None, None, True, None, None, True, True] == [item["kept"] for item in record["scene"]]
    assert not list(scene.sessions()[0].glob("trial-*"))
    shutil.copy(ROOT / "params/rehearsal/10_scene.yaml", scene.root / "params/cpu/10_scene.yaml")
    scene.edit("cpu/10_scene.yaml", lambda content: content.update(campaign="cpu"))
    scene.edit(
        "cpu/campaign.yaml", lambda c: (c["engine"].update(version="0.33.0"), c["base"].pop("cpu_kv_cache_space_gib"))
    )
    ran = scene.k3("run", "params/cpu/10_scene.yaml", "--json")
    assert 3 == ran.returncode
    items = next(v for v in orjson.loads(ran.stdout)["verdicts"] if v["rule"] == "scene.items")
    assert {"driver", "gpus", "first-error"} <= set(items["facts"]["missing"])


def test_host_and_container_are_looked_at_together(
    scene: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named container is looked into by `docker exec -i NAME python3 -`; one that is not there is said, not fatal."""
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f'#!/bin/sh\n[ "$1 $2 $3" = "exec -i k3" ] || exit 1\nshift 4\nexec {sys.executable} "$@"\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    run_scene(scene, container="k3")
    kept = {file.stem: orjson.loads(file.read_bytes()) for file in scene.sessions()[0].glob("scene/*.json")}
    assert {"host", "container"} <= kept.keys()
    taken = [datetime.fromisoformat(kept[view]["snapshot"]["taken_at"]) for view in ("host", "container")]
    assert abs((taken[0] - taken[1]).total_seconds()) < 60
    record = run_scene(scene, container="gone")
    assert "closed" == record["session"]["state"]
    failed = orjson.loads((scene.sessions()[1] / "scene" / "scene.json").read_bytes())["failed_evidence"]
    assert ["container"] == list(failed)


def test_the_first_error_of_a_log_is_kept(scene: House) -> None:
    """The line, its time and the milestone before it come from triage; the copy keeps the line numbers."""
    log = ROOT / "tests/cases/logs/k3_oom_graph_capture/engine.log"
    record = run_scene(scene, log=str(log))
    item = next(i for i in record["scene"] if i["key"] == "first-error")
    assert (True, 50) == (item["kept"], item["facts"]["line"])
    kept = scene.sessions()[0] / item["evidence"][0]["file"]
    assert b"out of memory" in kept.read_bytes().split(b"\n")[49]


def test_the_way_back_is_verified(house: House) -> None:
    """k3 back says that all is as it was, then names what is not, and flags what cannot be undone."""
    assert 2 == house.k3("back", "rehearsal").returncode
    assert 0 == house.k3("run", "params/rehearsal/30_minimal_start.yaml").returncode
    assert 0 == house.k3("back", "rehearsal").returncode
    house.edit("rehearsal/campaign.yaml", lambda content: content["base"].update(max_model_len=8192))
    house.k3("note", "firmware flashed", "--irreversible", "--campaign", "rehearsal")
    back = house.k3("back", "rehearsal", "--json")
    way = orjson.loads(back.stdout)
    assert 3 == back.returncode
    assert {"base": "differs", "argv": "same"}.items() <= {c["name"]: c["state"] for c in way["checks"]}.items()
    assert ["none"] == [note["way_back"] for note in way["notes"]]


def rewrite(session: Path, name: str, change: dict[str, Any]) -> None:
    """Change the identity that a session's fingerprint kept."""
    file = session / name
    content = orjson.loads(file.read_bytes())
    content["identity"].update(change)
    file.write_bytes(orjson.dumps(content))


def test_a_changed_place_counts_as_the_one_variable(house: House) -> None:
    """One change of the place is the session's change; with a setting changed too it is refused, and names both."""
    assert 0 == house.k3("run", "params/rehearsal/30_minimal_start.yaml").returncode
    rewrite(house.sessions()[0], "fingerprint.json", {"engine.release": "0.32.0"})
    assert 0 == house.k3("run", "params/rehearsal/30_minimal_start.yaml").returncode
    second = house.record(house.sessions()[1])
    since = next(v for v in second["verdicts"] if v["rule"] == "place.since_stable")
    assert ("WARN", ["image"]) == (since["outcome"], since["facts"]["names"])
    rewrite(house.sessions()[1], "fingerprint.json", {"engine.release": "0.31.0"})
    house.edit("rehearsal/30_minimal_start.yaml", lambda content: content.update(change={"max_num_seqs": 4}))
    refused = house.k3("run", "params/rehearsal/30_minimal_start.yaml")
    assert 2 == refused.returncode
    assert "max_num_seqs" in refused.stderr
    assert "engine.release" in refused.stderr
    assert 2 == len(house.sessions())


def test_drift_while_it_ran_stamps_the_record(house: House) -> None:
    """A place that is another one at the end makes the session incomparable, with the reason; it is then no base."""
    house.k3("run", "params/rehearsal/30_minimal_start.yaml")
    session = house.sessions()[0]
    assert house.record(session)["comparable"]
    rewrite(session, "fingerprint-end.json", {"engine.release": "0.34.0"})
    assert 0 == house.k3("render", str(session)).returncode
    record = house.record(session)
    assert not record["comparable"]
    assert ["changed while it ran: release-changed (engine.release)"] == record["reasons"]
    assert 3 == house.k3("diff", str(session / "fingerprint.json"), str(session / "fingerprint-end.json")).returncode


def test_a_debug_variable_left_is_drift(house: House) -> None:
    """Set in one session it voids its trials; still set in the next it is said to be left over (R-17)."""
    house.edit("rehearsal/campaign.yaml", lambda c: c["base"].update(environment={"CUDA_LAUNCH_BLOCKING": "1"}))
    for _ in range(2):
        house.k3("run", "params/rehearsal/30_minimal_start.yaml")
    first, second = (house.record(session) for session in house.sessions())
    said = [next(v for v in r["verdicts"] if v["rule"] == "place.debug_leftover") for r in (first, second)]
    assert ["PASS", "WARN"] == [verdict["outcome"] for verdict in said]
    assert ["CUDA_LAUNCH_BLOCKING=1"] == said[1]["facts"]["names"]
