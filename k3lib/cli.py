"""`k3`: every command, each a few lines over the workbook. Errors are four lines and an exit code."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from k3lib import __version__
from k3lib.errors import K3Error

if TYPE_CHECKING:
    from k3lib.workbook.run import SessionRun

app = typer.Typer(
    name="k3",
    help="What fails when Kimi K3 is served on vLLM, why, and what to do next.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
_TYPER_INTERRUPTED = 130  # what typer makes of Ctrl-C
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Lang = Annotated[str, typer.Option("--lang", help="Language of the texts, `en` or `fr`.")]


@app.command()
def run(
    session: Annotated[Path, typer.Argument(help="A session file, params/<campaign>/NN_stage.yaml.")],
    json: Json = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the command, start nothing.")
    ] = False,
) -> None:
    """Run one session and archive it."""
    from k3lib.record.parameters import find_places
    from k3lib.workbook.run import run_session

    places = find_places()
    if dry_run:
        _show_dry_run(session, json)
        return
    progress = _Progress(quiet=json)
    progress.start(session)
    ran = run_session(places, session, progress.show)
    _report_run(ran, json)
    raise typer.Exit(ran.exit_code)


@app.command()
def week(campaign: Annotated[str, typer.Argument(help="A campaign's name or folder.")], json: Json = False) -> None:
    """Run a campaign's calendar, up to the first gate that stays closed."""
    from k3lib.record.parameters import find_places
    from k3lib.workbook.week import run_week

    places = find_places()
    progress = _Progress(quiet=json)
    steps = list(run_week(places, campaign, progress.start, progress.show))
    rows: list[dict[str, Any]] = []
    code = 0
    for step in steps:
        if step.run is not None:
            row = _as_row(step.run)
            code = step.run.exit_code or code
        elif step.error is not None:
            row = {"session": step.file.stem, "outcome": "not run", "why": step.error.evidence, "folder": None}
            code = step.error.exit_code
        else:
            row = {"session": step.done_before, "outcome": "passed before", "why": "unchanged since", "folder": None}
        rows.append(row)
    if json:
        _print_json(
            {"campaign": campaign, "sessions": rows, "index": str(places.outputs / Path(campaign).name / "index.html")}
        )
    else:
        _print_week(rows, places.outputs / Path(campaign).name)
    raise typer.Exit(code)


@app.command()
def show(
    session: Annotated[str, typer.Argument(help="A session's folder or name, or `last`.")] = "last",
    json: Json = False,
) -> None:
    """What a session found, and where its files are."""
    from k3lib.record.manifest import verify_manifest
    from k3lib.record.parameters import find_places
    from k3lib.record.sessions import find_session
    from k3lib.workbook.assemble import assemble_record

    paths = find_session(find_places().outputs, session)
    record = assemble_record(paths)
    if json:
        _print_json(
            {"folder": str(paths.folder), "manifest": verify_manifest(paths), "record": record.model_dump(mode="json")}
        )
        return
    from k3lib.workbook.text import render_record_text

    print(render_record_text(record, paths, verify_manifest(paths)))


@app.command()
def render(
    target: Annotated[str, typer.Argument(help="A session's folder or name, or `last`.")] = "last", json: Json = False
) -> None:
    """Rebuild record, page, manifest and index from a session's evidence."""
    from k3lib.record.parameters import find_places
    from k3lib.record.sessions import find_session
    from k3lib.workbook.render import rebuild_session

    paths = find_session(find_places().outputs, target)
    rebuild_session(paths)
    page = paths.html if paths.notebook.exists() else None
    if json:
        _print_json({"folder": str(paths.folder), "html": str(page) if page else None})
    elif page:
        print(f"rendered {page}")
    else:
        print(f"rendered {paths.record}; there is no notebook in the folder, so there is no page of it")


@app.command(name="try")
def try_endpoint(
    url: Annotated[str, typer.Argument(help="The endpoint, http://127.0.0.1:8000")],
    model: Annotated[str | None, typer.Option(help="Name of the model; the endpoint's first one if left out.")] = None,
    request: Annotated[str, typer.Option(help="A frozen request under params/requests/.")] = "minimal.yaml",
    json: Json = False,
) -> None:
    """An exploratory look at an endpoint, without a campaign, in at most two minutes; marked 1/1."""
    from k3lib.record.parameters import find_places
    from k3lib.workbook.attempt import try_url

    attempt = try_url(find_places(), url, model, request)
    if json:
        _print_json(attempt.as_dict())
    else:
        print(attempt.render_text())
    raise typer.Exit(attempt.exit_code)


