"""Stage 20: is this environment on a supported path? Machines are looked at, nothing is changed and nothing started."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from k3lib.errors import InputError, RecordError
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.judge.compatibility_intent import intend_facts, model_hosts
from k3lib.judge.conditions import find_conditions
from k3lib.judge.control import compile_dossier
from k3lib.knowledge.hardware import find_machine
from k3lib.probe.collection import ProbeError, Wanted, collect
from k3lib.probe.fingerprint import compose_fingerprint, probe_model
from k3lib.probe.shells import CommandShell, LocalShell, Shell
from k3lib.probe.snapshot import parse_collected, read_snapshot
from k3lib.record.files import read_json, write_json
from k3lib.record.redactor import load_redactor
from k3lib.record.scene import keep_raw
from k3lib.record.sessions import now_text
from k3lib.report import compatibility as tables
from k3lib.report.tables import Table
from k3lib.spec.session import CompatibilitySpec
from k3lib.spec.snapshot import Snapshot
from k3lib.spec.vocabulary import EngineKind, Outcome
from k3lib.workbook.lifecycle import keep_record
from k3lib.workbook.place import engine_pythons, subject_of
from k3lib.workbook.prepare import plan_launch
from k3lib.workbook.pretend import look_at_pretend_machine
from k3lib.workbook.stage import Stage

_MACHINE = ("look", "host_container", "driver_loaded", "driver_branch", "driver_cuda", "health")
_IMAGE = ("image_name", "image_digest", "image_architecture", "release", "dead_variables")
_HARDWARE = ("hardware", "compute_capability", "gpu_count", "hosts", "strategy", "host_memory", "shared_memory", "disk")
_MEMORY = ("memory_reported", "memory_total", "weights_fit", "utilization")
_NETWORK = ("link", "all_to_all", "moe_backend", "speculation")
_SETTINGS = ("recipe_age", "cache_default", "parsers", "ready_timeout")
_CONTROL = ("control", "rebuild")
_ACCEPTANCE = ("acceptance", "health", "use")
_SUMMARY = ("path", *_CONTROL, *_ACCEPTANCE)

_QUIET = (Outcome.PASS, Outcome.NOT_APPLICABLE)

_DEFAULT_MACHINE = "8xB300"
"""The rehearsal's own, where the campaign names none."""


