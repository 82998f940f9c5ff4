"""What an engine is asked to be: one field per concept; which flag or variable carries it is knowledge."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, field_validator

from k3lib.errors import SpecError
from k3lib.spec.model import Fact, Strict

Scalar = bool | int | float | str
Value = Scalar | dict[str, Any]

Size = Annotated[int, Field(ge=1)]
Rank = Annotated[int, Field(ge=0)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Seconds = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENVIRONMENT = "environment."


class ChangeGroup(StrEnum):
    """Things that move together and therefore count as one change."""

    DRIVER = "driver"
    IMAGE = "image"
    TOPOLOGY = "topology"
    SITE = "site"


TOPOLOGY_SETTINGS = frozenset(
    {
        "tensor_parallel",
        "pipeline_parallel",
        "data_parallel",
        "data_parallel_local",
        "data_parallel_address",
        "data_parallel_rpc_port",
        "data_parallel_start_rank",
        "data_parallel_hybrid_lb",
        "expert_parallel",
        "decode_context_parallel",
        "nodes",
        "node_rank",
        "master_address",
        "master_port",
        "headless",
    }
)


class Difference(Fact):
    """
    One setting that differs between two sides.

    Args:
        key: The setting, or `environment.NAME`.
        ours: The value on our side, None where it is not passed.
        theirs: The value on the other side, None where it is not passed.
        group: The group it belongs to; all differences of one group count as one change.
    """

    key: str
    ours: Any
    theirs: Any
    group: ChangeGroup | None = None

    @property
    def change(self) -> str:
        """What this difference counts as: its group's name, or its own key."""
        return self.group.value if self.group else self.key


def name_changes(differences: Iterable[Difference]) -> list[str]:
    """
    The independent changes behind these differences, in order; more than one is refused before a launch.

    >>> base = EngineSettings(tensor_parallel=8, seed=0)
    >>> name_changes(base.differences(EngineSettings(tensor_parallel=16, nodes=2, seed=1)))
    ['topology', 'seed']
    """
    return list(dict.fromkeys(difference.change for difference in differences))


