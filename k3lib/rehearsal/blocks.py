"""
The KV pool in use: blocks held by running requests, and what is kept for a later request with the same prefix.

Two kinds of thing are kept: full attention blocks, chained by hash, and states of linear attention at a block's end,
which cost a block in each of their groups. A hit needs both: attention up to somewhere, and a state no later than that.
What nobody holds is free: it counts as unused and goes first, least recently used first, a request's tail before its
head.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from k3lib.knowledge.kv_pool import KvPool
from k3lib.rehearsal.retention import Retention

Key = tuple[Literal["attention", "state"], bytes]


@dataclass(frozen=True)
class Match:
    """
    What a prompt can start from.

    Args:
        tokens: Length of the hit, whole blocks.
        blocks: Its attention blocks.
        junction: End of a longer prefix that attention has and no state, tokens; 0 if there is none.
    """

    tokens: int = 0
    blocks: tuple[bytes, ...] = ()
    junction: int = 0


NO_MATCH = Match()


def hash_blocks(pieces: Sequence[str], block_tokens: int, salt: str = "") -> list[bytes]:
    """
    A chained hash per full block: two prompts share a block only if they share everything before it.

    >>> first, second = hash_blocks(["a"] * 4, 2), hash_blocks(["a"] * 5, 2)
    >>> first == second
    True
    """
    hashes, previous = [], salt.encode()
    for start in range(0, len(pieces) - block_tokens + 1, block_tokens):
        block = "\x00".join(pieces[start : start + block_tokens])
        previous = hashlib.sha256(previous + block.encode()).digest()
        hashes.append(previous)
    return hashes


class BlockPool:
    """
    Counts blocks.

    Args:
        pool: Size and geometry.
        caching: Whether full blocks are kept and looked up.
        retention: Which states are kept; only asked where the model has linear-attention groups.
        hidden: Blocks that `fits` counts as free and `take` can't have.
    """

    def __init__(self, pool: KvPool, *, caching: bool, retention: Retention, hidden: int = 0) -> None:
        self._pool, self.caching, self.retention, self._hidden = pool, caching, retention, hidden
        self._held = 0  # blocks of running requests that no other request shares
        self._shared: dict[bytes, int] = {}  # cached attention blocks in use: how many requests hold each
        self._idle: OrderedDict[Key, int] = OrderedDict()  # what nobody holds, oldest first, and its blocks
        self._idle_blocks = 0
        self.evictions = 0

    @property
    def usage_fraction(self) -> float:
        """Blocks in use, 0–1; cached blocks that nobody holds are not in use."""
        return self._used / self._pool.blocks if self._pool.blocks else 0.0

    @property
    def idle(self) -> bool:
        """Whether no request holds a block."""
        return self._used == 0

    @property
    def keeps_states(self) -> bool:
        """Whether states of linear attention are kept, so that a prefill stops where one can be."""
        return self.caching and self._pool.state_groups > 0

    @property
    def _used(self) -> int:
        return self._held + len(self._shared)

    def own_blocks(self, tokens: int) -> int:
        """Blocks of a request of this many tokens: its attention's and its states'."""
        return ceil(tokens / self._pool.unit_tokens) + self._pool.state_blocks

    def match(self, hashes: Sequence[bytes], prompt_tokens: int) -> Match:
        """The longest prefix that attention and states both have."""
        if not self.caching:
            return NO_MATCH
        unit = self._pool.unit_tokens
        cached = next((index for index, one in enumerate(hashes) if not self._has("attention", one)), len(hashes))
        found = hit = self.retention.hit_blocks(prompt_tokens, cached)
        if self._pool.state_groups:
            while hit and not self._has("state", hashes[hit - 1]):
                hit -= 1
        return Match(hit * unit, tuple(hashes[:hit]), found * unit if found > hit else 0)

    def fits(self, blocks: int, match: Match) -> bool:
        """What the admission gate asks: would this many new blocks find room beside the hit's?"""
        return self._used + self._count_idle(match.blocks) + blocks <= self._pool.blocks

    def take(self, blocks: int, match: Match = NO_MATCH) -> bool:
        """
        Hold `blocks` new blocks and the hit's; evicts what nobody holds as needed.

        Returns:
            False, and nothing is held, if the pool is too full.
        """
        if self._used + self._count_idle(match.blocks) + blocks > self._pool.blocks - self._hidden:
            return False
        for block in match.blocks:
            self._wake(block)
            self._shared[block] = self._shared.get(block, 0) + 1
        if match.blocks and ("state", match.blocks[-1]) in self._idle:
            self._idle.move_to_end(("state", match.blocks[-1]))
        self._held += blocks
        self._evict()
        return True

    def publish(self, blocks: Sequence[bytes]) -> list[bytes]:
        """
        Full blocks that a running request has just computed, open to others from now on.

        Returns:
            Those that it now shares; a copy of one that others hold stays its own, one that nobody holds is replaced.
        """
        new = [block for block in blocks if self.caching and block not in self._shared]
        for block in new:
            self._wake(block)
            self._shared[block] = 1
        self._held -= len(new)
        return new

    def give_back(self, blocks: int, shared: Sequence[bytes]) -> None:
        """
        Let go of a request's blocks; what it shared stays while there is room.

        Args:
            blocks: Blocks of its own.
            shared: Blocks that it held with others, in order.
        """
        self._held -= blocks
        for block in reversed(shared):
            self._shared[block] -= 1
            if not self._shared[block]:
                del self._shared[block]
                self._keep(("attention", block), 1)
        self._evict()

    def keep_state(self, block: bytes) -> None:
        """Keep the state at the end of a block: one block in each group of linear attention."""
        if self.keeps_states:
            self._keep(("state", block), self._pool.state_groups)
            self._evict()

    def forget(self) -> bool:
        """Drop all that is cached; False, and nothing is dropped, while a request holds blocks."""
        if not self.idle:
            return False
        self._idle.clear()
        self._idle_blocks = 0
        return True

    def _has(self, kind: Literal["attention", "state"], block: bytes) -> bool:
        return (kind, block) in self._idle or (kind == "attention" and block in self._shared)

    def _count_idle(self, blocks: Iterable[bytes]) -> int:
        return sum(("attention", block) in self._idle for block in blocks)

    def _keep(self, key: Key, blocks: int) -> None:
        self._idle_blocks += blocks - self._idle.pop(key, 0)
        self._idle[key] = blocks

    def _wake(self, block: bytes) -> None:
        self._idle_blocks -= self._idle.pop(("attention", block), 0)

    def _evict(self) -> None:
        while self._idle and self._used + self._idle_blocks > self._pool.blocks:
            _, blocks = self._idle.popitem(last=False)
            self._idle_blocks -= blocks
            self.evictions += 1
