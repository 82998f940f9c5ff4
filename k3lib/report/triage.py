"""The answer of triage as text for a terminal and a notebook, and as the object of `--json`; English or French."""

from __future__ import annotations

import shlex
from typing import Any, Literal

from k3lib.judge.answer import Failure, Reason
from k3lib.knowledge.sentences import load_sentences
from k3lib.knowledge.signatures import Advice, load_failures
from k3lib.logs.prefixes import strip_colour
from k3lib.report.sentences import fill
from k3lib.report.tables import Table

Language = Literal["en", "fr"]
LANGUAGES = ("en", "fr")
Answers = list[tuple[str, Failure]]
_WIDTH = 110
_MOST_STEPS = 30
_UNSEEN = {"nothing-read", "unfinished", "other-node"}

_TROUBLES = {
    "unreadable": ("cannot be read", "illisible"),
    "not-a-file": ("a pipe, a socket or a device", "un tube, une prise ou un périphérique"),
    "link": ("a link; links in a folder are not followed", "un lien ; ceux d’un dossier ne sont pas suivis"),
    "no-text": ("no text", "pas un texte"),
    "damaged": ("compressed and damaged; what came out was used", "compressé et abîmé ; ce qui en sortait a servi"),
    "too-many": ("beyond the most files that a folder may hold", "au-delà du nombre de fichiers admis d’un dossier"),
}
_LABELS = {
    "failed": ("failed", "échec"),
    "phase": ("phase", "phase"),
    "domain": ("domain", "domaine"),
    "oom": ("out of memory", "manque de mémoire"),
    "route": ("route", "voie"),
    "rule": ("decided by", "décidé par"),
    "way": ("The way it went", "Le chemin parcouru"),
    "first": ("First error", "Première erreur"),
    "no-first": ("No line of this log is the first error.", "Aucune ligne de ce journal n’est la première erreur."),
    "why": ("Why", "Pourquoi"),
    "next": ("Next", "Ensuite"),
    "avoid": ("Not", "À éviter"),
    "milestone": ("milestone", "jalon"),
    "file": ("file", "fichier"),
    "line": ("line", "ligne"),
    "time": ("time", "heure"),
    "notes": ("Not read", "Non lu"),
    "log": ("log", "journal"),
    "launches": ("launches", "lancements"),
    "unread": ("not read", "non lus"),
    "text": ("text", "texte"),
    "answers": ("Answers", "Réponses"),
    "inputs": ("What was handed over", "Ce qui a été remis"),
    "firsts": ("First errors", "Premières erreurs"),
    "reasons": ("Reasons", "Raisons"),
    "steps": ("What to do next, and what not", "Que faire ensuite, et que ne pas faire"),
    "command": ("The same in a terminal", "La même chose dans un terminal"),
}


def _heading(name: str, language: Language) -> str:
    return label(name, language) + (" :" if language == "fr" else ":")


def render_note(file: str, trouble: str, detail: str, language: Language) -> str:
    """
    Why a file was not read, or not to its end.

    >>> render_note("core", "no-text", "", "fr")
    'core (pas un texte)'
    """
    reason = _TROUBLES[trouble][language == "fr"]
    return f"{file} ({reason}: {detail})" if detail else f"{file} ({reason})"


def label(name: str, language: Language) -> str:
    """A heading in the chosen language."""
    return _LABELS[name][language == "fr"]


def render_reason(reason: Reason, language: Language = "en") -> str:
    """One sentence of an answer."""
    facts = {**reason.facts}
    if isinstance(means := facts.get("means"), dict):
        facts["means"] = means[language]
    return fill(load_sentences()["triage"][reason.case][language], facts)


def render_advice(failure: Failure, language: Language = "en") -> tuple[str, str]:
    """The next step, and what would only look like a remedy; each may be empty."""
    advice = load_failures().advice.get(failure.advice or "")
    if advice is None:
        sentence = load_sentences()["triage"].get(failure.rule, {})
        return fill(sentence.get(f"next_{language}", ""), {}), ""
    return _said(advice, language)


def _said(advice: Advice, language: Language) -> tuple[str, str]:
    return getattr(advice.next, language), getattr(advice.avoid, language) if advice.avoid else ""


def render_json(argument: str, failure: Failure, language: Language = "en") -> dict[str, Any]:
    """
    The object of `k3 triage --json`, one per argument.

    Args:
        argument: The file or folder as given.
        failure: Its answer.
        language: Of the sentences.
    """
    because = [render_reason(reason, language) for reason in failure.reasons]
    first = failure.first_error
    return {
        "file": argument,
        "failed": failure.failed,
        "phase": failure.phase.value if failure.phase else None,
        "domain": failure.domain.value if failure.domain else None,
        "first_error": {"file": first.file, "line": first.line, "text": first.text, "block": list(first.block)}
        if first
        else None,
        "oom": failure.oom.value,
        "route": failure.route.value,
        "rule": failure.rule,
        "because": because,
        "evidence": [{"file": e.file, "line": e.line, "text": e.text} for e in failure.evidence],
        "milestones": [
            {"name": m.name.value, "file": m.file, "line": m.line, "time": m.time} for m in failure.milestones
        ],
        "launches": failure.launches,
    }


