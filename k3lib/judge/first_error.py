"""
Which of all signs of failure came first and is nobody's consequence (R-06, R-07).

Earliest first; at equal time the process nearest to the hardware; a text that repeats or announces another
error never; a symptom only while no cause is in sight; inside one traceback the line that says most.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from k3lib.judge.moments import began_at, same_clock
from k3lib.knowledge.signatures import Origin, Signature, SignKind, find_signature, match_signature
from k3lib.logs.failure import LaunchReading, LogReading, Sign
from k3lib.logs.lines import Role
from k3lib.logs.timeline import MilestoneHit
from k3lib.spec.vocabulary import Milestone, Phase

_NEAR = {Role.WORKER: 0, None: 1, Role.ENGINE: 1, Role.FRONT_END: 2}
_ANNOUNCES = re.compile(r" raised:$|BackendCompilerFailed: backend=(?!.* raised:)")
_BREAKS_CONTEXT = {"illegal-memory-access", "device-side-assert", "launch-failure", "gpu-hardware-fault"}
_DEATHS = {"engine-died-serving", "engine-failed-to-start", "process-died", "killed-by-signal", "native-abort"}


@dataclass(frozen=True)
class Launch:
    """
    One launch with its signs sorted by what they can be.

    Args:
        reading: As it was read.
        file: Of which log.
        causes: Signs that can be the root, in order.
        symptoms: Signs that are one only if no cause is there.
        wrappers: Texts that repeat or announce an error.
        requests: Signs that concern single requests.
        around: Signs from outside the engine: runtime, orchestrator, kernel.
    """

    reading: LaunchReading
    file: str
    causes: list[Sign] = field(default_factory=list)
    symptoms: list[Sign] = field(default_factory=list)
    wrappers: list[Sign] = field(default_factory=list)
    requests: list[Sign] = field(default_factory=list)
    around: list[Sign] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """The engine itself said that it failed."""
        return bool(self.causes or self.symptoms or self.wrappers)

    @property
    def failed_to_start(self) -> bool:
        """It said that its start failed."""
        return any(sign.signature == "engine-failed-to-start" for sign in self.wrappers)

    @property
    def died_serving(self) -> bool:
        """It said that it died after its start."""
        return any(sign.signature == "engine-died-serving" for sign in self.wrappers) and not self.failed_to_start

    @property
    def number(self) -> int:
        """Which launch of its log it is, from 1."""
        return self.reading.timeline.launch

    @property
    def answered(self) -> bool:
        """It came up: its API answered, its batch was worked off, or it was ready in a log without a front end."""
        progress, timeline = self.reading.progress, self.reading.timeline
        return progress.ready or progress.finished or (timeline.ready is None and timeline.phase is Phase.SERVING)

    def last_step(self, before: int | None = None) -> MilestoneHit | None:
        """The last milestone, before a line if one is given."""
        hits = [hit for hit in self.reading.timeline.milestones if before is None or hit.line < before]
        return max(hits, key=lambda hit: hit.line, default=None)

    @property
    def spoke(self) -> bool:
        """A line of an engine is in it at all."""
        return bool(self.reading.timeline.milestones) or self.failed or bool(self.requests)


def meaning(sign: Sign | None) -> Signature | None:
    """The signature that a sign matched, or None."""
    return find_signature(sign.signature) if sign and sign.signature else None


def sort_launches(logs: Iterable[LogReading]) -> list[Launch]:
    """Every launch of every file, its signs sorted by what they can be."""
    return [_sort(log.file, reading) for log in logs for reading in log.launches]


def _sort(file: str, reading: LaunchReading) -> Launch:
    signs = _without_farewell(reading)
    signs = [sign for sign in signs if not sign.quiet or _counts_quiet(sign, reading)]
    alive = reading.progress.ready and not any(_is_death(sign) for sign in signs)
    if alive:
        # An engine that goes on answering after a line that calls itself an error has recovered from it.
        signs = [sign for sign in signs if sign.signature or sign.exception]
    launch = Launch(reading, file)
    for sign in _say_most(signs):
        if sign.kind is SignKind.REQUEST or (alive and _is_request(sign)):
            launch.requests.append(sign)
        elif sign.origin is not Origin.ENGINE:
            launch.around.append(sign)
        elif sign.kind is SignKind.WRAPPER:
            launch.wrappers.append(sign)
        elif sign.kind is SignKind.CAUSE:
            launch.causes.append(sign)
        else:
            launch.symptoms.append(sign)
    if launch.wrappers:
        # Who announces an end says more about it than a line that only calls itself an error.
        launch.symptoms[:] = [sign for sign in launch.symptoms if sign.signature or sign.exception]
    return launch


def _without_farewell(reading: LaunchReading) -> list[Sign]:
    """What the engine says after an orderly shutdown that nothing preceded is the noise of its ending."""
    said = reading.timeline.first(Milestone.SHUTDOWN)
    if said is None:
        return reading.signs
    before = [s for s in reading.signs if s.origin is Origin.ENGINE and s.line < said.line and not s.quiet]
    if any(sign.kind is not SignKind.REQUEST for sign in before):
        return reading.signs
    return [s for s in reading.signs if s.line < said.line or s.origin is not Origin.ENGINE]


def _counts_quiet(sign: Sign, reading: LaunchReading) -> bool:
    known = meaning(sign)
    if known is None:
        return False
    if known.kind in (SignKind.REQUEST, SignKind.WRAPPER) or known.origin is not Origin.ENGINE:
        return True
    # A missing driver is no cause once the start has got past the place where it would have been.
    passed = known.phase is Phase.CONTAINER and reading.timeline.phase.order > Phase.CONFIG.order
    failing = not reading.progress.ready or any(_is_death(other) for other in reading.signs if not other.quiet)
    return known.even_quiet and failing and not passed


def _is_death(sign: Sign) -> bool:
    if sign.origin is not Origin.ENGINE or sign.quiet:
        return sign.signature in _DEATHS
    if sign.signature in _DEATHS or "EngineDead" in sign.text:
        return True
    if sign.exception and sign.role in (Role.WORKER, Role.ENGINE):
        return True
    return sign.signature is not None and sign.kind is SignKind.CAUSE


def _is_request(sign: Sign) -> bool:
    return sign.origin is Origin.ENGINE and sign.signature is None and sign.role in (None, Role.FRONT_END)


def _say_most(signs: list[Sign]) -> list[Sign]:
    """Of each block the sign that says most, and the wrappers; signs outside blocks as they are."""
    best: dict[tuple[str, int], Sign] = {}
    for sign in signs:
        key = (sign.file, sign.block)
        if sign.block and sign.kind is not SignKind.WRAPPER and (key not in best or _says(sign) > _says(best[key])):
            best[key] = sign
    return [s for s in signs if not s.block or s.kind is SignKind.WRAPPER or s is best[(s.file, s.block)]]


def announces(sign: Sign) -> bool:
    """The error is the next one: this one only says who raised it."""
    return bool(_ANNOUNCES.search(sign.text))


def _says(sign: Sign) -> int:
    if announces(sign):
        return 3
    if sign.signature:
        return 4 if sign.kind in (SignKind.CAUSE, SignKind.REQUEST) else 2
    if sign.exception is None:
        return 0
    return 3 if sign.text.rstrip(": ") != sign.exception else 1


def choose_first(launch: Launch) -> Sign | None:
    """
    The engine's own first error in one launch, or None if it only repeats or announces one.

    An exception that nobody knows is a cause too, unless a symptom came before it: then it is what the
    others raised when they noticed. One of the front end stands behind everything else.
    """
    first_symptom = min((sign.line for sign in launch.symptoms if sign.file == launch.file), default=None)
    known = [s for s in launch.causes if s.signature]
    unknown = [s for s in launch.causes if not s.signature and s.role is not Role.FRONT_END]
    early = [s for s in unknown if first_symptom is None or s.line < first_symptom]
    return (
        _before_its_echo(_earliest([*known, *early]), known)
        or _earliest([s for s in launch.symptoms if s.signature])
        or _earliest(launch.causes)
        or _earliest(launch.symptoms)
    )


def read_quoted(launch: Launch) -> Sign | None:
    """The first wrapper that quotes an error which is known, as that error; None if none does."""
    for wrapper in launch.wrappers:
        match = match_signature(wrapper.values.get("quoted") or "")
        if match is not None and match.signature.kind in (SignKind.CAUSE, SignKind.SYMPTOM):
            said = match.signature
            known = {"signature": said.id, "kind": said.kind, "origin": said.origin, "values": match.found.groupdict()}
            return wrapper.model_copy(update=known)
    return None


def _earliest(signs: list[Sign]) -> Sign | None:
    if not signs:
        return None
    first = min(signs, key=lambda sign: sign.line)
    if first.moment.seconds is None:
        return first
    rivals = [sign for sign in signs if same_clock(sign, first)]
    times = [sign.moment.seconds or 0.0 for sign in rivals]
    # A clock of whole seconds cannot say that it was earlier than one with fractions.
    whole = any(time.is_integer() for time in times)
    nearest = min((_NEAR[sign.role] for sign in rivals), default=0)

    def order(i: int) -> tuple[float, int, int]:
        # Native code that names no process is a part of whichever one it speaks in.
        distance = nearest if _is_native(rivals[i]) else _NEAR[rivals[i].role]
        return math.floor(times[i]) if whole else times[i], distance, rivals[i].line

    return rivals[min(range(len(rivals)), key=order)] if rivals else first


def _is_native(sign: Sign) -> bool:
    return sign.role is None and sign.signature is not None and sign.exception is None


def _before_its_echo(first: Sign | None, causes: list[Sign]) -> Sign | None:
    """A broken context makes other ranks run out of memory in the same moment; their lines may come first."""
    if first is None or first.signature != "gpu-out-of-memory":
        return first
    broken = [
        s for s in causes if s.signature in _BREAKS_CONTEXT and s.moment.seconds == first.moment.seconds is not None
    ]
    return _earliest(broken) or first


def order_by_time(launches: list[Launch]) -> list[Launch]:
    """
    Failing launches, the one whose error began first in front; a file that only repeats errors last.

    Launches of one file keep their order. Where the clocks of files cannot be compared, a cause goes before a symptom.
    """
    roots: dict[str, Sign | None] = {}
    for launch in launches:
        if launch.file not in roots:
            roots[launch.file] = choose_first(launch)
    told = [root for root in roots.values() if root is not None]
    clocks = {(root.moment.year_known, root.moment.zone_known) for root in told if root.moment.seconds is not None}
    comparable = len(clocks) == 1 and all(root.moment.seconds is not None for root in told)

    def order(launch: Launch) -> tuple[bool, float]:
        root = roots[launch.file]
        if root is None:
            return True, 0.0
        return False, (began_at(root).seconds or 0.0) if comparable else float(root.kind is SignKind.SYMPTOM)

    return sorted(launches, key=order)
