"""
Pretend machines: a folder of programs, files of /proc and /sys, and a file for the pretend NVML, from one description.

`tests/cases/machines/<name>/machine.yaml` says what the machine is; the collector then runs for real, against it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from fakes import amd_tools, nvidia_tools

from k3lib.probe.snapshot import parse_collected, read_snapshot
from k3lib.spec.snapshot import Collected, Snapshot

CASES = Path(__file__).parents[1] / "cases" / "machines"
COLLECTOR = Path(__file__).parents[2] / "k3lib" / "probe" / "collector.py"
_PROGRAM = """#!{python} -SE
import json, os, sys
answers = json.load(open({answers!r}))
asked = " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
# The longest description that the question begins with.
known = max((key for key in answers if asked == key or asked.startswith(key + " ")), key=len, default=None)
answer = answers.get(known, {{"err": "unknown command", "code": 2}})
sys.stdout.write(answer.get("out", ""))
sys.stderr.write(answer.get("err", ""))
sys.stdout.flush()
if answer.get("hang"):
    import time
    time.sleep(answer["hang"])
sys.exit(answer.get("code", 0))
"""


@dataclass(frozen=True)
class PretendMachine:
    """
    A machine on disk.

    Args:
        root: Its files, for `--root`.
        env: The whole environment of a program on it.
    """

    root: Path
    env: dict[str, str]


def build_library(folder: Path) -> Path:
    """The pretend libnvidia-ml.so.1, compiled; its folder goes on LD_LIBRARY_PATH."""
    source = Path(__file__).with_name("nvml.c")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(source)], check=True)
    return folder


def describe(name: str) -> dict[str, Any]:
    """A machine's description, laid over that of the machine that it is like."""
    own: dict[str, Any] = yaml.safe_load((CASES / name / "machine.yaml").read_text())
    return _lay_over(describe(own.pop("like")), own) if "like" in own else own


def _fill_in(text: str, about: dict[str, Any]) -> str:
    """`<driver>` and `<host>` of a text, so that a machine like another one has its own."""
    return text.replace("<driver>", str((about.get("nvidia") or {}).get("driver"))).replace(
        "<host>", about["host"]["name"]
    )


