"""
Look at one machine, change nothing, print what was seen as JSON. Standard library only; Python 3.8 or newer; no root.

    python3 collector.py > host.json                                      on a host
    docker exec -i NAME python3 - < collector.py > container.json         in a container
    kubectl exec -i POD -- python3 - < collector.py > pod.json            in a pod
    srun --ntasks-per-node=1 python3 collector.py > node.json             on a node of a job
    ssh NODE python3 - --pid 4121 < collector.py > node.json              on another machine

Every source is asked alone, with a time limit of its own: one that fails or hangs is recorded with its reason and
costs nobody else. Values of variables whose name says secret, and texts shaped like tokens, are hidden before anything
is printed. Reading what was seen is left to `k3 doctor --from host.json`.

This file is one piece on purpose, longer than a module should be: it is piped through `python3 -` into containers that
hold nothing of ours.
"""

from __future__ import annotations

import argparse
import ctypes
import glob
import hashlib
import json
import os
import platform
import pwd
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, NamedTuple  # noqa: UP035  subscripting the other Callable needs Python 3.9

FORMAT = 1
MOST_CHARACTERS = 2_000_000  # of one source; what is left out is said
MOST_HASHED_BYTES = 64 * 1024 * 1024
DAYS = 8  # a week, and the day before it
COMMAND_LIMIT_S = 20.0
SECTION_LIMIT_S = 15.0


# --- secrets ---------------------------------------------------------------------------------------------------------

