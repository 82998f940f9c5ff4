"""POC check 4: does the second turn still know what the first one said, reasoning sent back and all?"""

from __future__ import annotations

from k3lib.measure.probe_run import ProbeRun, shorten
from k3lib.spec.request import Message

_CODE_WORD = "heron-58"
_FACT = Message(role="user", content=f"Remember this: my code word is {_CODE_WORD}. Confirm in one short sentence.")
_QUESTION = Message(role="user", content="What is my code word? Answer with the code word only.")


def probe_coherence(run: ProbeRun) -> None:
    """
    States a fact, sends the whole answer back with its reasoning, and asks for the fact.

    Args:
        run: Takes the requests and checks.

    Raises:
        NoAnswerError: The server failed.
    """
    first = run.ask([_FACT], max_tokens=run.limits.max_tokens)
    run.check("first-turn", "server", first.row.ok, expected="an answer", seen=first.row.error or "an answer")
    if not first.row.ok:
        return
    message = first.answer.message()
    second = run.ask([_FACT, Message(**message), _QUESTION], max_tokens=run.limits.max_tokens)
    reasoned = "reasoning" in message
    run.check(
        "reasoning-accepted",
        "server",
        second.row.ok if reasoned else None,
        expected="an answer to a conversation that carries the first turn's reasoning",
        seen=second.row.error or f"finish reason {second.row.finish_reason}",
        reason=None if reasoned else "the first turn held no reasoning to send back",
    )
    run.check("second-turn", "server", second.row.ok, expected="an answer", seen=second.row.error or "an answer")
    text, cut = second.answer.text, second.row.finish_reason == "length"
    truncated = second.row.ok and cut and not text
    run.check(
        "fact-recalled",
        "model",
        _CODE_WORD in text.lower() if second.row.ok and not truncated else None,
        expected=f"{_CODE_WORD} in the second answer",
        seen=shorten(text) or f"no text, finish reason {second.row.finish_reason}",
        reason=_why_untold(second.row.error, truncated),
    )


def _why_untold(error: str | None, truncated: bool) -> str | None:
    if truncated:
        return "healthy but truncated: the output limit was spent on reasoning; raise max_tokens"
    return error
