"""The frozen request against a real server on the loopback: what was recorded from vLLM, and what can break."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from k3lib.errors import SpecError
from k3lib.measure.client import open_client
from k3lib.measure.send import send_request
from k3lib.spec.request import FrozenRequest, Message
from k3lib.spec.vocabulary import Probe


def _request(**changed: Any) -> FrozenRequest:
    plain: dict[str, Any] = {
        "name": "minimal",
        "messages": [Message(role="user", content="What does a prefix cache keep?")],
        "max_tokens": 24,
        "temperature": 0.0,
        "seed": 0,
        "timeout_s": 10.0,
    }
    return FrozenRequest(**(plain | changed))


def _chunk(**delta: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}).encode() + b"\n\n"


_END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def test_whole_answer(engine: Any, replies: Any) -> None:
    """What vLLM 0.32.0 answered without streaming is a whole row, with no time to first token."""
    engine.chat(replies.whole(replies.recorded("chat")))
    row = send_request(engine.base_url, _request(stream=False), model="tiny")
    assert (True, 200, None, "length") == (row.ok, row.status, row.error, row.finish_reason)
    assert (28, 24, None) == (row.prompt_tokens, row.completion_tokens, row.cached_tokens)
    assert (None, []) == (row.ttft_s, row.itl_s)
    assert (row.text or "").startswith("name")


def test_streamed_answer(engine: Any, replies: Any) -> None:
    """vLLM sent 24 tokens in 21 chunks: each chunk counts once, those whose token ended inside a character too."""
    engine.chat(replies.streamed(replies.events("chat_stream")))
    row = send_request(engine.base_url, _request(), model="tiny")
    assert (True, 200, None, "length") == (row.ok, row.status, row.error, row.finish_reason)
    assert (28, 24) == (row.prompt_tokens, row.completion_tokens)
    assert 21 == 1 + len(row.itl_s)
    assert 0 < (row.ttft_s or 0) <= (row.total_s or 0)


def test_both_ways_give_one_text(engine: Any, replies: Any) -> None:
    """The recorded stream and the recorded whole answer of one greedy request read as the same text."""
    whole, streamed = replies.whole(replies.recorded("chat")), replies.streamed(replies.events("chat_stream"))
    engine.chat(lambda body: streamed if body["stream"] else whole)
    with open_client(engine.base_url) as client:
        texts = {client.send(_request(stream=stream), model="tiny").text for stream in (True, False)}
    assert 1 == len(texts - {None})


def test_cached_tokens_only_where_told(engine: Any, replies: Any) -> None:
    """cached_tokens is the server's 1,152, and None, not 0, where the server is silent."""
    engine.chat(replies.whole(replies.recorded("chat_cached")))
    assert 1152 == send_request(engine.base_url, _request(stream=False), model="tiny").cached_tokens


def test_times_are_those_of_the_tokens(engine: Any, replies: Any) -> None:
    """The opening chunk is no token; the gaps are those between tokens and the tail after the last is not one."""
    pieces = [_chunk(role="assistant", content=""), _chunk(content="a"), _chunk(content="b"), _END]
    engine.chat(replies.streamed(pieces, pauses_s=[0.0, 0.15, 0.1, 0.1]))
    with open_client(engine.base_url) as client:
        client.warm_up("m")
        row = client.send(_request(), model="m")
    assert row.ttft_s == pytest.approx(0.15, abs=0.08)
    assert [pytest.approx(0.1, abs=0.08)] == row.itl_s
    assert row.total_s == pytest.approx(0.35, abs=0.12)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning(engine: Any, replies: Any, field: str) -> None:
    """Reasoning is read under its present and its former name, and its first chunk is the first token."""
    engine.chat(replies.streamed([_chunk(role="assistant"), _chunk(**{field: "hm"}), _chunk(content="yes"), _END]))
    row = send_request(engine.base_url, _request(), model="m")
    assert ("hm", "yes", 1) == (row.reasoning, row.text, len(row.itl_s))


def test_tool_call_in_pieces(engine: Any, replies: Any) -> None:
    """A tool call that arrives in pieces is put together by its index."""
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "get", "arguments": '{"a"'}}
    second = {"index": 0, "function": {"arguments": ": 1}"}}
    engine.chat(
        replies.streamed([_chunk(role="assistant"), _chunk(tool_calls=[first]), _chunk(tool_calls=[second]), _END])
    )
    row = send_request(engine.base_url, _request(), model="m")
    assert [("get", '{"a": 1}')] == row.tool_calls


