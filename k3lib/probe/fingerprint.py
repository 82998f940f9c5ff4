"""
Where a session ran: identity (must match inside a series), factor (may differ by one), noise (ignored).

Looks, and changes nothing. A source that is missing gives None, with the reason beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

_NVIDIA_QUERY = "index,uuid,name,memory.total,driver_version"
_TIMEOUT_S = 15.0


def probe_fingerprint(model: str, release: str | None, program: str | None) -> dict[str, Any]:
    """
    The fingerprint of this machine for one session.

    Args:
        model: Repository or folder of the weights.
        release: What the engine's program says of its version, or None.
        program: The engine's program, or None.

    Returns:
        `identity`, `factor`, `noise` and `reasons`; flat names, JSON values.
    """
    reasons: dict[str, str] = {}
    gpus = _probe_gpus(reasons)
    identity: dict[str, Any] = {
        "engine.release": release,
        "host.machine": platform.machine(),
        "host.system": f"{platform.system()} {platform.release()}",
        "host.processor": _processor(),
        "host.memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": gpus,
        **_probe_model(Path(model), reasons),
    }
    if release is None:
        reasons["engine.release"] = "the program did not tell its version"
    factor = {"python": platform.python_version(), "program": program}
    noise = {"host.name": platform.node(), "host.cores": os.cpu_count(), "load": os.getloadavg()[0]}
    return {"identity": identity, "factor": factor, "noise": noise, "reasons": reasons}


def describe_fingerprint(fingerprint: dict[str, Any]) -> str:
    """The fingerprint in one line, for the head of a notebook."""
    identity = fingerprint.get("identity", {})
    gpus = identity.get("gpus")
    hardware = f"{len(gpus)}× {gpus[0]['name']}" if gpus else "no GPU seen"
    shards = identity.get("model.shards")
    weights = f"{len(shards)} shard(s) {identity['model.shards_sha256'][:12]}" if shards else "weights not read"
    return " · ".join(
        [str(identity.get("engine.release") or "release unknown"), hardware, str(identity.get("host.machine")), weights]
    )


def _probe_gpus(reasons: dict[str, str]) -> list[dict[str, str]] | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        reasons["gpus"] = "nvidia-smi is not on PATH"
        return None
    argv = [tool, f"--query-gpu={_NVIDIA_QUERY}", "--format=csv,noheader"]
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        reasons["gpus"] = f"nvidia-smi: {problem}"
        return None
    if ran.returncode != 0:
        reasons["gpus"] = f"nvidia-smi ended with {ran.returncode}: {(ran.stdout + ran.stderr).strip()[:200]}"
        return None
    names = _NVIDIA_QUERY.split(",")
    return [dict(zip(names, map(str.strip, row.split(",")), strict=False)) for row in ran.stdout.splitlines() if row]


def _probe_model(folder: Path, reasons: dict[str, str]) -> dict[str, Any]:
    """Shard list with sizes, quantisation and architecture of a model folder; names only, weights are not read."""
    empty = {"model.shards": None, "model.shards_sha256": None, "model.architecture": None, "model.quantization": None}
    if not folder.is_dir():
        reasons["model.shards"] = f"{folder} is no folder on this machine"
        return empty
    shards = [f"{p.name} {p.stat().st_size}" for p in sorted(folder.glob("*.safetensors"))]
    config: dict[str, Any] = {}
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, json.JSONDecodeError) as problem:
        reasons["model.architecture"] = f"config.json: {problem}"
    if not shards:
        reasons["model.shards"] = "no *.safetensors in the folder"
    if "quantization_config" not in config:
        reasons["model.quantization"] = "config.json names no quantisation"
    return {
        "model.shards": shards or None,
        "model.shards_sha256": hashlib.sha256("\n".join(shards).encode()).hexdigest() if shards else None,
        "model.architecture": (config.get("architectures") or [None])[0],
        "model.quantization": (config.get("quantization_config") or {}).get("quant_method"),
    }


def _processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
