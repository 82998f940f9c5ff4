"""Could Kimi K3 fit here, by memory alone? An estimate that can exclude and never prove (R-08, R-14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from k3lib.knowledge.capacity import Layout, weight_bytes
from k3lib.knowledge.model import load_model_facts
from k3lib.knowledge.recipe import find_gpu, load_recipe
from k3lib.spec.accelerators import Gpu

_RANKS = 8  # the smallest layout of the recipe, TP8


@dataclass(frozen=True)
class MemoryFit:
    """
    GPUs against the weights of Kimi K3.

    Args:
        case: `unknown` (the GPUs or their memory), `none`, `mixed`, `cut` (MIG or partitions), `too-small` (all
            together hold less than the weights), `one-rank` (a GPU holds less than its share), `more-hosts` (this kind
            fits, with more of them), `may-fit`.
        kind: The recipe's name of the GPU, or the driver's; None if there is none or several.
        gpus: How many answer.
        memory_bytes: Of the smallest.
        total_bytes: Of all.
        weights_bytes: The whole checkpoint.
        rank_bytes: Weights on one rank of TP8.
        needed: GPUs that the recipe starts with on this kind; None where it does not know it.
    """

    case: Literal["unknown", "none", "mixed", "cut", "too-small", "one-rank", "more-hosts", "may-fit"]
    weights_bytes: int
    rank_bytes: float
    kind: str | None = None
    gpus: int = 0
    memory_bytes: int | None = None
    total_bytes: int | None = None
    needed: int | None = None


def estimate_fit(gpus: Sequence[Gpu] | None) -> MemoryFit:
    """
    What memory alone says.

    Args:
        gpus: GPUs of all hosts that would serve together; None if they are unknown. Lost ones do not count.

    Returns:
        The estimate.

    >>> tray = [Gpu(index=i, vendor="nvidia", name="NVIDIA GB300", memory_total_bytes=284208 << 20) for i in range(4)]
    >>> estimate_fit(tray).case, estimate_fit(tray).needed, estimate_fit([*tray, *tray]).case
    ('more-hosts', 8, 'may-fit')
    """
    model = load_model_facts()
    weights, rank = model.checkpoint_bytes, weight_bytes(model, Layout(_RANKS))
    usable = [gpu for gpu in gpus or [] if not gpu.lost]
    if gpus is None or not usable:
        return MemoryFit("unknown" if gpus is None else "none", weights, rank)
    names = {find_gpu(gpu.name or "") or gpu.name for gpu in usable}
    if len(names) > 1:
        return MemoryFit("mixed", weights, rank, gpus=len(usable))
    kind, sizes = names.pop(), [gpu.memory_total_bytes for gpu in usable]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return MemoryFit("unknown", weights, rank, kind, len(usable))
    if any(gpu.slices for gpu in usable):
        return MemoryFit("cut", weights, rank, kind, len(usable), min(known), sum(known))
    official = load_recipe().hardware.get(kind or "")
    needed = official.min_gpus if official else None
    case = _case(known, weights, rank, needed)
    return MemoryFit(case, weights, rank, kind, len(usable), min(known), sum(known), needed)


def _case(
    sizes: list[int], weights: int, rank: float, needed: int | None
) -> Literal["too-small", "one-rank", "more-hosts", "may-fit"]:
    if sum(sizes) >= weights and len(sizes) >= (needed or 1):
        # More ranks than eight carry less each; of eight or fewer each must hold its share.
        return "one-rank" if len(sizes) <= _RANKS and min(sizes) < rank else "may-fit"
    return "more-hosts" if needed and min(sizes) * needed >= weights else "too-small"
