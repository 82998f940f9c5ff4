"""The rehearsal's HTTP routes, driven as a client drives them."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from typing import Any

import openai
import psutil
import pytest

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "kelvin"]}},
            "required": ["city", "unit"],
        },
    },
}
PARSERS = ("--enable-auto-tool-choice", "--tool-call-parser", "kimi_k3", "--reasoning-parser", "kimi_k3")
K3 = "moonshotai/Kimi-K3"
ANSWER_FIELDS = """
id object created model choices service_tier system_fingerprint usage prompt_logprobs prompt_token_ids prompt_text
kv_transfer_params ec_transfer_params metrics
"""
MESSAGE_FIELDS = "role content refusal annotations audio function_call reasoning"


def test_small_routes(start: Any) -> None:
    """Version, health and model list answer as vLLM's do, and the version says rehearsal."""
    running = start("--max-model-len", "32768", "--served-model-name", "k3", "kimi").wait_ready()
    assert (200, {"version": "0.33.0+rehearsal"}) == running.ask("/version")
    assert (200, b"") == running.ask("/ping")
    status, models = running.ask("/v1/models")
    assert (200, ["k3", "kimi"]) == (status, [model["id"] for model in models["data"]])
    assert ({K3}, {32_768}) == tuple({model[key] for model in models["data"]} for key in ("root", "max_model_len"))
    assert running.ask("/reset_prefix_cache", b"")[0] == 404
    assert running.ask("/v1/chat/completions")[0] == 405


def test_chat_has_vllms_fields(shared: Any) -> None:
    """A chat answer carries exactly the fields of vLLM's, a rehearsal fingerprint, and a usage that adds up."""
    status, answer = shared().chat("Say something.", max_tokens=40, model=K3)
    assert status == 200
    assert ANSWER_FIELDS.split() == list(answer)
    message = answer["choices"][0]["message"]
    assert MESSAGE_FIELDS.split() == list(message)
    assert answer["system_fingerprint"] == "vllm-0.33.0+rehearsal"
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] is None


def test_stream_equals_whole(shared: Any) -> None:
    """Streamed with the official client, the same request gives the same text, reasoning, usage and finish reason."""
    running = shared(*PARSERS)
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="none", max_retries=0)
    asked: dict[str, Any] = {"model": K3, "messages": [{"role": "user", "content": "Tell me about it."}], "seed": 3}
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    message = whole.choices[0].message
    assert message.content == "".join(delta.content or "" for delta in deltas)
    assert message.reasoning == "".join(getattr(delta, "reasoning", None) or "" for delta in deltas)
    assert whole.usage == chunks[-1].usage
    assert ["stop"] == [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    assert whole.usage.completion_tokens == len(deltas) - 1


def test_finish_reasons(shared: Any) -> None:
    """A limit gives `length` and exactly so many tokens; spent on thinking it leaves no content: healthy."""
    running = shared(*PARSERS)
    short = running.chat("Go on.", max_tokens=5)[1]
    assert ("length", None, 5) == (
        short["choices"][0]["finish_reason"],
        short["choices"][0]["message"]["content"],
        short["usage"]["completion_tokens"],
    )
    assert short["choices"][0]["message"]["reasoning"]
    full = running.chat("Go on.", max_tokens=300, ignore_eos=True)[1]
    assert ("length", 300) == (full["choices"][0]["finish_reason"], full["usage"]["completion_tokens"])
    plain = running.chat("Go on.", chat_template_kwargs={"thinking": False})[1]["choices"][0]
    assert ("stop", None) == (plain["finish_reason"], plain["message"]["reasoning"])


def test_same_request_same_answer(start: Any, shared: Any) -> None:
    """The answer depends on request and seed, on nothing else; another engine seed may answer otherwise."""
    running = shared()
    texts = [running.chat("Anything.")[1]["choices"][0]["message"]["content"] for _ in range(3)]
    other = start(K3_REHEARSAL_SEED="7").wait_ready().chat("Anything.")[1]["choices"][0]["message"]["content"]
    assert len(set(texts)) == 1
    assert other != texts[0]


def test_recall_over_two_turns(shared: Any) -> None:
    """A fact of the first turn is known in the second, reasoning sent back and all; without the fact it is not."""
    running = shared(*PARSERS)
    told = {"role": "user", "content": "Remember this: my code word is heron-58. Confirm in one short sentence."}
    first = running.ask("/v1/chat/completions", {"messages": [told]})[1]["choices"][0]["message"]
    question = {"role": "user", "content": "What is my code word? Answer with the code word only."}
    second = running.ask("/v1/chat/completions", {"messages": [told, first, question]})[1]
    assert "heron-58" in second["choices"][0]["message"]["content"]
    blank = running.ask("/v1/chat/completions", {"messages": [question]})[1]
    assert "heron-58" not in blank["choices"][0]["message"]["content"]


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "get_weather"}}])
@pytest.mark.parametrize("stream", [False, True])
def test_tool_call(shared: Any, choice: Any, stream: bool) -> None:
    """A tool is called with arguments that satisfy its schema and come from the request."""
    running = shared(*PARSERS)
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="none", max_retries=0)
    asked: dict[str, Any] = {
        "model": K3,
        "messages": [{"role": "user", "content": "What is the weather in Paris now, in celsius?"}],
        "tools": [TOOL],
        "tool_choice": choice,
    }
    if stream:
        parts = [chunk.choices[0] for chunk in client.chat.completions.create(**asked, stream=True) if chunk.choices]
        calls = [part.delta.tool_calls[0] for part in parts if part.delta.tool_calls]
        name, reason = calls[0].function.name, parts[-1].finish_reason
        arguments = "".join(call.function.arguments for call in calls)
    else:
        chosen = client.chat.completions.create(**asked).choices[0]
        assert chosen.message.content is None
        name, reason = chosen.message.tool_calls[0].function.name, chosen.finish_reason
        arguments = chosen.message.tool_calls[0].function.arguments
    assert ("get_weather", "tool_calls") == (name, reason)
    assert {"city": "Paris", "unit": "celsius"} == json.loads(arguments)


