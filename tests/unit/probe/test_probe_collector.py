"""The collector stands alone, hides secrets, and no source costs another one anything."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from importlib import metadata
from pathlib import Path

import pytest
from fakes.machines import COLLECTOR, PretendMachine, build_machine, describe, look
from hypothesis import given
from hypothesis import strategies as st

from k3lib.probe import collector

SOURCE = COLLECTOR.read_text("utf-8")
SYSTEM_PYTHON = shutil.which("python3", path="/usr/bin:/bin")
SECRETS = {
    "hugging face": "hf_abcdefghijklmnopqrstuvwx",
    "openai": "sk-proj-0123456789abcdefABCDEF",
    "nvidia": "nvapi-0123456789abcdefABCDEF",
    "github": "ghp_0123456789abcdefABCDEF0123456789",
    "named": "Correct-Horse-Battery-Staple",
    "login": "reader:WordOfTheDay77",
    "bearer": "abc.def.ghi-jkl0123456789",
}


def options(**more: object) -> Namespace:
    """The collector's command line, all defaults."""
    return Namespace(**{**vars(collector.parse_options([])), **more})


def test_standard_library_only() -> None:
    """It imports nothing outside the standard library but pynvml, and that only where it is asked for."""
    found = set()
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    assert {"pynvml"} == found - set(sys.stdlib_module_names)


def test_python_3_8_reads_it() -> None:
    """Its syntax is that of Python 3.8, also in what it gives to other interpreters."""
    ast.parse(SOURCE, feature_version=(3, 8))
    ast.parse(collector._ASK_PYTHON, feature_version=(3, 8))


