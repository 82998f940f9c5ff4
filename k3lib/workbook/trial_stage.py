"""A stage that starts engines: every trial a fresh start, and what can be seen of it."""

from __future__ import annotations

import threading

from k3lib.record.redactor import load_redactor
from k3lib.report import session as tables
from k3lib.report.figures import Picture, draw_phases
from k3lib.report.tables import Table
from k3lib.spec.vocabulary import Provenance
from k3lib.workbook.lifecycle import keep_record
from k3lib.workbook.show import LiveLine
from k3lib.workbook.stage import Stage
from k3lib.workbook.trial import TrialRun


class TrialStage(Stage):
    """A session whose trials are fresh starts of the engine."""

    @property
    def _timed(self) -> bool:
        """False where the clock is a model's."""
        return self._prepared.provenance is not Provenance.REHEARSAL

    def run_trials(self) -> Table:
        """
        Run every trial of the session, each a fresh start; can be interrupted, and then stops its engine.

        Returns:
            A row per trial.

        Raises:
            LaunchError: We could not start an engine; an engine that dies is a row instead.
            KeyboardInterrupt: After the engine is gone and the record says so.
        """
        threading.Thread(target=_import_drawing, daemon=True).start()
        trials = self._prepared.plan.trials()
        with LiveLine(self.paths.name, len(trials)) as line, self._written("a trial ran"):
            run = TrialRun(self._prepared, self.paths, load_redactor(), line.show)
            for number, arm in trials[len(self.paths.trials()) :]:
                run.run(number, arm)
        self._record = keep_record(self.paths)
        return self.trials()

    def trials(self) -> Table:
        """A row per fresh start."""
        return tables.table_trials(self.record.trials, timed=self._timed)

    def phases(self) -> Picture | Table:
        """How long each phase of each start took."""
        return draw_phases(self.record.trials, self._prepared.provenance)

    def journal(self) -> Table:
        """The log, read in its order."""
        return tables.table_journal(self.record.trials)

    def effective(self) -> Table:
        """Intent against what runs."""
        return tables.table_effective(self.record.trials)

    def requests(self) -> Table:
        """The frozen request and its warm-up, as the client saw them."""
        return tables.table_requests(self.record.trials, timed=self._timed)

    def probes(self) -> Table:
        """The four functional probes of a proof of concept."""
        return tables.table_probes(self.record.trials)


def _import_drawing() -> None:
    """Slow imports while the engine starts, so that the first figure does not wait for them."""
    import matplotlib.figure  # noqa: F401
    import seaborn  # noqa: F401