@app.command()
def triage(
    files: Annotated[list[str], typer.Argument(help="A log, plain or compressed, a folder of one incident, or -.")],
    json: Json = False,
    lang: Annotated[Literal["en", "fr"], typer.Option(help="Language of the texts.")] = "en",
) -> None:
    """What failed, in which phase, at which line, and what to do next; needs no campaign and no engine."""
    from k3lib.workbook.triage import triage as read

    answers = [read(file, lang) for file in files]
    if json:
        _print_json([answer.as_dict() for answer in answers])
    else:
        print("\n\n".join(str(answer) for answer in answers))
    certain = all(answer.failure.route.value != "inconclusive" for answer in answers)
    raise typer.Exit(0 if certain else 125)


@app.command()
def doctor(
    json: Json = False,
    script: Annotated[bool, typer.Option("--script", help="Print the stand-alone collector, and do nothing.")] = False,
    files: Annotated[
        list[Path] | None, typer.Option("--from", help="Read the collector's JSON of a host; once for each host.")
    ] = None,
    inside: Annotated[
        str | None, typer.Option("--in", help='A command that leads to a place, "docker exec -i NAME" or "ssh NODE".')
    ] = None,
    python: Annotated[list[str] | None, typer.Option(help="An interpreter whose versions to ask.")] = None,
    pid: Annotated[list[int] | None, typer.Option(help="A running engine's process.")] = None,
    lang: Annotated[str, typer.Option(help="Language of the texts, en or fr.")] = "en",
) -> None:
    """What this machine has, what can be done with it, and what is wrong with it."""
    from k3lib.probe.collection import Wanted, read_collector
    from k3lib.record.parameters import find_places
    from k3lib.workbook.doctor import Look, diagnose

    if script:
        sys.stdout.write(read_collector())
        return
    language: Any = "fr" if lang == "fr" else "en"
    wanted = Wanted(pythons=python or [], pids=pid or [])
    diagnosis = diagnose(Look(files or (), inside, wanted, find_places().root))
    if json:
        _print_json(diagnosis.as_dict(language))
    else:
        print(diagnosis.render_text(language))
    raise typer.Exit(diagnosis.exit_code)


@app.command()
def diff(
    before: Annotated[str, typer.Argument(help="A fingerprint.json, the collector's JSON, a session, or `last`.")],
    after: Annotated[str, typer.Argument(help="The other one.")],
    json: Json = False,
    lang: Lang = "en",
) -> None:
    """Every difference between two places or moments, in words, and what it voids; 3 on drift."""
    from k3lib.record.parameters import find_places
    from k3lib.workbook.differences import compare_named

    found = compare_named(find_places(), before, after, _language(lang))
    if json:
        _print_json(found.as_dict())
    else:
        print(found)
    raise typer.Exit(found.exit_code)


@app.command()
def note(
    what: Annotated[str, typer.Argument(help="What was changed, or is about to be, in one line.")],
    undo: Annotated[str | None, typer.Option(help="How to go back.")] = None,
    irreversible: Annotated[bool, typer.Option("--irreversible", help="It cannot be undone.")] = False,
    campaign: Annotated[str | None, typer.Option(help="The campaign; that of the last session if left out.")] = None,
    who: Annotated[str | None, typer.Option(help="Who; a placeholder for this account if left out.")] = None,
    json: Json = False,
    lang: Lang = "en",
) -> None:
    """Write a change into the campaign's journal: when, who, what, and the way back."""
    from k3lib.record.parameters import find_places
    from k3lib.workbook.back import note_change_in

    noted = note_change_in(find_places(), campaign, what, undo=undo, irreversible=irreversible, who=who)
    if json:
        _print_json(noted.as_dict())
    else:
        print(noted.render_text(_language(lang)))


@app.command()
def back(
    campaign: Annotated[str, typer.Argument(help="A campaign's name or folder.")], json: Json = False, lang: Lang = "en"
) -> None:
    """The way back to the last stable level, printed and verified; changes nothing."""
    from k3lib.record.parameters import find_places
    from k3lib.workbook.back import find_way_back

    way = find_way_back(find_places(), campaign, _language(lang))
    if json:
        _print_json(way.as_dict())
    else:
        print(way)
    raise typer.Exit(way.exit_code)