@pytest.mark.skipif(SYSTEM_PYTHON is None, reason="no Python of the system's own")
def test_runs_from_standard_input_without_root() -> None:
    """Piped into a bare Python, as nobody, it answers, and says what root would add."""
    assert SYSTEM_PYTHON
    root = Path(tempfile.mkdtemp(prefix="k3-collector-"))
    try:
        root.chmod(0o755)
        log = root / "var/log/dpkg.log"
        log.parent.mkdir(parents=True)
        log.write_text("2099-01-01 00:00:00 install vllm:all <none> 1\n")
        log.chmod(0o000)
        argv = [SYSTEM_PYTHON, "-", "--root", str(root)]
        user = {"user": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        ran = subprocess.run(
            argv, input=SOURCE.encode(), capture_output=True, cwd="/", env={"PATH": ""}, timeout=120, check=True, **user
        )
    finally:
        shutil.rmtree(root)
    answer = json.loads(ran.stdout)
    assert 1 == answer["collector"]
    assert {"ok": False, "reason": "permission denied", "root_would_help": True} == {
        key: answer["sources"]["/var/log/dpkg.log"].get(key) for key in ("ok", "reason", "root_would_help")
    }
    assert answer["sources"]["machine"]["ok"]


def test_a_hanging_program_fails_alone(tmp_path: Path) -> None:
    """A program that does not answer is given up at its limit, with its children, and the others are kept."""
    script = tmp_path / "nvidia-smi"
    script.write_text("#!/bin/sh\nsleep 600 & sleep 600\n")
    script.chmod(0o755)
    looker = collector.Looker(options())
    began = time.monotonic()
    looker.commands(
        [
            collector.Command("hanging", [str(script)], 0.3),
            collector.Command("fine", [sys.executable, "-c", "print('hello')"], 60),
            collector.Command("absent", ["no-such-program-of-ours"]),
        ]
    )
    assert time.monotonic() - began < 60
    assert "no answer within 0.3 s" == looker.sources["hanging"]["reason"]
    assert "hello\n" == looker.text("fine")
    assert "not on PATH" == looker.sources["absent"]["reason"]


def test_a_hanging_library_fails_alone() -> None:
    """A part of our own that hangs or raises is given up alone; a large answer beside it comes whole."""

    def raises() -> None:
        raise RuntimeError("broken pipe of thought")

    looker = collector.Looker(options())
    parts = {"hangs": lambda: time.sleep(600), "raises": raises, "large": lambda: "x" * 1_000_000}
    looker.sections([(name, name, part) for name, part in parts.items() if name != "hangs"])
    slow = collector.Section("hangs", "hangs", parts["hangs"], 0.2)
    time.sleep(0.3)
    assert "no answer within 0.2 s" == slow.end()["reason"]
    assert "RuntimeError: broken pipe of thought" == looker.sources["raises"]["reason"]
    assert 1_000_000 == len(looker.data("large"))


def test_a_reducer_that_breaks_fails_alone() -> None:
    """An output that is not what it must be is a reason, not a crash, and nothing of it is kept."""
    looker = collector.Looker(options())
    argv = [sys.executable, "-c", "print('DB_URL=Correct-Horse-Battery')"]
    looker.commands([collector.Command("inspect", argv, 60, collector.reduce_inspection)])
    assert not looker.sources["inspect"]["ok"]
    assert "Correct-Horse" not in json.dumps({k: v for k, v in looker.sources["inspect"].items() if k != "asked"})


@pytest.fixture
def leaking(tmp_path: Path, library: Path) -> PretendMachine:
    """A machine with a secret in every place that the collector reads."""
    about = describe("co_tenant")
    s = SECRETS
    engine = [
        "python3", "-m", "vllm", "serve", "--api-key", s["named"], f"--hf-token={s['hugging face']}",
        f"--header=Authorization: Bearer {s['bearer']}",
    ]  # fmt: skip
    environ = [f"HF_TOKEN={s['hugging face']}", f"VLLM_API_KEY={s['named']}", f"NVIDIA_API_KEY={s['nvidia']}",
               f"UCX_LOG=https://{s['login']}@mirror/x", f"OTHER_PASSWORD={s['named']}"]  # fmt: skip
    inspection = [
        {
            "Id": "f" * 64, "Name": "/k3", "Image": "sha256:1", "Args": engine,
            "Config": {
                "Image": "vllm/vllm-openai:kimi-k3", "Cmd": engine, "Labels": {"token": s["github"]},
                "Env": [*environ, f"DATABASE_URL=postgres://{s['login']}@db/x", f"WORDS={s['named']}"],
            },
        }
    ]  # fmt: skip
    about["variables"] = {"HF_TOKEN": s["hugging face"], "NCCL_NOTE": f"Bearer {s['bearer']}"}
    about["files"] |= {
        "/proc/4121/cmdline": "\0".join(engine) + "\0",
        "/proc/4121/environ": "\0".join(environ) + "\0",
        "/proc/4121/status": "Name:\tpython3\nUid:\t0\t0\t0\t0\n",
        "/proc/cmdline": f"root=/dev/sda1 autoinstall_password={s['named']}\n",
        "/var/log/apt/history.log": f"Start-Date: 2099-01-01\nCommandline: apt install -o token={s['github']}\n",
    }
    about["commands"] |= {
        "docker ps -a": f"{'f' * 64}|k3|vllm/vllm-openai:kimi-k3|running|Up\n",
        "docker inspect": json.dumps(inspection),
        "journalctl -k": f"2099-01-01T00:00:00+0000 h kernel: NVRM: Xid (PCI:0000:1a:00): 31, key {s['openai']}\n",
        "squeue": {"err": f"slurm: auth token={s['named']} refused\n", "code": 1},
    }
    return build_machine("leaking", tmp_path, library, about)


def test_no_secret_leaves(leaking: PretendMachine) -> None:
    """Secrets planted in every input stand in no output, while what is beside them does."""
    found = look(leaking, "--pid", "4121").model_dump_json()
    assert {} == {kind: secret for kind, secret in SECRETS.items() if secret in found}
    assert "--api-key" in found
    assert "DATABASE_URL" in found
    assert "HF_TOKEN" in found
    assert "Xid (PCI:0000:1a:00): 31" in found


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("--max-num-batched-tokens 8192", "--max-num-batched-tokens 8192"),
        ("TOKENIZERS_PARALLELISM=false", "TOKENIZERS_PARALLELISM=false"),
        ("a token of gratitude", "a token of gratitude"),
        ("HF_TOKEN=<hidden>", "HF_TOKEN=hunter22hunter22"),
        ('"api_key": "<hidden>"', '"api_key": "hunter22hunter22"'),
        ("vllm serve --api-key <hidden> --port 8000", "vllm serve --api-key hunter22 --port 8000"),
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN=1", "HF_HUB_DISABLE_IMPLICIT_TOKEN=1"),
        ("http://<hidden>@proxy:3128", "http://me:hunter22@proxy:3128"),
    ],
)
def test_hide(shown: str, text: str) -> None:
    """What says secret is hidden, and what only sounds like it stays."""
    assert shown == collector.hide(text)


@given(st.recursive(st.text() | st.integers() | st.none(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)))
def test_hiding_keeps_the_form(value: object) -> None:
    """Any JSON value keeps its form, and a second pass finds nothing more to hide."""
    once = collector.hide_all(value)
    assert once == collector.hide_all(once)
    assert type(value) is type(once)


def test_an_interpreter_tells_its_versions(tmp_path: Path, library: Path) -> None:
    """The environment asked tells the versions that its own metadata holds."""
    machine = build_machine("laptop", tmp_path, library)
    source = look(machine, "--python", sys.executable).sources[f"python {sys.executable}"]
    answer = json.loads((source.text or "").splitlines()[-1])
    assert sys.version.split()[0] == answer["version"]
    assert metadata.version("openai") == answer["packages"]["openai"]


def test_files_named_are_hashed(tmp_path: Path, library: Path) -> None:
    """A script named on the command line is kept with time, size and hash; a missing one with its reason."""
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve\n")
    (tmp_path / "machine").mkdir()
    machine = build_machine("laptop", tmp_path / "machine", library)
    found = look(machine, "--file", str(script), "--file", "/nowhere/x").sources["given-files"].data
    assert (11, hashlib.sha256(b"vllm serve\n").hexdigest()) == (found[0]["bytes"], found[0]["sha256"])
    assert {"path": "/nowhere/x", "reason": "no such file or directory"} == found[1]
