"""The evidence of a trial, written as it comes and read back from the folder alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import ValidationError

from k3lib.record.files import append_line, read_lines, read_model, write_json, writing
from k3lib.record.paths import SessionPaths, TrialPaths
from k3lib.redact import Redactor
from k3lib.spec.model import Fact
from k3lib.spec.results import EndpointState, LaunchResult, ProbeResult, RequestResult

F = TypeVar("F", bound=Fact)
_MOST_BYTES_A_LINE = 1_000_000


class _KeptLaunch(Fact):
    """What stands in launch.json: the arm, the mark of the engine's processes, the launch."""

    arm: str
    mark: str | None = None
    launch: LaunchResult


def write_launch(trial: TrialPaths, launch: LaunchResult, arm: str, token: str, redactor: Redactor) -> None:
    """How the engine was started, and later how it ended, with the mark of its processes; rewritten in one step."""
    write_json(trial.launch, {"arm": arm, "mark": token, "launch": redactor.value(launch.model_dump(mode="json"))})


def read_launch(trial: TrialPaths) -> tuple[str, LaunchResult] | None:
    """The arm and the launch, or None if the trial was cut off before it was written; RecordError if damaged."""
    if not trial.launch.exists():
        return None
    kept = read_model(_KeptLaunch, trial.launch)
    return kept.arm, kept.launch


def read_mark(trial: TrialPaths) -> str | None:
    """The mark of every process of the trial's engine, or None if none was started; RecordError if damaged."""
    return read_model(_KeptLaunch, trial.launch).mark if trial.launch.exists() else None


def write_endpoint(trial: TrialPaths, endpoint: EndpointState, redactor: Redactor) -> None:
    """What the running engine said of itself."""
    write_json(trial.endpoint, redactor.value(endpoint.model_dump(mode="json")))


def read_endpoint_state(trial: TrialPaths) -> EndpointState | None:
    """What the running engine said of itself, or None if it was not asked; RecordError if damaged."""
    return read_model(EndpointState, trial.endpoint) if trial.endpoint.exists() else None


def append_request(trial: TrialPaths, row: RequestResult, redactor: Redactor) -> None:
    """One more request."""
    append_line(trial.requests, redactor.value(row.model_dump(mode="json")))


def append_probe(trial: TrialPaths, result: ProbeResult, redactor: Redactor) -> None:
    """One more functional probe."""
    append_line(trial.probes, redactor.value(result.model_dump(mode="json")))


def read_requests(trial: TrialPaths) -> list[RequestResult]:
    """The requests of a trial, in order."""
    return list(_models(RequestResult, read_lines(trial.requests)))


def read_probes(trial: TrialPaths) -> list[ProbeResult]:
    """The functional probes of a trial, in order."""
    return list(_models(ProbeResult, read_lines(trial.probes)))


def redact_log(trial: TrialPaths, redactor: Redactor) -> None:
    """
    The engine's log again, line for line, with secrets and places replaced.

    A line longer than 1 MB is cut for the redacted copy; the raw one is whole.

    Raises:
        RecordError: The disk is full, read-only or the folder is gone.
    """
    if not trial.raw_log.exists():
        return
    temporary = trial.log.with_suffix(".part")
    with writing(trial.log):
        with trial.raw_log.open("rb") as raw, temporary.open("w", encoding="utf-8", newline="\n") as redacted:
            for line in _bounded_lines(raw):
                # A carriage return inside a line redraws a progress bar; it stays, so that line numbers do.
                redacted.write(redactor.text(line.decode("utf-8", "replace").rstrip("\n")) + "\n")
        temporary.replace(trial.log)


def append_event(paths: SessionPaths, event: dict[str, Any]) -> None:
    """One more thing that happened, for whoever watches."""
    append_line(paths.events, event)


def _bounded_lines(raw: Any) -> Iterator[bytes]:
    while line := raw.readline(_MOST_BYTES_A_LINE):
        yield line
        while not line.endswith(b"\n") and (line := raw.readline(_MOST_BYTES_A_LINE)):
            pass  # the rest of an overlong line


def _models(model: type[F], values: list[object]) -> Iterator[F]:
    for value in values:
        try:
            yield model.model_validate(value)
        except ValidationError:
            continue  # a row of another version; the file keeps it