def render_milestones(failure: Failure, language: Language = "en") -> Table:
    """The first hit of each milestone of the launch that answers."""
    seen: dict[str, Any] = {}
    for step in failure.milestones:
        seen.setdefault(step.name.value, step)
    columns = [label(name, language) for name in ("milestone", "line", "time")]
    rows = [[name, step.line, step.time] for name, step in seen.items()][:_MOST_STEPS]
    return Table(columns, rows, label("way", language))


def render_text(
    argument: str, failure: Failure, block: list[tuple[int, str]], notes: list[str], language: Language = "en"
) -> str:
    """
    The answer for a terminal: timeline, first error with its line numbers, reasons, next step.

    Args:
        argument: The file or folder as given.
        failure: Its answer.
        block: Numbered lines of the first error's block.
        notes: What could not be read.
        language: `en` or `fr`.
    """
    parts = [_headline(argument, failure, language)]
    if failure.milestones:
        parts.append(str(render_milestones(failure, language)))
    parts.append(_show_block(failure, block, language))
    parts.append(_heading("why", language) + " " + " ".join(render_reason(r, language) for r in failure.reasons))
    step, avoid = render_advice(failure, language)
    parts += [f"{_heading(name, language)} {text}" for name, text in (("next", step), ("avoid", avoid)) if text]
    parts += [f"{_heading('notes', language)} {note}" for note in notes]
    return "\n\n".join(parts)


def _headline(argument: str, failure: Failure, language: Language) -> str:
    said = {
        "phase": failure.phase.value if failure.phase else "—",
        "domain": failure.domain.value if failure.domain else "—",
        "oom": failure.oom.value,
        "route": failure.route.value,
        "rule": failure.rule,
    }
    facts = "  ".join(f"{label(name, language)} {value}" for name, value in said.items())
    case = _verdict_case(failure)
    verdict = load_sentences()["triage"][f"verdict-{case}"][language]
    return f"{argument}{' :' if language == 'fr' else ':'} {verdict}\n{facts}"


def _verdict_case(failure: Failure) -> str:
    if failure.rule in _UNSEEN:
        return "unknown"
    return "failed" if failure.failed else "healthy" if failure.first_error is None else "request"


def _show_block(failure: Failure, block: list[tuple[int, str]], language: Language) -> str:
    first = failure.first_error
    if first is None:
        return label("no-first", language)
    width = len(str(block[-1][0])) if block else 1
    lines = [f"{'>' if number == first.line else ' '} {number:>{width}}  {_cut(text)}" for number, text in block] or [
        f"> {first.line}  {_cut(first.text)}"
    ]
    return f"{_heading('first', language)} {first.file}:{first.line}\n" + "\n".join(lines)


def _cut(text: str) -> str:
    plain = "".join(c if c.isprintable() else " " for c in strip_colour(text))
    return plain if len(plain) <= _WIDTH * 2 else plain[: _WIDTH * 2 - 1] + "…"


def table_inputs(inputs: list[tuple[str, Failure, int]], language: Language = "en") -> Table:
    """What was handed over: launches found in it, and files of it that were not read to their end."""
    columns = [label(name, language) for name in ("log", "launches", "unread")]
    return Table(columns, [[name, f.launches, unread] for name, f, unread in inputs], label("inputs", language))


def table_answers(answers: Answers, language: Language = "en") -> Table:
    """One row per log."""
    columns = [label(name, language) for name in ("log", "failed", "phase", "domain", "oom", "route", "rule")]
    rows = [
        [name, f.failed, f.phase and f.phase.value, f.domain and f.domain.value, f.oom.value, f.route.value, f.rule]
        for name, f in answers
    ]
    return Table(columns, rows, label("answers", language))


def table_first_errors(answers: Answers, language: Language = "en") -> Table:
    """The line of each first error; none where no line of the log is one."""
    columns = [label(name, language) for name in ("log", "file", "line", "text")]
    rows = [
        [name, *((first.file, first.line, _cut(first.text)) if (first := f.first_error) else (None, None, None))]
        for name, f in answers
    ]
    return Table(columns, rows, label("firsts", language))


def table_way(answers: Answers, language: Language = "en") -> Table:
    """The milestones of each log, first hit each."""
    columns = [label(name, language) for name in ("log", "milestone", "line", "time")]
    rows = [[name, *row] for name, f in answers for row in render_milestones(f, language).rows]
    return Table(columns, rows, label("way", language))


def table_reasons(answers: Answers, language: Language = "en") -> Table:
    """The sentences behind each answer."""
    rows = [[name, render_reason(reason, language)] for name, f in answers for reason in f.reasons]
    return Table([label("log", language), label("why", language)], rows, label("reasons", language))


def table_steps(answers: Answers, language: Language = "en") -> Table:
    """The next step for each log, and what would only look like a remedy."""
    columns = [label(name, language) for name in ("log", "route", "next", "avoid")]
    rows = [[name, f.route.value, *(text or None for text in render_advice(f, language))] for name, f in answers]
    return Table(columns, rows, label("steps", language))


def table_commands(arguments: list[str], language: Language = "en") -> Table:
    """The commands that give the same answers."""
    rows = [[f"k3 triage {shlex.quote(argument)} --lang {language}"] for argument in arguments]
    return Table([label("command", language)], rows)
