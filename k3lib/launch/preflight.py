"""What would stop a start for reasons that are ours or the machine's, looked at before anything is started."""

from __future__ import annotations

import errno
import ipaddress
import os
import shutil
import socket
import time
from pathlib import Path

import psutil

from k3lib.errors import LaunchError
from k3lib.launch.environment import compose_environment
from k3lib.launch.programs import program_missing
from k3lib.spec.launch import LaunchPlan


def check_local_plan(plan: LaunchPlan) -> None:
    """
    Refuse a plan that can't become an engine on this machine; starts nothing.

    Raises:
        LaunchError: The program, the working directory or the model is missing, the address is one that other
            machines reach, or the port is in use.
    """
    _check_program(plan)
    _check_directory(plan)
    _check_model(plan)
    _check_host(plan)
    _check_port(plan)


def looks_like_path(model: str, cwd: str | None = None) -> bool:
    """
    Whether a model's name means a place on this machine and not a repository `owner/name`.

    `a/b` is both; it is a path where the folder `a` exists.

    Args:
        model: As the command names it.
        cwd: Where the engine runs; None is here.

    >>> [looks_like_path(name) for name in ("moonshotai/Kimi-K3", "./tiny", "/models/k3", "a/b/c", "gpt2")]
    [False, True, True, True, False]
    """
    first, slash, _ = model.partition("/")
    if model.startswith(("/", "./", "../", "~")) or model.count("/") > 1:
        return True
    return bool(slash) and Path(cwd or ".", first).is_dir()


def _check_program(plan: LaunchPlan) -> None:
    path = compose_environment(plan, os.environ).get("PATH", os.defpath)
    program = plan.argv[0]
    if plan.cwd and os.sep in program:
        program = os.path.join(plan.cwd, program)
    if shutil.which(program, path=path) is None:
        raise program_missing(plan.argv[0])


def _check_directory(plan: LaunchPlan) -> None:
    if plan.cwd is not None and not Path(plan.cwd).is_dir():
        raise LaunchError(
            f"the working directory {plan.cwd} does not exist; no engine was started",
            expected="an existing directory for the engine",
            evidence=f"{Path(plan.cwd).absolute()} is no directory",
            next="make the directory, or name another",
        )


def _check_model(plan: LaunchPlan) -> None:
    if plan.model_path is None or not looks_like_path(plan.model_path, plan.cwd):
        return
    place = Path(plan.cwd or ".", Path(plan.model_path).expanduser()).absolute()
    if not place.exists():
        parent = next(folder for folder in place.parents if folder.exists())
        raise LaunchError(
            f"the model path {plan.model_path} does not exist; no engine was started",
            expected="a folder with the model's config.json and weights",
            evidence=f"{place} is not there; {parent} is the last folder of it that exists",
            next="correct model.name in the campaign file, or put the model there",
        )


def _check_host(plan: LaunchPlan) -> None:
    if plan.remote_host_allowed or _is_loopback(plan.host):
        return
    raise LaunchError(
        f"{plan.host} is an address that other machines reach; no engine was started",
        expected="a loopback address, 127.0.0.1: the engine has no password",
        evidence=f"engine.host = {plan.host}",
        next="set engine.host to 127.0.0.1, or allow a remote host if that network is yours",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_port(plan: LaunchPlan) -> None:
    problem = _listen_once(plan.host, plan.port)
    if problem is None:
        return
    if problem.errno == errno.EADDRINUSE:
        raise LaunchError(
            f"port {plan.port} is in use; no engine was started",
            expected="a free port for engine.port",
            evidence=_describe_owner(plan.port),
            next="stop it, or set another engine.port in the campaign file",
        )
    raise LaunchError(
        f"the engine cannot listen on {plan.host}:{plan.port}; no engine was started",
        expected="an address of this machine and a port that we may take",
        evidence=f"{problem.strerror or problem} (errno {problem.errno})",
        next="set engine.host and engine.port in the campaign file",
    )


def _listen_once(host: str, port: int) -> OSError | None:
    """Bind and listen as the engine will: with SO_REUSEADDR, so that a connection in TIME_WAIT is no obstacle."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(address)
            server.listen(1)
    except OSError as problem:
        return problem
    return None


def find_listener(port: int) -> int | None:
    """The process that listens on a TCP port of this machine; None where none is seen or it isn't ours to see."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return None
    listening = (c for c in connections if c.status == psutil.CONN_LISTEN and getattr(c.laddr, "port", None) == port)
    return next((c.pid for c in listening if c.pid is not None), None)


def _describe_owner(port: int) -> str:
    pid = find_listener(port)
    if pid is None:
        return "Address already in use; its owner belongs to another user or another container"
    try:
        process = psutil.Process(pid)
        age_s = time.time() - process.create_time()
        return f"pid {pid}, started {_words_for_age(age_s)} ago: {_first_words(process.cmdline())}"
    except psutil.Error:
        return f"pid {pid}, of which nothing can be read"


def _first_words(command: list[str]) -> str:
    """Enough to recognise a program and too little to show a password."""
    shown = []
    for word in command[:3]:
        if word.startswith("--"):
            break
        line = " ".join(word.split())
        shown.append(line if len(line) <= 60 else line[:57] + "...")
    return " ".join([*shown, "..."] if len(shown) < len(command) else shown)


def _words_for_age(age_s: float) -> str:
    if age_s < 120:
        return f"{age_s:.0f} s"
    return f"{age_s / 60:.0f} min" if age_s < 7200 else f"{age_s / 3600:.0f} h"