def test_tool_not_asked_for(shared: Any) -> None:
    """With `auto` a request that has nothing to do with the tool is answered in words; with `none` every one is."""
    running = shared(*PARSERS)
    for text, choice in (("Reply with \"yes\" only: say 'yes'.", "auto"), ("The weather in Paris?", "none")):
        chosen = running.chat(text, tools=[TOOL], tool_choice=choice)[1]["choices"][0]
        assert chosen["finish_reason"] == "stop"
        assert chosen["message"]["content"]


TOO_MANY = (
    "max_tokens=50000 cannot be greater than max_model_len=16384. Please request fewer output tokens. "
    "(parameter=max_tokens, value=50000)"
)
NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
NO_EFFORT = "Kimi K3 supports thinking_effort values: low, high, max"
NO_MODEL = "The model `nope` does not exist. Valid aliases: moonshotai/Kimi-K3."


@pytest.mark.parametrize(
    ("status", "kind", "param", "text", "body"),
    [
        (404, "NotFoundError", "model", NO_MODEL, {"model": "nope"}),
        (400, "BadRequestError", "max_tokens", TOO_MANY, {"max_tokens": 50_000}),
        (400, "BadRequestError", None, NO_PARSER, {"tools": [TOOL]}),
        (400, "BadRequestError", "reasoning_effort", NO_EFFORT, {"reasoning_effort": "medium"}),
    ],
)
def test_refusals(shared: Any, status: int, kind: str, param: str | None, text: str, body: dict[str, Any]) -> None:
    """What vLLM refuses is refused with its status, type, parameter and text."""
    running = shared("--max-model-len", "16384")
    expected = (status, {"error": {"message": text, "type": kind, "param": param, "code": status}})
    assert expected == running.chat("Hello.", **body)


def test_prompt_too_long_and_bad_bodies(shared: Any) -> None:
    """A prompt over the limit, no JSON, a JSON list and missing messages are 400; the engine lives on."""
    running = shared("--max-model-len", "4096")
    status, answer = running.chat("word " * 5000)
    assert (400, "input_tokens") == (status, answer["error"]["param"])
    assert "maximum context length is 4096 tokens" in answer["error"]["message"]
    for body in (b"{", b"[]", b"{}", b'{"messages": "no"}', b"\xff\xfe"):
        assert running.ask("/v1/chat/completions", body)[0] == 400
    assert running.chat("Hello.")[0] == 200


