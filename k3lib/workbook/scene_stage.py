"""Stage 10: freeze the scene. Nothing is changed and no engine is started."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from k3lib.errors import InputError, K3Error, RecordError
from k3lib.judge.gates import find_last_stable
from k3lib.judge.scene_facts import CONTAINER, LoggedError, SceneFacts
from k3lib.logs.lines import read_lines
from k3lib.probe.collection import Wanted, collect
from k3lib.probe.fingerprint import compose_fingerprint, find_container
from k3lib.probe.shells import CommandShell, LocalShell, Shell
from k3lib.probe.snapshot import parse_collected, read_snapshot
from k3lib.record.journal import read_journal
from k3lib.record.redactor import load_redactor
from k3lib.record.scene import keep_log, keep_raw, prepare_scene, read_scene, write_scene
from k3lib.record.sessions import summarize_sessions
from k3lib.report import scene as tables
from k3lib.report.session import table_verdicts
from k3lib.report.tables import Table
from k3lib.spec.session import SceneSpec
from k3lib.spec.snapshot import Collected, Snapshot
from k3lib.spec.vocabulary import EngineKind
from k3lib.workbook.lifecycle import keep_record
from k3lib.workbook.place import engine_pythons, redact_fingerprint, subject_of, write_place
from k3lib.workbook.prepare import plan_launch
from k3lib.workbook.stage import Stage

_ELSEWHERE = (EngineKind.ATTACH, EngineKind.LOGS)
_COSTS = ("scene.attribution", "scene.images", "scene.sharing")


@dataclass
class _Looked:
    """What was collected, and what could not be."""

    views: dict[str, Snapshot]
    failed: dict[str, str]


class SceneStage(Stage):
    """A session that looks: at this machine, into the engine's container, at files from other machines, at a log."""

    def collect(self) -> Table:
        """
        Look once, keep everything raw and redacted, and say which of the eight items are there.

        Returns:
            A row per item.

        Raises:
            KeyboardInterrupt: After the record says so.
        """
        with self._written("it looked"):
            prepare_scene(self.paths)
            looked = self._look()
            scene = self._compose(looked)
            write_scene(self.paths, scene, load_redactor())
            subject = subject_of(self._prepared, self._spec.container)
            fingerprint = redact_fingerprint(compose_fingerprint(subject, looked.views))
            write_place(self.paths, self._prepared, fingerprint)
        self._record = keep_record(self.paths)
        return self.items()

    @property
    def scene(self) -> SceneFacts:
        """What was frozen, as its files tell it."""
        found = read_scene(self.paths)
        if found is None:
            raise RecordError(
                f"{self.paths.name} holds no scene yet",
                expected="stage.collect() to have run",
                evidence=f"{self.paths.scene} is not there",
                next="run the cell that collects",
            )
        return found

    def items(self) -> Table:
        """The eight items (R-10)."""
        return tables.table_items(self.record.scene)

    def views(self) -> Table:
        """Host and container side by side."""
        return tables.table_views(self.scene)

    def gpus(self) -> Table:
        """Every GPU by UUID, its order, its memory, who holds it."""
        return tables.table_gpus(self.scene)

    def command(self) -> Table:
        """The engine's command."""
        return tables.table_command(self.scene)

    def variables(self) -> Table:
        """Variables that can change the engine, with their origin."""
        return tables.table_variables(self.scene)

    def first_error(self) -> Table:
        """The first error of the log that was given."""
        return tables.table_first_error(self.scene)

    def request(self) -> Table:
        """The representative request."""
        plan = self._prepared.plan
        return tables.table_request(plan.request, plan.served_model)

    def changes(self) -> Table:
        """What changed when, noted and reconstructed."""
        return tables.table_changes(self.scene)

    def costs(self) -> Table:
        """The three hidden costs of going on here: diagnosis, comparison, sharing (R-15)."""
        return table_verdicts([v for v in self.record.verdicts if v.rule in _COSTS])

    def evidence(self) -> Table:
        """The evidence that a later comparison needs (R-25)."""
        return tables.table_evidence(self.record.scene, self.scene, self._prepared.plan.campaign.base.flat())

    def _look_again(self) -> None:
        """Nothing runs in this stage, so nothing can drift under it; what was frozen stays as it was seen."""

    @property
    def _spec(self) -> SceneSpec:
        spec = self._prepared.plan.spec
        assert isinstance(spec, SceneSpec)
        return spec

    def _look(self) -> _Looked:
        """This machine and the container at the same moment, then the files."""
        kind = self._prepared.plan.campaign.engine.kind
        shells: dict[str, Shell] = {}
        if kind not in _ELSEWHERE or not self._spec.evidence:
            shells[""] = LocalShell(sys.executable)
        if self._spec.container:
            shells[CONTAINER] = CommandShell(("docker", "exec", "-i", self._spec.container))
        wanted = Wanted(pythons=engine_pythons(self._prepared))
        looked = _Looked({}, {})
        with ThreadPoolExecutor(max_workers=2) as pool:
            asked = {view: pool.submit(collect, shell, wanted if not view else None) for view, shell in shells.items()}
            for view, future in asked.items():
                try:
                    self._keep(looked, view, future.result())
                except K3Error as problem:
                    looked.failed[view or "host"] = problem.evidence
        for name in self._spec.evidence:
            self._read_evidence(looked, name)
        return looked

    def _read_evidence(self, looked: _Looked, name: str) -> None:
        file = Path(name).expanduser()
        file = file if file.is_absolute() else self._prepared.places.root / file
        try:
            collected = parse_collected(file.read_bytes(), file.name)
        except OSError as problem:
            looked.failed[name] = str(problem)
            return
        except InputError as problem:
            looked.failed[name] = problem.evidence
            return
        inside = read_snapshot(collected).place.kind == "container"
        self._keep(looked, _free_view(looked.views, inside=inside), collected)

    def _keep(self, looked: _Looked, view: str, collected: Collected) -> None:
        keep_raw(self.paths, view, collected)
        looked.views[view] = read_snapshot(collected)

    def _compose(self, looked: _Looked) -> SceneFacts:
        campaign = self._prepared.places.outputs / self._prepared.plan.campaign.name
        stable = find_last_stable(summarize_sessions(campaign))
        command, told_by, environment = self._read_command(looked)
        log, first, reason = self._read_log()
        return SceneFacts(
            views=looked.views,
            container=self._spec.container,
            command=command,
            command_from=told_by,
            environment=environment,
            log=log,
            first_error=first,
            log_reason=reason,
            nothing_failed=self._spec.nothing_failed,
            failed_evidence=looked.failed,
            notes=read_journal(campaign),
            return_point=stable.name if stable else None,
        )

    def _read_command(self, looked: _Looked) -> tuple[list[str] | None, str, dict[str, str]]:
        """What runs, where its container tells; else what the base would start."""
        name = self._spec.container
        container = next((c for v in looked.views.values() if name and (c := find_container(v, name))), None)
        if container is not None and container.command:
            origin = f"container {name}"
            told = {x.name: x.value for v in looked.views.values() for x in v.variables if x.origin == origin}
            return container.command, origin, told
        if self._prepared.plan.campaign.engine.kind in _ELSEWHERE:
            return None, "", {}
        plan = plan_launch(self._prepared, self._prepared.plan.arms[0])
        return list(plan.argv), "campaign.yaml", dict(plan.env)

    def _read_log(self) -> tuple[str | None, LoggedError | None, str | None]:
        if not self._spec.log:
            return None, None, None
        given = Path(self._spec.log).expanduser()
        source = given if given.is_absolute() else self._prepared.places.root / given
        try:
            kept = keep_log(self.paths, source, load_redactor())
        except RecordError as problem:
            return self._spec.log, None, problem.evidence
        name = str(kept.relative_to(self.paths.folder))
        try:
            first = read_first_error(kept, name)
        except Exception as problem:  # a fault of ours in reading a log must not lose everything that was collected
            return name, None, f"the log was kept and could not be read: {type(problem).__name__}: {problem}"
        return name, first, None if first else "the log shows no error"


