"""
From records to the timeline of a start: milestones, phase, spans, and what the engine said of itself.

    (APIServer pid=1) INFO 11-20 08:55:01 [startup.py:30] vLLM server version 0.33.0, serving model moonshotai/Kimi-K3
    (EngineCore pid=70) INFO 11-20 08:55:20 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: model='…'
    (Worker_TP0 pid=81) INFO 11-20 09:00:10 [gpu_worker.py:773] Available KV cache memory: 19.02 GiB
    (EngineCore pid=70) INFO 11-20 09:00:31 [core.py:396] init engine (profile, create kv cache, warmup model) took 20 s
    (APIServer pid=1) INFO:     Application startup complete.

The phase is where a failure at the end of this log would stand: the phase that the furthest milestone
opened. A line that is missing proves nothing, so an empty log stands in `container`.
Source: vLLM 0.33.0, files as in k3lib/knowledge/milestones.yaml.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pydantic import Field

from k3lib.logs.launches import Event, Hit, split_launches
from k3lib.logs.lines import LogLine
from k3lib.logs.spans import Boundary, PhaseSpan, compute_spans
from k3lib.logs.stamps import Stamp
from k3lib.logs.values import EngineValues, ValuesReader
from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import Milestone, Phase

_MOST_HITS = 2000
_MOST_TEXT = 300
_KEPT_LAUNCHES = 64  # of the beginning and of the end

_ANSWERING = {Milestone.HTTP_READY, Milestone.FIRST_ANSWER, Milestone.CACHE_SIGNAL, Milestone.LOAD_SEEN}


class MilestoneHit(Fact):
    """
    The first line of one process that proves a milestone.

    Args:
        name: The milestone.
        line: Physical line, from 1.
        time: As written: the engine's clock, or else the wrapper's; None if the line has none.
        process, pid, rank: Who wrote it, as far as the line says.
        text: The message, cut at 300 characters.
    """

    name: Milestone
    line: int
    time: str | None
    process: str | None
    pid: int | None
    rank: str | None
    text: str


class Timeline(Fact):
    """
    One launch, read.

    Args:
        milestones: First hit per milestone and process, in the order of the log.
        left_out: Hits beyond the first 2,000.
        last: The furthest milestone in the order of a start, or None.
        phase: Where a failure at the end of this log would stand.
        ready: The API answered or said that it would; None where this log cannot tell.
        ready_reason: Why `ready` is None.
        phases: A span per phase reached, in order, never overlapping.
        values: What the engine said of itself.
        sources: For each value said, the line it stands on.
        shut_down: An orderly shutdown was begun.
        launch, launches: Which launch of the log this is, from 1, and how many there are.
        first_line, last_line: Physical lines of this launch; both 0 for an empty log.
    """

    milestones: list[MilestoneHit] = Field(default_factory=list)
    left_out: int = 0
    last: Milestone | None = None
    phase: Phase = Phase.CONTAINER
    ready: bool | None = False
    ready_reason: str | None = None
    phases: list[PhaseSpan] = Field(default_factory=list)
    values: EngineValues = Field(default_factory=EngineValues)
    sources: dict[str, int] = Field(default_factory=dict)
    shut_down: bool = False
    launch: int = 1
    launches: int = 1
    first_line: int = 0
    last_line: int = 0

    def first(self, name: Milestone) -> MilestoneHit | None:
        """The first hit of a milestone by any process, or None."""
        return next((hit for hit in self.milestones if hit.name is name), None)


def parse_timeline(lines: Iterable[LogLine]) -> Timeline:
    """
    The timeline of the last launch in a log.

    Args:
        lines: Records in order, from `read_lines`.

    Returns:
        The timeline; `launches` tells how many launches the log holds.

    >>> from k3lib.logs.lines import read_lines
    >>> parse_timeline(read_lines("INFO 09-01 07:20:24 [w.py:1] Starting to load model /models/m...\\n")).phase
    <Phase.WEIGHTS: 'weights'>
    """
    return parse_launches(lines)[-1]


def parse_launches(lines: Iterable[LogLine]) -> list[Timeline]:
    """
    A timeline per launch of a log.

    Args:
        lines: Records in order, from `read_lines`.

    Returns:
        At least one timeline, in order; of a longer restart loop the first 64 and the last 64.
    """
    first: list[Timeline] = []
    last: deque[Timeline] = deque(maxlen=_KEPT_LAUNCHES)
    reader = TimelineReader(1)
    for event in split_launches(lines):
        if event.launch != reader.launch:
            (first if len(first) < _KEPT_LAUNCHES else last).append(reader.timeline())
            reader = TimelineReader(event.launch)
        reader.read(event)
    launches = [*first, *last, reader.timeline()]
    return [timeline.model_copy(update={"launches": reader.launch}) for timeline in launches]


class TimelineReader:
    """
    Builds the timeline of one launch from its events, in bounded memory; may be asked at any moment.

    Args:
        launch: Number of the launch, from 1.
    """

    def __init__(self, launch: int) -> None:
        self.launch = launch
        self._hits: dict[tuple[Milestone, str | None, int | None, str | None], MilestoneHit] = {}
        self._left_out = 0
        self._phase = Phase.CONTAINER
        self._boundaries: list[Boundary] = []
        self._values = ValuesReader()
        self._joined: set[int | str] = set()
        self._loaded: set[int | str] = set()
        self._first_line = 0
        self._last_line = 0
        self._last_time: Stamp | None = None
        self._last_outer: Stamp | None = None

    @property
    def phase(self) -> Phase:
        """The phase in which a failure would stand now."""
        return self._phase

    def read(self, event: Event) -> None:
        """Takes the next record of this launch."""
        line = event.line
        if not self._boundaries:
            self._first_line = line.number
            self._boundaries.append(Boundary(Phase.CONTAINER, line.number, None, line.outer))
        self._last_line = line.number
        self._last_time = line.time or self._last_time
        self._last_outer = line.outer or self._last_outer
        for hit in event.hits:
            self._values.read(hit.pattern, hit.found, line.number)
            if hit.milestone:
                self._keep(hit.milestone, line)
                self._move(hit, line)

    def timeline(self) -> Timeline:
        """The timeline of all that was read so far."""
        names = {hit.name for hit in self._hits.values()}
        values = self._values.values()
        ready, reason = _judge_ready(names, values)
        return Timeline(
            milestones=list(self._hits.values()),
            left_out=self._left_out,
            last=max(names - {Milestone.SHUTDOWN, Milestone.BLOCK_SIZE}, key=lambda name: name.order, default=None),
            phase=self._phase,
            ready=ready,
            ready_reason=reason,
            phases=compute_spans(
                self._boundaries, Boundary(self._phase, self._last_line, self._last_time, self._last_outer)
            ),
            values=values,
            sources=dict(self._values.sources),
            shut_down=Milestone.SHUTDOWN in names,
            launch=self.launch,
            launches=self.launch,
            first_line=self._first_line,
            last_line=self._last_line,
        )

    def _keep(self, name: Milestone, line: LogLine) -> None:
        key = (name, line.process, line.pid, line.rank)
        if key in self._hits:
            return
        if len(self._hits) >= _MOST_HITS:
            self._left_out += 1
            return
        stamp = line.time or line.outer
        self._hits[key] = MilestoneHit(
            name=name,
            line=line.number,
            time=stamp.text if stamp else None,
            process=line.process,
            pid=line.pid,
            rank=line.rank,
            text=line.text.strip()[:_MOST_TEXT],
        )

    def _move(self, hit: Hit, line: LogLine) -> None:
        opens = hit.opens
        who = line.pid if line.pid is not None else line.rank
        if who is not None and hit.milestone is Milestone.WORLD_JOINED:
            self._joined.add(who)
        if hit.milestone is Milestone.WEIGHTS_LOADED and who is not None:
            self._loaded.add(who)
            # The V2 runner reports each rank: while one that joined is still loading, a failure is one of the weights.
            if self._values.runner == "v2" and self._joined & self._loaded and self._joined - self._loaded:
                opens = Phase.WEIGHTS
        if opens is not None and opens.order > self._phase.order:
            self._phase = opens
            self._boundaries.append(Boundary(opens, line.number, line.time, line.outer))


def _judge_ready(names: set[Milestone], values: EngineValues) -> tuple[bool | None, str | None]:
    if names & _ANSWERING:
        return True, None
    if Milestone.HEADLESS_STARTED in names:
        return None, "a headless node prints no readiness line; ask the head node"
    if Milestone.ENGINE_READY in names and values.front_end is None:
        return None, "the engine is ready and no line of a front end is in this log"
    return False, None
