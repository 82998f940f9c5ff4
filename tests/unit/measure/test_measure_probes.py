"""The four functional probes against a loopback server that is healthy, weak, badly set up, broken or dead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from k3lib.measure.client import open_client
from k3lib.measure.probe_run import ProbeLimits
from k3lib.measure.probes import run_probes
from k3lib.spec.results import ProbeCheck, ProbeResult
from k3lib.spec.vocabulary import Probe

LENGTH = 4096


class Double:
    """What a server behind the loopback does; each test changes one thing."""

    def __init__(self, engine: Any, replies: Any) -> None:
        self.engine, self.replies = engine, replies
        self.message: dict[str, Any] = {"content": "Blue."}
        self.call: tuple[str, str] | None = ("get_weather", '{"city": "Paris"}')
        self.second_turn = "heron-58"
        self.finish, self.status, self.extra_tokens = "stop", 200, 0
        self.refuse: set[str] = set()
        listed = {"data": [{"id": "m", "max_model_len": LENGTH}]}
        engine.routes["/v1/models"] = replies.whole(json.dumps(listed).encode())
        engine.routes["/tokenize"] = self._tokenize
        engine.chat(self._chat)

    def probe(self, **limits: Any) -> dict[Probe, ProbeResult]:
        """All four results."""
        with open_client(self.engine.base_url) as client:
            results = run_probes(client, model="m", limits=ProbeLimits(**({"timeout_s": 5.0} | limits)))
            return {result.probe: result for result in results}

    def _tokenize(self, body: dict[str, Any]) -> Any:
        tokens = list(range(self._count(body)))
        return self.replies.whole(json.dumps({"count": len(tokens), "tokens": tokens}).encode())

    def _count(self, body: dict[str, Any]) -> int:
        return sum(len((message.get("content") or "").split()) for message in body["messages"])

    def _chat(self, body: dict[str, Any]) -> Any:
        if body["model"] != "m":
            return self.replies.whole(self.replies.recorded("wrong_model_404"), status=404)
        if body["max_tokens"] > LENGTH:
            return self.replies.whole(self.replies.recorded("max_tokens_400"), status=400)
        if self.status != 200:
            return self.replies.whole(self.replies.recorded("killed_500"), status=self.status)
        if "tools" in body and "tools" in self.refuse:
            return self.replies.whole(b'{"error": {"message": "no tool parser"}}', status=400)
        if len(body["messages"]) == 3 and "second" in self.refuse:
            return self.replies.whole(b'{"error": {"message": "unexpected reasoning"}}', status=400)
        message = dict(self.message)
        if len(body["messages"]) == 3:
            message["content"] = self.second_turn
        if "tools" in body and self.call:
            name, arguments = self.call
            function = {"name": name, "arguments": arguments}
            message |= {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
        return self._answer(body, message)

    def _answer(self, body: dict[str, Any], message: dict[str, Any]) -> Any:
        count = self._count(body) + self.extra_tokens
        usage = {"prompt_tokens": count, "completion_tokens": 1, "total_tokens": count + 1}
        common = {"id": "x", "created": 1, "model": "m"}
        choice: dict[str, Any] = {"index": 0, "finish_reason": self.finish}
        if not body["stream"]:
            choice["message"] = {"role": "assistant"} | message
            whole = common | {"object": "chat.completion", "choices": [choice], "usage": usage}
            return self.replies.whole(json.dumps(whole).encode())
        choice["delta"] = {"role": "assistant"} | message
        chunk = common | {"object": "chat.completion.chunk", "choices": [choice], "usage": usage}
        return self.replies.streamed([b"data: " + json.dumps(chunk).encode() + b"\n\n", b"data: [DONE]\n\n"])


@pytest.fixture
def double(engine: Any, replies: Any) -> Double:
    return Double(engine, replies)


def _check(result: ProbeResult, name: str) -> ProbeCheck:
    [check] = [check for check in result.checks if check.name == name]
    return check


def test_healthy(double: Double) -> None:
    """A healthy server and a capable model: every check holds that can be told, and nothing is a fault."""
    results = double.probe()
    assert list(Probe)[2:] == list(results)
    assert [] == [check for result in results.values() for check in result.checks if check.held is False]
    assert {None} == {result.server_fault for result in results.values()}
    assert ["reasoning-accepted"] == [c.name for r in results.values() for c in r.checks if c.held is None]


def test_weak_model(double: Double) -> None:
    """A model that talks without calling or recalling misses only checks about the model."""
    double.call, double.second_turn, double.finish = None, "Something.", "length"
    results = double.probe()
    missed = {check.name: check.about for result in results.values() for check in result.checks if check.held is False}
    assert {
        "auto-call": "model",
        "named-call-returned": "server",
        "named-call": "model",
        "fact-recalled": "model",
    } == missed


def test_arguments_that_do_not_fit(double: Double) -> None:
    """A parsed call with noise for arguments, as random weights give it, is the model's, not the server's."""
    double.call = ("get_weather", "242")
    result = double.probe()[Probe.TOOL_CALL]
    assert (False, "model", "get_weather(242)") == (
        _check(result, "auto-call").held,
        _check(result, "auto-call").about,
        _check(result, "auto-call").seen,
    )
    assert True is _check(result, "named-call-returned").held


def test_server_without_a_parser(double: Double) -> None:
    """A server that refuses tools leaves the check untold, with its words and the flags it needs."""
    double.refuse = {"tools"}
    result = double.probe()[Probe.TOOL_CALL]
    assert ({None}, None) == ({check.held for check in result.checks}, result.server_fault)
    assert "no tool parser" in (_check(result, "auto-call").reason or "")
    assert "--tool-call-parser" in (_check(result, "auto-call").reason or "")


def test_markers_in_the_text(double: Double) -> None:
    """A template's marker in the answer is seen and quoted."""
    double.message, double.call = {"content": "<|open|>Blue.<|close|>"}, None
    results = double.probe()
    assert (False, "<|open|>, <|close|>") == (
        _check(results[Probe.RENDERING], "no-marker").held,
        _check(results[Probe.RENDERING], "no-marker").seen,
    )
    assert False is _check(results[Probe.TOOL_CALL], "no-raw-call").held