def read_first_error(log: Path, name: str) -> LoggedError | None:
    """
    The first error of a log that is nobody's consequence.

    Args:
        log: The file.
        name: How the record names it.

    Returns:
        The error with its time, or None for a healthy or empty log.
    """
    from k3lib.workbook.triage import triage

    answer = triage(str(log))
    first = answer.failure.first_error
    if first is None:
        return None
    with log.open("rb") as opened:
        stamps = {line.number: line.time or line.outer for line in read_lines(opened) if line.number <= first.line}
    # The line that names an error often carries no time; that of its block, or the last before it, holds.
    stamp = next((stamps[n] for n in sorted(stamps, reverse=True) if stamps[n] is not None), None)
    milestones = answer.failure.milestones
    said = answer.as_dict()["because"]
    return LoggedError(
        file=name,
        line=first.line,
        time=stamp.text if stamp else None,
        text=first.text[:500],
        block=first.block,
        phase=answer.failure.phase,
        last_milestone=milestones[-1].name if milestones else None,
        because=said[0] if said else None,
    )


def _free_view(taken: dict[str, Snapshot], *, inside: bool) -> str:
    """The next free name: the main host, then nodes; the container, then further ones."""
    if inside:
        return next(n for n in [CONTAINER, *(f"{CONTAINER}-{i}" for i in range(2, 1000))] if n not in taken)
    return next(n for n in ["", *(f"node-{i}" for i in range(2, 1000))] if n not in taken)
