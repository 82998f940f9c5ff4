"""Whatever comes over the wire, the rehearsal answers or refuses; it never breaks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3lib.knowledge.hardware import find_machine
from k3lib.rehearsal.arguments import parse_arguments
from k3lib.rehearsal.chat import read_chat
from k3lib.rehearsal.checks import Refusal
from k3lib.rehearsal.config import read_stage, resolve_config
from k3lib.rehearsal.tokenizer import Vocabulary, split_tokens
from k3lib.rehearsal.wire import BadRequest, parse_request

FLAGS = ["serve", "m", "-tp", "8", "--enable-auto-tool-choice", "--tool-call-parser", "kimi_k3"]
CONFIG = resolve_config(parse_arguments(FLAGS), {}, find_machine("8xB300"))
STAGE = read_stage({})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "messages model stream stream_options tools tool_choice reasoning_effort chat_template_kwargs stop max_tokens n "
    "ignore_eos cache_salt"
)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    """Bytes are a request, an incomplete one, or a BadRequest with an error status."""
    statuses = []
    try:
        parse_request(bytearray(data))
    except BadRequest as error:
        statuses.append(error.status)
    assert set(statuses) <= {400, 413, 431, 505}


@given(st.binary(max_size=200), st.integers(1, 50))
def test_chunked_and_plain_bodies_agree(body: bytes, size: int) -> None:
    """A body sent in chunks of any size is the body sent whole, and what follows stays for the next request."""
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    buffer = bytearray(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked + b"next")
    request = parse_request(buffer)
    assert request is not None
    assert (body, b"next") == (request.body, bytes(buffer))


@pytest.mark.parametrize("cut", [1, 20, 40, 60])
def test_half_a_request_waits(cut: int) -> None:
    """A request that has not come whole is left in the buffer, untouched."""
    whole = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 10\r\n\r\n0123456789"
    buffer = bytearray(whole[:cut])
    assert parse_request(buffer) is None
    assert whole[:cut] == bytes(buffer)


@given(st.dictionaries(st.sampled_from(FIELDS.split()), JSON), st.booleans())
def test_any_json_is_answered_or_refused(body: dict[str, Any], with_messages: bool) -> None:
    """Any JSON object is a request or a refusal, never an exception of ours."""
    if with_messages:
        body["messages"] = [{"role": "user", "content": "Hello."}]
    try:
        call = read_chat(body, CONFIG, 4096, STAGE)
        missing = call.request.output_tokens - len(call.pieces)
        status = 200
    except Refusal as refusal:
        missing, status = 0, refusal.status
    assert status in {200, 400, 404}
    assert missing == 0


@given(st.integers(1, 200), st.booleans(), st.sampled_from(["stop", "One.", "2 + 3", "zzz"]))
def test_output_is_as_long_as_promised(limit: int, forced: bool, text: str) -> None:
    """The engine makes as many tokens as there are pieces, never more than the limit, all of it when forced."""
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": limit, "ignore_eos": forced, "stop": "REH"}
    call = read_chat(body, CONFIG, 4096, STAGE)
    assert call.request.output_tokens == len(call.pieces) <= limit
    assert not forced or len(call.pieces) == limit


@given(st.text())
def test_tokens_give_the_text_back(text: str) -> None:
    """Splitting loses nothing, and the numbers of the pieces read back as the text."""
    words = Vocabulary()
    assert text == "".join(split_tokens(text))
    assert text == words.decode(words.encode(split_tokens(text)))