def _lay_over(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return {
            key: _lay_over(below.get(key), above[key]) if key in above else below[key] for key in {**below, **above}
        }
    return above


def build_machine(
    name: str, folder: Path, library: Path | None, description: dict[str, Any] | None = None
) -> PretendMachine:
    """
    Put a machine on disk.

    Args:
        name: Its case.
        folder: An empty folder.
        library: Folder of the pretend NVML; without it the machine has none.
        description: Instead of the case's own.
    """
    about = describe(name) if description is None else description
    programs, root = folder / "bin", folder / "root"
    programs.mkdir()
    env = {"PATH": str(programs), "HOME": "/nonexistent", **(about.get("variables") or {})}
    files, answers = _files(about), dict(about.get("commands") or {})
    if nvidia := about.get("nvidia"):
        boards = nvidia_tools.make_boards(name, nvidia)
        answers = {**_nvidia_answers(nvidia, boards), **answers}
        files = {**_nvidia_files(nvidia, boards), **files}
        if library is not None:
            (folder / "nvml.txt").write_text(nvidia_tools.render_nvml(nvidia, boards))
            env.update(LD_LIBRARY_PATH=str(library), K3_FAKE_NVML=str(folder / "nvml.txt"))
    if amd := about.get("amd"):
        answers = {**amd_tools.render_answers(name, amd), **answers}
        files = {"/sys/module/amdgpu/version": f"{amd['driver']}\n", **files}
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    for address in _addresses(about.get("nvidia")):
        (root / f"sys/bus/pci/devices/{address}/driver").symlink_to("../../drivers/nvidia")
    _write_programs(programs, answers, about)
    return PretendMachine(root, env)


def look(machine: PretendMachine, *options: str, timeout_s: float = 120) -> Collected:
    """Run the collector on it, as a stranger would."""
    argv = [sys.executable, str(COLLECTOR), "--root", str(machine.root), "--python", "/nowhere/python3", *options]
    ran = subprocess.run(argv, env=machine.env, capture_output=True, timeout=timeout_s, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    return parse_collected(ran.stdout, "the collector")


def snapshot_of(name: str, folder: Path, library: Path | None) -> Snapshot:
    """A pretend machine looked at and read."""
    return read_snapshot(look(build_machine(name, folder, library)))


def _write_programs(folder: Path, answers: dict[str, Any], about: dict[str, Any]) -> None:
    told = {key: {"out": _fill_in(value, about)} if isinstance(value, str) else value for key, value in answers.items()}
    path = folder.parent / "answers.json"
    path.write_text(json.dumps(told))
    for program in {key.split(" ")[0] for key in told}:
        script = folder / program
        script.write_text(_PROGRAM.format(python=sys.executable, answers=str(path)))
        script.chmod(0o755)


def _nvidia_answers(nvidia: dict[str, Any], boards: list[nvidia_tools.Board]) -> dict[str, Any]:
    lost = "".join(
        f"Unable to determine the device handle for GPU{b.pci}: GPU is lost.  Reboot the system to recover this GPU\n"
        for b in boards
        if b.lost
    )
    if error := nvidia.get("error"):
        broken = {"out": error + "\n", "code": 18}
        return {"nvidia-smi": broken, "modinfo -F version nvidia": f"{nvidia['on_disk']}\n"}
    answers: dict[str, Any] = {
        "nvidia-smi": nvidia_tools.render_table(nvidia, boards),
        "nvidia-smi -L": nvidia_tools.render_list(boards),
        "nvidia-smi -q -x": nvidia_tools.render_xml(nvidia, boards),
        "nvidia-smi --query-gpu": {"out": "", "code": 6},
        "nvidia-smi nvlink -s": nvidia_tools.render_links(boards),
        "nvidia-smi topo -m": nvidia_tools.render_topology([b for b in boards if not b.lost]),
        "modinfo -F version nvidia": f"{nvidia.get('on_disk', nvidia['driver'])}\n",
    }
    query = "index,uuid,pci.bus_id,name,memory.total,memory.used,driver_version,compute_cap --format=csv,noheader"
    answers[f"nvidia-smi --query-gpu={query}"] = nvidia_tools.render_rows(nvidia, boards)
    apps = "gpu_uuid,pid,process_name,used_memory --format=csv,noheader"
    answers[f"nvidia-smi --query-compute-apps={apps}"] = nvidia_tools.render_processes(boards)
    if lost:  # nvidia-smi then ends with 15, whatever it was asked
        answers["nvidia-smi -q -x"] = {"out": lost, "code": 15}
        answers["nvidia-smi"] = {"out": lost, "code": 15}
    return answers


def _nvidia_files(nvidia: dict[str, Any], boards: list[nvidia_tools.Board]) -> dict[str, str]:
    version = nvidia.get("module", nvidia["driver"])
    module = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n"
    files = {
        "/proc/driver/nvidia/version": module,
        "/sys/module/nvidia/version": f"{version}\n",
    }
    files["/sys/bus/pci/drivers/nvidia/module"] = ""
    for board, address in zip(boards, _addresses(nvidia), strict=True):
        base = f"/sys/bus/pci/devices/{address}"
        node = board.numa if board.numa is not None else -1
        files |= {f"{base}/vendor": "0x10de\n", f"{base}/class": "0x030200\n", f"{base}/numa_node": f"{node}\n"}
    return files


def _addresses(nvidia: dict[str, Any] | None) -> list[str]:
    """Bus addresses as sysfs writes them: four digits of domain, lower case."""
    return [pci.lower()[4:] for pci in (nvidia or {}).get("pci") or []]


def _files(about: dict[str, Any]) -> dict[str, str]:
    host = about["host"]
    return {
        "/etc/hostname": f"{host['name']}\n",
        "/etc/os-release": f'PRETTY_NAME="{host["system"]}"\n',
        "/proc/stat": f"btime {host.get('booted', 1795910400)}\n",
        "/proc/uptime": "86400.00 172800.00\n",
        "/proc/meminfo": f"MemTotal: {host['memory_gib'] << 20} kB\nMemAvailable: {host['memory_gib'] * 943718} kB\n",
        "/proc/cpuinfo": host.get(
            "cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9575F 64-Core Processor\nphysical id\t: 0\n"
        ),
        "/proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n",
        "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-1.scope\n",
        "/proc/modules": host.get(
            "modules", "nvidia_peermem 16384 0 - Live\nnvidia 14000000 9 - Live\nmlx5_core 2500000 1 - Live\n"
        ),
        "/proc/mounts": host.get("mounts", "/dev/md0 /data xfs rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n"),
        **(about.get("files") or {}),
    }