def test_engine_killed_while_streaming(engine: Any, replies: Any) -> None:
    """A killed EngineCore makes a row that keeps what had come and the server's own words."""
    engine.chat(replies.streamed(replies.events("killed_stream")))
    row = send_request(engine.base_url, _request(), model="tiny")
    words = "error in the stream: EngineCore encountered an issue. See stack trace (above) for the root cause."
    assert (False, 200, words) == (row.ok, row.status, row.error)
    assert row.ttft_s is not None


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ("killed_500", 500, "EngineCore encountered an issue. See stack trace (above) for the root cause."),
        ("wrong_model_404", 404, "The model `nope` does not exist. Valid aliases: tiny."),
        (b'{"error":"Unauthorized"}', 401, "Unauthorized"),
        (b"", 502, "no message"),
        (b"<html><style>p{}</style><body><h1>504 Gateway\n Time-out</h1></body></html>", 504, "504 Gateway Time-out"),
    ],
)
def test_refusals(engine: Any, replies: Any, body: str | bytes, status: int, error: str) -> None:
    """A refusal is a row with its status and the server's words, of a proxy's page too; it is sent once."""
    content = replies.recorded(body) if isinstance(body, str) else body
    kind = "text/html" if content.startswith(b"<") else "application/json"
    engine.chat(replies.whole(content, status=status, content_type=kind))
    for stream in (True, False):
        row = send_request(engine.base_url, _request(stream=stream), model="m")
        assert (False, status, f"HTTP {status}: {error}") == (row.ok, row.status, row.error)
    assert 2 == len(engine.chat_bodies())


def test_cut_stream(engine: Any, replies: Any) -> None:
    """A stream that ends politely without a finish reason is no answer."""
    engine.chat(replies.streamed(replies.events("chat_stream")[:5]))
    row = send_request(engine.base_url, _request(), model="tiny")
    assert (False, "the stream ended without a finish reason") == (row.ok, row.error)


def test_connection_lost_while_streaming(engine: Any, replies: Any) -> None:
    """A connection that breaks inside the body is told apart from one that never was."""
    engine.chat(replies.streamed(replies.events("chat_stream")[:5], cut=True))
    row = send_request(engine.base_url, _request(), model="tiny")
    assert (False, 200) == (row.ok, row.status)
    assert (row.error or "").startswith("connection lost: ")


def test_connection_dropped_before_an_answer(engine: Any, replies: Any) -> None:
    """A server that hangs up instead of answering gives a row without a status."""
    engine.chat(replies.whole(drop=True))
    row = send_request(engine.base_url, _request(), model="m")
    assert (False, None) == (row.ok, row.status)
    assert (row.error or "").startswith("no connection: ")


@pytest.mark.parametrize("stream", [True, False])
def test_deadline(engine: Any, replies: Any, stream: bool) -> None:
    """A server that drips chunks for ever is cut off at the request's own limit, which the row names."""
    drip = [_chunk(role="assistant"), *[_chunk(content="x")] * 100]
    engine.chat(replies.streamed(drip, pauses_s=[0.05] * 101))
    started = time.monotonic()
    row = send_request(engine.base_url, _request(timeout_s=0.5, stream=stream), model="m")
    assert time.monotonic() - started < 3
    assert (False, "request.timeout_s = 0.5 s") == (row.ok, row.error)
    assert row.total_s == pytest.approx(0.5, abs=0.3)


