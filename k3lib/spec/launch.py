"""What is to be started, complete: nothing else decides how an engine begins or ends."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from k3lib.spec.model import Strict
from k3lib.spec.vocabulary import EngineKind

INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCM_PATH",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_TOKEN",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "SSL_CERT_FILE",
    "HTTPS_PROXY",
    "NO_PROXY",
)
"""
Names of the variables an engine takes over from our own environment, where they are set; everything else stays out.

They say where things lie on this machine or carry a person's token, and so are named and never written down.
"""


class LaunchPlan(Strict):
    """
    One start of an engine, as intended.

    Args:
        kind: How the engine is started.
        argv: The exact words of the command, the program first.
        env: Declared variables; they win over inherited ones.
        inherit: Names of variables taken over from our environment where they are set.
        host: Address the engine listens on.
        port: Port the engine listens on.
        remote_host_allowed: The address may be one that other machines reach.
        health_path: Path that answers 200 once the engine serves.
        ready_timeout_s: Patience until the first 200, seconds.
        stop_grace_s: From the first SIGTERM to SIGKILL, seconds.
        token: Unique to this trial; marks every process of the engine.
        model_path: The model as the command names it, checked where it looks like a path; None skips the check.
        cwd: Working directory of the engine; None is ours.

    >>> LaunchPlan(kind=EngineKind.LOCAL, argv=("vllm", "serve", "m"), port=8000, token="c0ffee12").health_path
    '/health'
    """

    kind: EngineKind
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    env: dict[str, str] = Field(default_factory=dict)
    inherit: tuple[str, ...] = INHERITED
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65_535)]
    remote_host_allowed: bool = False
    health_path: str = "/health"
    ready_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    stop_grace_s: Annotated[float, Field(ge=0)] = 10.0
    token: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{8,64}$")]
    model_path: str | None = None
    cwd: str | None = None
