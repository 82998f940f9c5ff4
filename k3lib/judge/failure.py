"""What failed, in which phase, root or secondary, and what it asks for: triage (R-01 to R-09, R-24, R-68)."""

from __future__ import annotations

from typing import Any

from k3lib.judge.answer import Failure, FirstError, Reason, describe_silence, gather_evidence, give_reasons, list_steps
from k3lib.judge.first_error import Launch, announces, choose_first, meaning, order_by_time, read_quoted, sort_launches
from k3lib.judge.meaning import judge_advice, judge_domain, judge_oom, judge_phase, judge_route, name_rule
from k3lib.judge.moments import began_at, near_in_time
from k3lib.knowledge.signatures import Origin, SignKind
from k3lib.logs.failure import LogReading, Sign, is_table_row
from k3lib.logs.progress import LONG_WAIT_S
from k3lib.spec.vocabulary import Domain, Oom, Phase, Route

_MANY_WAITS = 3
_MANY_STALLS = 3
_FEW_WORDS = 80
_FAULTS = {"gpu-hardware-fault", "gpu-firmware-fault"}
# A program's fault that the kernel reports is the engine's error seen from below.
_NEVER_FIRST = {"gpu-program-fault"}


def judge_failure(logs: list[LogReading]) -> Failure:
    """
    The answer for one incident.

    Args:
        logs: Its files as read, at least one.

    Returns:
        The first failing launch's answer; never an exception, whatever the logs hold.

    >>> judge_failure([]).route
    <Route.INCONCLUSIVE: 'inconclusive'>
    """
    return _Incident(logs).judge()


