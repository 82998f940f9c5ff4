"""
The figures that this model gives, each beside its source: `python -m k3lib.rehearsal figures`.

The source is the `Source:` of the formula's own docstring, so the two can't part.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from k3lib.knowledge import kv_pool
from k3lib.knowledge.capacity import GIB, Layout
from k3lib.knowledge.hardware import find_machine
from k3lib.knowledge.model import load_model_facts
from k3lib.rehearsal.arguments import parse_arguments
from k3lib.rehearsal.config import read_stage, resolve_config
from k3lib.rehearsal.memory import MIB, plan_memory, plan_pool
from k3lib.rehearsal.profiles import read_profile

_PAIR = "--nnodes 2 --node-rank 0"
# Where Kimi K3 is known to run, and the flags that the official recipe gives there.
DEPLOYMENTS: Mapping[str, tuple[str, str]] = {
    "8xB300, TP8, fp8": ("8xB300", "-tp 8 --gpu-memory-utilization 0.95 --kv-cache-dtype fp8"),
    "8xGB300, TP8, fp8": ("8xGB300", f"-tp 8 {_PAIR} --gpu-memory-utilization 0.95 --kv-cache-dtype fp8"),
    "8xMI355X, TP8, bf16": ("8xMI355X", "-tp 8 --gpu-memory-utilization 0.95 --max-num-batched-tokens 4096"),
    "16xB200, TP8 PP2, fp8": ("16xB200", f"-tp 8 -pp 2 {_PAIR} --gpu-memory-utilization 0.90 --kv-cache-dtype fp8"),
    "16xH200, TP8 DP2, bf16": (
        "16xH200",
        "-tp 8 -dp 2 --data-parallel-size-local 1 --gpu-memory-utilization 0.97 --max-model-len 32768 "
        "--max-num-seqs 5 --max-num-batched-tokens 4096",
    ),
}


@dataclass(frozen=True)
class Figure:
    """One number of the model, for people: what it is, its value, and where its formula is from."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Capacity:
    """
    What a deployment leaves for requests, on one rank.

    Args:
        kv_gib: For the KV cache.
        long, medium: Requests of 1,048,576 and of 131,072 tokens that fit at once; None beyond the maximum length.
    """

    kv_gib: float
    long: float | None
    medium: float | None


def compute_capacity(name: str) -> Capacity:
    """
    The capacity of one deployment, by the engine's own arithmetic.

    Args:
        name: A key of `DEPLOYMENTS`.

    >>> round(compute_capacity("8xB300, TP8, fp8").kv_gib, 2)
    57.06
    """
    machine, flags = DEPLOYMENTS[name]
    stage = read_stage({"K3_REHEARSAL_MACHINE": machine})
    values = parse_arguments(["serve", "moonshotai/Kimi-K3", *flags.split()], read_profile({}))
    config = resolve_config(values, {}, find_machine(machine))
    plan = plan_memory(config, stage)
    fits = []
    for length in (1_048_576, 131_072):
        cache = replace(config.cache, max_model_len=length)
        pool = plan_pool(replace(config, cache=cache), plan)
        fits.append(pool.max_concurrency if length <= config.cache.max_model_len else None)
    return Capacity(plan.available / GIB, *fits)


def list_figures() -> Iterator[Figure]:
    """Every figure, formulas first, then the capacity of the known deployments."""
    k3 = load_model_facts()
    for what, arguments in (
        ("TP8 fp8", (8, "fp8")), ("TP8 bf16", (8, "auto")), ("TP16 fp8", (16, "fp8")), ("TP4 fp8", (4, "fp8")),
        ("TP1 fp8", (1, "fp8")), ("TP8 fp8, 8 draft tokens", (8, "fp8", 8)),
    ):  # fmt: skip
        value = f"{kv_pool.hybrid_block_tokens(k3, *arguments):,} tokens"
        yield _figure(f"hybrid block, {what}", value, kv_pool.hybrid_block_tokens)
    for tokens in (131_072, 1_048_576):
        blocks = kv_pool.kv_blocks_per_request(tokens, kv_pool.hybrid_block_tokens(k3, 8))
        yield _figure(f"blocks of a request of {tokens:,} tokens, TP8 fp8", str(blocks), kv_pool.kv_blocks_per_request)
    size = kv_pool.pool_block_bytes(k3, Layout(8)) / MIB
    yield _figure("one block on one rank, TP8 fp8", f"{size} MiB", kv_pool.pool_block_bytes)
    share = kv_pool.state_padding_fraction(k3, 8)
    yield _figure("padding of a state, TP8 fp8", f"{share:.2%}", kv_pool.state_padding_fraction)
    added, wasted = kv_pool.padding_layers(k3)
    yield _figure("padding layers", f"{added}, at most {wasted:.2%}", kv_pool.padding_layers)
    for name in DEPLOYMENTS:
        room = compute_capacity(name)
        fits = [
            f"{count:.1f} x {size}" for count, size in ((room.long, "1M"), (room.medium, "128k")) if count is not None
        ]
        text = f"{room.kv_gib:.1f} GiB of KV cache a rank" + (f": {' or '.join(fits)} tokens" if fits else "")
        yield Figure(name, text, "this model; its assumed sizes are marked in model_k3.yaml")


def _figure(name: str, value: str, formula: Callable[..., Any]) -> Figure:
    """A figure with the source that its formula names."""
    _, _, rest = (inspect.getdoc(formula) or "").partition("Source:\n")
    return Figure(name, value, " ".join(rest.partition("\n\n")[0].split()))


def print_figures() -> int:
    """The command `figures`."""
    figures = list(list_figures())
    width = max(len(one.name) for one in figures)
    for one in figures:
        print(f"{one.name:<{width}}  {one.value:<46}  {one.source}")
    return 0