@app.command()
def scenarios(json: Json = False, lang: Annotated[str, typer.Option("--lang", help="`en` or `fr`.")] = "en") -> None:
    """What the rehearsal engine can play, and where each scenario fails."""
    from dataclasses import asdict

    from k3lib.knowledge.scenarios import list_scenarios

    every = list_scenarios()
    if json:
        _print_json([{"name": s.name, "summary": s.summary, "label": asdict(s.label)} for s in every])
        return
    width = max(len(s.name) for s in every)
    for scenario in every:
        print(f"{scenario.name:<{width}}  {scenario.label.phase or '-':<9}  {scenario.summary_in(lang)}")


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


class _Progress:
    """Says what happens while a session runs: one line redrawn on a terminal, plain lines elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._trials, self._last = quiet, 0, ""
        self._redraw = sys.stderr.isatty()

    def start(self, file: Path) -> None:
        from k3lib.record.parameters import find_places
        from k3lib.workbook.run import prepare_file

        prepared = prepare_file(find_places(), file)
        self._trials = len(prepared.plan.trials())
        self._say(f"{file.stem} · campaign {prepared.plan.campaign.name} · {prepared.plan.campaign.engine.kind.value}")

    def show(self, event: dict[str, object]) -> None:
        from k3lib.workbook.show import describe_event

        self._say("  " + describe_event(event, self._trials), passing=True)

    def _say(self, text: str, passing: bool = False) -> None:
        if self._quiet or text == self._last:
            return
        self._last = text
        if passing and self._redraw:
            sys.stderr.write(f"\r\x1b[2K{text}")
        else:
            sys.stderr.write(("\r\x1b[2K" if self._redraw else "") + text + "\n")
        sys.stderr.flush()


def _show_dry_run(session: Path, json: bool) -> None:
    from k3lib.launch.command import render_paste
    from k3lib.record.parameters import find_places
    from k3lib.workbook.prepare import plan_launch
    from k3lib.workbook.run import prepare_file

    prepared = prepare_file(find_places(), session)
    plans = {arm.name: plan_launch(prepared, arm) for arm in prepared.plan.arms}
    if json:
        _print_json({name: {"argv": list(plan.argv), "env": plan.env} for name, plan in plans.items()})
        return
    print(f"gate: {prepared.gate.reason}")
    for name, plan in plans.items():
        print(
            f"{name}, {len(prepared.plan.trials()) // len(plans)} fresh starts:\n  {render_paste(plan.argv, plan.env)}"
        )


def _as_row(ran: SessionRun) -> dict[str, Any]:
    record = ran.record
    from k3lib.workbook.render import find_decisive

    decisive = find_decisive(record)
    return {
        "session": ran.paths.name,
        "state": record.session.state.value,
        "outcome": record.outcome.value,
        "why": decisive[0][1] if decisive else "",
        "folder": str(ran.paths.folder),
        "fixed_s": ran.fixed_s,
        "work_s": ran.work_s,
    }


def _report_run(ran: SessionRun, json: bool) -> None:
    row = _as_row(ran)
    if json:
        _print_json(
            {**row, "exit_code": ran.exit_code, "verdicts": [v.model_dump(mode="json") for v in ran.record.verdicts]}
        )
        return
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K")
    print(f"{row['outcome']}  {row['session']}  {row['why']}")
    print(f"  read  {ran.paths.html}")
    print(f"  show  k3 show {row['session']}")


def _print_week(rows: list[dict[str, Any]], folder: Path) -> None:
    from k3lib.report.tables import Table

    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K")
    print(
        Table(
            ["session", "outcome", "why"],
            [[r["session"], r["outcome"], r["why"]] for r in rows],
            f"Calendar of {folder.name}",
        )
    )
    print(f"\nLook at {folder / 'index.html'}")
    if all(row["outcome"] == "passed before" for row in rows):
        print(f"Nothing was left to do. To start over, move {folder} away.")


def _language(word: str) -> Literal["en", "fr"]:
    if word not in ("en", "fr"):
        raise typer.BadParameter(f"{word} is not one of en, fr", param_hint="--lang")
    return "fr" if word == "fr" else "en"


def _print_json(value: object) -> None:
    import orjson

    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode() + "\n")


def main() -> None:
    """The program `k3`."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        app()
    except K3Error as problem:
        if "--json" in sys.argv:
            _print_json(problem.as_dict())
        print(problem, file=sys.stderr)
        sys.exit(problem.exit_code)
    except SystemExit as ending:
        if ending.code != _TYPER_INTERRUPTED:
            raise
        print("interrupted; what ran is archived: k3 show last", file=sys.stderr)
        sys.exit(125)


if __name__ == "__main__":
    main()