def test_truncated_by_reasoning(double: Double) -> None:
    """Reasoning that spends the whole output limit is healthy: the checks are untold, and say what to raise."""
    double.message, double.call, double.second_turn = {"content": None, "reasoning": "hm"}, None, ""
    double.finish = "length"
    results = double.probe()
    for probe, name in ((Probe.TOOL_CALL, "auto-call"), (Probe.COHERENCE, "fact-recalled")):
        check = _check(results[probe], name)
        assert check.held is None
        assert (check.reason or "").startswith("healthy but truncated")
    assert True is _check(results[Probe.API], "whole-answer").held


def test_reasoning_is_sent_back(double: Double) -> None:
    """The second turn carries the first turn's reasoning under the name vLLM uses."""
    double.message = {"content": "Noted.", "reasoning": "hm"}
    assert True is _check(double.probe()[Probe.COHERENCE], "reasoning-accepted").held
    turns = [body["messages"] for body in double.engine.chat_bodies() if len(body["messages"]) == 3]
    assert [{"role": "assistant", "content": "Noted.", "reasoning": "hm"}] == [messages[1] for messages in turns]


def test_server_that_refuses_reasoning(double: Double) -> None:
    """A refused second turn is the server's miss, and the recall stays untold."""
    double.message, double.refuse = {"content": "Noted.", "reasoning": "hm"}, {"second"}
    result = double.probe()[Probe.COHERENCE]
    assert (False, None) == (_check(result, "reasoning-accepted").held, _check(result, "fact-recalled").held)


def test_lost_system_message(double: Double) -> None:
    """A count that differs from /tokenize is a miss with both numbers."""
    double.extra_tokens = 3
    check = _check(double.probe()[Probe.RENDERING], "prompt-tokens")
    assert (False, True) == (check.held, (check.seen or "").startswith("22 and 19"))


def test_server_without_tokenize(double: Double) -> None:
    """Where /tokenize is not offered, rendering is untold, with the reason."""
    del double.engine.routes["/tokenize"]
    result = double.probe()[Probe.RENDERING]
    assert ("/tokenize: HTTP 404", None) == (
        _check(result, "prompt-tokens").reason,
        _check(result, "prompt-tokens").held,
    )


def test_server_that_refuses_nothing(engine: Any, replies: Any) -> None:
    """An unknown model and an output beyond the context that are answered are misses."""
    whole, streamed = replies.whole(replies.recorded("chat")), replies.streamed(replies.events("chat_stream"))
    engine.chat(lambda body: streamed if body["stream"] else whole)
    with open_client(engine.base_url) as client:
        result = next(iter(run_probes(client, model="tiny")))
    held = {check.name: check.held for check in result.checks}
    assert (False, False, False) == (held["model-listed"], held["unknown-model"], held["output-limit"])
    assert (True, True, True) == (held["whole-shape"], held["streamed-shape"], held["both-ways-alike"])


def test_http_500(double: Double) -> None:
    """A server that fails on requests and lives on is asked by every probe, and each carries its fault."""
    double.status = 500
    results = double.probe()
    words = "HTTP 500: EngineCore encountered an issue. See stack trace (above) for the root cause."
    assert {words} == {result.server_fault for result in results.values()}
    assert [1, 1, 1, 1] == [len(result.requests) for result in results.values()]


def test_dead_server() -> None:
    """Nobody there: the first probe says so, the others are not asked."""
    with open_client("http://127.0.0.1:9") as client:
        first, *others = run_probes(client, model="m")
    assert "no connection: [Errno 111] Connection refused" == first.server_fault
    assert [[], [], []] == [result.requests for result in others]
    assert {f"not asked, because: {first.server_fault}"} == {result.server_fault for result in others}


def test_hanging_server_is_waited_for_once(engine: Any, replies: Any) -> None:
    """A server that never answers costs one deadline, not one per request."""
    engine.chat(replies.whole(b"x", pauses_s=[30.0]))
    with open_client(engine.base_url) as client:
        results = list(run_probes(client, model="m", limits=ProbeLimits(timeout_s=0.3)))
    assert "api-compatibility limit = 0.3 s" == results[0].server_fault
    assert 1 == len(engine.chat_bodies())


def test_short_context(double: Double) -> None:
    """The output limit leaves room in a short context."""
    double.probe(max_tokens=100_000)
    asked = [body["max_tokens"] for body in double.engine.chat_bodies()]
    assert [LENGTH + 1] == [count for count in asked if count > LENGTH // 3]