def test_api_key(start: Any) -> None:
    """With --api-key the /v1 routes want it, /health and /metrics do not."""
    running = start("--api-key", "right").wait_ready()
    assert (401, {"error": "Unauthorized"}) == running.chat("Hello.")
    body = {"messages": [{"role": "user", "content": "Hello."}]}
    assert running.ask("/v1/chat/completions", body, {"authorization": "Bearer wrong"})[0] == 401
    assert running.ask("/v1/chat/completions", body, {"authorization": "Bearer right"})[0] == 200
    assert running.ask("/metrics")[0] == 200
    assert "right" not in running.log


def test_tokenize_round_trip(shared: Any) -> None:
    """/tokenize counts what usage bills, and /detokenize gives the text back."""
    running = shared()
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Où est  le café, s'il te plaît?"},
    ]
    counted = running.ask("/tokenize", {"messages": messages})[1]["count"]
    billed = running.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 1})[1]["usage"]["prompt_tokens"]
    assert counted == billed
    text = "Un texte – avec 12345 signes, et_des\nlignes.  "
    tokens = running.ask("/tokenize", {"prompt": text})[1]["tokens"]
    assert (200, {"prompt": text}) == running.ask("/detokenize", {"tokens": tokens})


def test_prefix_cache_counts_whole_blocks(start: Any) -> None:
    """A repeated long prompt hits whole blocks of 1,536 tokens, in counters and usage; a short one none."""
    running = start("--enable-prompt-tokens-details", VLLM_SERVER_DEV_MODE="1").wait_ready()
    prompt = "alpha beta gamma delta " * 900
    usages = [running.chat(prompt, max_tokens=2)[1]["usage"] for _ in range(2)]
    tokens = usages[0]["prompt_tokens"]
    expected = (tokens - 1) // 1536 * 1536
    assert expected > 0
    assert [0, expected] == [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert 2 * tokens == running.counter("vllm:prefix_cache_queries_total")
    assert expected == running.counter("vllm:prefix_cache_hits_total")
    running.chat("Too short.", max_tokens=2)
    assert expected == running.counter("vllm:prefix_cache_hits_total")
    assert (200, {"success": True}) == running.ask("/reset_prefix_cache", b"")
    assert running.chat(prompt, max_tokens=2)[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_prefix_cache_off_moves_no_counter(start: Any) -> None:
    """With caching off neither counter moves, and the settings in effect say so."""
    running = start("--no-enable-prefix-caching").wait_ready()
    for _ in range(2):
        running.chat("alpha beta gamma delta " * 900, max_tokens=2)
    assert running.counter("vllm:prefix_cache_queries_total") == 0
    assert running.counter("vllm:prefix_cache_hits_total") == 0
    text = running.ask("/metrics")[1].decode()
    assert 'enable_prefix_caching="False"' in text
    assert 'mamba_cache_mode="none"' in text


def test_counters_follow_requests(start: Any) -> None:
    """Prompt, generation and success counters equal what the answers billed."""
    running = start().wait_ready()
    usages = [running.chat(text, max_tokens=20)[1]["usage"] for text in ("One.", "Two two.")]
    assert sum(usage["prompt_tokens"] for usage in usages) == running.counter("vllm:prompt_tokens_total")
    assert sum(usage["completion_tokens"] for usage in usages) == running.counter("vllm:generation_tokens_total")
    assert len(usages) == running.counter("vllm:e2e_request_latency_seconds_count")


def test_client_that_leaves_is_aborted(start: Any) -> None:
    """A client that hangs up mid-stream frees the engine, and counts as aborted."""
    running = start(K3_REHEARSAL_SERVE_SPEED="1").wait_ready()
    body = {"messages": [{"role": "user", "content": "Go."}], "stream": True, "max_tokens": 5000, "ignore_eos": True}
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data))
        assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
        assert running.counter("vllm:num_requests_running") == 1
    time.sleep(0.3)
    assert running.counter("vllm:num_requests_running") == 0


def test_paced_tokens(start: Any) -> None:
    """Unscaled, a lone stream comes at the modelled 111 tokens a second."""
    running = start(K3_REHEARSAL_SERVE_SPEED="1").wait_ready()
    began = time.monotonic()
    running.chat("Go.", max_tokens=100, ignore_eos=True)
    assert 0.85 <= time.monotonic() - began <= 1.6


