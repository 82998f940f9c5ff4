"""One request inside the engine: what it wants, what it holds and how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Token(NamedTuple):
    """
    One token as it is made.

    Args:
        number: Of the answer's tokens so far.
        due_s: When the model says that it is there, on the event loop's clock.
    """

    number: int
    due_s: float


@dataclass(eq=False)
class Request:
    """
    One request.

    Args:
        prompt: Token pieces.
        output_tokens: How many will be generated.
        max_tokens: The limit it came with.
        finish_reason: `stop` or `length`, known in advance because the answer is.
        salt: Keeps prompts with other images or cache salts apart.
        steps: Each token as it is made; None once the engine is dead.
        hashes: Of the prompt's full blocks.
        shared: Cached blocks it holds, in order.
        blocks: Blocks of its own.
        computed: Tokens whose cache stands.
        goal: Tokens whose cache must stand before the next token comes.
        junction: End of a prefix that attention has and no state.
        cached_tokens: Prompt tokens found in the cache at the first admission.
    """

    prompt: Sequence[str]
    output_tokens: int
    max_tokens: int
    finish_reason: str
    salt: str = ""
    steps: asyncio.Queue[Token | None] = field(default_factory=asyncio.Queue)
    hashes: list[bytes] = field(default_factory=list)
    shared: list[bytes] = field(default_factory=list)
    blocks: int = 0
    computed: int = 0
    goal: int = 0
    junction: int = 0
    cached_tokens: int = 0
    emitted: int = 0
    preemptions: int = 0
    arrived: float = 0.0
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt)

    @property
    def decoding(self) -> bool:
        """Whether the next step gives a token."""
        return self.computed >= self.goal > 0
