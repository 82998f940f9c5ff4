"""What happened, as the rooms hand it to one another. Absent is None, with a reason beside it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import Ending, EngineKind, Probe


class Exit(Fact):
    """
    How the engine's first process ended.

    Args:
        code: Exit code, or None when a signal ended it.
        signal: Name of the signal, `SIGKILL`, or None.
        asked: True if we had asked for the stop. An exit nobody asked for is a death, code 0 too.
    """

    code: int | None
    signal: str | None
    asked: bool


class LaunchResult(Fact):
    """
    One start of an engine, up to its end. A server that dies is such a result, not an exception.

    Args:
        kind: How the engine was reached.
        argv: The exact words of the command.
        env: The declared variables, apart from the inherited minimum; values as given.
        command: The same as one line that a person can paste.
        base_url: `http://127.0.0.1:8000`, or None if it never had one.
        started_at: Wall clock at the start, ISO 8601 with offset.
        ready_s: Seconds from the start to the first 200 of /health, or None.
        lived_s: Seconds from the start to the end, or None while it runs.
        ending: How it ended; None while it runs.
        exit: Exit of the first process; None while it runs or where none is ours.
        limit: The name of the limit that was hit, `engine.ready_timeout_s = 600 s`, or None.
        killed: Processes that ended only by SIGKILL, after the grace; empty is right.
        leftovers: Processes of this engine found alive after the stop; empty is right.
    """

    kind: EngineKind
    argv: list[str]
    env: dict[str, str]
    command: str
    base_url: str | None
    started_at: str
    ready_s: float | None = None
    lived_s: float | None = None
    ending: Ending | None = None
    exit: Exit | None = None
    limit: str | None = None
    killed: list[str] = Field(default_factory=list)
    leftovers: list[str] = Field(default_factory=list)

    @property
    def ready(self) -> bool:
        """True if /health answered 200 once."""
        return self.ready_s is not None


class RequestResult(Fact):
    """
    One request and what came back. No retries: a failure is a row.

    Args:
        probe: Why it was sent.
        request_id: SHA-256 of the canonical body, 16 hex digits.
        sent_at: Wall clock, ISO 8601 with offset.
        ok: An answer came whole: status 200 and, for a stream, a finish reason.
        status: HTTP status, or None if no answer came.
        error: The first line of what went wrong, or None.
        stream: Whether the answer was streamed.
        ttft_s: Send to first token (content, reasoning or tool call), seconds; None if not streamed.
        itl_s: Gaps between the following tokens' chunks, seconds, in order.
        total_s: Send to end, seconds.
        prompt_tokens, completion_tokens: From `usage`; None where the server did not tell.
        cached_tokens: From `usage.prompt_tokens_details`; None where the server did not tell.
        finish_reason: As the server said, or None.
        text, reasoning: What came back, at most 2,000 characters of each.
        tool_calls: Name and arguments as text, in order.
        truncated: text or reasoning was cut for the record.
    """

    probe: Probe
    request_id: str
    sent_at: str
    ok: bool
    status: int | None
    error: str | None
    stream: bool
    ttft_s: float | None = None
    itl_s: list[float] = Field(default_factory=list)
    total_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    text: str | None = None
    reasoning: str | None = None
    tool_calls: list[tuple[str, str]] = Field(default_factory=list)
    truncated: bool = False


class ProbeCheck(Fact):
    """
    One thing that a probe looked at: a fact, not yet a verdict.

    Args:
        name: Short name, stable across releases.
        about: `server` if only the server can be at fault, `model` if the weights may be
            (a tiny model with random weights answers, but not usefully).
        held: Whether it was as expected; None if it could not be told.
        expected: What would have been right.
        seen: What was seen, or None.
        reason: Why `held` is None, or what makes a False harmless.
    """

    name: str
    about: Literal["server", "model"]
    held: bool | None
    expected: str
    seen: str | None = None
    reason: str | None = None


class ProbeResult(Fact):
    """
    One probe: its requests and what they showed.

    Args:
        probe: Which one.
        checks: What was looked at, in order.
        requests: What was sent, in order.
        server_fault: The first answer that was an HTTP 5xx, no answer, or a broken one; None if
            every request was answered. A refusal (4xx) is an answer.
    """

    probe: Probe
    checks: list[ProbeCheck]
    requests: list[RequestResult]
    server_fault: str | None = None


class ServedModel(Fact):
    """
    One entry of /v1/models.

    Args:
        id: Name that requests use.
        root: What was loaded: a repository or a folder, or None.
        max_model_len: Prompt plus output, tokens, or None where the server does not tell.
    """

    id: str
    root: str | None = None
    max_model_len: int | None = None


class EndpointState(Fact):
    """
    What a running engine says about itself.

    Args:
        base_url: Where it was asked.
        read_at: Wall clock, ISO 8601 with offset.
        version: From /version.
        models: From /v1/models.
        cache_config: Labels of `vllm:cache_config_info`, those on which all engines agree.
        metric_families: Names of the families in /metrics.
        reasons: For each of these that is None, why; for a label left out, `cache_config.<label>`.
    """

    base_url: str
    read_at: str
    version: str | None = None
    models: list[ServedModel] | None = None
    cache_config: dict[str, str] | None = None
    metric_families: list[str] | None = None
    reasons: dict[str, str] = Field(default_factory=dict)
