"""`k3 back`: the last stable level of a campaign, printed and verified, and what has been done since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from k3lib.errors import K3Error, SpecError
from k3lib.judge.drift import DriftReport, compare_fingerprints
from k3lib.judge.gates import find_last_stable
from k3lib.knowledge.versions import parse_release
from k3lib.launch.command import render_command, render_paste
from k3lib.record.journal import note_change, read_journal
from k3lib.record.parameters import Places, read_campaign
from k3lib.record.paths import SessionPaths
from k3lib.record.redactor import load_redactor
from k3lib.record.schema import Record
from k3lib.record.sessions import find_session, read_record, summarize_sessions
from k3lib.report.drift import render_drift_text
from k3lib.report.sentences import Language, render_word
from k3lib.report.tables import Table
from k3lib.spec.campaign import Campaign
from k3lib.spec.change_note import ChangeNote
from k3lib.spec.fingerprint import Fingerprint
from k3lib.spec.vocabulary import EngineKind
from k3lib.workbook.place import read_fingerprint, take_fingerprint
from k3lib.workbook.prepare import prepare_again

State = Literal["same", "differs", "unknown"]


@dataclass(frozen=True)
class Check:
    """
    One thing of the last stable level, held against today.

    Args:
        name: What it is.
        then: As the stable session's record has it.
        now: As it would be today, or None.
        state: The same, different, or not to be told.
    """

    name: str
    then: str | None
    now: str | None
    state: State


@dataclass(frozen=True)
class WayBack:
    """
    The last stable level.

    Args:
        session: Name of the last stable session.
        command: Its command as one line that a person can paste.
        checks: What still is as it was, and what is not.
        drift: The place then and now.
        notes: Changes noted since, newest first: the order in which they are undone.
        language: Of the text.
    """

    session: str
    command: str
    checks: list[Check]
    drift: DriftReport
    notes: list[ChangeNote]
    language: Language = "en"

    @property
    def exit_code(self) -> int:
        """0 if all is as it was, 3 if something is not, 125 if something cannot be told."""
        states = {check.state for check in self.checks}
        return 3 if "differs" in states else 125 if "unknown" in states else 0

    def as_dict(self) -> dict[str, Any]:
        """The same for `--json`."""
        return {
            "session": self.session,
            "command": self.command,
            "checks": [vars(check) for check in self.checks],
            "drift": self.drift.model_dump(mode="json"),
            "notes": [{**note.model_dump(mode="json"), "way_back": note.way_back} for note in self.notes],
        }

    def __str__(self) -> str:
        def word(name: str) -> str:
            return render_word("back", name, self.language)

        checks = Table(
            [word("what"), word("then"), word("now"), word("state")],
            [[word(c.name), c.then, c.now if c.state != "same" else None, word(c.state)] for c in self.checks],
            f"{word('level')} {self.session}",
        )
        parts = [str(checks), f"{word('command')}\n  {self.command}"]
        if self.drift.drifted or self.drift.unknown:
            parts.append(render_drift_text(self.drift, self.language))
        if self.notes:
            rows = [
                [n.at, n.what, n.undo or render_word("scene", f"way-{n.way_back}", self.language)] for n in self.notes
            ]
            parts.append(str(Table([word("time"), word("change"), word("undo")], rows, word("since"))))
        return "\n\n".join(parts)


@dataclass(frozen=True)
class Noted:
    """
    A change that was written into a journal.

    Args:
        campaign: Whose journal.
        note: What was written.
        stable: Name of the last stable session, or None.
    """

    campaign: str
    note: ChangeNote
    stable: str | None

    def as_dict(self) -> dict[str, Any]:
        """The same for `--json`."""
        way_back = {"way_back": self.note.way_back, "last_stable": self.stable}
        return {"campaign": self.campaign, **self.note.model_dump(mode="json"), **way_back}

    def render_text(self, language: Language = "en") -> str:
        """What was noted, and a warning where there is no way back."""
        lines = [render_word("back", "noted", language, campaign=self.campaign, what=self.note.what)]
        if self.note.way_back != "known":
            lines.append(render_word("back", f"warn-{self.note.way_back}", language, stable=self.stable))
        return "\n".join(lines)


def note_change_in(
    places: Places, name: str | None, what: str, *, undo: str | None, irreversible: bool, who: str | None
) -> Noted:
    """
    Write a change into a campaign's journal.

    Args:
        places: The workbook's folders.
        name: The campaign; None takes that of the last session.
        what: One line.
        undo: How to go back, or None.
        irreversible: It cannot be undone.
        who: Name to write down, or None for a placeholder of this account.

    Returns:
        What was written; a change without a way back is flagged by `render_text`.

    Raises:
        SpecError: No such campaign, no session to take it from, or nothing is said.
    """
    if name is None:
        campaign = find_session(places.outputs, "last").folder.parent
    else:
        campaign = places.outputs / read_campaign(places, name)[0].name
    note = note_change(campaign, what, undo=undo, irreversible=irreversible, who=who)
    stable = find_last_stable(summarize_sessions(campaign))
    return Noted(campaign.name, note, stable.name if stable else None)


def find_way_back(places: Places, name: str, language: Language = "en") -> WayBack:
    """
    The last stable level of a campaign and how today stands against it; nothing is changed.

    Args:
        places: The workbook's folders.
        name: The campaign.
        language: Of the text.

    Returns:
        Digest, command and environment of the last stable session, each verified as far as it can be.

    Raises:
        SpecError: No such campaign, or it has no stable session yet.
    """
    campaign, _ = read_campaign(places, name)
    folder = places.outputs / campaign.name
    stable = find_last_stable(summarize_sessions(folder))
    if stable is None:
        raise SpecError(
            f"{campaign.name} has no stable session yet",
            expected="a session that started engines and passed",
            evidence=f"the sessions under {folder}",
            next=f"k3 week {campaign.name}; until one passes there is no level to go back to",
        )
    paths = SessionPaths(folder / stable.name)
    record = read_record(paths)
    then = read_fingerprint(paths.fingerprint)
    now = take_fingerprint(prepare_again(places, record.plan, campaign))
    drift = compare_fingerprints(then, now)
    notes = [note for note in read_journal(folder) if note.at > record.session.started_at]
    launch = record.trials[0].launch if record.trials else None
    return WayBack(
        session=stable.name,
        command=render_paste(launch.argv, launch.env) if launch else "",
        checks=_check(places, campaign, record, then, drift),
        drift=drift,
        notes=list(reversed(notes)),
        language=language,
    )


def _check(places: Places, campaign: Campaign, record: Record, then: Fingerprint, drift: DriftReport) -> list[Check]:
    """Digest, release, command, variables, base, weights and place."""
    launch = record.trials[0].launch if record.trials else None
    differing = {member.key: member for d in drift.differences for member in d.members}
    unknown = {u.name: u.reason for u in drift.unknown}

    def of_place(name: str, field: str) -> Check:
        value = then.value(field)
        if field in differing:
            return Check(name, _text(value), _text(differing[field].theirs), "differs")
        if field in unknown or value is None:
            return Check(name, _text(value), unknown.get(field) or then.reasons.get(field), "unknown")
        return Check(name, _text(value), _text(value), "same")

    checks = [of_place("release", "engine.release")]
    if campaign.engine.kind is not EngineKind.REHEARSAL:
        checks.append(of_place("weights", _weights_field(then)))
    if then.value("image.tag") or then.value("image.id"):
        checks.insert(0, of_place("digest", "image.digest"))
    if launch is not None:
        argv, env, why = _render_today(places, campaign, record)
        checks.append(_check_argv(launch.argv, argv, why))
        shown = " ".join(f"{k}={v}" for k, v in sorted(launch.env.items())) or None
        today = None if env is None else " ".join(f"{k}={v}" for k, v in sorted(env.items())) or None
        same = env is not None and env == launch.env
        checks.append(
            Check("environment", shown, today or why, "same" if same else "differs" if env is not None else "unknown")
        )
    changed = record.plan.arms[-1].settings.differences(campaign.base)
    now = "; ".join(f"{d.key}: {_text(d.theirs)}" for d in changed) or None
    checks.append(
        Check(
            "base",
            "; ".join(f"{d.key}: {_text(d.ours)}" for d in changed) or None,
            now,
            "differs" if changed else "same",
        )
    )
    return checks


def _weights_field(then: Fingerprint) -> str:
    return next((f for f in ("model.shards_sha256", "model.revision") if then.value(f) is not None), "model.revision")


def _render_today(
    places: Places, campaign: Campaign, record: Record
) -> tuple[list[str] | None, dict[str, str] | None, str | None]:
    """The stable settings' command as it would be rendered now; redacted, as the record's is."""
    try:
        prepared = prepare_again(places, record.plan, campaign)
        command = render_command(
            list(prepared.program),
            prepared.model,
            next(arm for arm in record.plan.arms if arm.name == record.trials[0].arm).settings,
            release=parse_release(prepared.plan.release),
            host=campaign.engine.host,
            port=campaign.engine.port or _port_of(record),
            served_model_name=campaign.model.served_as,
        )
    except K3Error as problem:
        return None, None, problem.what
    redactor = load_redactor()
    own = {name: value for name, value in record.trials[0].launch.env.items() if name.startswith("K3_REHEARSAL_")}
    argv: Any = redactor.value(list(command.argv))
    env: Any = redactor.value({**command.env, **own})
    return argv, env, None


def _port_of(record: Record) -> int:
    """A port that the campaign leaves open is no part of the level."""
    argv = record.trials[0].launch.argv
    return int(argv[argv.index("--port") + 1]) if "--port" in argv else 8000


def _check_argv(then: list[str], now: list[str] | None, why: str | None) -> Check:
    if now is None:
        return Check("argv", f"{len(then)} words", why, "unknown")
    gone, come = [w for w in then if w not in now], [w for w in now if w not in then]
    if then == now:
        return Check("argv", f"{len(then)} words", None, "same")
    return Check("argv", " ".join(gone) or "another order", " ".join(come) or "another order", "differs")


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return None if value is None else str(value)
