"""
The releases of vLLM that the rehearsal can play, typed; the differences themselves are in `rehearsal_profiles.yaml`.

A profile is a stack of layers: 0.33.0, the release, its model runner, its front end. A layer says only what differs.
Plain dataclasses and no pydantic: every start of the rehearsal loads this, and its start-up time is part of a contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from k3lib.errors import KnowledgeError
from k3lib.knowledge.data import malformed, read_knowledge

DEFAULT_RELEASE = "0.33.0"
_FILE = "rehearsal_profiles.yaml"
_WORD = "rehearsal"
_SPEAKERS = frozenset({"supervisor", "front", "engine", "worker", "workers", "stderr", "stdout"})
_STATUSES = frozenset({"run", "source", "log", "derived"})


@dataclass(frozen=True)
class Line:
    """
    One line of an engine's log.

    Args:
        by: Who speaks: supervisor, front, engine, worker, workers; stderr or stdout for a line without a prefix.
        text: With `{names}` to fill in.
        at: File and line in brackets, `core.py:140`; empty for a line without a prefix.
        level: `INFO`, `WARNING` or `ERROR`.
    """

    by: str
    text: str
    at: str = ""
    level: str = "INFO"


@dataclass(frozen=True)
class Retention:
    """
    How a release is told which prefix-cache states to keep.

    Args:
        flag: Name of the flag without dashes, or None.
        variable: Name of the variable, or None.
        default: Tokens; None keeps every state (dense).
    """

    flag: str | None
    variable: str | None
    default: int | None


@dataclass(frozen=True)
class CpuModel:
    """
    A tiny model as the CPU engine sees it.

    Args:
        name: Name of its folder.
        architecture: Class of the model.
        context_tokens: Longest request its config allows.
        linear_groups: Cache groups of linear-attention layers; 0 is a dense model.
        block_tokens: Tokens of one block of the pool.
        hash_unit_tokens: The engine's own block size; a prefill stops at its multiples.
        block_bytes: Bytes of one block of the pool.
        state_bytes: Linear-attention state of one layer and one sequence; 0 for a dense model.
        source: Where the numbers come from.
    """

    name: str
    architecture: str
    context_tokens: int
    linear_groups: int
    block_tokens: int
    hash_unit_tokens: int
    block_bytes: int
    state_bytes: int
    source: str

    @property
    def state_padding_fraction(self) -> float:
        """By how much a state is padded to a block's page, 0–1; the log prints it as a percentage."""
        return self.block_bytes / self.state_bytes - 1


@dataclass(frozen=True)
class Profile:
    """
    What one release does where releases differ.

    Args:
        name: Of the release: `0.33.0`, `kimi-k3`.
        release: What `/version` and the log say, without the word rehearsal.
        program: What `--version` says, likewise; a CPU build says `+cpu` only there.
        status, source: How this is known, and from what.
        platform: `gpu` or `cpu`.
        runner: Model runner where none is asked for: `v2` or `v1`.
        front_end: `python` or `rust`.
        rust_front_end: Whether the release has the Rust front end.
        hybrid_caching: Whether a hybrid model caches prefixes where nothing is said.
        retention: How its retention policy is set.
        defaults: Defaults of flags, by the flag's name.
        resolved: What a flag without a default becomes where it is not given.
        choices: Allowed values that differ, by the flag's name.
        flags_without: Flags it does not have.
        variables_with, variables_without: Variables it knows, and does not, against 0.33.0.
        metrics_without: `vllm:` metrics it does not export.
        families_without: Other kinds of metrics it does not export.
        routes_without: Paths it does not answer.
        lines: The log, by key; None is a line that it does not write.
    """

    name: str
    release: str
    program: str
    status: str
    source: str
    platform: str
    runner: str
    rust_front_end: bool
    hybrid_caching: bool
    retention: Retention
    defaults: Mapping[str, Any]
    resolved: Mapping[str, int]
    front_end: str = "python"
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    flags_without: frozenset[str] = frozenset()
    variables_with: frozenset[str] = frozenset()
    variables_without: frozenset[str] = frozenset()
    metrics_without: frozenset[str] = frozenset()
    families_without: frozenset[str] = frozenset()
    routes_without: frozenset[str] = frozenset()
    lines: Mapping[str, Line | None] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """What `/version` and the log say: always a rehearsal."""
        return mark_rehearsal(self.release)

    @property
    def program_version(self) -> str:
        """What `--version` says."""
        return mark_rehearsal(self.program)


def mark_rehearsal(release: str) -> str:
    """
    A release with the word that nobody can miss, as the last part of its build label.

    >>> mark_rehearsal("0.33.0"), mark_rehearsal("0.32.0+cpu")
    ('0.33.0+rehearsal', '0.32.0+cpu.rehearsal')
    """
    return f"{release}{'.' if '+' in release else '+'}{_WORD}"


