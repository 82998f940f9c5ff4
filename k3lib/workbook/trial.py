"""One trial, composed from the rooms: start, watch, ask, stop; everything is on disk before the next step."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from k3lib.launch.command import render_paste
from k3lib.launch.engines import Engine, start_engine
from k3lib.logs.lines import read_lines
from k3lib.logs.timeline import parse_timeline
from k3lib.measure.client import open_client, preload
from k3lib.measure.effective import read_endpoint
from k3lib.measure.probe_run import ProbeLimits
from k3lib.measure.probes import run_probes
from k3lib.measure.scrape import Sampler
from k3lib.record.evidence import (
    append_event,
    append_probe,
    append_request,
    redact_log,
    write_endpoint,
    write_launch,
)
from k3lib.record.files import writing
from k3lib.record.paths import SessionPaths, TrialPaths
from k3lib.record.sessions import create_trial, now_text
from k3lib.redact import Redactor
from k3lib.spec.launch import LaunchPlan
from k3lib.spec.results import LaunchResult
from k3lib.spec.session import Arm
from k3lib.spec.vocabulary import Ending, Phase, Probe, StageName
from k3lib.workbook.prepare import Prepared, plan_launch

OnEvent = Callable[[dict[str, object]], None]
_LOOK_EVERY_S = 1.0
_DEATH_S = 8.0


class TrialRun:
    """
    Runs one trial into its folder.

    Args:
        prepared: The session.
        paths: Its folder.
        redactor: For everything that leaves raw/.
        on_event: Called with what happens, after it was written.
    """

    def __init__(self, prepared: Prepared, paths: SessionPaths, redactor: Redactor, on_event: OnEvent) -> None:
        self._prepared, self._paths, self._redactor, self._on_event = prepared, paths, redactor, on_event
        self._looked_at, self._phase = 0.0, Phase.CONTAINER

    def run(self, number: int, arm: Arm) -> None:
        """
        Start the engine, ask what the stage asks, stop it; leaves evidence, and no process, whatever happens.

        Args:
            number: 1, 2, …
            arm: Which values.

        Raises:
            LaunchError: The port was taken in the meantime, or the program is gone.
        """
        trial = create_trial(self._paths, number)
        self._tell(number, "started", arm=arm.name, phase=Phase.CONTAINER.value)
        try:
            plan = plan_launch(self._prepared, arm, number)
            write_launch(trial, _not_started(plan), self._redactor.text(arm.name), plan.token, self._redactor)
            with writing(trial.raw_log):
                trial.raw_log.touch(0o600)
            with trial.raw_log.open("ab") as log, start_engine(plan, log.fileno()) as engine:
                self._drive(engine, trial, number, arm, plan.token)
        finally:
            redact_log(trial, self._redactor)
        self._tell(number, "ended", arm=arm.name, phase=self._phase.value)

    def _drive(self, engine: Engine, trial: TrialPaths, number: int, arm: Arm, token: str) -> None:
        def keep(launch: LaunchResult) -> None:
            write_launch(trial, launch, self._redactor.text(arm.name), token, self._redactor)

        keep(engine.result())
        threading.Thread(target=preload, daemon=True).start()
        whole = False
        try:
            launch = engine.wait_ready(lambda elapsed_s: self._look(trial, number, arm, elapsed_s))
            keep(launch)
            if launch.ready and launch.base_url:
                self._phase = Phase.SERVING
                self._tell(number, "ready", arm=arm.name, phase=Phase.SERVING.value, elapsed_s=launch.ready_s)
                self._ask(launch.base_url, engine, trial, number)
            whole = True
        finally:
            # The context manager would stop it too; here the ending is also written down. A trial that we cut
            # short, for whatever reason, is ours and says nothing of the engine.
            try:
                engine.stop(interrupted=not whole)
            finally:
                keep(engine.result())

    def _ask(self, base_url: str, engine: Engine, trial: TrialPaths, number: int) -> None:
        write_endpoint(trial, read_endpoint(base_url), self._redactor)
        if self._prepared.plan.stage is not StageName.SINGLE_REQUEST:
            return
        plan = self._prepared.plan
        with ExitStack() as stack:
            samples = stack.enter_context(trial.samples.open("a", encoding="utf-8"))
            sampler = Sampler(base_url, samples, pid=engine.pid)
            stack.callback(sampler.stop)
            sampler.start()
            client = stack.enter_context(open_client(base_url, _api_key()))
            self._tell(number, "warm-up")
            row = client.warm_up(model=plan.served_model, timeout_s=plan.request.timeout_s)
            append_request(trial, row, self._redactor)
            if not row.ok and (row.status is None or _dies(engine)):
                return  # an engine that leaves one request without an answer is not asked another
            self._tell(number, "frozen request")
            row = client.send(plan.request, model=plan.served_model, probe=Probe.FROZEN)
            append_request(trial, row, self._redactor)
            if not row.ok and (row.status is None or _dies(engine)):
                return
            limits = ProbeLimits(timeout_s=plan.request.timeout_s)
            for result in run_probes(client, model=plan.served_model, limits=limits):
                self._tell(number, f"probe {result.probe.value}")
                append_probe(trial, result, self._redactor)

    def _look(self, trial: TrialPaths, number: int, arm: Arm, elapsed_s: float) -> None:
        """Now and then, which phase the start is in; never more than a twentieth of the time."""
        began = time.monotonic()
        if began - self._looked_at < _LOOK_EVERY_S:
            return
        with trial.raw_log.open("rb") as log:
            self._phase = parse_timeline(read_lines(log)).phase
        self._looked_at = began + 20 * (time.monotonic() - began)
        self._tell(number, "starting", arm=arm.name, phase=self._phase.value, elapsed_s=elapsed_s)

    def _tell(self, number: int, what: str, **more: object) -> None:
        kept: Any = self._redactor.value(more)
        event: dict[str, object] = {"at": time.time(), "trial": number, "event": what, **kept}
        append_event(self._paths, event)
        self._on_event(event)


def _not_started(plan: LaunchPlan) -> LaunchResult:
    """What stands in the archive from before the start until the engine runs: a kill in between leaves a trace."""
    return LaunchResult(
        kind=plan.kind,
        argv=list(plan.argv),
        env=plan.env,
        command=render_paste(plan.argv, plan.env),
        base_url=None,
        started_at=now_text(),
        ending=Ending.NOT_STARTED,
    )


def _dies(engine: Engine) -> bool:
    """After a broken answer: vLLM's API server outlives its engine core by some seconds, then ends by itself."""
    deadline = time.monotonic() + _DEATH_S
    while engine.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    return engine.poll() is not None


def _api_key() -> str | None:
    return os.environ.get("K3_API_KEY")