class _Incident:
    """All launches of all files, and the questions in their order."""

    def __init__(self, logs: list[LogReading]) -> None:
        self._launches = sort_launches(logs)
        self._cut = {log.file: log.cut for log in logs}
        self._count = max((log.count for log in logs), default=0)
        engine = [launch for launch in self._launches if launch.spoke]
        self._engine = engine or self._launches
        self._around = [sign for launch in self._launches for sign in launch.around]

    def judge(self) -> Failure:
        if not self._launches:
            return self._answer(None, "nothing-read")
        failing = [launch for launch in self._engine if launch.failed]
        if failing:
            return self._judge_failing(failing)
        launch = self._last_or_unfinished()
        if cause := self._explain(None, launch):
            return self._judge_sign(cause, self._launch_of(cause, launch))
        return self._judge_silent(launch)

    def _last_or_unfinished(self) -> Launch:
        """The last launch if it came up, else the first that did not."""
        last = self._engine[-1]
        return last if last.answered else next(launch for launch in self._engine if not launch.answered)

    def _judge_failing(self, failing: list[Launch]) -> Failure:
        failing = order_by_time(failing)
        first = failing[0]
        root = choose_first(first) or read_quoted(first)
        if root is not None and root.kind is not SignKind.SYMPTOM:
            return self._judge_sign(self._earlier_around(root, first) or root, first)
        if cause := self._explain(root, first):
            return self._judge_sign(cause, first)
        if root is not None:
            return self._judge_sign(root, first)
        # The first launch only says that it failed. The next shows why, if both are failures of the start.
        for later in failing[1:]:
            root = choose_first(later)
            if root is not None and first.failed_to_start and judge_oom(root, later, [later]) is not Oom.SECONDARY:
                return self._judge_sign(root, later)
        return self._answer(first, "cause-missing", phase=judge_phase(None, first))

    def _judge_sign(self, sign: Sign, launch: Launch) -> Failure:
        fault = self._hardware_fault(sign)
        phase = judge_phase(sign, launch)
        oom = judge_oom(sign, launch, self._launches)
        route = judge_route(sign, launch, phase, oom)
        known = meaning(fault or sign)
        if fault and known and known.route:
            route = known.route
        elif self._is_cut(sign):
            route = Route.INCONCLUSIVE
        return self._answer(
            launch,
            name_rule(fault or sign),
            sign=sign,
            fault=fault,
            # A request that the engine rightly refuses, or that its client gives up, is no failure of the engine.
            failed=not (sign.kind is SignKind.REQUEST and route is Route.FIX_CLIENT),
            phase=phase,
            oom=oom,
            route=route,
            domain=judge_domain(fault or sign, phase, oom),
            reasons=give_reasons(sign, launch, phase, oom, fault, self._count),
            advice=judge_advice(fault or sign, phase, oom, route),
        )

    def _judge_silent(self, launch: Launch) -> Failure:
        """No launch says that it failed: it works, single requests fail, it hangs, or the log ends too early."""
        progress = launch.reading.progress
        if progress.stalled >= _MANY_STALLS or (launch.answered and progress.stalled and progress.waits >= _MANY_WAITS):
            return self._answer(launch, "stalled", phase=Phase.SERVING, domain=Domain.ENGINE)
        if launch.requests:
            return self._judge_sign(min(launch.requests, key=lambda sign: sign.line), launch)
        if launch.answered:
            return self._answer(launch, "healthy", failed=False, route=Route.NONE)
        return self._judge_unready(launch)

    def _judge_unready(self, launch: Launch) -> Failure:
        progress, timeline = launch.reading.progress, launch.reading.timeline
        phase = judge_phase(None, launch)
        if progress.last_communicator > progress.last_step and phase.order < Phase.WEIGHTS.order:
            phase = Phase.INIT
            if progress.ranks_open and progress.ranks_done:
                facts = {"domain": Domain.NETWORK, "route": Route.FIX_ENVIRONMENT, "advice": "network"}
                return self._answer(launch, "communicator-incomplete", phase=phase, **facts)
        if progress.waits >= _MANY_WAITS or (progress.waited_s or 0.0) >= LONG_WAIT_S:
            return self._answer(launch, "hang", phase=phase, domain=Domain.ENGINE, advice="hang")
        if not launch.spoke:
            return self._answer(launch, "nothing-read")
        if timeline.ready is None:
            return self._answer(launch, "other-node", failed=False)
        return self._answer(launch, "stopped-before-ready" if timeline.shut_down else "unfinished", phase=phase)

    def _explain(self, symptom: Sign | None, launch: Launch) -> Sign | None:
        """What outside the engine explains a death without words, or a log that just ends."""
        ended = began_at(symptom) if symptom else launch.reading.ended
        found = [
            sign
            for sign in self._around
            if sign.kind is SignKind.CAUSE and (sign.file == launch.file or near_in_time(sign.moment, ended))
        ]
        if symptom is None:
            # An engine that went on answering after it was not ended by it.
            answer = launch.reading.progress.last_answer
            found = [s for s in found if s.origin is not Origin.KERNEL or s.file != launch.file or s.line > answer]
            found = found or [sign for sign in self._around if sign.kind is SignKind.SYMPTOM]
        # The kernel's own line says more than the words of an orchestrator that repeat it.
        # A row of a table gives a state, the event behind it the reason.
        return min(found, key=lambda s: (s.origin is not Origin.KERNEL, is_table_row(s.text), s.line), default=None)

    def _earlier_around(self, root: Sign, launch: Launch) -> Sign | None:
        """
        Something outside, no faulty program, that stands before the engine's own first error.

        Of other files it counts only where the engine's error leaves open what it was.
        """
        known = meaning(root)
        undecided = known is not None and known.undecided
        earlier = [
            sign
            for sign in self._around
            if sign.kind is SignKind.CAUSE
            and sign.signature not in _NEVER_FIRST
            and (
                sign.line < root.line
                if sign.file == root.file
                else undecided and sign.origin is Origin.OUTSIDE and near_in_time(sign.moment, root.moment)
            )
            and (sign.file != root.file or sign.launch == root.launch)
        ]
        return min(earlier, key=lambda sign: sign.line, default=None)

    def _is_cut(self, sign: Sign) -> bool:
        """The log ends inside this line and what is left does not name the error, or before what it announces."""
        cut = self._cut.get(sign.file)
        if announces(sign) and sign.last in (sign.line, cut):
            return True
        known = meaning(sign)
        # Whether memory was held by others is told by the numbers of such a line.
        numberless = known is not None and known.oom is Oom.SECONDARY and "total_gib" not in sign.values
        # Who else held memory stands at the end of torch's sentence.
        halved = "total capacity of" in sign.text and "PyTorch" not in sign.text
        doubtful = known is None or len(sign.text) < _FEW_WORDS or numberless or halved
        return doubtful and cut == sign.line

    def _hardware_fault(self, sign: Sign) -> Sign | None:
        """The kernel's word on an error that could be the hardware's or a program's."""
        known = meaning(sign)
        if known is None or not known.undecided:
            return None
        faults = [s for s in self._around if s.signature in _FAULTS]
        near = [s for s in faults if s.file == sign.file or near_in_time(s.moment, sign.moment)]
        # Of several lines the driver's own says more than a table of nvidia-smi.
        return min(near, key=lambda s: ("Xid" not in s.text, s.line), default=None)

    def _launch_of(self, sign: Sign, default: Launch) -> Launch:
        return next((ln for ln in self._engine if (ln.file, ln.number) == (sign.file, sign.launch)), default)

    def _answer(self, launch: Launch | None, rule: str, **told: Any) -> Failure:
        """An answer; what is not told has the value of an inconclusive one."""
        sign: Sign | None = told.pop("sign", None)
        fault: Sign | None = told.pop("fault", None)
        facts = describe_silence(launch, self._count) if launch else {}
        values: dict[str, Any] = {
            "failed": True,
            "route": Route.INCONCLUSIVE,
            "reasons": [Reason(case=rule, facts=facts)],
            "evidence": gather_evidence(launch, sign, fault) if launch else [],
            "milestones": list_steps(launch) if launch else [],
            "launch": launch.number if launch else 1,
            "launches": max(self._count, 1 if launch else 0),
        }
        if sign is not None:
            block = (sign.first, sign.last)
            values["first_error"] = FirstError(file=sign.file, line=sign.line, text=sign.text, block=block)
        return Failure(**{**values, **told, "rule": rule})
