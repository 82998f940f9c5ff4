"""
What went wrong with a request, in one line for its row.

The words say on whose side to look: `HTTP 404: …` is the server's own refusal, `no connection` means
that nothing answered, `connection lost` that it died in between, `request.timeout_s = …` is our limit.
"""

from __future__ import annotations

import json
import re

from k3lib.measure.answer import Answer, AnswerShapeError
from k3lib.measure.http import explain_no_answer

_LONGEST = 400
_TAG = re.compile(r"<(style|script)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def explain_failure(problem: BaseException, status: int | None) -> tuple[int | None, str]:
    """
    An exception of the client as status and sentence.

    Args:
        problem: What the official client raised.
        status: The HTTP status, if a stream had already begun.

    Returns:
        Status, or None if no answer came; and one line.

    Source:
        openai 3.57.0 _streaming.py: an error inside a stream is a bare APIError, bad JSON leaks as JSONDecodeError.
    """
    from openai import APIConnectionError, APIError, APIStatusError

    if isinstance(problem, APIStatusError):
        message = _server_message(problem.body) or _server_message(problem.response.text)
        return problem.status_code, _line(f"HTTP {problem.status_code}: {message or 'no message'}")
    if isinstance(problem, APIConnectionError):
        side = "no connection" if status is None else "connection lost"
        return status, _line(f"{side}: {explain_no_answer(problem)}")
    if isinstance(problem, APIError):
        return status, _line(f"error in the stream: {_server_message(problem.body) or problem.message}")
    if isinstance(problem, json.JSONDecodeError):
        return status or 200, _line(f"the answer is not JSON: {problem} in {problem.doc[:80]!r}")
    if isinstance(problem, AnswerShapeError):
        return status, _line(str(problem))
    if isinstance(problem, UnicodeDecodeError):
        return status, _line(f"the answer is not text: {problem}")
    return status, _line(f"{type(problem).__name__}: {explain_no_answer(problem)}")


def explain_incomplete(answer: Answer, *, stream: bool) -> str | None:
    """
    Why an answer that ended without an error is still not whole.

    Args:
        answer: What came in.
        stream: Whether it was streamed.

    Returns:
        One line, or None if it is whole.

    >>> explain_incomplete(Answer(), stream=True)
    'the answer holds no choice'
    """
    if not answer.choices_seen:
        return "the answer holds no choice"
    if stream and answer.finish_reason is None:
        return "the stream ended without a finish reason"
    return None


def _server_message(body: object) -> str | None:
    """The server's words: vLLM's `message`, its middleware's bare `error`, or the text of a proxy's page."""
    if isinstance(body, dict):
        for key in ("message", "error", "detail"):
            found = body.get(key)
            if found:
                return _server_message(found) if isinstance(found, dict) else str(found)
        return json.dumps(body)
    if isinstance(body, str):
        return _TAG.sub(" ", body)
    return None


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
