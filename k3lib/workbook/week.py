"""The calendar of a campaign: what the gates allow, in order, resumed where it stopped, nothing overwritten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from k3lib.errors import GateClosed, K3Error
from k3lib.record.parameters import Places, list_session_files, read_campaign, read_session
from k3lib.record.redactor import learn_secrets, redact_model
from k3lib.record.sessions import list_sessions, read_info, read_plan, read_record
from k3lib.spec.session import stage_of
from k3lib.spec.vocabulary import Outcome, SessionState
from k3lib.workbook.run import OnEvent, SessionRun, run_session


@dataclass(frozen=True)
class WeekStep:
    """
    One line of the calendar after a pass over it.

    Args:
        file: The session file.
        run: The session that was run now, or None.
        done_before: Name of the session that had passed before, or None.
        error: Why it was not run, or None.
    """

    file: Path
    run: SessionRun | None = None
    done_before: str | None = None
    error: K3Error | None = None

    @property
    def stops(self) -> bool:
        """True if nothing after this line may run."""
        if self.error is not None:
            return True
        return self.run is not None and not (
            self.run.record.session.state is SessionState.CLOSED
            and self.run.record.outcome in (Outcome.PASS, Outcome.WARN)
        )


def run_week(places: Places, campaign: str, on_start: Callable[[Path], None], on_event: OnEvent) -> Iterator[WeekStep]:
    """
    Run a campaign's sessions in order, up to the first that does not pass.

    Args:
        places: The workbook's folders.
        campaign: Name or path.
        on_start: Called with the session file before it runs.
        on_event: Called with each event of a session.

    Yields:
        A step per line of the calendar; after one that stops, nothing more.

    Raises:
        SpecError: The campaign is not right.
    """
    loaded, folder = read_campaign(places, campaign)
    for file in list_session_files(folder):
        step = _find_done(places, loaded.name, file)
        if step is None:
            on_start(file)
            try:
                step = WeekStep(file, run=run_session(places, file, on_event))
            except GateClosed as closed:
                step = WeekStep(file, error=closed)
        yield step
        if step.stops:
            return


def _find_done(places: Places, campaign: str, file: Path) -> WeekStep | None:
    """The session of this very file that passed before, if the file says the same today."""
    said, stage = read_session(places, file), stage_of(file.name)
    base = read_campaign(places, said.campaign)[0]
    learn_secrets(base, said)
    spec, base = redact_model(said), redact_model(base)
    for paths in reversed(list_sessions(places.outputs / campaign)):
        try:
            info, plan, record = read_info(paths), read_plan(paths), read_record(paths)
        except K3Error:
            continue
        if info.stage != stage.value or plan.spec != spec or plan.campaign != base:
            continue
        if info.state is SessionState.CLOSED and record.outcome in (Outcome.PASS, Outcome.WARN):
            return WeekStep(file, done_before=paths.name)
    return None
