"""`k3 try URL`: the request path of stage 40 against an endpoint that is already up; exploratory, one of one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3lib.errors import SpecError
from k3lib.judge.request import read_probe
from k3lib.knowledge.versions import parse_release
from k3lib.measure.client import open_client
from k3lib.measure.effective import read_endpoint
from k3lib.measure.probe_run import ProbeLimits
from k3lib.measure.probes import run_probes
from k3lib.record.files import write_json
from k3lib.record.parameters import Places, read_request
from k3lib.record.redactor import load_redactor
from k3lib.record.sessions import now_text
from k3lib.report.tables import Table
from k3lib.spec.results import EndpointState, ProbeResult, RequestResult
from k3lib.spec.vocabulary import Probe
from k3lib.units import format_seconds

# Together within two minutes: a request without an answer ends the look.
_WARM_UP_S, _LONGEST_REQUEST_S, _LONGEST_PROBE_S = 20.0, 45.0, 8.0


@dataclass(frozen=True)
class Attempt:
    """
    One look at an endpoint.

    Args:
        endpoint: What it says of itself.
        request: The frozen request's row.
        probes: The four functional probes.
        file: Where it is kept.
    """

    endpoint: EndpointState
    request: RequestResult
    probes: list[ProbeResult]
    file: Path

    @property
    def exit_code(self) -> int:
        """0 if the request came back whole and no probe met a fault, else 3."""
        faults = [p for p in self.probes if read_probe(p)[0] == "fault"]
        return 0 if self.request.ok and not faults else 3

    def as_dict(self) -> dict[str, Any]:
        """The same for `--json`."""
        return {
            "label": "exploratory 1/1",
            "endpoint": self.endpoint.model_dump(mode="json"),
            "request": self.request.model_dump(mode="json"),
            "probes": [p.model_dump(mode="json") for p in self.probes],
            "file": str(self.file),
        }

    def render_text(self) -> str:
        """One screen for a person."""
        row = self.request
        models = ", ".join(m.id for m in self.endpoint.models or []) or "not told"
        rehearsed = parse_release(self.endpoint.version).rehearsal
        cached = "not told by the server" if row.cached_tokens is None else row.cached_tokens
        rows: list[list[Any]] = [
            ["endpoint", f"{self.endpoint.base_url} · version {self.endpoint.version or 'not told'} · model {models}"],
            ["frozen request", "whole" if row.ok else f"failed: {row.error}"],
            ["TTFT · total", f"{format_seconds(row.ttft_s)} · {format_seconds(row.total_s)}"],
            ["tokens", f"prompt {row.prompt_tokens}, output {row.completion_tokens}, cached {cached}"],
            ["finish reason", row.finish_reason],
            *[[p.probe.value, " — ".join(read_probe(p))] for p in self.probes],
            ["kept in", str(self.file)],
        ]
        head = "EXPLORATORY 1/1 — one look; it says nothing of stability, capacity or margin"
        return str(Table(["", head + (" (REHEARSAL: no GPU, no K3)" if rehearsed else "")], rows))


def try_url(places: Places, url: str, model: str | None, request_name: str) -> Attempt:
    """
    Ask an endpoint once: what it says of itself, the frozen request, the four probes.

    Args:
        places: The workbook's folders.
        url: The endpoint; the API key comes from K3_API_KEY.
        model: Name of the model, or None for the endpoint's first.
        request_name: A file under params/requests/.

    Returns:
        What was seen, kept under outputs/exploratory/.

    Raises:
        SpecError: No such request, or nothing answers at the address.
    """
    request = read_request(places, request_name)
    request = request.model_copy(update={"timeout_s": min(request.timeout_s, _LONGEST_REQUEST_S)})
    endpoint = read_endpoint(url)
    name = model or (endpoint.models[0].id if endpoint.models else None)
    if name is None:
        raise SpecError(
            f"{url} names no model",
            expected="an OpenAI-compatible endpoint, http://127.0.0.1:8000",
            evidence=endpoint.reasons.get("models", "no answer"),
            next="check the address, or name the model with --model; a key goes into K3_API_KEY",
        )
    with open_client(url, os.environ.get("K3_API_KEY")) as client:
        row = client.warm_up(model=name, timeout_s=_WARM_UP_S)
        if row.ok or row.status is not None:
            row = client.send(request, model=name, probe=Probe.FROZEN)
        limits = ProbeLimits(timeout_s=_LONGEST_PROBE_S)
        probes = run_probes(client, model=name, limits=limits) if row.ok else []
        attempt = Attempt(endpoint, row, list(probes), _new_file(places))
    write_json(attempt.file, load_redactor().value(attempt.as_dict()))
    return attempt


def _new_file(places: Places) -> Path:
    folder = places.outputs / "exploratory"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = now_text().replace(":", "").replace("-", "").replace(".", "-").removesuffix("+0000")
    return folder / f"{stamp}.json"
