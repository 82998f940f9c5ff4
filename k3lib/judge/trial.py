"""One trial as the rules see it, and the first reading: does it count, and where did it fail?"""

from __future__ import annotations

from pydantic import Field

from k3lib.judge.answer import Failure
from k3lib.judge.effective import EffectiveField
from k3lib.logs.journal import JournalStep
from k3lib.logs.timeline import Timeline
from k3lib.spec.model import Fact
from k3lib.spec.results import EndpointState, LaunchResult, ProbeResult, RequestResult
from k3lib.spec.vocabulary import Ending, Phase, Probe


class TrialRecord(Fact):
    """
    One fresh start of the engine, with all that was read from it.

    Args:
        number: 1, 2, …
        arm: Name of the arm.
        launch: How it started and ended.
        timeline: What the log proves; None if there is no log.
        journal: The reading of the log in its order (R-24).
        endpoint: What the running engine said of itself, or None.
        effective: Intent against what runs, a row per field.
        requests: A row per request.
        probes: A row per functional probe.
        diagnosis: What triage says of the engine's log, its milestones apart; None if there is no log.
        void: Why the trial does not count, or None.
        failed_phase: The phase in which it failed, or None for a success.
        failure: One line on how it failed, or None.
    """

    number: int
    arm: str
    launch: LaunchResult
    timeline: Timeline | None = None
    journal: list[JournalStep] = Field(default_factory=list)
    endpoint: EndpointState | None = None
    effective: list[EffectiveField] = Field(default_factory=list)
    requests: list[RequestResult] = Field(default_factory=list)
    probes: list[ProbeResult] = Field(default_factory=list)
    diagnosis: Failure | None = None
    void: str | None = None
    failed_phase: Phase | None = None
    failure: str | None = None

    @property
    def counts(self) -> bool:
        """True unless the trial is void."""
        return self.void is None

    @property
    def timed_out(self) -> bool:
        """True if one of our limits ended the wait: for readiness, or for an answer."""
        broken = self.broken()
        return self.launch.limit is not None or (
            bool(broken) and broken[0].status is None and " = " in (broken[0].error or "")
        )

    def frozen(self) -> list[RequestResult]:
        """The frozen request's rows, warm-up and probes apart."""
        return [r for r in self.requests if r.probe is Probe.FROZEN]

    def broken(self) -> list[RequestResult]:
        """Warm-up and frozen request, as far as they failed; the first is where it went wrong."""
        return [r for r in self.requests if r.probe in (Probe.WARM_UP, Probe.FROZEN) and not r.ok]


def judge_trial(trial: TrialRecord, debug_variables: list[str], asks: bool = False) -> TrialRecord:
    """
    The trial with its first reading filled in.

    Args:
        trial: The facts.
        debug_variables: Names of debug variables that were set (R-17).
        asks: The stage sends the frozen request.

    Returns:
        The same trial with `void`, `failed_phase` and `failure`.
    """
    phase, failure = _read_failure(trial)
    return trial.model_copy(
        update={"void": _read_void(trial, debug_variables, asks), "failed_phase": phase, "failure": failure}
    )


def _read_void(trial: TrialRecord, debug_variables: list[str], asks: bool) -> str | None:
    """A mismatch with intent, a debug variable or our own interruption keeps a trial out; unknown never does."""
    if trial.launch.ending is Ending.NOT_STARTED:
        return "it was cut off before its engine ran"
    if trial.launch.ending in (None, Ending.INTERRUPTED):
        return "it was interrupted before its end"
    if trial.launch.ending is Ending.STOPPED and not trial.launch.ready:
        return "we stopped it before it was ready"
    if asks and trial.launch.ready and trial.launch.ending is Ending.STOPPED and not trial.frozen() + trial.broken():
        return "we stopped it before the frozen request was sent"
    wrong = [f for f in trial.effective if f.agrees is False]
    if wrong:
        return "; ".join(f"{f.name}: intended {f.intended}, runs {f.effective} ({f.source})" for f in wrong)
    if debug_variables:
        return f"debug variables were set: {', '.join(debug_variables)}"
    return None


def _read_failure(trial: TrialRecord) -> tuple[Phase | None, str | None]:
    launch = trial.launch
    if not launch.ready:
        phase = _read_phase(trial)
        last = trial.timeline.last.value if trial.timeline and trial.timeline.last else "none"
        return phase, f"{_how_it_ended(launch)}; last milestone: {last}"
    died = f"; {_how_it_ended(launch)}" if launch.ending is Ending.DIED else ""
    broken = trial.broken()
    if broken:
        what = "warm-up" if broken[0].probe is Probe.WARM_UP else "frozen request"
        return Phase.SERVING, f"the {what} failed: {broken[0].error or f'HTTP {broken[0].status}'}{died}"
    if died:
        return Phase.SERVING, _how_it_ended(launch)
    return None, None


def _read_phase(trial: TrialRecord) -> Phase:
    """Where a start failed: by the first error if the log holds one, else by the last milestone."""
    if trial.diagnosis and trial.diagnosis.first_error and trial.diagnosis.phase:
        return trial.diagnosis.phase
    return trial.timeline.phase if trial.timeline else Phase.CONTAINER


def _how_it_ended(launch: LaunchResult) -> str:
    if launch.limit:
        return f"limit hit: {launch.limit}"
    if launch.exit is None:
        return "it never became ready"
    if launch.exit.asked:
        return "we stopped it"
    if launch.exit.signal:
        return f"it died of {launch.exit.signal}"
    return f"it exited with code {launch.exit.code} without being asked"
