"""The course of one probe: what it asks, what it notes, and where it ends when nobody answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from k3lib.measure.client import Client, Exchange
from k3lib.measure.http import Getter
from k3lib.spec.request import FrozenRequest, Message
from k3lib.spec.results import ProbeCheck, ProbeResult, RequestResult
from k3lib.spec.vocabulary import Probe


class NoAnswerError(Exception):
    """The server failed; there is no point in asking the rest of the probe."""


@dataclass(frozen=True)
class ProbeLimits:
    """
    How much a probe may ask for.

    Args:
        max_tokens: Output limit where the model has to think, tokens.
        timeout_s: Deadline of each request, seconds.
        extra_body: Further keys of every body, `chat_template_kwargs` for instance.
    """

    max_tokens: int = 1024
    timeout_s: float = 120.0
    extra_body: dict[str, Any] = field(default_factory=dict)


class ProbeRun:
    """
    Collects the requests and checks of one probe.

    Args:
        client: An open connection.
        probe: Which probe.
        model: Name the server knows the model by.
        limits: How much it may ask for.
        length: The model's context, tokens, where the server tells it.
    """

    def __init__(
        self, client: Client, probe: Probe, model: str, limits: ProbeLimits, length: int | None = None
    ) -> None:
        self.client, self.probe, self.model, self.limits, self.length = client, probe, model, limits, length
        self._checks: list[ProbeCheck] = []
        self._rows: list[RequestResult] = []
        self._fault: str | None = None
        self.silent = False
        """Whether the server gave no answer at all, so that asking further would only wait again."""

    def ask(self, messages: list[Message], *, max_tokens: int, **changed: Any) -> Exchange:
        """
        One ordinary request.

        Args:
            messages: The conversation.
            max_tokens: Output limit, tokens.
            changed: Other fields of the request.

        Returns:
            The exchange: an answer, or a refusal (4xx).

        Raises:
            NoAnswerError: HTTP 5xx, no answer, or a broken one.
        """
        request = FrozenRequest(
            name=self.probe.value,
            messages=messages,
            max_tokens=max_tokens,
            temperature=0.0,
            timeout_s=self.limits.timeout_s,
            extra_body=self.limits.extra_body,
            **{"stream": False, **changed},
        )
        exchange = self.client.exchange(request, model=self.model, probe=self.probe)
        self._rows.append(exchange.row)
        if is_server_fault(exchange.row):
            self._fault = exchange.row.error
            self.silent = exchange.row.status is None
            raise NoAnswerError
        return exchange

    def ask_wrongly(self, request: FrozenRequest, *, model: str) -> RequestResult:
        """One request that ought to be refused; whatever comes back is only noted."""
        row = self.client.send(request, model=model, probe=self.probe)
        self._rows.append(row)
        return row

    def check(
        self,
        name: str,
        about: Literal["server", "model"],
        held: bool | None,
        *,
        expected: str,
        seen: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Notes one thing that was looked at."""
        self._checks.append(ProbeCheck(name=name, about=about, held=held, expected=expected, seen=seen, reason=reason))

    def getter(self) -> Getter:
        """A connection for the plain routes of the same engine."""
        return Getter(self.client.base_url, timeout_s=min(30.0, self.limits.timeout_s), api_key=self.client.api_key)

    def result(self) -> ProbeResult:
        """What was found so far."""
        return ProbeResult(probe=self.probe, checks=self._checks, requests=self._rows, server_fault=self._fault)


def is_server_fault(row: RequestResult) -> bool:
    """
    Whether a row shows a failure of the server, and not a refusal.

    Args:
        row: One request.

    Returns:
        True for an HTTP 5xx, for no answer, and for one that broke off or has not the right shape.
    """
    return not row.ok and (row.status is None or row.status < 400 or row.status >= 500)


def shorten(text: str | None) -> str:
    """The start of an answer, on one line, for the `seen` of a check."""
    line = " ".join((text or "").split())
    return line if len(line) <= 120 else line[:119] + "…"
