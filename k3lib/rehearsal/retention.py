"""
Where a prefill stops, and which states of linear attention are kept for later requests.

A state can be kept only where a chunk of the prefill ends, or where the backend exports the prompt's own checkpoint
from inside its last chunk (FlashKDA does). So with an interval of 0 a repeated prompt resumes at its last whole block,
and a prefix that two different prompts share is kept when the second of them finds it (the junction) and used by the
third; with `None` every chunk's end is kept besides.

Source: vLLM 0.32.0 v1/core/sched/scheduler.py:443-560 (where chunks end), v1/core/single_type_kv_cache_manager.py:1533
(which states stay), v1/kv_cache_interface.py:1110-1146 (the checkpoint), v1/core/kv_cache_coordinator.py:64 (replay
boundaries).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True)
class Retention:
    """
    The policy of one engine.

    Args:
        block_tokens: Tokens that one block, and with it one hit, spans.
        interval_tokens: 0 keeps the prompt's checkpoint and junctions; above 0 also chunk ends at its multiples; None
            every chunk end.
        checkpoint_tokens: Grid of the prompt's own checkpoint; the block unless the engine hashes finer. A checkpoint
            off the block's grid can't be met by attention, which matches whole blocks: it is of no use to anybody.
        largest_chunk_tokens: Budget of a step; a block that is wider is prefilled in parts, any other one whole.
        speculative: Whether a draft model runs; its attention drops the last matched block.
    """

    block_tokens: int
    interval_tokens: int | None = 0
    checkpoint_tokens: int | None = None
    largest_chunk_tokens: int = 8192
    speculative: bool = False

    def hit_blocks(self, prompt_tokens: int, cached_blocks: int) -> int:
        """
        How many of the cached blocks of a prompt it may start from.

        Its last token is always computed; with a draft model the last block that matches is dropped instead.

        >>> Retention(1536).hit_blocks(3072, 2), Retention(1536).hit_blocks(3073, 2)
        (1, 2)
        >>> [Retention(1536, speculative=True).hit_blocks(tokens, 2) for tokens in (3072, 3073, 9000)]
        [1, 1, 1]
        """
        if self.speculative:
            return max(0, min(prompt_tokens // self.block_tokens, cached_blocks) - 1)
        return min((prompt_tokens - 1) // self.block_tokens, cached_blocks)

    def chunk_end(self, start: int, limit: int, prompt_tokens: int, junction: int = 0) -> int:
        """
        Where a chunk of a prefill ends.

        Args:
            start: Tokens computed so far.
            limit: Where the budget of the step would end it.
            prompt_tokens: Where the prefill ends.
            junction: End of a prefix that attention has and no state, or 0.

        Returns:
            A position after `start`, or `start` where the budget does not reach the next place to stop.

        >>> [Retention(1536).chunk_end(start, start + 8192, 10_000) for start in (0, 7680)]
        [7680, 10000]
        """
        block, end = self.block_tokens, min(limit, prompt_tokens)
        exports = self._exports_inside(start, end, prompt_tokens)
        if end < prompt_tokens:
            aligned = end // block * block
            end = max(aligned, start) if aligned > start or block <= self.largest_chunk_tokens else end
        stops = [start + (junction - start) // block * block if start < junction < end else 0]
        if not exports:
            stops.append(self._checkpoint(prompt_tokens, block))
            if self._grid != block:
                stops.append(self._checkpoint(prompt_tokens, self._grid))
            if start % block:
                stops.append((start // block + 1) * block)
        return min((stop for stop in stops if start < stop < end), default=end)

    def kept_states(self, start: int, end: int, prompt_tokens: int, junction: int = 0) -> list[int]:
        """
        Positions whose state stays after a chunk, in tokens, whole blocks each.

        >>> Retention(1536, None).kept_states(0, 7680, 10_000), Retention(1536).kept_states(7680, 10_000, 10_000)
        ([7680], [9216])
        >>> Retention(1536).kept_states(0, 3072, 10_000, junction=3072)
        [3072]
        """
        block, checkpoint = self.block_tokens, self._checkpoint(prompt_tokens, self._grid)
        kept = set()
        if self._exports_inside(start, end, prompt_tokens):
            kept.add(checkpoint)
        if end % block == 0 and self._keeps_chunk_end(end, prompt_tokens, junction):
            kept.add(end)
        return sorted(position for position in kept if position and position % block == 0)

    @property
    def _grid(self) -> int:
        return self.checkpoint_tokens or self.block_tokens

    def _keeps_chunk_end(self, end: int, prompt_tokens: int, junction: int) -> bool:
        if self.interval_tokens is None:
            return True
        if self.interval_tokens and end % self.interval_tokens == 0:
            return True
        return end in {self._checkpoint(prompt_tokens, self.block_tokens), junction}

    def _checkpoint(self, prompt_tokens: int, grid: int) -> int:
        """The boundary that a resend of the prompt can resume at."""
        proof = prompt_tokens if self.speculative else prompt_tokens - 1
        return max(0, proof // grid * grid - (grid if self.speculative else 0))

    def _exports_inside(self, start: int, end: int, prompt_tokens: int) -> bool:
        """Whether this chunk is the prompt's last and its checkpoint can be taken from inside it."""
        if end < prompt_tokens:
            return False
        grid, checkpoint = self._grid, self._checkpoint(prompt_tokens, self._grid)
        first_column, last_column = (start - 1) // self.block_tokens, ceil(end / self.block_tokens) - 2
        in_order = start + grid <= checkpoint < end
        return start % grid == 0 and last_column > first_column and in_order
