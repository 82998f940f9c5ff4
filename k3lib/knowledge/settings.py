"""How a setting reaches the engine, by release: which flag or variable carries it, and what holds without it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from k3lib.errors import SpecError
from k3lib.knowledge.package_data import read_facts
from k3lib.knowledge.versions import Release
from k3lib.spec.model import Strict
from k3lib.spec.settings import EngineSettings, setting_names

MinorText = Annotated[str, Field(pattern=r"^\d+\.\d+$")]
Flag = Annotated[str, Field(pattern=r"^--[a-z0-9-]+$")]
Variable = Annotated[str, Field(pattern=r"^[A-Z0-9_]+$")]


class _Ranged(Strict):
    since: MinorText | None = None
    until: MinorText | None = None
    source: str

    @property
    def span(self) -> str:
        """The releases it holds for, in words."""
        if self.since is None and self.until is None:
            return "every release"
        if self.since is None:
            return f"up to {self.until}"
        return f"from {self.since} on" if self.until is None else f"{self.since} to {self.until}"


class ValueFlag(_Ranged):
    """
    A flag followed by its value.

    Args:
        flag: The flag.
        words: How a value is spelt on the command line, where it isn't itself.
        since, until: Minor releases, both included; None is open.
        source: Key of the file's sources.
    """

    form: Literal["value"]
    flag: Flag
    words: dict[str, str] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """What a person would look for."""
        return self.flag


class SwitchFlag(_Ranged):
    """
    A flag that is there or not, mostly with an opposite.

    Args:
        flag_on: Said for true.
        flag_off: Said for false; None where silence is the only way to say it.
        since, until: Minor releases, both included; None is open.
        source: Key of the file's sources.
    """

    form: Literal["switch"]
    flag_on: Flag
    flag_off: Flag | None = None

    @property
    def name(self) -> str:
        """What a person would look for."""
        return self.flag_on


class VariableCarrier(_Ranged):
    """
    An environment variable.

    Args:
        variable: Its name.
        unset_for: The value that is said by not setting it, or None.
        since, until: Minor releases, both included; None is open.
        source: Key of the file's sources.
    """

    form: Literal["variable"]
    variable: Variable
    unset_for: str | None = None

    @property
    def name(self) -> str:
        """What a person would look for."""
        return self.variable


Carrier = Annotated[ValueFlag | SwitchFlag | VariableCarrier, Field(discriminator="form")]


class SettingDefault(_Ranged):
    """
    What holds where a setting is not passed.

    Args:
        value: The engine's own value.
        hybrid: Only for models with (True) or without (False) linear-attention layers; None is for all.
        since, until: Minor releases, both included; None is open.
        source: Key of the file's sources.
    """

    value: bool | int | float | str
    hybrid: bool | None = None


class DebugVariable(Strict):
    """
    A variable whose trial belongs to no series.

    Args:
        name: Its name.
        values: Values that make it one, in capitals; None means any but empty and 0.
        source: Key of the file's sources.
    """

    name: Variable
    values: list[str] | None = None
    source: str

    def set_by(self, value: str) -> bool:
        """True if this value makes it a debug variable."""
        if self.values is None:
            return value.strip() not in ("", "0")
        return value.strip().upper() in self.values


class SettingFacts(Strict):
    """
    What is known about settings.

    Args:
        schema_version: Of the file.
        dated: The day of the last look, ISO 8601.
        sources: Short name to full source.
        carriers: Setting to its carriers; the ranges of one setting don't overlap.
        defaults: Setting to what holds without it.
        debug_variables: Variables that keep a trial out of every series.
    """

    schema_version: int
    dated: str
    sources: dict[str, str]
    carriers: dict[str, list[Carrier]]
    defaults: dict[str, list[SettingDefault]]
    debug_variables: list[DebugVariable]

    @model_validator(mode="after")
    def _every_name_is_known(self) -> SettingFacts:
        if list(self.carriers) != list(setting_names()):
            odd = sorted(self.carriers.keys() ^ set(setting_names())) or "their order"
            raise ValueError(f"carriers and EngineSettings disagree on {odd}")
        if unknown := self.defaults.keys() - set(setting_names()):
            raise ValueError(f"defaults name no setting: {sorted(unknown)}")
        used = {variable.source for variable in self.debug_variables}
        used |= {carrier.source for carriers in self.carriers.values() for carrier in carriers}
        used |= {default.source for defaults in self.defaults.values() for default in defaults}
        if missing := used ^ self.sources.keys():
            raise ValueError(f"sources without a use, or uses without a source: {sorted(missing)}")
        return self


@cache
def setting_facts() -> SettingFacts:
    """The dated facts about settings that ship with this package."""
    return read_facts("settings.yaml", SettingFacts)


def carrier_of(key: str, release: Release) -> ValueFlag | SwitchFlag | VariableCarrier:
    """
    What carries a setting in a release.

    Args:
        key: A field of EngineSettings.
        release: The engine's release.

    Raises:
        SpecError: The release has nothing that carries it, or it is unknown and that decides.

    >>> from k3lib.knowledge.versions import parse_release
    >>> carrier_of("retention_interval_tokens", parse_release("0.28.0")).name
    'VLLM_PREFIX_CACHE_RETENTION_INTERVAL'
    >>> carrier_of("retention_interval_tokens", parse_release("0.33.0")).name
    '--prefix-cache-retention-interval'
    """
    carriers = setting_facts().carriers[key]
    for carrier in carriers:
        if release.within(carrier.since, carrier.until):
            return carrier
    known = "; ".join(f"{carrier.name} ({carrier.span})" for carrier in carriers)
    raise SpecError(
        f"{key} cannot be carried to vLLM {release}",
        expected=f"a release that has it: {known}",
        evidence=release.reason or f"vLLM {release} behaves as {release.behaves_as}",
        next=f"leave {key} out, or say which release it is in engine.version",
    )


def default_of(key: str, release: Release, *, hybrid: bool) -> Any:
    """
    The engine's own value where a setting is not passed, as far as it is known.

    Args:
        key: A field of EngineSettings.
        release: The engine's release.
        hybrid: The model has linear-attention layers, as Kimi K3 does.

    Returns:
        The value; None where it is not known for this release and model.

    >>> from k3lib.knowledge.versions import parse_release
    >>> [default_of("prefix_caching", parse_release(text), hybrid=True) for text in ("0.27.1", "0.28.0", "?")]
    [False, True, None]
    """
    for default in setting_facts().defaults.get(key, []):
        if release.within(default.since, default.until) and default.hybrid in (None, hybrid):
            return default.value
    return None


def concept_of_variable(name: str) -> str | None:
    """
    The setting that a variable carries in some release, or None where it is none of ours.

    >>> concept_of_variable("VLLM_PREFIX_CACHE_RETENTION_INTERVAL")
    'retention_interval_tokens'
    """
    for key, carriers in setting_facts().carriers.items():
        if any(isinstance(carrier, VariableCarrier) and carrier.variable == name for carrier in carriers):
            return key
    return None


def check_environment(settings: EngineSettings) -> None:
    """
    Refuse a variable that a setting stands for: one concept has one place, or two sessions can't be compared.

    Raises:
        SpecError: Names the variable and the setting.
    """
    for name, value in settings.environment.items():
        if concept := concept_of_variable(name):
            raise SpecError(
                f"environment.{name} is the setting {concept}",
                expected=f"{concept}, which reaches every release by what that release understands",
                evidence=f"environment.{name} = {value!r}",
                next=f"remove {name} from environment and set {concept}",
            )


def debug_variables(environment: Mapping[str, str]) -> list[str]:
    """
    The debug variables that are set, as `NAME=value`; a trial with one stays out of every series (R-17).

    >>> debug_variables({"NCCL_DEBUG": "TRACE", "CUDA_LAUNCH_BLOCKING": "0"})
    ['NCCL_DEBUG=TRACE']
    """
    return [
        f"{variable.name}={environment[variable.name]}"
        for variable in setting_facts().debug_variables
        if variable.name in environment and variable.set_by(environment[variable.name])
    ]
