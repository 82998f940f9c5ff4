"""
The KV pool in use: blocks held by running requests, and full blocks kept for a later request with the same prefix.

A cached block that nobody holds is free: it counts as unused and is the first to go, least recently used first. Hits
are whole blocks, and at least one token of a prompt is always computed.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from math import ceil

from k3lib.knowledge.capacity import KvPool


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
    """

    def __init__(self, pool: KvPool, *, caching: bool) -> None:
        self._pool, self.caching = pool, caching
        self._held = 0  # blocks of running requests that no other request shares
        self._shared: dict[bytes, int] = {}  # cached blocks in use: how many requests hold each
        self._idle: OrderedDict[bytes, None] = OrderedDict()  # cached blocks nobody holds, oldest first

    @property
    def usage_fraction(self) -> float:
        """Blocks in use, 0–1; cached blocks that nobody holds are not in use."""
        return (self._held + len(self._shared)) / self._pool.blocks if self._pool.blocks else 0.0

    @property
    def idle(self) -> bool:
        """Whether no request holds a block."""
        return self._held == 0 and not self._shared

    def own_blocks(self, tokens: int) -> int:
        """Blocks of a request of this many tokens."""
        return ceil(tokens / self._pool.block_tokens) + self._pool.state_blocks

    def match(self, hashes: Sequence[bytes], prompt_tokens: int) -> list[bytes]:
        """The cached blocks that a prompt can start from."""
        if not self.caching:
            return []
        usable = islice(hashes, (prompt_tokens - 1) // self._pool.block_tokens)
        found = []
        for block in usable:
            if block not in self._shared and block not in self._idle:
                break
            found.append(block)
        return found

    def take(self, blocks: int, cached: Sequence[bytes] = ()) -> bool:
        """
        Hold `blocks` new blocks and these cached ones; evicts idle cached blocks as needed.

        Returns:
            False, and nothing is held, if the pool is too full.
        """
        woken = [block for block in cached if block in self._idle]
        if self._held + len(self._shared) + len(woken) + blocks > self._pool.blocks:
            return False
        for block in woken:
            del self._idle[block]
        for block in cached:
            self._shared[block] = self._shared.get(block, 0) + 1
        self._held += blocks
        self._evict()
        return True

    def give_back(self, blocks: int, cached: Sequence[bytes], filled: Sequence[bytes] = ()) -> None:
        """
        Let go of a request's blocks.

        Args:
            blocks: New blocks it held.
            cached: Cached blocks it held.
            filled: Full blocks it computed, kept for others while there is room.
        """
        self._held -= blocks
        for block in cached:
            self._shared[block] -= 1
            if not self._shared[block]:
                del self._shared[block]
                self._idle[block] = None
        if self.caching:
            for block in filled:
                if block not in self._shared:
                    self._idle[block] = None
                    self._idle.move_to_end(block)
        self._evict()

    def forget(self) -> bool:
        """Drop all cached blocks; False, and nothing is dropped, while a request holds blocks."""
        if not self.idle:
            return False
        self._idle.clear()
        return True

    def _evict(self) -> None:
        while self._idle and self._held + len(self._shared) + len(self._idle) > self._pool.blocks:
            self._idle.popitem(last=False)