class EngineSettings(Strict):
    """
    The settings of one engine. None means: not passed, so the engine's own default of that release holds.

    >>> EngineSettings(prefix_caching=False, environment={"NCCL_CUMEM_ENABLE": "1"}).flat()
    {'prefix_caching': False, 'environment.NCCL_CUMEM_ENABLE': '1'}
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    # Topology: these fields count as one change together.
    tensor_parallel: Size | None = None
    """Ranks that share each layer."""
    pipeline_parallel: Size | None = None
    """Stages that share the layers."""
    data_parallel: Size | None = None
    """Replicas, over all nodes."""
    data_parallel_local: Rank | None = None
    """Replicas on this node; 0 for a head that only routes."""
    data_parallel_address: Text | None = None
    """Address of the data-parallel head."""
    data_parallel_rpc_port: Port | None = None
    """Port of the data-parallel head."""
    data_parallel_start_rank: Rank | None = None
    """First replica of this node."""
    data_parallel_hybrid_lb: bool | None = None
    """An API server per node that balances over its own replicas."""
    expert_parallel: bool | None = None
    """Experts are spread over all ranks instead of being cut."""
    decode_context_parallel: Size | None = None
    """Ranks that share the KV cache of one request in decode."""
    nodes: Size | None = None
    """Hosts of one engine."""
    node_rank: Rank | None = None
    """This host's position, 0 for the head."""
    master_address: Text | None = None
    """Address of the rendezvous."""
    master_port: Port | None = None
    """Port of the rendezvous."""
    headless: bool | None = None
    """This host runs workers and no API server."""

    # Sizes and memory.
    max_model_len: Size | Literal["auto"] | None = None
    """Prompt plus output, tokens; `auto` lets the engine shrink it silently."""
    max_num_seqs: Size | None = None
    """Requests in one step."""
    max_num_batched_tokens: Size | None = None
    """Tokens in one step."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of a GPU's memory that the engine may take, a fraction."""
    kv_cache_dtype: Text | None = None
    """Element type of the KV cache."""
    kv_cache_memory_bytes: Size | None = None
    """KV cache per rank, bytes; overrides the share."""
    num_gpu_blocks_override: Size | None = None
    """KV-cache blocks per rank, in place of the profiled number."""

    # Prefix caching.
    prefix_caching: bool | None = None
    """Prefix caching on or off; a release's default for a hybrid model differs, so the minimal base says it."""
    retention_interval_tokens: Rank | Literal["dense"] | None = None
    """Distance of kept states of linear attention, tokens; 0 keeps semantic checkpoints only, `dense` every block."""
    prefix_match_unit_tokens: Size | None = None
    """Granularity of prefix hashes, tokens."""
    block_size_tokens: Size | None = None
    """Tokens in a KV-cache block."""
    mamba_cache_mode: Text | None = None
    """How states of linear attention are cached."""
    hybrid_kv_cache_manager: bool | None = None
    """A KV-cache manager that knows several kinds of layer."""

    # Model and weights.
    load_format: Text | None = None
    """How weights are read; `dummy` allocates them all without reading the disk."""
    quantization: Text | None = None
    """Quantisation method."""
    dtype: Text | None = None
    """Element type of weights and activations."""
    revision: Text | None = None
    """Revision of the model repository."""
    tokenizer: Text | None = None
    """Tokenizer, where it is not the model's own."""
    trust_remote_code: bool | None = None
    """Code from the model repository may run."""
    language_model_only: bool | None = None
    """The vision encoder is left out."""
    mm_encoder_tp_mode: Text | None = None
    """How the vision encoder is spread: `weights` or `data`."""
    speculative_config: dict[str, Any] | None = None
    """Speculative decoding, as the engine's JSON."""

    # Kernels and execution.
    enforce_eager: bool | None = None
    """No CUDA graphs and no compilation."""
    moe_backend: Text | None = None
    """Kernels of the experts."""
    all2all_backend: Text | None = None
    """Exchange of tokens between expert ranks."""
    attention_backend: Text | None = None
    """Kernels of attention."""
    attention_config: dict[str, Any] | None = None
    """Attention, as the engine's JSON."""
    compilation_config: dict[str, Any] | None = None
    """Compilation and CUDA graphs, as the engine's JSON."""
    kv_transfer_config: dict[str, Any] | None = None
    """Transfer of KV cache between engines, as the engine's JSON."""
    decode_context_parallel_backend: Text | None = None
    """Exchange between decode-context ranks."""
    custom_all_reduce: bool | None = None
    """vLLM's own all-reduce kernel."""
    flashinfer_autotune: bool | None = None
    """FlashInfer kernels are tuned at start-up."""
    seed: int | None = None
    """Seed of the engine."""

    # Front end.
    tool_call_parser: Text | None = None
    """Parser of tool calls."""
    reasoning_parser: Text | None = None
    """Parser of reasoning."""
    auto_tool_choice: bool | None = None
    """The model decides by itself to call a tool."""
    prompt_tokens_details: bool | None = None
    """Usage tells the cached tokens."""
    rust_frontend: bool | None = None
    """The Rust front end serves HTTP."""

    # Process.
    v2_model_runner: bool | None = None
    """The second model runner executes the model."""
    engine_ready_timeout_s: Seconds | None = None
    """The front end's patience with the engine core at start-up, seconds."""
    execute_model_timeout_s: Seconds | None = None
    """Patience with one step of the workers, seconds."""
    log_stats_interval_s: Annotated[float, Field(gt=0)] | None = None
    """Distance of the log's statistics lines, seconds."""
    cpu_kv_cache_space_gib: Size | None = None
    """KV cache of the CPU back end, GiB."""
    cpu_omp_threads_bind: Text | None = None
    """Cores of the CPU back end, per rank."""

    environment: dict[str, str] = Field(default_factory=dict)
    """Variables that no field stands for; the name of one that a field stands for is refused when it is rendered."""

    @field_validator("environment")
    @classmethod
    def _check_names(cls, environment: dict[str, str]) -> dict[str, str]:
        for name in environment:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a variable")
        return environment

    def flat(self) -> dict[str, Value]:
        """What is set, key to value, in the order of the fields; a variable as `environment.NAME`, in alphabet."""
        fields = {key: getattr(self, key) for key in setting_names()}
        flat: dict[str, Value] = {key: value for key, value in fields.items() if value is not None}
        return flat | {_ENVIRONMENT + name: self.environment[name] for name in sorted(self.environment)}

    @classmethod
    def from_flat(cls, flat: Mapping[str, Any]) -> EngineSettings:
        """
        The settings that `flat` describes; the way back from a record.

        Raises:
            SpecError: A key is no setting, or its value is not one it can take.

        >>> EngineSettings.from_flat({"seed": 1, "environment.A": "b"}).flat()
        {'seed': 1, 'environment.A': 'b'}
        """
        settings = cls()
        for key, value in flat.items():
            settings = settings.with_change(key, value)
        return settings

    def with_change(self, key: str, value: Value | None) -> EngineSettings:
        """
        The same settings with one of them changed.

        Args:
            key: A field, or `environment.NAME`.
            value: The new value; None stops passing it.

        Raises:
            SpecError: The key is no setting, or the value is not one it can take.

        >>> EngineSettings(max_num_seqs=4).with_change("max_num_seqs", 8).flat()
        {'max_num_seqs': 8}
        """
        name = key.removeprefix(_ENVIRONMENT)
        if name == key:
            if key not in setting_names():
                raise _unknown_key(key, value)
            return self._validated({key: value}, key, value)
        environment: dict[str, Value] = {**self.environment}
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
        return self._validated({"environment": environment}, key, value)

    def differences(self, other: EngineSettings) -> list[Difference]:
        """
        Every setting that differs from the other side, in the order of the fields.

        >>> for found in EngineSettings(nodes=1).differences(EngineSettings(nodes=2)):
        ...     print(found.key, found.ours, found.theirs, found.group)
        nodes 1 2 topology
        """
        ours, theirs = self.flat(), other.flat()
        variables = sorted(key for key in ours.keys() | theirs.keys() if key.startswith(_ENVIRONMENT))
        return [
            Difference(key=key, ours=ours.get(key), theirs=theirs.get(key), group=group_of(key))
            for key in (*setting_names(), *variables)
            if ours.get(key) != theirs.get(key)
        ]

    def _validated(self, update: dict[str, Any], key: str, value: Value | None) -> EngineSettings:
        try:
            return EngineSettings.model_validate(self.model_dump() | update)
        except ValidationError as error:
            raise SpecError(
                f"{key} cannot be {value!r}",
                expected="; ".join(dict.fromkeys(part["msg"] for part in error.errors())),
                evidence=f"{key} = {value!r} ({type(value).__name__})",
                next=f"give {key} a value it can take, or null to leave it to the engine",
            ) from error


def setting_names() -> tuple[str, ...]:
    """The concepts, in their order; `environment` is not one."""
    return tuple(key for key in EngineSettings.model_fields if key != "environment")


def group_of(key: str) -> ChangeGroup | None:
    """
    The group that a setting belongs to, or None where it counts by itself.

    >>> group_of("tensor_parallel").value, group_of("seed")
    ('topology', None)
    """
    return ChangeGroup.TOPOLOGY if key in TOPOLOGY_SETTINGS else None


def _unknown_key(key: str, value: Value | None) -> SpecError:
    near = difflib.get_close_matches(key, setting_names(), n=1)
    return SpecError(
        f"{key!r} is not an engine setting",
        expected=f"{near[0]}, the nearest setting" if near else "a field of EngineSettings, or environment.NAME",
        evidence=f"{key} = {value!r}",
        next=f"write {near[0]}" if near else "look the setting up in k3lib/spec/settings.py",
    )