@cache
def find_profile(release: str = DEFAULT_RELEASE, *, runner: str | None = None, rust: bool = False) -> Profile:
    """
    The profile of a release, with its model runner and front end.

    Args:
        release: Its name or any way it calls itself, with or without the word rehearsal.
        runner: `v1` or `v2`, or None for the release's own default.
        rust: Whether the Rust front end is asked for; a release without it stays with the Python one.

    Raises:
        KnowledgeError: A release that the rehearsal cannot play.

    >>> find_profile("0.1.dev19262+gb6bbf29dd.d20260727.rehearsal").name
    'kimi-k3'
    >>> find_profile("0.33.0", rust=True).lines["access"] is None
    True
    """
    base = _named(release.removesuffix(f"+{_WORD}").removesuffix(f".{_WORD}"), release)
    file = _file()
    runner = base.runner if runner is None or base.platform == "cpu" else runner
    front_end = "rust" if rust and base.rust_front_end else "python"
    front = file["front_ends"][front_end]
    return replace(
        base,
        runner=runner,
        front_end=front_end,
        lines=_stack_lines(file["runners"][runner], front, *_chain(base.name)),
        metrics_without=base.metrics_without | frozenset(front.get("metrics_without", ())),
        families_without=base.families_without | frozenset(front.get("families_without", ())),
        routes_without=base.routes_without | frozenset(front.get("routes_without", ())),
    )


@cache
def list_profiles() -> tuple[Profile, ...]:
    """
    All releases in the order of the file, without the lines of their logs; `find_profile` adds those.

    >>> [profile.name for profile in list_profiles()]
    ['0.33.0', '0.28.0', 'kimi-k3', '0.32.0+cpu']
    """
    return tuple(_parse(name) for name in _file()["profiles"])


@cache
def list_cpu_models() -> tuple[CpuModel, ...]:
    """
    The models that the CPU profile can play.

    >>> [(model.name, model.block_tokens) for model in list_cpu_models()]
    [('tiny-hybrid', 256), ('tiny-dense', 128)]
    """
    entries = _file()["cpu_models"]
    try:
        return tuple(CpuModel(name=name, **entry) for name, entry in entries.items())
    except TypeError as error:
        raise malformed(_FILE, "cpu_models with the fields of CpuModel", str(error)) from error


@cache
def _file() -> dict[str, Any]:
    return read_knowledge(_FILE)


def _named(name: str, asked: str) -> Profile:
    for profile in list_profiles():
        if name in {profile.name, profile.program}:
            return profile
    known = ", ".join(profile.program for profile in list_profiles())
    raise KnowledgeError(
        f"the rehearsal cannot play release {asked!r}",
        expected=f"one of {known}, or kimi-k3",
        evidence=f"K3_REHEARSAL_RELEASE={asked}",
        next="set engine.version of the campaign to one of these; others would be guesses",
    )


def _chain(name: str) -> list[Mapping[str, Any]]:
    """The entries a profile is built of, the oldest first."""
    entries = _file()["profiles"]
    chain: list[Mapping[str, Any]] = []
    while name:
        chain.insert(0, entries[name])
        name = entries[name].get("like", "")
    return chain


def _parse(name: str) -> Profile:
    try:
        fields: dict[str, Any] = {}
        for entry in _chain(name):
            fields |= {key: value for key, value in entry.items() if key not in {"like", "lines"}}
        if fields["status"] not in _STATUSES:
            raise ValueError(f"status {fields['status']!r}")
        for key in ("flags_without", "variables_with", "variables_without", "metrics_without"):
            fields[key] = frozenset(fields.get(key, ()))
        fields["choices"] = {flag: tuple(values) for flag, values in fields.get("choices", {}).items()}
        fields["retention"] = _parse_retention(fields["retention"])
        return Profile(name=name, **fields)
    except (KeyError, TypeError, ValueError) as error:
        raise malformed(
            _FILE, f"{name}: the fields of Profile, and a status of run, source, log or derived", repr(error)
        ) from error


def _parse_retention(entry: Mapping[str, Any]) -> Retention:
    default = None if entry["default"] == "dense" else int(entry["default"])
    return Retention(entry.get("flag"), entry.get("variable"), default)


def _stack_lines(*layers: Mapping[str, Any]) -> dict[str, Line | None]:
    """The log of 0.33.0 with what each layer changes, the last one on top."""
    stacked: dict[str, Line | None] = {}
    try:
        for entries in (_file()["lines"], *(layer.get("lines") or {} for layer in layers)):
            for key, entry in entries.items():
                before = stacked.get(key)
                stacked[key] = None if entry is None else replace(before, **entry) if before else Line(**entry)
    except TypeError as error:
        raise malformed(_FILE, f"line {key}: by, at, text, level", str(error)) from error
    strangers = [key for key, line in stacked.items() if line and line.by not in _SPEAKERS]
    if strangers:
        raise malformed(_FILE, f"by: one of {', '.join(sorted(_SPEAKERS))}", f"lines {', '.join(strangers)}")
    return stacked
