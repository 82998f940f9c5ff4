"""Triage in a notebook: the same answers as `k3 triage`, one question per table."""

from __future__ import annotations

from glob import glob
from pathlib import Path
from typing import Literal

from k3lib.errors import SpecError
from k3lib.record.parameters import find_places
from k3lib.report import triage as text
from k3lib.report.tables import Table
from k3lib.workbook.triage import Triage, triage


class TriageSheet:
    """
    The answers for some logs, as a notebook shows them.

    Args:
        answers: One per argument.
        language: `en` or `fr`, of everything shown.
    """

    def __init__(self, answers: list[Triage], language: Literal["en", "fr"]) -> None:
        self._answers, self._language = answers, language

    def show_setup(self) -> Table:
        """What was handed over, how much of it was read, and what was not."""
        return text.table_inputs([(a.argument, a.failure, len(a.notes)) for a in self._answers], self._language)

    def answers(self) -> Table:
        """One row per log: failed, phase, memory, route."""
        return text.table_answers([(a.argument, a.failure) for a in self._answers], self._language)

    def first_errors(self) -> Table:
        """The line of each first error, with its file and number."""
        return text.table_first_errors([(a.argument, a.failure) for a in self._answers], self._language)

    def milestones(self) -> Table:
        """How far each start came, and at which line."""
        return text.table_way([(a.argument, a.failure) for a in self._answers], self._language)

    def reasons(self) -> Table:
        """The sentences behind each answer."""
        return text.table_reasons([(a.argument, a.failure) for a in self._answers], self._language)

    def verdict(self) -> Table:
        """The next step for each log, and what would only look like a remedy."""
        return text.table_steps([(a.argument, a.failure) for a in self._answers], self._language)

    def close(self) -> Table:
        """The commands that give the same answers in a terminal."""
        return text.table_commands([a.argument for a in self._answers], self._language)


def open_triage(files: list[str], lang: str = "en") -> TriageSheet:
    """
    Reads logs for a notebook.

    Args:
        files: Logs, folders, or patterns of them such as `logs/*.gz`; looked for here, then in the workbook's folder.
        lang: Language of everything shown, `en` or `fr`.

    Raises:
        SpecError: There is no such language, or no file is named.
        InputError: Nothing can be read from a file.
    """
    if lang not in text.LANGUAGES or not files:
        raise SpecError(
            "the parameters of triage name no log or no known language",
            expected=f"files with at least one path, lang one of {', '.join(text.LANGUAGES)}",
            evidence=f"files = {files}, lang = {lang!r}",
            next="set both in the cell with the parameters",
        )
    language: Literal["en", "fr"] = "fr" if lang == "fr" else "en"
    return TriageSheet([triage(found, language) for file in files for found in _find(file)], language)


def _find(file: str) -> list[str]:
    """What a path or pattern stands for; itself where nothing fits, for the error that names it."""
    for root in (Path(), find_places().root):
        if (root / file).exists():
            return [str(root / file)]
        if found := sorted(glob(file, root_dir=root)):
            return [str(root / name) for name in found]
    return [file]