def test_nobody_listens() -> None:
    """A refused connection is a row that says so in the system's words."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    row = send_request(f"http://127.0.0.1:{port}", _request(), model="m")
    assert (False, None, "no connection: [Errno 111] Connection refused") == (row.ok, row.status, row.error)


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([b"data: {broken\n\n"], "the answer is not JSON: "),
        ([b"data: [1]\n\n"], "the answer is not a JSON object: [1]"),
        ([b'data: {"choices": "x"}\n\n'], "`choices` is not a list of objects: x"),
        ([b'data: {"choices": [{"delta": 7}]}\n\n'], "a message is not an object: 7"),
        ([b'data: {"choices": [{"delta": {"content": 7}}]}\n\n'], "content is not text: 7"),
        ([b'data: {"choices": [{"delta": {"tool_calls": [7]}}]}\n\n'], "tool_calls is not a list of objects: [7]"),
        ([b"data: [DONE]\n\n"], "the answer holds no choice"),
        ([b"data: \xff\xfe\n\n"], "the answer is not text: "),
    ],
)
def test_wrong_shapes(engine: Any, replies: Any, pieces: list[bytes], error: str) -> None:
    """Whatever a server streams becomes a row, never an exception of ours."""
    engine.chat(replies.streamed(pieces))
    row = send_request(engine.base_url, _request(), model="m")
    assert not row.ok
    assert (row.error or "").startswith(error)


def test_page_instead_of_an_answer(engine: Any, replies: Any) -> None:
    """A 200 that holds a web page is no answer, streamed or not."""
    engine.chat(replies.whole(b"<html>hello</html>", content_type="text/html"))
    for stream in (True, False):
        row = send_request(engine.base_url, _request(stream=stream), model="m")
        assert (False, 200) == (row.ok, row.status)


def test_bad_json_in_a_whole_answer(engine: Any, replies: Any) -> None:
    """Half a JSON object is a row that shows where it breaks."""
    engine.chat(replies.whole(b'{"choices": [{"mess'))
    row = send_request(engine.base_url, _request(stream=False), model="m")
    assert (False, 200) == (row.ok, row.status)
    assert (row.error or "").startswith("the answer is not JSON: ")


def test_what_is_hashed_is_what_is_sent(engine: Any, replies: Any) -> None:
    """The bytes on the wire are those of the request's identity, key order of tools included."""
    tools = [{"type": "function", "function": {"name": "get", "parameters": {"z": 1, "a": "é"}}}]
    request = _request(tools=tools, extra_body={"chat_template_kwargs": {"thinking": False}})
    engine.chat(replies.streamed(replies.events("chat_stream")))
    row = send_request(engine.base_url, request, model="tiny")
    assert request.encoded("tiny") == engine.received[-1][2]
    assert request.request_id("tiny") == row.request_id


def test_nothing_of_the_environment_is_sent(engine: Any, replies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and accounts in the environment go to nobody, and its proxy is not asked for the loopback."""
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "private-value")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    engine.chat(replies.streamed(replies.events("chat_stream")))
    row = send_request(engine.base_url, _request(), model="tiny")
    assert row.ok, row.error
    assert "private-value" not in str(engine.received)


def test_warm_up_is_apart(engine: Any, replies: Any) -> None:
    """The warm-up says what it is and shares no message with the measured request."""
    engine.chat(replies.streamed(replies.events("chat_stream")))
    with open_client(f"{engine.base_url}/v1/", api_key="k") as client:
        warm = client.warm_up("tiny")
        measured = client.send(_request(), model="tiny")
    assert (Probe.WARM_UP, Probe.FROZEN) == (warm.probe, measured.probe)
    first, second = engine.chat_bodies()
    assert first["messages"] != second["messages"]
    assert {"Bearer k"} == {headers["authorization"] for _, headers, _ in engine.received}


def test_long_texts_are_cut_for_the_record(engine: Any, replies: Any) -> None:
    """A row keeps 2,000 characters and says that it cut; the exchange keeps all of them."""
    engine.chat(replies.streamed([_chunk(role="assistant"), _chunk(content="x" * 3000), _END]))
    with open_client(engine.base_url) as client:
        exchange = client.exchange(_request(), model="m", probe=Probe.FROZEN)
    assert (2000, True, 3000) == (len(exchange.row.text or ""), exchange.row.truncated, len(exchange.answer.text))


def test_address_of_no_engine() -> None:
    """An address that is none is our reader's mistake: four lines, before anything is sent."""
    with pytest.raises(SpecError, match="address of the engine is not usable"):
        open_client("127.0.0.1:8000")


def test_ctrl_c_ends_the_request(engine: Any, replies: Any) -> None:
    """Ctrl-C in the caller comes out at once, hangs the request up, and leaves a client that can be used again."""
    engine.chat(replies.streamed([_chunk(content="x")] * 100, pauses_s=[0.1] * 100))
    with open_client(engine.base_url) as client:
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            client.send(_request(), model="m")
        assert time.monotonic() - started < 2
        engine.chat(replies.streamed(replies.events("chat_stream")))
        assert client.send(_request(), model="m").ok


def test_preload() -> None:
    """After the background import, opening a client imports nothing more."""
    code = (
        "import sys, threading; from k3lib.measure.client import open_client, preload; "
        "assert 'openai' not in sys.modules; t = threading.Thread(target=preload); t.start(); t.join(); "
        "assert 'openai.types.chat' in sys.modules; open_client('http://127.0.0.1:9').close()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