def test_preemption_when_blocks_run_out(start: Any) -> None:
    """More requests than the pool holds: all are answered, some after a preemption that the counter shows."""
    flags = ("--num-gpu-blocks-override", "12", "--no-enable-prefix-caching", "--max-model-len", "8192")
    running = start(*flags, K3_REHEARSAL_SERVE_SPEED="8").wait_ready()
    statuses: list[int] = []
    text = "one two three four five six seven " * 210

    def ask() -> None:
        statuses.append(running.chat(text, max_tokens=400, ignore_eos=True)[0])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [200] * 6 == statuses
    assert running.counter("vllm:num_preemptions_total") > 0
    assert running.counter("vllm:kv_cache_usage_perc") == 0


def test_first_request_runs_out_of_memory(start: Any) -> None:
    """Dead at the first request: 500 to the client, 503 from health, the ranks' tracebacks, exit code 0."""
    running = start(K3_REHEARSAL_SCENARIO="oom-first-request").wait_ready()
    status, answer = running.chat("Hello.")
    dead = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    expected = {"error": {"message": dead, "type": "InternalServerError", "param": None, "code": 500}}
    assert (500, expected) == (status, answer)
    assert running.ask("/health")[0] == 503
    assert running.wait_end() == 0
    log = running.log
    texts = (
        "Application startup complete.",
        "WorkerProc hit an exception.",
        "in execute_model",
        "torch.OutOfMemoryError",
    )
    order = [log.find(text) for text in (*texts, "EngineCore encountered a fatal error.", "EngineDeadError")]
    assert sorted(order) == order
    assert -1 not in order


def test_first_request_fits_at_lower_utilisation(start: Any) -> None:
    """The same scenario at a lower utilisation answers: the failure comes from the sum, not from a script."""
    running = start("--gpu-memory-utilization", "0.85", K3_REHEARSAL_SCENARIO="oom-first-request").wait_ready()
    assert running.chat("Hello.")[0] == 200


def test_hang(start: Any) -> None:
    """A hung engine stays healthy, shows the request as running, and never answers; SIGTERM still ends it."""
    running = start(K3_REHEARSAL_SCENARIO="hang").wait_ready()
    with socket.create_connection(("127.0.0.1", running.port), timeout=1) as client:
        body = b'{"messages": [{"role": "user", "content": "Hello."}]}'
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        with pytest.raises(TimeoutError):
            client.recv(1)
        assert running.ask("/health")[0] == 200
        assert running.counter("vllm:num_requests_running") == 1
        running.process.send_signal(signal.SIGTERM)
        assert running.wait_end() == 0


def test_sigterm_ends_in_order(start: Any) -> None:
    """SIGTERM writes vLLM's shutdown lines, frees the port, and the exit code is 0."""
    running = start().wait_ready()
    running.process.send_signal(signal.SIGTERM)
    assert running.wait_end() == 0
    assert running.log.count("[shutdown] API server: ") == 5
    assert running.log.splitlines()[-1] == f"INFO:     Finished server process [{running.process.pid}]"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", running.port))


def test_killed_engine_core(start: Any) -> None:
    """A killed core ends a stream with an error event and `[DONE]`, then the API server, with exit code 0."""
    running = start(K3_REHEARSAL_WORKERS="1", K3_REHEARSAL_SERVE_SPEED="1").wait_ready()
    child = psutil.Process(running.process.pid).children()[0]
    assert child.cmdline()[0] == "VLLM::EngineCore"
    assert f"(EngineCore pid={child.pid})" in running.log
    body = {"messages": [{"role": "user", "content": "Go."}], "stream": True, "max_tokens": 2000, "ignore_eos": True}
    threading.Timer(0.3, lambda: os.kill(child.pid, signal.SIGKILL)).start()
    status, stream = running.ask("/v1/chat/completions", body)
    events = stream.decode().strip().split("\n\n")
    assert (200, "data: [DONE]") == (status, events[-1])
    assert json.loads(events[-2].removeprefix("data: "))["error"]["code"] == 500
    assert running.wait_end() == 0
    assert "MPClient: engine core exited unexpectedly" in running.log


def test_killed_api_server_leaves_an_orphan(start: Any) -> None:
    """Like vLLM's, the core outlives a killed API server: something for a launcher to clean up."""
    running = start(K3_REHEARSAL_WORKERS="1").wait_ready()
    child = psutil.Process(running.process.pid).children()[0]
    running.process.kill()
    running.wait_end()
    time.sleep(1.0)
    assert child.is_running()
    child.kill()
    child.wait(5)
