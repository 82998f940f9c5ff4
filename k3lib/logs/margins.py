"""
What a wrapper that nobody knows puts before every line, learned from the lines where the engine's own prefix follows.

Every tool that gathers logs has a head of its own. Where it stands before an engine's prefix its end is
plain; lines without one (exceptions, progress bars, native code) wear the same head, counts and clocks
aside, and lose it too:

    (engine) (APIServer pid=1) INFO 09-12 20:00:01 [startup.py:40] vLLM server version 0.29.1
    (engine) Loading safetensors checkpoint shards: 34% Completed | 33/96 [03:11<06:05, 5.80s/it]
    10:00:01 web.1  | (Worker_TP0 pid=300) INFO 09-12 20:00:53 [model_runner.py:399] Loading model from scratch...
    10:00:02 web.1  | RuntimeError: CUDA error: out of memory
"""

from __future__ import annotations

import re

_LONGEST = 120
_MOST_SHAPES = 64
_ENGINE = re.compile(
    r"\((?:[^\s=()]{1,120} )?(?:rank=\d+ )?pid=\d{1,10}(?:, ip=[^)\s]{1,80})?\)|\[rank\d{1,5}\]: ?"
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:\d{4}-)?\d{1,2}-\d{1,2} \d{1,2}:\d{2}:\d{2}"
    r"|(?:INFO: {5}|ERROR: {4}|WARNING: {2})\S|Traceback \(most recent call last\):$"
)
# A JSON object; a message that quotes a line of a log, or says what went wrong, before what only looks like a prefix.
_MESSAGE = re.compile(r"""^\{\s*"|['"`=(]$|(?i:error|exception|failed|killed|fault)|\S [$#] |^[$#] |\w, | \w+ing """)
_COUNT = re.compile(r" *\d+")


class Margin:
    """The unknown heads of one log, as far as it has been read."""

    def __init__(self) -> None:
        self._shapes: dict[str, re.Pattern[str]] = {}
        self._worn = self._bare = 0

    def find_end(self, text: str, at: int) -> int:
        """
        Where an unknown head that begins at `at` ends; `at` itself if there is none.

        >>> margin = Margin()
        >>> margin.find_end("(engine) (EngineCore pid=3) INFO 09-12 20:00:22 [core.py:140] hello", 0)
        9
        >>> margin.find_end("(engine) ValueError: no", 0), margin.find_end("ValueError: no", 0)
        (9, 0)
        """
        found = _ENGINE.search(text, at, at + _LONGEST)
        if found is None:
            return self._end_of_known(text, at)
        head = text[at : found.start()]
        if not head:
            self._bare += 1
            return at
        if (not head[-1].isspace() and head[-1] not in ":|>]") or _MESSAGE.search(head):
            return at
        self._worn += 1
        self._learn(head)
        return found.start()

    def note_bare(self) -> None:
        """Takes notice of a line on which nothing stands before the engine's own prefix."""
        self._bare += 1

    def _learn(self, head: str) -> None:
        shape = _COUNT.sub("0", head)
        if shape in self._shapes or len(self._shapes) >= _MOST_SHAPES:
            return
        body = head.rstrip()
        blank = f"(?:{re.escape(head[len(body) :])}|$)" if body != head else ""
        pattern = r" *\d+".join(map(re.escape, _COUNT.split(body))) + blank
        self._shapes[shape] = re.compile(pattern if body else re.escape(head))

    def _end_of_known(self, text: str, at: int) -> int:
        # A log that mostly goes without is not wrapped: what looked like a head was a part of a message.
        if self._worn <= self._bare:
            return at
        ends = (found.end() for shape in self._shapes.values() if (found := shape.match(text, at)))
        return max(ends, default=at)
