"""`k3 doctor`: what a machine has, what can be done with it, what is wrong with it. Useful on a bare laptop too."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from k3lib.errors import InputError
from k3lib.judge.conditions import Condition, find_conditions
from k3lib.judge.fit import MemoryFit, estimate_fit
from k3lib.launch.cpu_engine import EngineHome, read_stamp
from k3lib.probe.collection import Wanted, collect
from k3lib.probe.fingerprint import Subject, compose_fingerprint
from k3lib.probe.shells import CommandShell, LocalShell, Shell
from k3lib.probe.snapshot import parse_collected, read_snapshot
from k3lib.record.redactor import load_redactor
from k3lib.report.doctor import Ability, describe_abilities, describe_machine, render_findings, render_unknown
from k3lib.report.sentences import Language, render_word
from k3lib.spec.snapshot import Snapshot
from k3lib.spec.vocabulary import Severity

_NO_MODEL = Subject(model="no model was asked about")


@dataclass(frozen=True)
class Look:
    """
    What `k3 doctor` is asked.

    Args:
        files: Collections to read instead of looking, a host each.
        inside: Words of a command that leads to another place, `docker exec -i k3`; None looks at this machine.
        wanted: What to look at beyond the machine.
        root: The workbook's folder, below which a CPU engine would be.
    """

    files: Sequence[Path] = ()
    inside: str | None = None
    wanted: Wanted = field(default_factory=Wanted)
    root: Path = Path()


@dataclass(frozen=True)
class Diagnosis:
    """
    One look, read.

    Args:
        snapshots: By a name of the place.
        conditions: What is wrong, by the same names.
        abilities: What can be done here, an entry per way.
        fit: Memory against the weights, all places together.
    """

    snapshots: dict[str, Snapshot]
    conditions: dict[str, list[Condition]]
    abilities: list[Ability]
    fit: MemoryFit

    @property
    def exit_code(self) -> int:
        """3 if something takes away every trial made here, else 0."""
        every = [condition for found in self.conditions.values() for condition in found]
        return 3 if any(condition.severity is Severity.BREAK for condition in every) else 0

    def as_dict(self, language: Language = "en") -> Any:
        """Everything, redacted, for `--json`."""
        places = {
            name: {
                "findings": render_findings(snapshot, self.conditions[name], language),
                "conditions": [condition.model_dump(mode="json") for condition in self.conditions[name]],
                "snapshot": snapshot.model_dump(mode="json"),
            }
            for name, snapshot in self.snapshots.items()
        }
        abilities = [
            {"topic": one.topic, "place": one.place, "case": one.case, "sentence": one.sentence(language)}
            for one in self.abilities
        ]
        return load_redactor().value({"abilities": abilities, "fit": dataclasses.asdict(self.fit), "places": places})

    def render_text(self, language: Language = "en") -> str:
        """Everything in one screen, for a terminal."""
        lines: list[str] = []
        for name, snapshot in self.snapshots.items():
            found = render_findings(snapshot, self.conditions[name], language)
            lines += [*describe_machine(snapshot, language), ""]
            lines += self._section("findings", found or [render_word("doctor", "nothing", language)], language)
            lines += self._section("unknown", render_unknown(snapshot, language), language)
        return "\n".join([*lines, *self._section("abilities", describe_abilities(self.abilities, language), language)])

    @staticmethod
    def _section(heading: str, lines: Sequence[str], language: Language) -> list[str]:
        return [render_word("doctor", heading, language), *(f"  {line}" for line in lines), ""] if lines else []


def diagnose(look: Look) -> Diagnosis:
    """
    Look at a machine, or read what was collected elsewhere.

    Args:
        look: What is asked.

    Returns:
        The diagnosis.

    Raises:
        InputError: A file is no output of the collector.
        ProbeError: The place could not be looked at.
    """
    home = EngineHome(look.root / ".engine") if not look.files and look.inside is None else None
    snapshots = dict(_read_files(look.files)) if look.files else _look(look, home)
    fit = _estimate(list(snapshots.values()))
    abilities = [*(_own_abilities(home) if home else ()), *_list_abilities(snapshots)]
    conditions = {name: find_conditions(compose_fingerprint(_NO_MODEL, {"": one})) for name, one in snapshots.items()}
    return Diagnosis(snapshots, conditions, [*abilities, _fit_ability(fit)], fit)


def _look(look: Look, home: EngineHome | None) -> dict[str, Snapshot]:
    prefix = shlex.split(look.inside or "")
    ssh = bool(prefix) and prefix[0].rsplit("/", 1)[-1] == "ssh"
    shell: Shell = CommandShell(tuple(prefix), quote=ssh) if prefix else LocalShell(sys.executable)
    wanted = look.wanted
    if home is not None and home.vllm.exists():
        wanted = dataclasses.replace(wanted, pythons=[*wanted.pythons, str(home.python.absolute())])
    return {shell.place: read_snapshot(collect(shell, wanted))}


def _read_files(files: Sequence[Path]) -> Iterator[tuple[str, Snapshot]]:
    for file in files:
        try:
            content = file.read_bytes()
        except OSError as problem:
            raise InputError(
                f"{file} cannot be read",
                expected="a file that collector.py wrote",
                evidence=problem.strerror or str(problem),
                next="python3 collector.py > host.json, then k3 doctor --from host.json",
            ) from problem
        yield str(file), read_snapshot(parse_collected(content, str(file)))


def _estimate(snapshots: Sequence[Snapshot]) -> MemoryFit:
    """Nobody to ask means no GPU where no board and no driver was seen, and unknown where one was."""
    silent = [one for one in snapshots if one.gpus is None]
    if any(one.drivers or "on the PCI bus" in one.reasons.get("gpus", "") for one in silent):
        return estimate_fit(None)
    return estimate_fit([gpu for one in snapshots for gpu in one.gpus or []])


def _fit_ability(fit: MemoryFit) -> Ability:
    facts = dataclasses.asdict(fit)
    del facts["case"]
    return Ability("fit", fit.case, {**facts, "n": fit.gpus})


def _own_abilities(home: EngineHome) -> list[Ability]:
    stamp = read_stamp(home)
    engine = Ability("cpu-engine", "ready", {"engine": stamp["engine"]}) if stamp else Ability("cpu-engine", "absent")
    return [Ability("rehearsal", "ready"), engine, Ability("saved-logs", "ready")]


def _list_abilities(snapshots: dict[str, Snapshot]) -> list[Ability]:
    return [
        dataclasses.replace(ability, place=one.host.name or name if len(snapshots) > 1 else None)
        for name, one in snapshots.items()
        for ability in (_vllm(one), _docker(one), _slurm(one), _kubernetes(one))
    ]


def _vllm(snapshot: Snapshot) -> Ability:
    found = [
        {"version": one.packages["vllm"], "python": one.python, "origin": one.origin}
        for one in snapshot.software
        if "vllm" in one.packages
    ]
    return Ability("vllm", "found", {"found": found}) if found else Ability("vllm", "absent")


def _docker(snapshot: Snapshot) -> Ability:
    if snapshot.containers is None:
        return _silent("docker", snapshot, "docker-containers")
    restarting = [one.name for one in snapshot.restarters if one.kind == "docker"]
    return Ability("docker", "ready", {"n": len(snapshot.containers), "restarting": restarting})


def _slurm(snapshot: Snapshot) -> Ability:
    source = snapshot.sources.get("slurm-jobs")
    if source is not None and source.ok:
        return Ability("slurm", "ready", {"job": snapshot.place.scheduler == "slurm"})
    return _silent("slurm", snapshot, "slurm-jobs")


def _kubernetes(snapshot: Snapshot) -> Ability:
    source = snapshot.sources.get("pods")
    if source is not None and source.ok:
        return Ability("kubernetes", "ready")
    return (
        Ability("kubernetes", "inside")
        if snapshot.place.scheduler == "kubernetes"
        else _silent("kubernetes", snapshot, "pods")
    )


def _silent(topic: str, snapshot: Snapshot, name: str) -> Ability:
    """Absent if its program is, else what it said."""
    source = snapshot.sources.get(name)
    if source is None or source.reason == "not on PATH":
        return Ability(topic, "absent")
    lines = (source.reason or "").strip().splitlines() or ["—"]
    return Ability(topic, "silent", {"why": lines[-1][:160]})
