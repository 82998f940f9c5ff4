"""
A tokenizer of words: stable counts, reversible, and about four characters a token. Not Kimi K3's own: its counts
differ.

A message is rendered with markers like those of Kimi K3's renderer; each marker is one token, as it is there.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from k3lib.knowledge.model import load_model_facts

_PIECE = re.compile(r" ?[^\W\d_]{1,8}|\d{1,3}| ?[^\w\s]|_|\s+")
OPEN, SEPARATOR, CLOSE = "<|open|>", "<|sep|>", "<|close|>"
_SPECIAL = (OPEN, SEPARATOR, CLOSE)
_IMAGE_TOKENS = 256


def split_tokens(text: str) -> list[str]:
    """
    Text as token pieces; joined they give the text back.

    >>> split_tokens("Kimi answers: 42!")
    ['Kimi', ' answers', ':', ' ', '42', '!']
    """
    return _PIECE.findall(text)


class Vocabulary:
    """
    Numbers for pieces, the same in every process: a checksum, so that nothing need be stored before a piece is seen.

    >>> words = Vocabulary()
    >>> words.decode(words.encode(["Kimi", " answers"]))
    'Kimi answers'
    """

    def __init__(self) -> None:
        self._size = load_model_facts().vocab_size - len(_SPECIAL)
        self._ids = {piece: self._size + index for index, piece in enumerate(_SPECIAL)}
        self._pieces = {number: piece for piece, number in self._ids.items()}

    def encode(self, pieces: Sequence[str]) -> list[int]:
        """Token numbers of pieces."""
        return [self._ids.get(piece) or self._add(piece) for piece in pieces]

    def decode(self, numbers: Sequence[int]) -> str:
        """Text of token numbers; one never handed out reads as the replacement character."""
        return "".join(self._pieces.get(number, "\ufffd") for number in numbers)

    def _add(self, piece: str) -> int:
        number = zlib.crc32(piece.encode()) % self._size or 1
        while number in self._pieces:
            number = number % (self._size - 1) + 1
        self._ids[piece], self._pieces[number] = number, piece
        return number


def message_text(message: Mapping[str, Any]) -> str:
    """The text of one message: a string, the text parts of a list, or nothing."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    return ""


def render_messages(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), *, open_answer: bool = True
) -> list[str]:
    """
    A conversation as token pieces.

    Args:
        messages: OpenAI chat messages.
        tools: Tool definitions; they stand in front, as in a system message, keys in the order they came.
        open_answer: End with the opening of the assistant's turn.
    """
    pieces: list[str] = []
    if tools:
        pieces += [OPEN, "tools", SEPARATOR, *split_tokens(json.dumps(list(tools))), CLOSE]
    for message in messages:
        pieces += [OPEN, str(message.get("role", "")), SEPARATOR, *split_tokens(message_text(message))]
        for call in message.get("tool_calls") or ():
            pieces += [SEPARATOR, *split_tokens(json.dumps(call.get("function", {})))]
        for _ in range(count_images(message)):
            pieces += ["<|image|>"] * _IMAGE_TOKENS
        pieces.append(CLOSE)
    return [*pieces, OPEN, "assistant", SEPARATOR] if open_answer else pieces


def count_images(message: Mapping[str, Any]) -> int:
    """Image parts of one message."""
    content = message.get("content")
    if not isinstance(content, list):
        return 0
    return sum(1 for part in content if part.get("type") == "image_url")
