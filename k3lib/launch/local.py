"""
An engine that is a process of this machine: a real vLLM or the rehearsal, which is just another program.

Between us and the engine stands the keeper (`keeper.py`), which ends the whole tree however we end. The engine
writes its log straight into the descriptor it was given: no line is lost with us, and none waits in a pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from k3lib.errors import LaunchError
from k3lib.launch.command import render_paste
from k3lib.launch.environment import compose_environment
from k3lib.launch.health import read_status
from k3lib.launch.keeper import HARD_STOP_S
from k3lib.launch.leftovers import sweep_leftovers
from k3lib.launch.preflight import check_local_plan, find_listener
from k3lib.spec.launch import LaunchPlan
from k3lib.spec.results import Exit, LaunchResult
from k3lib.spec.vocabulary import Ending

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.25
_HEALTH_TIMEOUT_S = 1.0
_KEEPER_START_S = 30.0
_KEEPER_END_S = 3.0


class LocalEngine:
    """
    One engine; `start` makes it. Use it in a `with`: it is stopped on every way out.

    Args:
        plan: What is to be started.
        log_fd: Descriptor that the engine appends its output to; it stays the caller's to close, after the stop.
    """

    def __init__(self, plan: LaunchPlan, log_fd: int) -> None:
        self._plan = plan
        self._log = log_fd
        self._keeper: subprocess.Popen[bytes] | None = None
        self._control = self._status = -1
        self._scratch: str | None = None
        self._reading = threading.Lock()
        self._reports = b""
        self._pid: int | None = None
        self._started_at = datetime.now().astimezone().isoformat(timespec="milliseconds")
        self._started = time.monotonic()
        self._ended: float | None = None
        self._ready_s: float | None = None
        self._exit: Exit | None = None
        self._limit: str | None = None
        self._failure: str | None = None
        self._killed: list[str] = []
        self._leftovers: list[str] = []
        self._stop_deadline: float | None = None
        self._ending: Ending | None = None

    @staticmethod
    def check_plan(plan: LaunchPlan) -> None:
        """Refuse a plan that can't become an engine here, in four lines; starts nothing."""
        check_local_plan(plan)

    @classmethod
    def start(cls, plan: LaunchPlan, log_fd: int) -> Self:
        """
        Start the engine and come back once its program runs, after some 30 ms.

        Raises:
            LaunchError: The program could not be executed; nothing is running.
        """
        engine = cls(plan, log_fd)
        try:
            engine._start_keeper()
            engine._await_start()
        except BaseException:
            engine.stop()
            raise
        return engine

    @property
    def base_url(self) -> str:
        """Where the engine is reached from this machine, `http://127.0.0.1:8000`."""
        host = self._reachable_host()
        return f"http://[{host}]:{self._plan.port}" if ":" in host else f"http://{host}:{self._plan.port}"

    @property
    def pid(self) -> int | None:
        """Process id of the engine's first process."""
        return self._pid

    def wait_ready(self, on_tick: Callable[[float], None] | None = None) -> LaunchResult:
        """
        Wait until /health answers 200, the engine dies, or the time is over; a fault of the engine is no exception.

        Args:
            on_tick: Called between looks with the seconds since the start.

        Returns:
            `ready_s` is set, or `exit`, or `limit`; the engine still runs unless `exit` is set.
        """
        deadline = self._started + self._plan.ready_timeout_s
        pause = _FIRST_PAUSE_S
        while self._ready_s is None and self._limit is None and self.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                self._limit = f"engine.ready_timeout_s = {self._plan.ready_timeout_s:g} s"
            elif self._answers(min(_HEALTH_TIMEOUT_S, left)):
                self._ready_s = time.monotonic() - self._started
            else:
                if on_tick is not None:
                    on_tick(time.monotonic() - self._started)
                self._wait_for_report(min(pause, max(deadline - time.monotonic(), 0)))
                pause = min(pause * 1.3, _LONGEST_PAUSE_S)
        return self.result()

    def poll(self) -> Exit | None:
        """How the engine's first process ended, without waiting; None while it runs."""
        with self._reading:
            self._read_reports()
        return self._exit

    def alive(self) -> bool:
        """True while the engine's first process runs."""
        return self.poll() is None

    def stop(self, *, interrupted: bool = False) -> LaunchResult:
        """
        End the engine and everything it started; a second call changes nothing.

        A Ctrl-C meanwhile is heard once all has ended: a stop that is cut short leaves orphans on the GPUs.

        Args:
            interrupted: The stop is a person's Ctrl-C and no part of the plan.

        Returns:
            The whole story, with `ending`, `exit`, `lived_s` and `leftovers`.

        Raises:
            KeyboardInterrupt: It came during the stop.
        """
        interrupt: KeyboardInterrupt | None = None
        while self._ending is None:
            try:
                self._finish(interrupted or interrupt is not None)
            except KeyboardInterrupt as signalled:
                interrupt = signalled
        if interrupt is not None:
            raise interrupt
        return self.result()

    def result(self) -> LaunchResult:
        """What is known by now."""
        lived = None if self._ended is None else self._ended - self._started
        return LaunchResult(
            kind=self._plan.kind,
            argv=list(self._plan.argv),
            env=self._plan.env,
            command=render_paste(self._plan.argv, self._plan.env),
            base_url=self.base_url,
            started_at=self._started_at,
            ready_s=self._ready_s,
            lived_s=lived,
            ending=self._ending or (Ending.DIED if self._exit and not self._exit.asked else None),
            exit=self._exit,
            limit=self._limit,
            killed=self._killed,
            leftovers=self._leftovers,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(interrupted=isinstance(error, KeyboardInterrupt))

    def _start_keeper(self) -> None:
        if "TMPDIR" not in self._plan.env:
            self._scratch = tempfile.mkdtemp(prefix="k3-")
        keeper_control, self._control = os.pipe()
        self._status, keeper_status = os.pipe()
        os.set_blocking(self._status, False)
        given = (keeper_control, keeper_status, self._log)
        words = [*given, os.getpid(), self._plan.stop_grace_s, self._scratch or "", *self._plan.argv]
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py")), *map(str, words)],
                env=compose_environment(self._plan, os.environ, scratch=self._scratch),
                cwd=self._plan.cwd,
                pass_fds=given,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C at the terminal or a kernel's restart must not reach it
            )
        finally:
            os.close(keeper_control)
            os.close(keeper_status)

    def _await_start(self) -> None:
        deadline = time.monotonic() + _KEEPER_START_S
        while self._pid is None and self._failure is None and self._keeper_runs() and time.monotonic() < deadline:
            self._wait_for_report(0.1)
            self.poll()
        self.poll()
        if self._pid is None:
            raise LaunchError(
                f"{self._plan.argv[0]} could not be executed; no engine was started",
                expected="a program that this machine can run",
                evidence=self._failure or "the process that starts it ended without a word",
                next="start the program by hand: " + render_paste(self._plan.argv, self._plan.env),
            )

    def _keeper_runs(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def _reachable_host(self) -> str:
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._plan.host, self._plan.host)

    def _answers(self, timeout_s: float) -> bool:
        """Whether our engine, and no other program on that port, answers 200."""
        status = read_status(self._reachable_host(), self._plan.port, self._plan.health_path, timeout_s)
        return status == 200 and self._owns_port() and self.poll() is None

    def _owns_port(self) -> bool:
        pid = find_listener(self._plan.port)
        if pid is None or self._keeper is None:
            return True
        try:
            return pid in {process.pid for process in psutil.Process(self._keeper.pid).children(recursive=True)}
        except psutil.Error:
            return False

    def _wait_for_report(self, timeout_s: float) -> None:
        if self._status >= 0:
            select.select([self._status], [], [], timeout_s)

    def _read_reports(self) -> None:
        """Take in what the keeper said; its end without a word means that it was killed, and its engine with it."""
        while self._status >= 0:
            try:
                part = os.read(self._status, 65_536)
            except BlockingIOError:
                return
            if not part:
                break
            *lines, self._reports = (self._reports + part).split(b"\n")
            for line in lines:
                self._take_report(json.loads(line))
        if self._exit is None and self._pid is not None:
            self._ended = time.monotonic()
            self._exit = Exit(code=None, signal="SIGKILL", asked=self._stop_deadline is not None)

    def _take_report(self, report: dict[str, Any]) -> None:
        match report["event"]:
            case "started":
                self._pid, self._started = report["pid"], report["at"]
            case "exited":
                self._ended = report["at"]
                self._exit = Exit(code=report["code"], signal=report["signal"], asked=report["asked"])
            case "ended":
                self._killed, self._leftovers = report["killed"], report["alive"]
            case "failed" | "broken":
                self._failure = report["error"]

    def _finish(self, interrupted: bool) -> None:
        """End everything. Each step may be repeated: a Ctrl-C can cut in anywhere."""
        self.poll()
        if self._stop_deadline is None:
            self._stop_deadline = time.monotonic() + self._plan.stop_grace_s + HARD_STOP_S + _KEEPER_END_S
        self._say_stop()
        while self._keeper_runs() and time.monotonic() < self._stop_deadline:
            self._wait_for_report(0.1)
            self.poll()
        if self._keeper is not None and self._keeper_runs():
            self._keeper.kill()
            self._keeper.wait()
        self.poll()
        swept = sweep_leftovers(self._plan.token, self._log)
        self._leftovers = list(dict.fromkeys([*self._leftovers, *swept]))
        self._forget()
        self._ending = self._name_ending(interrupted)

    def _say_stop(self) -> None:
        if self._control >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._control, b"stop\n")

    def _name_ending(self, interrupted: bool) -> Ending:
        if self._pid is None:
            return Ending.NOT_STARTED
        if self._exit is not None and not self._exit.asked:
            return Ending.DIED
        if self._limit is not None:
            return Ending.TIMED_OUT
        return Ending.INTERRUPTED if interrupted else Ending.STOPPED

    def _forget(self) -> None:
        for name in ("_control", "_status"):
            descriptor = getattr(self, name)
            setattr(self, name, -1)  # first: a Ctrl-C between the two lines must not close a descriptor twice
            if descriptor >= 0:
                os.close(descriptor)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
