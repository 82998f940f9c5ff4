"""
Whether an engine is working, waiting or answering: what tells a hang from a start that is merely slow.

    (APIServer pid=1) DEBUG 07-15 10:03:31 [v1/engine/utils.py:1120] Waiting for 1 local, 0 remote core engine proc(s)
    (EngineCore pid=4) INFO 07-15 15:43:47 [shm_broadcast.py:705] No available shared memory broadcast block found in 60
    k8s-b:582:582 [1] NCCL INFO ncclCommInitRank comm 0x56 rank 17 nranks 32 cudaDev 1 busId 21 commId 0xabc - Init …
    Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 3 reqs
    Added request chatcmpl-1.     …     Aborted request(s) chatcmpl-1.
"""

from __future__ import annotations

import re

from k3lib.logs.launches import Event
from k3lib.logs.lines import LogLine
from k3lib.logs.stamps import Stamp, measure_span
from k3lib.spec.model import Fact
from k3lib.spec.vocabulary import Milestone

LONG_WAIT_S = 60.0
_MOST_REQUESTS = 4096
_MOST_RANKS = 65_536
_WAITING = re.compile(r"^(?:Waiting for \d+ local, \d+ remote core engine|No available shared memory broadcast block)")
_STALLED = re.compile(
    r"Avg prompt t\w+: 0\.0 \S+, Avg generation t\w+: 0\.0 \S+, (?:Reqs )?Running: [1-9]",
)
_COMMUNICATOR = re.compile(r"\brank (\d+) nranks (\d+) .{0,300}? - Init (START|COMPLETE)")
_FOLDED = re.compile(r"\[repeated (\d+)x across cluster\]")
_REQUEST = re.compile(r"^(Added|Received|Aborted) request(?:\(s\))? ([\w.,\s-]+?)(?:[.:]|$)")
_SERVING = {Milestone.HTTP_READY, Milestone.FIRST_ANSWER, Milestone.LOAD_SEEN}
_DONE = re.compile(r"Processed prompts: 100%")


class Progress(Fact):
    """
    Args:
        ready: The API said that it was ready, or answered.
        last_answer: Last line that shows an answer or a token, 0 if none.
        waits: Lines that say that somebody waits, since the last step forward.
        first_wait, last_wait: The first and the last of them, 0 if none.
        waited_s: Seconds between those two, or None.
        stalled: Statistics lines in a row with running requests and no token; 0 after a token.
        ranks: Ranks of the communicator that is being built, or None.
        ranks_open, ranks_done: Ranks whose initialisation was seen to begin only, and to end.
        last_communicator: The last line about it, 0 if none.
        last_step: Last line that proved a milestone.
        finished: A batch of prompts was worked off.
    """

    ready: bool = False
    last_answer: int = 0
    waits: int = 0
    first_wait: int = 0
    last_wait: int = 0
    waited_s: float | None = None
    stalled: int = 0
    ranks: int | None = None
    ranks_open: int = 0
    ranks_done: int = 0
    last_communicator: int = 0
    last_step: int = 0
    finished: bool = False


class ProgressReader:
    """Follows one launch, record by record."""

    def __init__(self) -> None:
        self.ready = False
        self._last_answer = self._last_step = 0
        self._waits = self._first_wait = self._last_wait = self._stalled = 0
        self._wait_began: Stamp | None = None
        self._wait_ended: Stamp | None = None
        self._ranks: int | None = None
        self._begun: set[int] = set()
        self._done: set[int] = set()
        self._folded = self._last_communicator = 0
        self._finished = False
        self._requests: dict[str, Stamp] = {}

    def read(self, event: Event) -> bool:
        """
        Takes the next record.

        Returns:
            True if it aborts a request that had been worked on for a minute or more.
        """
        line = event.line
        self._read_steps(event)
        if _WAITING.match(line.text):
            self._wait(line)
        elif _STALLED.search(line.text):
            self._stalled += 1
        elif "NCCL INFO" in line.text:
            self._read_communicator(line)
        self._finished |= bool(_DONE.search(line.text))
        return self._read_request(line)

    def progress(self) -> Progress:
        """All that was read so far."""
        waited_s = None
        if self._wait_began and self._wait_ended:
            waited_s = measure_span(self._wait_began, self._wait_ended)[0]
        return Progress(
            ready=self.ready,
            last_answer=self._last_answer,
            waits=self._waits,
            first_wait=self._first_wait,
            last_wait=self._last_wait,
            waited_s=waited_s,
            stalled=self._stalled,
            ranks=self._ranks,
            ranks_open=len(self._begun - self._done),
            ranks_done=len(self._done) + self._folded,
            last_communicator=self._last_communicator,
            last_step=self._last_step,
            finished=self._finished,
        )

    def _read_steps(self, event: Event) -> None:
        names = {hit.milestone for hit in event.hits if hit.milestone}
        if not names:
            return
        if names & _SERVING:
            self.ready = True
        if Milestone.FIRST_ANSWER in names:
            self._last_answer = event.line.number
            self._stalled = 0
        if not names <= {Milestone.CACHE_SIGNAL, Milestone.LOAD_SEEN, Milestone.SHUTDOWN}:
            self._last_step = event.line.number
            self._waits = self._first_wait = self._last_wait = 0
            self._wait_began = self._wait_ended = None

    def _wait(self, line: LogLine) -> None:
        self._waits += 1
        self._last_wait = line.number
        self._first_wait = self._first_wait or line.number
        if line.time is not None:
            self._wait_began = self._wait_began or line.time
            self._wait_ended = line.time

    def _read_communicator(self, line: LogLine) -> None:
        self._last_communicator = line.number
        if not (found := _COMMUNICATOR.search(line.text)) or len(self._begun) + len(self._done) > _MOST_RANKS:
            return
        rank, self._ranks = int(found.group(1)), int(found.group(2))
        if found.group(3) == "START":
            # A communicator that is built later has the same ranks and begins anew.
            self._done.discard(rank)
            self._begun.add(rank)
            return
        self._done.add(rank)
        if folded := _FOLDED.search(line.text):
            self._folded += int(folded.group(1))

    def _read_request(self, line: LogLine) -> bool:
        if "request" not in line.text or not (found := _REQUEST.match(line.text)):
            return False
        what, names = found.group(1), [name.strip() for name in found.group(2).split(",")]
        if what != "Aborted":
            if line.time is not None and len(self._requests) < _MOST_REQUESTS:
                self._requests.setdefault(names[0], line.time)
            return False
        began = [stamp for name in names if (stamp := self._requests.pop(name, None))]
        spans = [measure_span(stamp, line.time)[0] for stamp in began if line.time is not None]
        return any(span is not None and span >= LONG_WAIT_S for span in spans)
