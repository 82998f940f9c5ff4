"""
An answer as it comes in: one JSON object, or the chunks of a stream, read the same way.

Plain dictionaries are read, not the client's typed objects: `reasoning` is an untyped extra there,
and building an object per token costs time inside the gaps that are measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class AnswerShapeError(ValueError):
    """The server's JSON has not the shape of a chat completion; becomes the row's error."""


@dataclass
class Answer:
    """
    What has come in so far.

    Args:
        status: HTTP status, or None while no answer came.
        bodies: The JSON objects as received, in order.
        token_times_s: When each token-bearing chunk came, seconds after the send.
        ended_s: When the last object came, seconds after the send; None before the first.
        calls: Tool calls by index: id, name, arguments.
    """

    status: int | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    token_times_s: list[float] = field(default_factory=list)
    ended_s: float | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    _texts: list[str] = field(default_factory=list)
    _reasonings: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The content, whole."""
        return "".join(self._texts)

    @property
    def reasoning(self) -> str:
        """The reasoning, whole."""
        return "".join(self._reasonings)

    @property
    def choices_seen(self) -> bool:
        """Whether any object held a choice."""
        return any(body.get("choices") for body in self.bodies)

    def add(self, body: object, at_s: float) -> None:
        """
        Takes in a whole answer or one chunk.

        Args:
            body: The decoded JSON.
            at_s: When it came, seconds after the send.

        Raises:
            AnswerShapeError: It is not the shape of a chat completion.
        """
        if not isinstance(body, dict):
            raise AnswerShapeError(f"the answer is not a JSON object: {_short(body)}")
        self.bodies.append(body)
        self.ended_s = at_s
        if isinstance(body.get("usage"), dict):
            self.usage = body["usage"]
        choices = body.get("choices")
        if not choices:
            return
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            raise AnswerShapeError(f"`choices` is not a list of objects: {_short(choices)}")
        self._take_piece(choice.get("delta") or choice.get("message") or {}, at_s)
        reason = choice.get("finish_reason")
        self.finish_reason = reason if isinstance(reason, str) else self.finish_reason

    def usage_count(self, *path: str) -> int | None:
        """A count in `usage`, or None where the server did not tell."""
        value: object = self.usage
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def message(self) -> dict[str, Any]:
        """The assistant's whole message, as the next turn of the conversation sends it back."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for _, call in sorted(self.calls.items())
            ]
        return message

    def _take_piece(self, piece: object, at_s: float) -> None:
        if not isinstance(piece, dict):
            raise AnswerShapeError(f"a message is not an object: {_short(piece)}")
        text = piece.get("content")
        reasoning = piece.get("reasoning") or piece.get("reasoning_content")
        calls = piece.get("tool_calls") or []
        for value in (text, reasoning):
            if value is not None and not isinstance(value, str):
                raise AnswerShapeError(f"content is not text: {_short(value)}")
        # vLLM sends an empty text for a token that ends inside a character (0.32.0); only the opening
        # chunk, which names the role, stands for no token.
        if text or reasoning or calls or (text == "" and "role" not in piece):
            self.token_times_s.append(at_s)
        self._texts.append(text or "")
        self._reasonings.append(reasoning or "")
        self._take_calls(calls)

    def _take_calls(self, calls: object) -> None:
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise AnswerShapeError(f"tool_calls is not a list of objects: {_short(calls)}")
        for position, piece in enumerate(calls):
            index = piece.get("index", position)
            call = self.calls.setdefault(index if isinstance(index, int) else position, dict.fromkeys(_CALL_KEYS, ""))
            function = piece.get("function") or {}
            if not isinstance(function, dict):
                raise AnswerShapeError(f"a tool call's function is not an object: {_short(function)}")
            call["id"] = call["id"] or str(piece.get("id") or "")
            call["name"] += str(function.get("name") or "")
            call["arguments"] += str(function.get("arguments") or "")


_CALL_KEYS = ("id", "name", "arguments")


def _short(value: object) -> str:
    return " ".join(str(value).split())[:80]
