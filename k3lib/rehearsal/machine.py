"""
The pretend machine as a shell: words in, what the machine's own tools would print out.

    python -m k3lib.rehearsal machine nvidia-smi -L              one answer, on the host
    python -m k3lib.rehearsal machine --container nvidia-smi -L  the same inside the engine's container
    python -m k3lib.rehearsal machine --into DIR                 DIR/bin for PATH, DIR/root with /proc, /sys and /etc

It says what the scenario and the seed make of it: K3_REHEARSAL_SCENARIO, _SEED and _MACHINE, as for the engine. Where a
scenario acts on the machine alone (a moved tag, a variable left behind), only this shell shows it.
"""

from __future__ import annotations

import json
import shlex
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from k3lib.knowledge.capacity import GIB
from k3lib.knowledge.faults import find_fault
from k3lib.knowledge.hardware import find_driver, find_image
from k3lib.rehearsal.config import Stage
from k3lib.rehearsal.memory import MIB, TENANT_PID
from k3lib.rehearsal.nvidia_tools import Holder, answer_nvidia_smi, make_boards

_HOST, _CONTAINER = "k3-rehearsal", "k3"
_RAM_GIB = 2015
_NOT_FOUND = 127
_PROGRAMS = ("nvidia-smi", "modinfo", "dmesg", "docker", "env", "hostname", "rpm", "uname")


@dataclass(frozen=True)
class Answer:
    """What a program printed, and its exit code."""

    out: str
    code: int = 0