class CompatibilityStage(Stage):
    """A session that compares machines with the recipe: this one, a container on it, or files of the collector."""

    def look(self) -> Table:
        """
        Look at the machines, keep raw and redacted what they say, and judge it.

        Returns:
            A row per host and container.

        Raises:
            InputError: A file named in `evidence` is no output of the collector.
            KeyboardInterrupt: After the record says so.
        """
        with self._written("it looked"):
            facts = self._read_machines(intend_facts(self._prepared.plan, date.fromisoformat(now_text()[:10])))
            write_json(self.paths.compatibility, load_redactor().value(facts.model_dump(mode="json")))
        self._record = keep_record(self.paths)
        return tables.table_places(self.facts)

    @property
    def facts(self) -> CompatibilityFacts:
        """What is judged, as its file tells it."""
        if not self.paths.compatibility.exists():
            raise RecordError(
                f"{self.paths.name} has looked at nothing yet",
                expected="stage.look() to have run",
                evidence=f"{self.paths.compatibility} is not there",
                next="run the cell that looks",
            )
        return CompatibilityFacts.model_validate(read_json(self.paths.compatibility))

    def machine(self) -> Table:
        """Driver, CUDA and the way of the GPUs into the container."""
        return self._topic(_MACHINE, "Driver, CUDA, container")

    def image(self) -> Table:
        """The image and the release that really executes."""
        return self._topic(_IMAGE, "Image and release")

    def hardware(self) -> Table:
        """GPUs, layout and hosts against the recipe."""
        return self._topic(_HARDWARE, "Hardware and hosts")

    def memory(self) -> Table:
        """What the constraints on memory say."""
        return self._topic(_MEMORY, "Memory")

    def estimate(self) -> Table:
        """The arithmetic behind them, one GPU."""
        return tables.table_memory(self.facts)

    def network(self) -> Table:
        """What joins the ranks, and features that do not go together."""
        return self._topic(_NETWORK, "Network and backends")

    def settings(self) -> Table:
        """What the base leaves to a default."""
        return self._topic(_SETTINGS, "Settings and their defaults")

    def recipe(self) -> Table:
        """The recipe's command beside the base."""
        return tables.table_recipe(self.facts)

    def contradictions(self) -> Table:
        """Published statements that do not go together."""
        return tables.table_contradictions()

    def control(self) -> Table:
        """The six questions and their answers."""
        return tables.table_control(self.facts)

    def dossier(self) -> Table:
        """The six items of a dossier, as far as this stage can tell."""
        return tables.table_dossier(compile_dossier(self.record.verdicts))

    def acceptance(self) -> Table:
        """Ordered against delivered."""
        return tables.table_acceptance(self.facts)

    def verdict(self) -> Table:
        """The path, control and acceptance, then every rule that did not pass."""
        every = self.record.verdicts
        loud = [v.rule.removeprefix("compatibility.") for v in every if v.outcome not in _QUIET]
        first = [verdict for verdict in every if verdict.rule.removeprefix("compatibility.") in _SUMMARY]
        rest = [v for outcome in Outcome for v in every if v.outcome is outcome and v not in first]
        return tables.table_topic([*first, *rest], [*_SUMMARY, *loud], "Verdict")

    def _topic(self, names: tuple[str, ...], caption: str) -> Table:
        return tables.table_topic(self.record.verdicts, names, caption)

    def _look_again(self) -> None:
        """Nothing runs in this stage, so nothing can drift under it."""

    def _read_machines(self, facts: CompatibilityFacts) -> CompatibilityFacts:
        """The facts with everything that can be seen; what cannot has its reason."""
        campaign, spec = self._prepared.plan.campaign, self._spec
        if campaign.engine.kind is EngineKind.REHEARSAL and not spec.evidence:
            return self._look_at_model(facts)
        reasons: dict[str, str] = {}
        places = self._read_evidence() if spec.evidence else self._look_here(facts, reasons)
        return self._with_places(facts, places).model_copy(update={"reasons": reasons})

    def _look_at_model(self, facts: CompatibilityFacts) -> CompatibilityFacts:
        """The pretend machine through its own tools; where it has none, the GPUs of its profile."""
        played = self._prepared.plan.campaign.engine.rehearsal
        machine = find_machine((played.machine if played else None) or _DEFAULT_MACHINE)
        variables = plan_launch(self._prepared, self._prepared.plan.arms[0]).env
        places = look_at_pretend_machine(machine, variables) or model_hosts(machine, now_text())
        return self._with_places(facts, places).model_copy(update={"modelled": machine.name})

    def _with_places(self, facts: CompatibilityFacts, places: list[Snapshot]) -> CompatibilityFacts:
        # Machines that were looked at are real, on a rehearsal too.
        subject = replace(subject_of(self._prepared, self._spec.container), modelled=False)
        found = [
            condition for place in places for condition in find_conditions(compose_fingerprint(subject, {"": place}))
        ]
        weights = probe_model(facts.weights_folder or self._prepared.model)
        update: dict[str, Any] = {
            "hosts": [place for place in places if place.place.kind == "host"],
            "containers": [place for place in places if place.place.kind == "container"],
            "architecture": weights["model.architecture"],
            "weights_bytes": _sum_shards(weights["model.shards"]),
            "machine_conditions": found,
        }
        return facts.model_copy(update=update)

    def _look_here(self, facts: CompatibilityFacts, reasons: dict[str, str]) -> list[Snapshot]:
        wanted = Wanted(
            pythons=engine_pythons(self._prepared), disks=[facts.weights_folder] if facts.weights_folder else []
        )
        shells: list[tuple[str, Shell, Wanted | None]] = [("hosts", LocalShell(sys.executable), wanted)]
        if self._spec.container:
            shells.append(("containers", CommandShell(("docker", "exec", "-i", self._spec.container)), None))
        places = []
        for name, shell, look_at in shells:
            try:
                collected = collect(shell, look_at)
            except ProbeError as problem:
                reasons[name] = problem.evidence
                continue
            self._keep_raw(name, collected)
            places.append(read_snapshot(collected))
        return places

    def _read_evidence(self) -> list[Snapshot]:
        places = []
        for number, name in enumerate(self._spec.evidence, start=1):
            file = Path(name).expanduser()
            file = file if file.is_absolute() else self._prepared.places.root / file
            try:
                collected = parse_collected(file.read_bytes(), file.name)
            except OSError as problem:
                raise InputError(
                    f"{name} cannot be read",
                    expected="a file with the JSON that collector.py prints",
                    evidence=str(problem),
                    next="correct `evidence`; relative paths begin at the workbook's folder",
                ) from None
            self._keep_raw(f"evidence-{number}", collected)
            places.append(read_snapshot(collected))
        return places

    def _keep_raw(self, name: str, collected: Any) -> None:
        self.paths.raw.mkdir(mode=0o700, exist_ok=True)
        keep_raw(self.paths, name, collected)

    @property
    def _spec(self) -> CompatibilitySpec:
        spec = self._prepared.plan.spec
        assert isinstance(spec, CompatibilitySpec)
        return spec


def _sum_shards(shards: list[str] | None) -> int | None:
    """Bytes of all shards, each given as name and size."""
    return sum(int(shard.rsplit(" ", 1)[1]) for shard in shards) if shards else None