HIDDEN = "<hidden>"
_WORDS = r"(?:token(?!s|iz)|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credential)"
_SECRET_NAME = re.compile(_WORDS, re.I)
_SHAPES = [
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
    re.compile(r"\b(?:hf_[A-Za-z0-9]{8,}|(?:sk|nvapi|glpat)-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{16,})"),
    re.compile(r"\b(?:github_pat_[A-Za-z0-9_]{16,}|xox[abp]-[A-Za-z0-9-]{8,}|A[KS]IA[A-Z0-9]{16})"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*"),
    re.compile(r"(?<=://)[^/\s:@'\"]+:[^/\s@'\"]+(?=@)"),
    re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{6,}|(?<=[?&]sig=)[^&\s'\"]+|(?<=amz-signature=)[^&\s'\"]+"),
]
_ASSIGNED = re.compile(
    r"(?i)([\w.-]*"
    + _WORDS
    + r"[\w.-]*['\"]?\s*[=:]\s*['\"]?|--[\w-]*"
    + _WORDS
    + r"[\w-]*\s+)([^\s'\",;}\]-][^\s'\",;}\]]{3,})"
)
_HARMLESS = re.compile(r"(?:[\d.,]+|none|null|true|false|yes|no|<hidden>.*|\*+)\Z", re.I)


def hide(text: str) -> str:
    """The text with secrets replaced: token shapes, logins in addresses, values of names that say secret."""
    for shape in _SHAPES:
        text = shape.sub(HIDDEN, text)
    return _ASSIGNED.sub(lambda m: m.group(0) if _HARMLESS.match(m.group(2)) else m.group(1) + HIDDEN, text)


def hide_named(name: str, value: str) -> str:
    """The value of one variable or option, hidden if its name says secret."""
    if value and _SECRET_NAME.search(name) and not _HARMLESS.match(value):
        return HIDDEN
    return hide(value)


def hide_argv(argv: list[str]) -> list[str]:
    """A command's words with values of secret options hidden, `--api-key X` as well as `--api-key=X`."""
    shown: list[str] = []
    for word in argv:
        option = shown[-1] if shown and shown[-1].startswith("-") and "=" not in shown[-1] else ""
        shown.append(hide(word) if word.startswith("-") else hide_named(option, word))
    return shown


def hide_all(value: Any, name: str = "") -> Any:
    """Any JSON value with every text in it hidden where it must be."""
    if isinstance(value, str):
        return hide_named(name, value)
    if isinstance(value, list):
        return [hide_all(item, name) for item in value]
    if isinstance(value, dict):
        return {key: hide_all(item, key) for key, item in value.items()}
    return value


# --- asking ----------------------------------------------------------------------------------------------------------


def answered(asked: str, began: float, text: str | None = None, data: Any = None) -> dict[str, Any]:
    """A source that answered."""
    source: dict[str, Any] = {"asked": asked, "ok": True, "took_s": round(time.monotonic() - began, 3)}
    if text is not None:
        if len(text) > MOST_CHARACTERS:
            source["reason"] = f"cut after {MOST_CHARACTERS} of {len(text)} characters"
        source["text"] = text[:MOST_CHARACTERS]
    if data is not None:
        source["data"] = data
    return source


def failed(asked: str, began: float, reason: str, text: str | None = None) -> dict[str, Any]:
    """A source that did not answer, and why."""
    source: dict[str, Any] = {
        "asked": asked,
        "ok": False,
        "took_s": round(time.monotonic() - began, 3),
        "reason": reason,
    }
    if text:
        source["text"] = text[:MOST_CHARACTERS]
    if os.geteuid() != 0 and re.search(r"permi(?:ssion|tted)|must be root|superuser|privilege", reason, re.I):
        source["root_would_help"] = True
    return source


class Command(NamedTuple):
    """A program to run: the name of its source, its words, its time limit, what to keep of its output."""

    name: str
    argv: list[str]
    limit_s: float = COMMAND_LIMIT_S
    reduce: Callable[[str], str] = str


def run_command(command: Command) -> dict[str, Any]:
    """One program's output. A program that cannot even be killed is left behind after a second, not waited for."""
    asked, began = " ".join(hide_argv(command.argv)), time.monotonic()
    program = shutil.which(command.argv[0])
    if program is None:
        return failed(asked, began, "not on PATH")
    environment = dict(os.environ, LC_ALL="C", LANG="C", SYSTEMD_PAGER="", PAGER="cat")
    try:
        process = subprocess.Popen(
            [program, *command.argv[1:]],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment, cwd="/", start_new_session=True,
        )  # fmt: skip
    except OSError as problem:
        return failed(asked, began, str(problem))
    try:
        out, err = process.communicate(timeout=command.limit_s)
    except subprocess.TimeoutExpired:
        return failed(asked, began, f"no answer within {command.limit_s:g} s{end_group(process)}")
    whole, complaint = out.decode("utf-8", "replace"), err.decode("utf-8", "replace").strip()
    words = complaint or whole.strip() or "no word"
    if len(words) > 400:  # the first line says what failed, the last often why
        words = f"{words[:200]} … {words[-200:]}"
    text = command.reduce(whole) if whole else ""
    if process.returncode != 0:
        return failed(asked, began, f"ended with {process.returncode}: {words}", text)
    return answered(asked, began, text)


def end_group(process: subprocess.Popen[bytes]) -> str:
    """Kill a program and its children; a word if it stays."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=1)
    except subprocess.TimeoutExpired:
        return " and cannot be killed: it waits inside the kernel"
    except OSError:
        pass
    return ""


class Section:
    """
    A part of our own code in a process of its own, so that a driver or a dead file server can hang without us.

    Args:
        name: What the source is called.
        asked: What it looks at, in words.
        function: Gives a JSON value.
        limit_s: Seconds until it is given up.
    """

    def __init__(self, name: str, asked: str, function: Callable[[], Any], limit_s: float = SECTION_LIMIT_S) -> None:
        self.name, self._asked, self._began, self._limit_s = name, asked, time.monotonic(), limit_s
        self._received = b""
        self._read, write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._read)
            self._work(write, function)
        os.close(write)

    @staticmethod
    def _work(write: int, function: Callable[[], Any]) -> None:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                answer = {"data": function()}
            except Exception as problem:  # it fails alone; the reason is what is kept
                answer = {"reason": f"{type(problem).__name__}: {problem}"}
            # The newline ends the answer: a thread stuck in the kernel can keep the pipe open after us.
            whole = memoryview(json.dumps(answer, default=str).encode() + b"\n")
            while whole:
                whole = whole[os.write(write, whole) :]
        finally:
            os._exit(0)

    def fileno(self) -> int:
        """Where its answer comes from."""
        return self._read

    @property
    def left_s(self) -> float:
        """Seconds it still has."""
        return self._began + self._limit_s - time.monotonic()

    def take(self) -> bool:
        """Take what has come; true when the answer is whole or nothing more will come."""
        piece = os.read(self._read, 1 << 16)
        self._received += piece
        return not piece or piece.endswith(b"\n")

    def end(self) -> dict[str, Any]:
        """Close it, whatever it does, and give what it found."""
        in_time = self.left_s > 0
        os.close(self._read)
        try:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, os.WNOHANG)
        except OSError:
            pass
        if not self._received.endswith(b"\n"):
            reason = "it ended without an answer" if in_time else f"no answer within {self._limit_s:g} s"
            return failed(self._asked, self._began, reason)
        answer = json.loads(self._received.decode())
        if "reason" in answer:
            return failed(self._asked, self._began, answer["reason"])
        return answered(self._asked, self._began, data=answer["data"])


class Looker:
    """
    Asks sources side by side and keeps what they say.

    Args:
        options: The command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.sources: dict[str, dict[str, Any]] = {}

    def at(self, path: str) -> str:
        """A path below `--root`."""
        return path if self.options.root == "/" else self.options.root.rstrip("/") + path

    def sections(self, wanted: list[tuple[str, str, Callable[[], Any]]]) -> None:
        """Run several sections at once. Never beside our threads: a process with threads must not fork."""
        running = [Section(*one) for one in wanted]
        while running:
            patience_s = max(0.0, min(section.left_s for section in running))
            ready = select.select(running, [], [], patience_s)[0]
            over = [section for section in ready if section.take()]
            over += [section for section in running if section not in over and section.left_s <= 0]
            for section in over:
                self.sources[section.name] = section.end()
                running.remove(section)

    def commands(self, wanted: list[Command]) -> None:
        """Run several programs at once, at most eight."""
        gate = threading.Semaphore(8)

        def work(command: Command) -> None:
            began = time.monotonic()
            with gate:
                try:
                    self.sources[command.name] = run_command(command)
                except Exception as problem:  # it fails alone; the reason is what is kept
                    reason = f"{type(problem).__name__}: {problem}"
                    self.sources[command.name] = failed(" ".join(hide_argv(command.argv)), began, reason)

        threads = [threading.Thread(target=work, args=(command,), daemon=True) for command in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def text(self, name: str) -> str:
        """What a source said; empty if nothing."""
        return str(self.sources.get(name, {}).get("text") or "")

    def data(self, name: str) -> Any:
        """A source's structured answer, or None."""
        return self.sources.get(name, {}).get("data")


# --- files -----------------------------------------------------------------------------------------------------------

GPU_MODULES = re.compile(
    r"^(?:nvidia\w*|nv_peer_mem|gdrdrv|efa\w*|amdgpu|amdkfd|mlx\w+|ib_\w+|rdma_\w+|irdma|bnxt_re|ionic\w*)\b"
)
PACKAGES = re.compile(
    r"nvidia|cuda|nccl|rocm|amdgpu|hip-|docker|containerd|podman|runc|linux-image|^kernel|mlnx|doca|rdma|ibverbs"
    r"|slurm|kubelet|vllm|fabricmanager|imex|gdrcopy|efa\b",
    re.I,
)


def keep_lines(pattern: re.Pattern[str]) -> Callable[[str], str]:
    """A reducer that keeps the lines in which the pattern is found."""
    return lambda text: "".join(line for line in text.splitlines(True) if pattern.search(line))


def first_processor(text: str) -> str:
    """The first block of /proc/cpuinfo, then how many there are and on how many sockets."""
    blocks = [block for block in text.split("\n\n") if block.strip()]
    sockets = set(re.findall(r"^physical id\s*:\s*(\d+)", text, re.M))
    return "{}\nprocessors: {}\nsockets: {}\n".format(
        blocks[0] if blocks else "", len(blocks), len(sockets) or "unknown"
    )


def recent_lines(text: str) -> str:
    """Lines that begin with a date of the last days, and lines without any date between them."""
    since = (datetime.now() - timedelta(days=DAYS)).strftime("%Y-%m-%d")
    kept, keep = [], False
    for line in text.splitlines(True):
        date = re.match(r"(?:Start-Date: )?(\d{4}-\d\d-\d\d)", line)
        keep = date.group(1) >= since if date else keep
        if keep:
            kept.append(line)
    return "".join(kept)


_ACTIONS = re.compile(r"(?: (?:install|upgrade|remove|purge) )|(?:Installed|Upgrade[d]?|Removed|Erased): ", re.I)


def recent_actions(text: str) -> str:
    """Installations, upgrades and removals of the last days."""
    return keep_lines(_ACTIONS)(recent_lines(text))


FILES: list[tuple[str, Callable[[str], str] | None]] = [
    ("/etc/os-release", None),
    ("/etc/hostname", None),
    ("/proc/version", None),
    ("/proc/cpuinfo", first_processor),
    ("/proc/meminfo", None),
    ("/proc/mounts", None),
    ("/proc/uptime", None),
    ("/proc/stat", keep_lines(re.compile(r"^btime "))),
    ("/proc/loadavg", None),
    ("/proc/cmdline", None),
    ("/proc/modules", keep_lines(GPU_MODULES)),
    ("/proc/sys/kernel/random/boot_id", None),
    ("/proc/sys/vm/overcommit_memory", None),
    ("/proc/sys/vm/max_map_count", None),
    ("/sys/kernel/mm/transparent_hugepage/enabled", None),
    ("/proc/self/cgroup", None),
    ("/proc/1/cgroup", None),
    ("/proc/1/comm", None),
    ("/sys/fs/cgroup/memory.max", None),
    ("/sys/fs/cgroup/memory.current", None),
    ("/sys/fs/cgroup/cpu.max", None),
    ("/sys/fs/cgroup/pids.max", None),
    ("/sys/fs/cgroup/memory.events", None),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", None),
    ("/proc/driver/nvidia/version", None),
    ("/proc/driver/nvidia/params", keep_lines(re.compile(r"PeerMapping|EnableGpuFirmware|DmaRemap|Coherent"))),
    ("/sys/module/nvidia/version", None),
    ("/sys/module/amdgpu/version", None),
    ("/opt/rocm/.info/version", None),
    ("/etc/nvidia-imex/nodes_config.cfg", None),
    ("/var/log/dpkg.log.1", recent_actions),
    ("/var/log/dpkg.log", recent_actions),
    ("/var/log/apt/history.log", recent_lines),
    ("/var/log/dnf.rpm.log", recent_actions),
    ("/var/log/yum.log", recent_actions),
]


def read_file(path: str, below: str, reduce: Callable[[str], str] | None) -> dict[str, Any]:
    """The text of one file, at most a few megabytes."""
    began = time.monotonic()
    read: list[bytes] = []
    try:
        with open(below, "rb", buffering=0) as file:
            # In small pieces: /proc/sys refuses a read of megabytes with "cannot allocate memory".
            while len(read) < 128 and (piece := file.read(1 << 16)):
                read.append(piece)
    except OSError as problem:
        return failed(path, began, (problem.strerror or str(problem)).lower())
    text = b"".join(read).decode("utf-8", "replace")
    return answered(path, began, reduce(text) if reduce else text)


def read_files(looker: Looker) -> dict[str, dict[str, Any]]:
    """All files of the list, and those asked for by name."""
    return {path: read_file(path, looker.at(path), reduce) for path, reduce in FILES}


def look_at_given_files(looker: Looker) -> list[dict[str, Any]]:
    """Times, size and hash of the scripts and folders named on the command line."""
    found: list[dict[str, Any]] = []
    for path in looker.options.file:
        try:
            state = os.stat(path)
            entry = {
                "path": path,
                "bytes": state.st_size,
                "modified": iso(state.st_mtime),
                "changed": iso(state.st_ctime),
            }
            if os.path.isfile(path) and state.st_size <= MOST_HASHED_BYTES:
                with open(path, "rb") as file:
                    entry["sha256"] = hashlib.sha256(file.read()).hexdigest()
        except OSError as problem:
            entry = {"path": path, "reason": (problem.strerror or str(problem)).lower()}
        found.append(entry)
    return found


# --- machine ---------------------------------------------------------------------------------------------------------

VARIABLES = re.compile(
    r"^(?:NCCL|UCX|GLOO|CUDA|VLLM|PYTORCH|TORCH|NVIDIA|HF|HUGGING_FACE|TRANSFORMERS|OMP|MKL|OPENBLAS|NVSHMEM|NIXL|RCCL|HIP"
    r"|ROCR|ROCM|HSA|AITER|AMD|GPU|TRITON|FLASHINFER|FI|RAY|SLURM|MASTER|SAFETENSORS|TOKENIZERS|K3)_"
    r"|^(?:LD_LIBRARY_PATH|LD_PRELOAD|PATH|PYTHONPATH|VIRTUAL_ENV|CONDA_PREFIX|WORLD_SIZE|RANK|LOCAL_RANK"
    r"|KUBERNETES_SERVICE_HOST|HOSTNAME|container|APPTAINER_CONTAINER|SINGULARITY_CONTAINER)$"
)


def iso(seconds: float) -> str:
    """A Unix time as ISO 8601 with the machine's offset."""
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone().isoformat(timespec="seconds")  # noqa: UP017  datetime.UTC needs Python 3.11


def keep_variables(environment: dict[str, str]) -> dict[str, str]:
    """Those that can change how an engine behaves, secret values hidden."""
    return {k: hide_named(k, v) for k, v in sorted(environment.items()) if VARIABLES.match(k)}


def look_at_machine(looker: Looker) -> dict[str, Any]:
    """Names, numbers and limits of the machine and of this process."""
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    limits = {name[7:].lower(): resource.getrlimit(getattr(resource, name))[0] for name in names}
    infinite = resource.RLIM_INFINITY
    return {
        # A host mounted into a container has its own name, not that of the container.
        "name": platform.node() if looker.options.root == "/" else read_small(looker.at("/etc/hostname")),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "processors": os.cpu_count(),
        "usable_processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "numa_nodes": len(glob.glob(looker.at("/sys/devices/system/node/node[0-9]*"))) or None,
        "uid": os.geteuid(),
        "python": {"executable": sys.executable, "version": platform.python_version()},
        "limits": {name: None if value == infinite else value for name, value in limits.items()},
        "signs": [p for p in ("/.dockerenv", "/run/.containerenv", "/.singularity.d") if os.path.exists(looker.at(p))],
        "service_account": os.path.isdir(looker.at("/var/run/secrets/kubernetes.io/serviceaccount")),
        "variables": keep_variables(dict(os.environ)),
    }


_NO_STORE = re.compile(r"^/(?:proc|sys|dev(?!/shm)|run|etc)(?:/|$)")


def look_at_disks(looker: Looker) -> list[dict[str, Any]]:
    """Size and free space of file systems; each in a thread, for a dead file server never answers."""
    paths = ["/dev/shm", *list(looker.options.disk)]
    try:
        with open(looker.at("/proc/mounts")) as file:
            paths += [line.split()[1].replace("\\040", " ") for line in file if not _NO_STORE.match(line.split()[1])]
    except OSError:
        paths.append("/")
    found: list[dict[str, Any]] = [{"path": path} for path in list(dict.fromkeys(paths))[:200]]

    def measure(entry: dict[str, Any]) -> None:
        try:
            state = os.statvfs(looker.at(entry["path"]))
            entry.update(size_bytes=state.f_blocks * state.f_frsize, free_bytes=state.f_bavail * state.f_frsize)
        except OSError as problem:
            entry["reason"] = (problem.strerror or str(problem)).lower()

    threads = [threading.Thread(target=measure, args=(entry,), daemon=True) for entry in found]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 5
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return [entry if len(entry) > 1 else dict(entry, reason="no answer within 5 s") for entry in found]


def read_small(path: str) -> str | None:
    """One line of a small file, or None."""
    try:
        with open(path) as file:
            return file.read(4096).strip()
    except OSError:
        return None


def look_at_network(looker: Looker) -> dict[str, Any]:
    """Interfaces and RDMA ports by sysfs; no addresses."""
    base = looker.at("/sys/class/net")
    interfaces = []
    for name in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        keys = ("operstate", "speed", "mtu", "device/numa_node")
        interfaces.append(dict({"name": name}, **{k: read_small(f"{base}/{name}/{k}") for k in keys}))
    ports = []
    for port in sorted(glob.glob(looker.at("/sys/class/infiniband/*/ports/*"))):
        adapter = os.path.dirname(os.path.dirname(port))
        entry: dict[str, str | None] = {"name": f"{os.path.basename(adapter)}/{os.path.basename(port)}"}
        entry.update({k: read_small(f"{port}/{k}") for k in ("state", "rate", "link_layer")})
        entry.update({k: read_small(f"{adapter}/{k}") for k in ("fw_ver", "device/numa_node")})
        ports.append(entry)
    return {"interfaces": interfaces, "ports": ports}


def look_at_devices(looker: Looker) -> dict[str, Any]:
    """Device nodes of GPUs with the time they were made, and GPUs on the PCI bus whether a driver answers or not."""
    nodes = {}
    for pattern in (
        "/dev/nvidia*",
        "/dev/nvidia-caps-imex-channels/*",
        "/dev/kfd",
        "/dev/dri/render*",
        "/dev/infiniband/*",
    ):
        for path in sorted(glob.glob(looker.at(pattern))):
            nodes[path[len(looker.at("")) :] if looker.options.root != "/" else path] = iso(os.stat(path).st_mtime)
    pci: list[dict[str, str | None]] = []
    for folder in sorted(glob.glob(looker.at("/sys/bus/pci/devices/*"))):
        vendor, kind = read_small(folder + "/vendor"), read_small(folder + "/class") or ""
        if vendor in ("0x10de", "0x1002") and kind[:4] in ("0x03", "0x12"):
            driver = (
                os.path.basename(os.path.realpath(folder + "/driver")) if os.path.exists(folder + "/driver") else None
            )
            numa = read_small(folder + "/numa_node")
            pci.append({"pci": os.path.basename(folder), "vendor": vendor, "driver": driver, "numa": numa})
    return {"nodes": nodes, "pci": pci}


# --- drivers ---------------------------------------------------------------------------------------------------------

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libamd_smi.so", "libamdhip64.so")
_LIBRARY_FOLDERS = (
    "/usr/lib/*-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/opt/rocm/lib",
    "/usr/lib/wsl/lib",
)


def look_at_libraries(looker: Looker) -> dict[str, Any]:
    """Real files of the drivers' user-space libraries, and forward-compatibility folders."""
    library_path = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    found: dict[str, str] = {}
    for pattern in [*library_path, *_LIBRARY_FOLDERS]:
        for folder in sorted(glob.glob(looker.at(pattern))):
            for name in LIBRARIES:
                path = os.path.join(folder, name)
                if os.path.exists(path):
                    found[path] = os.path.realpath(path)
    compatibility = {}
    for path in sorted(glob.glob(looker.at("/usr/local/cuda*/compat/libcuda.so.*"))):
        folder = os.path.dirname(path)
        compatibility[os.path.realpath(path)] = os.path.realpath(folder) in map(os.path.realpath, library_path)
    return {"found": found, "compatibility": compatibility, "library_path": library_path}


def look_at_cuda(looker: Looker) -> dict[str, Any]:
    """What libcuda answers to programs here. Asks its version only, which opens no GPU."""
    library = ctypes.CDLL("libcuda.so.1")
    version = ctypes.c_int(0)
    code = library.cuDriverGetVersion(ctypes.byref(version))
    return {"code": code, "version": version.value}


def look_at_nvml(looker: Looker) -> dict[str, Any]:
    """What NVML says, through pynvml."""
    try:
        import pynvml
    except ImportError:
        raise RuntimeError(f"pynvml cannot be imported by {sys.executable}") from None
    pynvml.nvmlInit()
    try:
        count = pynvml.nvmlDeviceGetCount()
        return {
            "driver": plain(pynvml.nvmlSystemGetDriverVersion()),
            "nvml": plain(tell(pynvml.nvmlSystemGetNVMLVersion)),
            "cuda": tell(pynvml.nvmlSystemGetCudaDriverVersion),
            "gpus": [read_gpu(pynvml, index) for index in range(count)],
        }
    finally:
        pynvml.nvmlShutdown()


def plain(value: Any) -> Any:
    """Text where an older pynvml gives bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def tell(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call answers, or None where this board or driver does not know the question."""
    try:
        return plain(call(*arguments))
    except Exception:  # pynvml raises NVMLError for a board and AttributeError-likes for a library that is too old
        return None


def read_gpu(nv: Any, index: int) -> dict[str, Any]:
    """One GPU by NVML. A GPU that is lost says so and nothing else."""
    try:
        gpu = nv.nvmlDeviceGetHandleByIndex(index)
    except nv.NVMLError as problem:
        return {"index": index, "lost": str(problem)}
    ecc, remapped = tell(nv.nvmlDeviceGetEccMode, gpu), tell(nv.nvmlDeviceGetRemappedRows, gpu)
    mig, capability = tell(nv.nvmlDeviceGetMigMode, gpu), tell(nv.nvmlDeviceGetCudaComputeCapability, gpu)
    uncorrected = nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    entry = {
        "index": index,
        "uuid": tell(nv.nvmlDeviceGetUUID, gpu),
        "name": tell(nv.nvmlDeviceGetName, gpu),
        "pci": plain(getattr(tell(nv.nvmlDeviceGetPciInfo, gpu), "busId", None)),
        "capability": "{}.{}".format(*capability) if capability else None,
        "vbios": tell(nv.nvmlDeviceGetVbiosVersion, gpu),
        "mig": bool(mig[0]) if mig else None,
        "ecc": bool(ecc[0]) if ecc else None,
        "ecc_uncorrected": tell(nv.nvmlDeviceGetTotalEccErrors, gpu, uncorrected, nv.NVML_VOLATILE_ECC),
        "ecc_uncorrected_ever": tell(nv.nvmlDeviceGetTotalEccErrors, gpu, uncorrected, nv.NVML_AGGREGATE_ECC),
        "remapped": list(remapped) if remapped else None,
        "persistence": tell(nv.nvmlDeviceGetPersistenceMode, gpu),
        "compute_mode": tell(nv.nvmlDeviceGetComputeMode, gpu),
        "sm_clock_mhz": tell(nv.nvmlDeviceGetClockInfo, gpu, nv.NVML_CLOCK_SM),
        "sm_clock_max_mhz": tell(nv.nvmlDeviceGetMaxClockInfo, gpu, nv.NVML_CLOCK_SM),
        "power_mw": tell(nv.nvmlDeviceGetPowerUsage, gpu),
        "power_limit_mw": tell(nv.nvmlDeviceGetEnforcedPowerLimit, gpu),
        "temperature_c": tell(nv.nvmlDeviceGetTemperature, gpu, nv.NVML_TEMPERATURE_GPU),
        "throttles": tell(nv.nvmlDeviceGetCurrentClocksThrottleReasons, gpu),
    }
    entry.update(read_gpu_memory(nv, gpu), links=read_gpu_links(nv, gpu), fabric=read_gpu_fabric(nv, gpu))
    return entry


def read_gpu_memory(nv: Any, gpu: Any) -> dict[str, Any]:
    """Memory, and who holds it. The second version of the call tells the driver's reserve apart from what is used."""
    memory = tell(nv.nvmlDeviceGetMemoryInfo, gpu, getattr(nv, "nvmlMemory_v2", None))
    memory = memory or tell(nv.nvmlDeviceGetMemoryInfo, gpu)
    processes = tell(nv.nvmlDeviceGetComputeRunningProcesses, gpu)
    return {
        "memory_total": getattr(memory, "total", None),
        "memory_used": getattr(memory, "used", None),
        "memory_reserved": getattr(memory, "reserved", None),
        "processes": None if processes is None else [{"pid": p.pid, "memory": p.usedGpuMemory} for p in processes],
    }


def read_gpu_links(nv: Any, gpu: Any) -> dict[str, int] | None:
    """NVLinks that are up, and in all."""
    states = [tell(nv.nvmlDeviceGetNvLinkState, gpu, link) for link in range(getattr(nv, "NVML_NVLINK_MAX_LINKS", 18))]
    known = [state for state in states if state is not None]
    return {"active": sum(map(bool, known)), "total": len(known)} if known else None


def read_gpu_fabric(nv: Any, gpu: Any) -> dict[str, Any] | None:
    """The GPU's registration in an NVLink fabric."""
    if not hasattr(nv, "c_nvmlGpuFabricInfo_v2_t"):
        return None
    info = nv.c_nvmlGpuFabricInfo_v2_t()
    if tell(nv.nvmlDeviceGetGpuFabricInfoV, gpu, ctypes.byref(info)) is None:
        return None
    cluster = bytes(bytearray(info.clusterUuid)).hex()
    return {"state": info.state, "status": info.status, "clique": info.cliqueId, "cluster": cluster}


# --- processes -------------------------------------------------------------------------------------------------------

_ENGINE = re.compile(r"\bvllm\b|VLLM::|sglang|trtllm|tritonserver", re.I)
_CONTAINER_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_UNIT = re.compile(r"/([^/\s]+\.service)(?:/|$)", re.M)


def pids_of_gpus(looker: Looker) -> set[int]:
    """Processes that some tool named as holding a GPU, and those asked for."""
    pids = set(looker.options.pid)
    for line in looker.text("nvidia-smi-processes").splitlines():
        field = line.split(",")[1:2]
        pids.update(int(word) for word in field if word.strip().isdigit())
    for gpu in (looker.data("nvml") or {}).get("gpus") or []:
        pids.update(process["pid"] for process in gpu.get("processes") or [])
    pids.update(int(pid) for pid in re.findall(r'"(?:pid|PID)"\s*:\s*"?(\d+)', looker.text("amd-smi-process")))
    return pids


def look_at_processes(looker: Looker, named: set[int]) -> dict[str, Any]:
    """Processes on GPUs, and engines by their command line."""
    found: dict[str, Any] = {}
    base = looker.at("/proc")
    for entry in os.listdir(base):
        if entry.isdigit() and int(entry) != os.getpid():
            argv = read_argv(os.path.join(base, entry))
            if int(entry) in named or (argv and _ENGINE.search(" ".join(argv[:3]))):
                found[entry] = read_process(os.path.join(base, entry), argv)
    for pid in named:
        found.setdefault(str(pid), {"reason": "not in /proc here: another PID namespace, or it ended"})
    return found


def read_argv(folder: str) -> list[str] | None:
    """A process's command, or None where it cannot be read."""
    try:
        with open(folder + "/cmdline", "rb") as file:
            return file.read(65536).decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return None


def read_process(folder: str, argv: list[str] | None) -> dict[str, Any]:
    """Who, since when, where, and its variables where they can be read."""
    status, cgroup = read_small(folder + "/status") or "", read_small(folder + "/cgroup") or ""
    entry: dict[str, Any] = {"argv": hide_argv(argv or []), "name": re.sub(r"\AName:\s*|\n.*", "", status, flags=re.S)}
    uid = re.search(r"^Uid:\s+(\d+)", status, re.M)
    if uid:
        try:
            entry["user"] = pwd.getpwuid(int(uid.group(1))).pw_name
        except KeyError:
            entry["user"] = uid.group(1)
    inner = re.search(r"^NSpid:\s+(.+)", status, re.M)
    entry["pids"] = [int(word) for word in inner.group(1).split()] if inner else []
    container, unit = _CONTAINER_ID.search(cgroup), _UNIT.search(cgroup)
    entry.update(container=container.group(0) if container else None, unit=unit.group(1) if unit else None)
    words = (read_small(folder + "/stat") or "").rpartition(")")[2].split()
    if len(words) > 19 and words[19].isdigit():
        entry["started_ticks"] = int(words[19]) / os.sysconf("SC_CLK_TCK")
    try:
        with open(folder + "/environ", "rb") as file:
            pairs = (
                item.split("=", 1) for item in file.read(1 << 20).decode("utf-8", "replace").split("\0") if "=" in item
            )
            entry["variables"] = keep_variables({one[0]: one[1] for one in pairs})
    except OSError as problem:
        entry["variables_reason"] = (problem.strerror or str(problem)).lower()
    return entry


# --- software --------------------------------------------------------------------------------------------------------

# Runs in the interpreter asked about; imports nothing of it, so that no GPU is opened and nothing hangs.
_ASK_PYTHON = r"""
import json, os, platform, re, sys
from importlib import metadata, util
found, made = {}, {}
wanted = re.compile(
    r"^(vllm|torch|triton|nvidia-|flashinfer|transformers|tokenizers|nixl|deep[-_]?(ep|gemm)|fastsafetensors|safetensors"
    r"|ray$|cupy|numpy$|xformers|compressed|amdsmi|aiter|huggingface|openai|pynvml|cuda-|tilelang|xgrammar|mooncake"
    r"|lmcache|pytorch|rocm|k3-workbook)", re.I)
for one in metadata.distributions():
    name = one.metadata["Name"] or ""
    if wanted.match(name):
        found[name.lower()] = one.version
        folder = getattr(one, "_path", None)
        try:
            made[name.lower()] = os.stat(str(folder)).st_mtime
        except OSError:
            pass
torch = {}
spec = util.find_spec("torch")
if spec and spec.origin:
    path = os.path.join(os.path.dirname(spec.origin), "version.py")
    if os.path.exists(path):
        torch = dict(re.findall(r"^(cuda|hip|__version__)\b[^=\n]*= '([^']*)'", open(path).read(), re.M))
version = platform.python_version()
print(json.dumps({"version": version, "prefix": sys.prefix, "packages": found, "made": made, "torch": torch}))
"""


def interpreters(looker: Looker) -> dict[str, str]:
    """Python programs to ask, with why: those named, those of running engines, that of `vllm` on PATH, or python3."""
    found = dict.fromkeys(looker.options.python, "--python")
    for pid, process in (looker.data("processes") or {}).items():
        words = process.get("argv") or []
        inside = process.get("container") and len(process.get("pids") or []) > 1
        if not inside and words and os.path.basename(words[0]).startswith("python") and os.path.isabs(words[0]):
            found.setdefault(words[0], f"process {pid}")
    program = shutil.which("vllm")
    first = (read_first_line(program) if program else "").split()
    if first and first[0].startswith("#!"):
        python = shutil.which(first[1]) if os.path.basename(first[0]) == "env" and len(first) > 1 else first[0][2:]
        found.setdefault(python or first[0][2:], "vllm on PATH")
    if not found:
        found[shutil.which("python3") or sys.executable] = "python3 on PATH"
    return found


def read_first_line(path: str) -> str:
    """The first line of a script; empty if it cannot be read as text."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline(1024)
    except (OSError, UnicodeDecodeError):
        return ""


# --- commands --------------------------------------------------------------------------------------------------------

_KERNEL = re.compile(
    r"NVRM|Xid|nvidia|NVLink|nvswitch|amdgpu|kfd|Out of memory|oom[-_]kill|oom_reaper|Hardware Error|\bmce:|EDAC"
    r"|AER:|segfault .*(?:python|vllm|cuda)|Linux version",
    re.I,
)
_UNITS = re.compile(r"nvidia|docker|containerd|slurm|kubelet|vllm|\bray\b|imex|fabric|k3", re.I)
_QUERY = "index,uuid,pci.bus_id,name,memory.total,memory.used,driver_version,compute_cap"
_SHOWN = "Id,LoadState,ActiveState,SubState,Restart,NRestarts,ActiveEnterTimestamp,UnitFileState"
_JOBS = "JobID,JobName%40,User,State,Start,End,ExitCode,NodeList%60"
_PODS = (
    "custom-columns=NS:.metadata.namespace,NAME:.metadata.name,POLICY:.spec.restartPolicy,"
    "RESTARTS:.status.containerStatuses[*].restartCount,IMAGE:.spec.containers[*].image,"
    "ID:.status.containerStatuses[*].imageID,STARTED:.status.startTime"
)


def last_kernel_lines(text: str) -> str:
    """The lines of the kernel's log that matter, at most the last 2000."""
    return "".join([line for line in text.splitlines(True) if _KERNEL.search(line)][-2000:])


def drop_clock_tables(text: str) -> str:
    """The XML without its tables of supported clocks, four fifths of it."""
    return re.sub(r"\s*<supported_clocks>.*?</supported_clocks>", "", text, flags=re.S)


def reduce_inspection(text: str) -> str:
    """`docker inspect` with the values of variables left out unless they matter, and secrets in commands hidden."""
    whole = json.loads(text)
    for one in whole:
        config = one.get("Config") or {}
        pairs = [item.partition("=") for item in config.get("Env") or []]
        config["Env"] = [
            f"{name}={hide_named(name, value)}" if VARIABLES.match(name) else name for name, _, value in pairs
        ]
        for holder, key in ((config, "Cmd"), (config, "Entrypoint"), (one, "Args")):
            if isinstance(holder.get(key), list):
                holder[key] = hide_argv(holder[key])
        for key in ("Labels", "Healthcheck"):
            config.pop(key, None)
        one.pop("GraphDriver", None)
    return json.dumps(whole)


def first_commands(looker: Looker) -> list[Command]:
    """What is asked in the first round, where nothing depends on anything."""
    node = platform.node().split(".")[0]
    since = (datetime.now() - timedelta(days=DAYS)).strftime("%Y-%m-%dT00:00:00")
    days = f"{DAYS} days ago"
    kernel = keep_lines(PACKAGES)
    return [
        Command("nvidia-smi", ["nvidia-smi"], 30),
        Command("nvidia-smi-list", ["nvidia-smi", "-L"], 30),
        Command("nvidia-smi-xml", ["nvidia-smi", "-q", "-x"], 60, drop_clock_tables),
        Command("nvidia-smi-gpus", ["nvidia-smi", "--query-gpu=" + _QUERY, "--format=csv,noheader"], 30),
        Command("nvidia-smi-processes", PROCESS_QUERY, 30),
        Command("nvidia-smi-topology", ["nvidia-smi", "topo", "-m"], 30),
        Command("nvidia-smi-links", ["nvidia-smi", "nvlink", "-s"], 30),
        Command("nvidia-imex", ["nvidia-imex-ctl", "-N"], 15),
        Command("nvidia-module", ["modinfo", "-F", "version", "nvidia"], 10),
        Command("nvidia-runtime", ["nvidia-container-cli", "--version"], 10),
        Command("amd-smi-list", ["amd-smi", "list", "--json"], 30),
        Command("amd-smi-static", ["amd-smi", "static", "--json"], 60),
        Command("amd-smi-metric", ["amd-smi", "metric", "--json"], 60),
        Command("amd-smi-process", ["amd-smi", "process", "--json"], 30),
        Command("amd-smi-version", ["amd-smi", "version", "--json"], 30),
        Command("amd-smi-topology", ["amd-smi", "topology"], 30),
        Command("rocm-smi", ROCM_QUERY, 30),
        Command("amdgpu-module", ["modinfo", "-F", "version", "amdgpu"], 10),
        Command(
            "ldconfig",
            ["ldconfig", "-p"],
            10,
            keep_lines(re.compile(r"libcuda\.|nvidia-ml|nccl|rccl|amdhip|amd_smi|cudart")),
        ),
        Command(
            "lscpu",
            ["lscpu"],
            10,
            keep_lines(re.compile(r"^(?:Arch|CPU\(s\)|Model name|Socket|NUMA|Thread|Vendor|Hyperv|Virtu)")),
        ),
        Command("clock", ["timedatectl", "show"], 10),
        Command(
            "units",
            ["systemctl", "list-units", "--type=service", "--all", "--plain", "--no-legend"],
            15,
            keep_lines(_UNITS),
        ),
        Command("boots", ["journalctl", "--list-boots", "--no-pager"], 15),
        Command(
            "journal", ["journalctl", "-k", "--no-pager", "-o", "short-iso", "--since", days], 20, last_kernel_lines
        ),
        Command("dmesg", ["dmesg", "--time-format", "iso"], 10, last_kernel_lines),
        Command("dmesg-seconds", ["dmesg"], 10, last_kernel_lines),
        Command("dpkg", ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\\n"], 15, kernel),
        Command("rpm", ["rpm", "-qa", "--qf", "%{NAME} %{VERSION}-%{RELEASE} %{INSTALLTIME}\\n"], 20, kernel),
        Command("docker", ["docker", "version", "--format", "{{json .}}"], 10),
        Command("docker-containers", ["docker", "ps", "-a", "--no-trunc", "--format", CONTAINER_ROW], 15),
        Command("podman-containers", ["podman", "ps", "-a", "--no-trunc", "--format", CONTAINER_ROW], 15),
        Command("slurm-node", ["scontrol", "show", "node", node], 15),
        Command("slurm-jobs", ["squeue", "-h", "-w", node, "-o", "%A|%j|%u|%T|%S|%b"], 15),
        Command("slurm-history", ["sacct", "-a", "-X", "-n", "-P", "-N", node, "-S", since, "-o", _JOBS], 20),
        Command(
            "pods",
            ["kubectl", "get", "pods", "-A", "--field-selector", "spec.nodeName=" + platform.node(), "-o", _PODS],
            15,
        ),
    ]


PROCESS_QUERY = ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader"]
ROCM_QUERY = [
    "rocm-smi",
    "--showproductname",
    "--showuniqueid",
    "--showbus",
    "--showmeminfo",
    "vram",
    "--showdriverversion",
    "--showvbios",
    "--showcomputepartition",
    "--json",
]
CONTAINER_ROW = "{{.ID}}|{{.Names}}|{{.Image}}|{{.State}}|{{.Status}}"


def second_commands(looker: Looker) -> list[Command]:
    """What depends on the first round: containers, images, units, jobs, interpreters."""
    wanted: list[Command] = []
    for tool in ("docker", "podman"):
        rows = [row.split("|") for row in looker.text(tool + "-containers").splitlines() if row.count("|") >= 4]
        ids = [row[0] for row in rows if row[3] == "running" or _ENGINE.search(row[2] + row[1])][:60]
        if looker.options.container:
            ids = [
                row[0]
                for row in rows
                if any(name in (row[1], row[0][:12], row[0]) for name in looker.options.container)
            ]
        if ids:
            wanted.append(Command(tool + "-inspect", [tool, "inspect", *ids], 20, reduce_inspection))
    processes = (looker.data("processes") or {}).values()
    units = [line.split()[0] for line in looker.text("units").splitlines() if line.split()]
    units += sorted({process["unit"] for process in processes if process.get("unit")})
    if units:
        wanted.append(Command("unit-states", ["systemctl", "show", "-p", _SHOWN, *dict.fromkeys(units)], 15))
    everyone = [process.get("variables") or {} for process in processes] + [dict(os.environ)]
    for job in sorted({variables["SLURM_JOB_ID"] for variables in everyone if "SLURM_JOB_ID" in variables}):
        wanted.append(Command("slurm-job-" + job, ["scontrol", "show", "job", job], 15))
    for path in interpreters(looker):
        wanted.append(Command("python " + path, [path, "-c", _ASK_PYTHON], 20))
    return wanted


def third_commands(looker: Looker) -> list[Command]:
    """Images of the containers found: by what runs, and by what the name stands for today."""
    wanted: list[Command] = []
    for tool in ("docker", "podman"):
        try:
            containers = json.loads(looker.text(tool + "-inspect") or "[]")
        except ValueError:
            continue
        names = [one.get("Image") for one in containers] + [
            (one.get("Config") or {}).get("Image") for one in containers
        ]
        for name in dict.fromkeys(name for name in names if name):
            wanted.append(Command(f"{tool}-image {name}", [tool, "image", "inspect", name], 15, reduce_inspection))
    return wanted[:120]


# --- the whole -------------------------------------------------------------------------------------------------------


def collect(options: argparse.Namespace) -> dict[str, Any]:
    """Everything, in three rounds."""
    began, looker = time.monotonic(), Looker(options)
    taken_at = iso(time.time())
    looker.sections(
        [
            ("nvml", "NVML through pynvml", lambda: look_at_nvml(looker)),
            ("cuda", "libcuda.so.1 cuDriverGetVersion", lambda: look_at_cuda(looker)),
            ("machine", "platform, resource, environment", lambda: look_at_machine(looker)),
            ("files", "files of /proc, /sys, /etc, /var/log", lambda: read_files(looker)),
            ("disks", "statvfs", lambda: look_at_disks(looker)),
            ("network", "/sys/class/net, /sys/class/infiniband", lambda: look_at_network(looker)),
            ("devices", "/dev, /sys/bus/pci", lambda: look_at_devices(looker)),
            ("libraries", "library folders, /usr/local/cuda*/compat", lambda: look_at_libraries(looker)),
            ("given-files", "files named by --file", lambda: look_at_given_files(looker)),
        ]
    )
    looker.sources.update(looker.sources.pop("files").get("data") or {})
    looker.commands(first_commands(looker))
    named = pids_of_gpus(looker)
    looker.sections([("processes", "/proc/<pid>", lambda: look_at_processes(looker, named))])
    asked = interpreters(looker)
    looker.commands(second_commands(looker))
    looker.commands(third_commands(looker))
    looker.sources["interpreters"] = answered("interpreters chosen", time.monotonic(), data=asked)
    whole: dict[str, Any] = hide_all(
        {
            "collector": FORMAT,
            "taken_at": taken_at,
            "took_s": round(time.monotonic() - began, 3),
            "uid": os.geteuid(),
            "sources": dict(sorted(looker.sources.items())),
        }
    )
    return whole


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="collector.py", description="Look at one machine and print JSON; change nothing."
    )
    parser.add_argument(
        "--python", action="append", default=[], metavar="PATH", help="interpreter whose versions to ask"
    )
    parser.add_argument("--pid", action="append", default=[], type=int, metavar="N", help="a running engine")
    parser.add_argument("--container", action="append", default=[], metavar="NAME", help="only this container, not all")
    parser.add_argument(
        "--file", action="append", default=[], metavar="PATH", help="script whose times and hash to keep"
    )
    parser.add_argument(
        "--disk", action="append", default=[], metavar="PATH", help="folder whose file system to measure"
    )
    parser.add_argument(
        "--root", default="/", metavar="PATH", help="read files below PATH, a host mounted in a container"
    )
    return parser.parse_args(argv)


def main() -> int:
    """Print what was seen; 0 however much of it failed."""
    whole = collect(parse_options())
    json.dump(whole, sys.stdout, indent=1, sort_keys=False)
    sys.stdout.write("\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    # A thread stuck in the kernel must not keep us from ending.
    status = main()
    os._exit(status)