class PretendMachine:
    """
    One node of the machine that a stage plays.

    Args:
        stage: Machine, scenario, seed and variables.
        container: Look from inside the engine's container.
    """

    def __init__(self, stage: Stage, *, container: bool = False) -> None:
        self._stage, self._container = stage, container
        changes = stage.changes
        self._driver = find_driver(changes.driver or "loaded")
        self._image = find_image(changes.image or "kimi-k3")
        self._fault = find_fault(changes.fault) if changes.fault else None
        self._boards = make_boards(stage.machine, self._holders()) if stage.machine.gpu.vendor == "nvidia" else []

    def run(self, argv: Sequence[str]) -> Answer:
        """
        Answer one command.

        Args:
            argv: Program and words.
        """
        program, words = argv[0], list(argv[1:])
        if program == "nvidia-smi" and not self._has_nvidia:
            return self._missing(program)
        if program == "nvidia-smi":
            return Answer(*answer_nvidia_smi(words, self._driver, self._boards))
        texts = {
            "modinfo": f"{self._driver.libcuda}\n",  # what is on disk, not what is loaded
            "dmesg": "".join(f"{line}\n" for line in self._kernel_lines()),
            "env": "".join(f"{name}={value}\n" for name, value in self._variables().items()),
            "hostname": f"{_HOST}\n",
            "rpm": self._packages(),
            "uname": "Linux\n",
        }
        if program == "docker" and not self._container:
            return self._docker(words)
        return Answer(texts[program]) if program in texts else self._missing(program)

    def files(self) -> dict[str, str]:
        """Files of this machine by their absolute path."""
        files = {
            "/etc/hostname": f"{_HOST}\n",
            "/etc/os-release": 'ID=rhel\nPRETTY_NAME="Rehearsal Linux 9"\n',
            "/proc/meminfo": f"MemTotal: {_RAM_GIB << 20} kB\nMemAvailable: {_RAM_GIB * 943_718} kB\n",
            "/proc/sys/kernel/random/boot_id": "5f3a7c1e-0000-4000-8000-000000000033\n",
        }
        if self._has_nvidia:
            module = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {self._driver.module}  Release Build\n"
            files |= {"/proc/driver/nvidia/version": module, "/sys/module/nvidia/version": f"{self._driver.module}\n"}
        return files

    def write_into(self, folder: Path) -> None:
        """
        Put the machine on disk: programs that ask this shell, and its files.

        Args:
            folder: Gets `bin` and `root`.
        """
        programs = folder / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        place = ["--container"] if self._container else []
        for program in _PROGRAMS:
            words = [sys.executable, "-m", "k3lib.rehearsal", "machine", *place, program]
            script = programs / program
            script.write_text(f'#!/bin/sh\n{self._exports()}exec {shlex.join(words)} "$@"\n')
            script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        for path, text in self.files().items():
            target = folder / "root" / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    @property
    def _has_nvidia(self) -> bool:
        hidden = self._container and self._fault is not None and self._fault.point == "detect"
        return bool(self._boards) and not hidden

    def _exports(self) -> str:
        chosen = {name: value for name, value in self._stage.variables.items() if name.startswith("K3_REHEARSAL_")}
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(chosen.items()))

    def _holders(self) -> dict[int, tuple[Holder, ...]]:
        """Who held memory of the GPUs before the engine came."""
        changes, here = self._stage.changes, self._stage.machine.gpus // self._stage.machine.nodes
        if not changes.tenant_gib or changes.tenant_since != "start":
            return {}
        ranks = range(here) if changes.tenant_ranks == "all" else [self._stage.seed % here]
        mib = round(changes.tenant_gib * GIB / MIB)
        several = changes.tenant_ranks == "all"
        return {
            rank: (Holder(TENANT_PID + several * rank, changes.tenant_process.format(rank=rank), mib),)
            for rank in ranks
        }

    def _kernel_lines(self) -> list[str]:
        lines = ["[   12.402117] Linux version 5.14.0-570.el9.x86_64 (rehearsal)"]
        if self._boards:
            text = f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {self._driver.module}  Release Build"
            lines.append(f"[   31.870554] {text}")
        rank = self._stage.seed % len(self._boards) if self._boards else 0
        for line in self._fault.kernel if self._fault else ():
            lines.append("[86412.553801] " + line.format(rank=rank, pid=9_000_200 + rank))
        return lines

    def _variables(self) -> dict[str, str]:
        if not self._container:
            return {"PATH": "/usr/bin:/bin", "HOME": "/root"}
        return {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VERSION": "13.0.2", **self._stage.changes.environment}

    def _packages(self) -> str:
        versions = {
            "kmod-nvidia-open-dkms": self._driver.module,
            "libnvidia-ml": self._driver.nvml,
            "nvidia-driver-cuda-libs": self._driver.libcuda,
        }
        return "".join(f"{name} {version}-1.el9 1795000000\n" for name, version in versions.items())

    def _docker(self, words: Sequence[str]) -> Answer:
        image, identity = self._image, "c0ffee" + "0" * 58
        if words[:1] == ["ps"]:
            return Answer(f"{identity}|{_CONTAINER}|{image.tag}|running|Up 3 minutes\n")
        if words[:2] == ["image", "inspect"]:
            found = {"Id": image.digest, "RepoTags": [image.tag], "Created": image.created}
            repository = image.tag.partition(":")[0]
            return Answer(json.dumps([{**found, "RepoDigests": [f"{repository}@{image.digest}"]}]) + "\n")
        if words[:1] == ["inspect"]:
            inside = PretendMachine(self._stage, container=True)
            env = [f"{name}={value}" for name, value in inside._variables().items()]
            config = {"Image": image.tag, "Env": env}
            host = {"RestartPolicy": {"Name": "no"}, "IpcMode": "host", "ShmSize": 64 * MIB}
            body = {
                "Id": identity,
                "Name": f"/{_CONTAINER}",
                "Image": image.digest,
                "Config": config,
                "HostConfig": host,
            }
            return Answer(json.dumps([{**body, "State": {"Status": "running"}, "Mounts": []}]) + "\n")
        if words[:1] == ["version"]:
            return Answer('{"Client":{"Version":"28.1.1"},"Server":{"Version":"28.1.1"}}\n')
        return Answer(f"docker: unknown command: docker {' '.join(words[:1])}\n", 1)

    @staticmethod
    def _missing(program: str) -> Answer:
        return Answer(f"{program}: command not found\n", _NOT_FOUND)


def run_shell(words: Sequence[str], stage: Stage) -> int:
    """
    The command `machine`: answer one command, or put the machine on disk.

    Args:
        words: After `machine`.
        stage: From the K3_REHEARSAL_ variables.

    Returns:
        The exit code of what was asked; 2 if nothing was.
    """
    rest = list(words)
    container = rest[:1] == ["--container"]
    if container:
        del rest[0]
    machine = PretendMachine(stage, container=container)
    if rest[:1] == ["--into"] and len(rest) == 2:
        machine.write_into(Path(rest[1]))
        return 0
    if not rest or rest[0].startswith("-"):
        print("usage: python -m k3lib.rehearsal machine [--container] (--into DIR | PROGRAM [WORDS])", file=sys.stderr)
        return 2
    answer = machine.run(rest)
    (sys.stderr if answer.code == _NOT_FOUND else sys.stdout).write(answer.out)
    return answer.code
