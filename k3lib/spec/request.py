"""
The frozen single request: what is sent, byte for byte, as a file under params/requests/ says it.

Its identity is the hash of the body. The order of messages and of keys inside a tool is part of it,
because the rendered prompt, and with it every cached prefix, depends on that order (R-22).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from k3lib.spec.model import Strict
from k3lib.spec.validation import refuse


class FunctionCall(Strict):
    """The function that an earlier assistant turn called; its arguments are text, as they were given."""

    name: str
    arguments: str


class ToolCall(Strict):
    """One tool call of an earlier assistant turn."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class TextPart(Strict):
    """A piece of text in a message of several parts."""

    type: Literal["text"]
    text: str


class ImageUrl(Strict):
    """The image itself, as a data: URI; a remote address would make the server fetch it."""

    url: str
    detail: Literal["auto", "low", "high"] | None = None

    @field_validator("url")
    @classmethod
    def _only_data_uris(cls, url: str) -> str:
        if not url.startswith("data:image/"):
            raise refuse(
                "the image is not in the request",
                expected="data:image/png;base64,…",
                next="fetch the image once and write it as a data: URI; a remote one needs egress and can change",
            )
        return url


class ImagePart(Strict):
    """An image in a message of several parts."""

    type: Literal["image_url"]
    image_url: ImageUrl


class Message(Strict):
    """
    One message, in OpenAI's shape. Only what is written is sent.

    Args:
        role: Who speaks.
        content: Text, or parts; None only beside tool calls.
        name: Name of the speaker.
        tool_calls: What an earlier assistant turn called.
        tool_call_id: The call that a tool message answers.
        reasoning, reasoning_content: Reasoning of an earlier assistant turn; vLLM renames the second to the first.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Annotated[TextPart | ImagePart, Field(discriminator="type")]] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None

    def images(self) -> list[str]:
        """The data: URIs in this message, in order."""
        parts = self.content if isinstance(self.content, list) else []
        return [part.image_url.url for part in parts if isinstance(part, ImagePart)]


class FrozenRequest(Strict):
    """
    One request that never changes during a campaign. It is sent alone: its concurrency is 1.

    Args:
        name: Short name, the file's.
        messages: The conversation, in order.
        max_tokens: Output limit, tokens. A reasoning model needs room to think before it answers.
        temperature: Sampling temperature, 0 for greedy.
        top_p: Nucleus sampling; None is the server's own default.
        seed: Sampling seed; None is the server's own.
        timeout_s: Deadline over the whole request, seconds.
        stream: Whether the answer is streamed; without it there is no time to first token.
        tools: Tool definitions, sent exactly as written, key order included.
        tool_choice: `none`, `auto`, `required` or a named function.
        reasoning_effort: As the server takes it; Kimi K3 takes low, high and max only.
        extra_body: Further keys of the body, `chat_template_kwargs` for instance.
        image: SHA-256 of the one image's bytes; None for a text request.

    Source:
        Kimi K3 efforts: vLLM 0.33.0 renderers/kimi_k3.py:26.

    >>> request = FrozenRequest(
    ...     name="hi", messages=[Message(role="user", content="Hi")], max_tokens=8, temperature=0.0, timeout_s=60.0
    ... )
    >>> request.modality, request.body("m")["stream_options"], request.request_id("m")
    ('text', {'include_usage': True}, '7fd55e8ffce9a29e')
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    messages: list[Message] = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    temperature: float = Field(ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = None
    timeout_s: float = Field(gt=0, allow_inf_nan=False)
    stream: bool = True
    tools: list[dict[str, Any]] | None = Field(default=None, min_length=1)
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    extra_body: dict[str, Any] = Field(default_factory=dict)
    image: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")

    @field_validator("tools")
    @classmethod
    def _tools_are_functions(cls, tools: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        for index, tool in enumerate(tools or []):
            function = tool.get("function")
            if tool.get("type") != "function" or not isinstance(function, dict) or not function.get("name"):
                raise refuse(f"tool {index} is not a function", expected="{type: function, function: {name: …}}")
        return tools

    @field_validator("extra_body")
    @classmethod
    def _no_second_way(cls, extra: dict[str, Any]) -> dict[str, Any]:
        for key in extra:
            if key in cls.model_fields or key in ("model", "stream_options"):
                raise refuse(f"{key} has a place of its own", expected=f"{key} beside extra_body, not in it")
        return extra

    @model_validator(mode="after")
    def _image_is_the_stated_one(self) -> Self:
        images = [uri for message in self.messages for uri in message.images()]
        if len(images) > 1:
            raise refuse(f"{len(images)} images", expected="at most one, so that its cost can be told")
        found = _sha256_of(images[0]) if images else None
        if found != self.image:
            raise refuse(
                f"image says {self.image or 'nothing'}, the messages hold {found or 'no image'}",
                expected="the SHA-256 of the image's bytes under `image`, and nothing for a text request",
                next=f"write image: {found}" if found else "take `image` out, or put the image back",
            )
        return self

    @property
    def modality(self) -> Literal["text", "image"]:
        """What it loads: an image also runs the vision encoder."""
        return "image" if self.image else "text"

    def body(self, model: str) -> dict[str, Any]:
        """
        The JSON object that is sent.

        Args:
            model: Name the server knows the model by.

        Returns:
            Keys in a fixed order, whatever the order in the file; inside messages and tools as written.
        """
        body: dict[str, Any] = {
            "model": model,
            "messages": [message.model_dump(exclude_unset=True) for message in self.messages],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
        }
        optional = {
            "top_p": self.top_p,
            "seed": self.seed,
            "stream": self.stream,
            "stream_options": {"include_usage": True} if self.stream else None,
            "tools": self.tools,
            "tool_choice": self.tool_choice,
            "reasoning_effort": self.reasoning_effort,
        }
        return body | {key: value for key, value in optional.items() if value is not None} | self.extra_body

    def encoded(self, model: str) -> bytes:
        """The bytes of the body, and all of it: what is hashed is what is sent."""
        return json.dumps(self.body(model), separators=(",", ":"), allow_nan=False).encode("ascii")

    def request_id(self, model: str) -> str:
        """
        The request's identity: any byte of the body makes another one.

        Args:
            model: Name the server knows the model by.

        Returns:
            The first 16 hex digits of the SHA-256 of `encoded`.
        """
        return hashlib.sha256(self.encoded(model)).hexdigest()[:16]


def explain_unpairable(first: FrozenRequest, second: FrozenRequest) -> str | None:
    """
    Why two requests must not be compared with each other (R-23).

    Args:
        first, second: The requests of the two trials.

    Returns:
        A sentence, or None if they can be paired.
    """
    if first.modality != second.modality:
        return (
            f"{first.name} is a {first.modality} request and {second.name} is a {second.modality} request; "
            "the vision encoder takes memory of its own, so the two say nothing about each other"
        )
    if first.image != second.image:
        return f"{first.name} and {second.name} carry different images"
    return None


def _sha256_of(data_uri: str) -> str:
    head, _, encoded = data_uri.partition(",")
    try:
        if not head.endswith(";base64"):
            raise ValueError("no ;base64 before the comma")
        return hashlib.sha256(base64.b64decode(encoded, validate=True)).hexdigest()
    except (ValueError, binascii.Error) as problem:
        raise refuse(f"the image cannot be decoded: {problem}", expected="data:image/png;base64,…") from None
