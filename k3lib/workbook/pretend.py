"""The rehearsal's pretend machine, looked at by the real collector: modelled evidence, collected the real way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from k3lib.knowledge.hardware import Machine
from k3lib.knowledge.recipe import load_recipe
from k3lib.probe.collection import LIMIT_S, ProbeError, read_collector
from k3lib.probe.shells import LocalShell
from k3lib.probe.snapshot import parse_collected, read_snapshot
from k3lib.spec.snapshot import Place, Snapshot

_BECAUSE = "a machine profile of the rehearsal"


def look_at_pretend_machine(machine: Machine, variables: Mapping[str, str]) -> list[Snapshot]:
    """
    The host and the inside of the engine's container, as the scenario makes them.

    Args:
        machine: The profile; further nodes are like the first.
        variables: K3_REHEARSAL_*, as the engine gets them.

    Returns:
        One snapshot per node, then one of the container; empty where the profile has no tools to ask (AMD).

    Raises:
        ProbeError: The pretend machine could not be put on disk, or the collector did not run on it.
    """
    host, inside = (_look(variables, container=container) for container in (False, True))
    if not host.gpus:
        return []
    known = load_recipe().hardware.get(machine.gpu.name)
    told = {"machine": known.host if known else host.host.machine}
    hosts = [_name(host, "host", told | {"name": f"{machine.name}, host {n}"}) for n in range(1, machine.nodes + 1)]
    return [*hosts, _name(inside, "container", told | {"name": f"{machine.name}, container"})]


def _name(seen: Snapshot, kind: str, told: dict[str, str | None]) -> Snapshot:
    """It carries the profile's name and processor, so that nobody takes it for this computer."""
    place = Place.model_validate({"kind": kind, "because": [_BECAUSE]})
    return seen.model_copy(update={"place": place, "host": seen.host.model_copy(update=told)})


def _look(variables: Mapping[str, str], *, container: bool) -> Snapshot:
    with TemporaryDirectory(prefix="k3-pretend-") as name:
        folder = Path(name)
        words = ["--container"] if container else []
        argv = [sys.executable, "-m", "k3lib.rehearsal", "machine", *words, "--into", name]
        made = subprocess.run(argv, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise ProbeError(
                "the pretend machine could not be made",
                expected="python -m k3lib.rehearsal machine --into FOLDER to succeed",
                evidence=made.stderr.strip()[-400:] or f"exit code {made.returncode}",
                next="check the campaign's rehearsal.scenario and rehearsal.machine: k3 scenarios",
            )
        # Without site packages: this computer's own NVML, if it has one, must not answer for the pretend machine.
        shell = LocalShell(sys.executable, {"PATH": str(folder / "bin"), "HOME": "/nonexistent"})
        words = [sys.executable, "-S", "-E", "-", "--root", str(folder / "root")]
        answer = shell.run(words, read_collector().encode(), LIMIT_S)
        return read_snapshot(parse_collected(answer.out, "the collector on the pretend machine"))
