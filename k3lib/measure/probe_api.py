"""POC check 1: does the engine speak the API as the official client expects it?"""

from __future__ import annotations

from typing import Any

from k3lib.measure.http import HttpAnswer
from k3lib.measure.probe_run import ProbeRun
from k3lib.spec.request import FrozenRequest, Message
from k3lib.spec.results import RequestResult

_HELLO = [Message(role="user", content="Say hello in one word.")]
_FEW_TOKENS = 16
_NO_SUCH_MODEL = "k3-workbook-no-such-model"
_BEYOND_ANY_MODEL = 10_000_000


def probe_api(run: ProbeRun) -> None:
    """
    Lists the model, answers whole and streamed in the same terms, and refuses what it must refuse.

    Args:
        run: Takes the requests and checks.

    Raises:
        NoAnswerError: The server failed.

    Source:
        404 and 400 as vLLM 0.32.0 answers them to an unknown model and to max_tokens beyond max_model_len.
    """
    with run.getter() as getter:
        _check_listed(run, getter.get("/v1/models"))
    whole = run.ask(_HELLO, max_tokens=_FEW_TOKENS)
    _check_answer(run, "whole", whole.row)
    _check_shape(run, "whole", whole.answer.bodies)
    streamed = run.ask(_HELLO, max_tokens=_FEW_TOKENS, stream=True)
    _check_answer(run, "streamed", streamed.row)
    _check_shape(run, "streamed", streamed.answer.bodies)
    _check_same_count(run, whole.row.prompt_tokens, streamed.row.prompt_tokens)
    _check_refusals(run)


def _check_listed(run: ProbeRun, answer: HttpAnswer) -> None:
    body: Any = answer.json()
    entries = body.get("data") if isinstance(body, dict) else None
    names = [str(entry.get("id")) for entry in entries or [] if isinstance(entry, dict)]
    seen = ", ".join(names) or answer.error or "no models"
    run.check("model-listed", "server", run.model in names, expected=f"{run.model} in /v1/models", seen=seen)


def _check_answer(run: ProbeRun, way: str, row: RequestResult) -> None:
    counted = row.prompt_tokens is not None and row.completion_tokens is not None
    run.check(
        f"{way}-answer",
        "server",
        row.ok and row.finish_reason is not None and counted,
        expected="HTTP 200, a finish reason, token counts",
        seen=row.error or f"finish reason {row.finish_reason}, {row.prompt_tokens} and {row.completion_tokens} tokens",
    )


def _check_shape(run: ProbeRun, way: str, bodies: list[dict[str, Any]]) -> None:
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from pydantic import ValidationError

    shape = ChatCompletion if way == "whole" else ChatCompletionChunk
    found = None
    for body in bodies:
        try:
            shape.model_validate(body)
        except ValidationError as problem:
            first = problem.errors()[0]
            found = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            break
    run.check(
        f"{way}-shape",
        "server",
        found is None if bodies else None,
        expected=f"the fields of the official client's {shape.__name__}",
        seen=found,
        reason=None if bodies else "no answer came",
    )


def _check_same_count(run: ProbeRun, whole: int | None, streamed: int | None) -> None:
    told = whole is not None and streamed is not None
    run.check(
        "both-ways-alike",
        "server",
        whole == streamed if told else None,
        expected="the same prompt_tokens streamed and not",
        seen=f"{whole} and {streamed}",
        reason=None if told else "the server did not tell both",
    )


def _check_refusals(run: ProbeRun) -> None:
    plain: dict[str, Any] = {"name": run.probe.value, "messages": _HELLO, "temperature": 0.0}
    short = FrozenRequest(**plain, max_tokens=1, timeout_s=run.limits.timeout_s, stream=False)
    row = run.ask_wrongly(short, model=_NO_SUCH_MODEL)
    run.check("unknown-model", "server", row.status == 404, expected="HTTP 404", seen=row.error or "an answer")
    # Streamed and with a short deadline: a server that does not refuse must not generate to the end.
    limit = (run.length or _BEYOND_ANY_MODEL) + 1
    endless = FrozenRequest(**plain, max_tokens=limit, timeout_s=min(10.0, run.limits.timeout_s))
    row = run.ask_wrongly(endless, model=run.model)
    run.check("output-limit", "server", row.status == 400, expected="HTTP 400", seen=row.error or "an answer")
