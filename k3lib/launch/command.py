"""Settings to the exact words and variables of a command, for one release of the engine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from k3lib.errors import SpecError
from k3lib.knowledge.settings import SwitchFlag, ValueFlag, VariableCarrier, carrier_of, check_environment
from k3lib.knowledge.versions import Release
from k3lib.spec.settings import EngineSettings, Value, setting_names


@dataclass(frozen=True)
class Command:
    """
    A command, ready to be started or pasted.

    Args:
        argv: The exact words, the program first.
        env: Declared variables, in alphabet.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


def render_command(
    program: Sequence[str],
    model: str,
    settings: EngineSettings,
    *,
    release: Release,
    host: str,
    port: int,
    served_model_name: str | None = None,
) -> Command:
    """
    The command that starts an engine of this release with these settings; the same input gives the same words.

    Args:
        program: The words before `serve`.
        model: Repository or path.
        settings: None fields stay unsaid.
        release: Decides which flag or variable carries a setting.
        host, port: Where it listens.
        served_model_name: Name that requests use; None is the model's own.

    Raises:
        SpecError: The release can't carry a setting, or a variable stands for a setting.

    >>> from k3lib.knowledge.versions import parse_release
    >>> settings = EngineSettings(prefix_caching=False, retention_interval_tokens="dense")
    >>> place = {"host": "127.0.0.1", "port": 8000}
    >>> " ".join(render_command(["vllm"], "m", settings, release=parse_release("0.33.0"), **place).argv[7:])
    '--no-enable-prefix-caching --prefix-cache-retention-interval None'
    >>> " ".join(render_command(["vllm"], "m", settings, release=parse_release("0.28.0"), **place).argv[7:])
    '--no-enable-prefix-caching'
    """
    check_environment(settings)
    words = [*program, "serve", model, "--host", host, "--port", str(port)]
    if served_model_name is not None:
        words += ["--served-model-name", served_model_name]
    variables = dict(settings.environment)
    for key in setting_names():
        value = getattr(settings, key)
        if value is None:
            continue
        carrier = carrier_of(key, release)
        if isinstance(carrier, VariableCarrier):
            variables |= _render_variable(carrier, value)
        else:
            words += _render_flag(key, carrier, value)
    return Command(tuple(words), dict(sorted(variables.items())))


def render_paste(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """
    The command as one line that a person can paste into a shell.

    >>> render_paste(["vllm", "serve", "m", "--attention-config", '{"a":1}'], {"B": "x y"})
    'B=\\'x y\\' vllm serve m --attention-config \\'{"a":1}\\''
    """
    return " ".join([*(f"{name}={shlex.quote(env[name])}" for name in sorted(env)), shlex.join(argv)])


def _render_flag(key: str, carrier: ValueFlag | SwitchFlag, value: Value) -> list[str]:
    if isinstance(carrier, ValueFlag):
        word = _word(value)
        return [carrier.flag, carrier.words.get(word, word)]
    if value:
        return [carrier.flag_on]
    if carrier.flag_off is None:
        raise SpecError(
            f"{key} cannot be said to be off",
            expected=f"true, or unset: the engine has {carrier.flag_on} and no opposite",
            evidence=f"{key} = {value!r}",
            next=f"leave {key} out",
        )
    return [carrier.flag_off]


def _render_variable(carrier: VariableCarrier, value: Value) -> dict[str, str]:
    word = _word(value)
    return {} if word == carrier.unset_for else {carrier.variable: word}


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return f"{value:g}" if value == float(f"{value:g}") else repr(value)
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return str(value)
