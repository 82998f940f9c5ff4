"""The four functional checks of a proof of concept (R-28), each a probe of its own; none stops a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from k3lib.measure.client import Client
from k3lib.measure.effective import read_endpoint
from k3lib.measure.probe_api import probe_api
from k3lib.measure.probe_coherence import probe_coherence
from k3lib.measure.probe_rendering import probe_rendering
from k3lib.measure.probe_run import NoAnswerError, ProbeLimits, ProbeRun
from k3lib.measure.probe_tool_call import probe_tool_call
from k3lib.spec.results import ProbeResult
from k3lib.spec.vocabulary import Probe

PROBES: dict[Probe, Callable[[ProbeRun], None]] = {
    Probe.API: probe_api,
    Probe.RENDERING: probe_rendering,
    Probe.TOOL_CALL: probe_tool_call,
    Probe.COHERENCE: probe_coherence,
}


def run_probes(client: Client, *, model: str, limits: ProbeLimits | None = None) -> Iterator[ProbeResult]:
    """
    The probes in their order, each as soon as it is done.

    Args:
        client: An open connection.
        model: Name the server knows the model by.
        limits: How much they may ask for; None takes the defaults.

    Yields:
        What each one found. Facts only: whether a weak answer matters is judged elsewhere. Once the
        server gave no answer at all, the remaining probes are not asked and carry that fault; after an
        HTTP 500 they are, because a front end can fail on one request and live on.
    """
    length = _read_length(client, model)
    limits = limits or ProbeLimits()
    if length is not None:  # room for the prompt of a second turn, in a base that was made short on purpose
        limits = replace(limits, max_tokens=max(1, min(limits.max_tokens, length // 3)))
    fault: str | None = None
    for probe, ask in PROBES.items():
        if fault is not None:
            yield ProbeResult(probe=probe, checks=[], requests=[], server_fault=f"not asked, because: {fault}")
            continue
        run = ProbeRun(client, probe, model, limits, length)
        try:
            ask(run)
        except NoAnswerError:
            fault = run.result().server_fault if run.silent else None
        yield run.result()


def _read_length(client: Client, model: str) -> int | None:
    models = read_endpoint(client.base_url, api_key=client.api_key).models or []
    return next((served.max_model_len for served in models if served.id == model), None)
