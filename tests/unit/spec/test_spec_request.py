"""The frozen request: what is sent, its identity, and the words for what is wrong in its file."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3lib.errors import SpecError
from k3lib.spec.request import FrozenRequest, explain_unpairable
from k3lib.spec.strict_yaml import parse_yaml
from k3lib.spec.validation import load_model

ROOT = Path(__file__).parents[3]
PLAIN: dict[str, Any] = {
    "name": "minimal",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    "max_tokens": 16,
    "temperature": 0.0,
    "timeout_s": 60.0,
}
TOOL = {"type": "function", "function": {"name": "get", "parameters": {"a": 1, "b": 2}}}
SWAPPED = {"type": "function", "function": {"name": "get", "parameters": {"b": 2, "a": 1}}}
PIXEL = "data:image/png;base64,aGk="
PIXEL_SHA256 = "8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4"


def _load(**changed: Any) -> FrozenRequest:
    return load_model(FrozenRequest, PLAIN | changed, source="r.yaml")


def _refusal(**changed: Any) -> SpecError:
    with pytest.raises(SpecError) as caught:
        _load(**changed)
    return caught.value


def _with_image(url: str = PIXEL) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


@pytest.mark.parametrize(("name", "modality"), [("minimal", "text"), ("minimal_image", "image")])
def test_shipped_requests(name: str, modality: str) -> None:
    """The requests that ship with the project load, and the image is the one whose hash is stated."""
    path = ROOT / "params" / "requests" / f"{name}.yaml"
    request = load_model(FrozenRequest, parse_yaml(path.read_text(encoding="utf-8"), path.name), source=path.name)
    assert (name, modality) == (request.name, request.modality)


def test_body() -> None:
    """The body holds what the file says and nothing the file leaves to the server."""
    body = _load(extra_body={"chat_template_kwargs": {"thinking": False}}).body("m")
    assert {
        "model": "m",
        "messages": PLAIN["messages"],
        "max_tokens": 16,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"thinking": False},
    } == body


def test_usage_is_asked_for_in_streams_only() -> None:
    """Without streaming there are no stream options, which servers refuse there."""
    assert "stream_options" not in _load(stream=False).body("m")


def test_encoded_is_the_body() -> None:
    """The bytes decode to the body, key order included."""
    request = _load(tools=[SWAPPED])
    assert json.dumps(request.body("m")) == json.dumps(json.loads(request.encoded("m")))


def test_conversation_with_a_tool_call() -> None:
    """An earlier assistant turn with a call, its reasoning and the tool's answer is sent as it was."""
    call = {"id": "c1", "type": "function", "function": {"name": "get", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
    ]
    assert messages == _load(messages=messages).body("m")["messages"]


@pytest.mark.parametrize(
    "changed",
    [
        {"messages": PLAIN["messages"][::-1]},
        {"messages": [PLAIN["messages"][0], {"role": "user", "content": "Hi "}]},
        {"max_tokens": 17},
        {"temperature": 0.1},
        {"top_p": 0.9},
        {"seed": 0},
        {"stream": False},
        {"tools": [TOOL]},
        {"tool_choice": "none"},
        {"reasoning_effort": "low"},
        {"extra_body": {"top_k": 1}},
    ],
)
def test_any_change_is_another_request(changed: dict[str, Any]) -> None:
    """Each part of the body makes another identity."""
    assert _load().request_id("m") != _load(**changed).request_id("m")


def test_swapped_keys_in_a_tool_are_another_request() -> None:
    """The order of keys inside a tool is part of the identity (R-22)."""
    assert _load(tools=[TOOL]).request_id("m") != _load(tools=[SWAPPED]).request_id("m")


def test_order_in_the_file_is_not() -> None:
    """The order of the file's own keys, and the deadline, which is not sent, make no other request."""
    turned = dict(reversed(PLAIN.items()))
    assert _load().request_id("m") == load_model(FrozenRequest, turned, source="r.yaml").request_id("m")
    assert _load().request_id("m") == _load(timeout_s=5.0).request_id("m")
    assert _load().request_id("m") != _load().request_id("n")


@given(st.text(max_size=40), st.text(max_size=40))
def test_identity_is_the_text(first: str, second: str) -> None:
    """Two texts give one identity exactly if they are equal."""
    ids = [_load(messages=[{"role": "user", "content": text}]).request_id("m") for text in (first, second)]
    assert (first == second) == (ids[0] == ids[1])


def test_pairing() -> None:
    """Text is not compared with an image, nor one image with another; text with text is (R-23)."""
    image = _load(messages=_with_image(), image=PIXEL_SHA256)
    assert "text request" in (explain_unpairable(_load(), image) or "")
    other = "data:image/png;base64,aGkh"
    digest = "c0ddd62c7717180e7ffb8a15bb9674d3ec92592e0b7ac7d1d5289836b4553be2"
    assert "different images" in (explain_unpairable(image, _load(messages=_with_image(other), image=digest)) or "")
    assert None is explain_unpairable(_load(), _load(max_tokens=3))


def test_remote_image() -> None:
    """A remote image is refused with the advice to send the image itself."""
    error = _refusal(messages=_with_image("https://example.org/a.png"))
    assert "messages[0].content[0].image_url.url: the image is not in the request" in error.what
    assert "data:image/png;base64,…" == error.expected
    assert "data: URI" in error.next


@pytest.mark.parametrize(
    ("messages", "image", "words"),
    [
        (_with_image(), None, f"write image: {PIXEL_SHA256}"),
        (_with_image(), "0" * 64, f"write image: {PIXEL_SHA256}"),
        (PLAIN["messages"], PIXEL_SHA256, "take `image` out, or put the image back"),
    ],
)
def test_image_and_its_hash(messages: list[dict[str, Any]], image: str | None, words: str) -> None:
    """An image without its hash, with another one, or a hash without an image is refused with the right line."""
    assert words == _refusal(messages=messages, image=image).next


@pytest.mark.parametrize("url", ["data:image/png;base64,a", "data:image/png,hi", "data:image/png;base64,***"])
def test_image_that_cannot_be_decoded(url: str) -> None:
    """Broken base64 is our error, before anything is sent."""
    assert "cannot be decoded" in _refusal(messages=_with_image(url), image=PIXEL_SHA256).what


def test_two_images() -> None:
    """More than one image is refused: its cost could not be told."""
    assert "2 images" in _refusal(messages=_with_image() * 2, image=PIXEL_SHA256).what


@pytest.mark.parametrize(
    ("changed", "what", "expected"),
    [
        ({"max_tokns": 4}, "r.yaml: unknown key max_tokns", "max_tokens"),
        ({"messages": [{"role": "user", "contnt": "x"}]}, "r.yaml: unknown key messages[0].contnt", "content"),
        (
            {"messages": [{"role": "usr", "content": "x"}]},
            "r.yaml: messages[0].role is not one of its words",
            "'system', 'developer', 'user', 'assistant' or 'tool'",
        ),
        ({"max_tokens": 0}, "r.yaml: max_tokens is not valid", "greater than or equal to 1"),
        ({"max_tokens": "1e3"}, "r.yaml: max_tokens is text", "a number"),
        ({"stream": "yes"}, "r.yaml: stream is not valid", "a valid boolean"),
        (
            {"tools": [{"name": "get"}]},
            "r.yaml: tools: tool 0 is not a function",
            "{type: function, function: {name: …}}",
        ),
        (
            {"extra_body": {"seed": 1}},
            "r.yaml: extra_body: seed has a place of its own",
            "seed beside extra_body, not in it",
        ),
    ],
)
def test_words_of_refusals(changed: dict[str, Any], what: str, expected: str) -> None:
    """What is wrong is named with its key and the nearest valid one."""
    error = _refusal(**changed)
    assert (what, expected) == (error.what, error.expected)


def test_nothing_is_changed_in_place() -> None:
    """Loading and sending leave the data they were given alone."""
    data = copy.deepcopy(PLAIN) | {"tools": [copy.deepcopy(TOOL)]}
    before = copy.deepcopy(data)
    load_model(FrozenRequest, data, source="r.yaml").encoded("m")
    assert before == data
