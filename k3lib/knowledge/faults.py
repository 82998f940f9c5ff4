"""What strikes a rehearsed engine from outside its own arithmetic, typed; the wording is in `rehearsal_faults.yaml`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from k3lib.knowledge.data import malformed, read_knowledge

_FILE = "rehearsal_faults.yaml"
_POINTS = frozenset({"detect", "device", "communicator", "shards", "step"})
_KINDS = frozenset({"error", "hang", "kill"})


@dataclass(frozen=True)
class Fault:
    """
    One fault.

    Args:
        name: As a scenario names it.
        point: When it strikes: `detect`, `device`, `communicator`, `shards` or `step`.
        kind: `error` with a traceback, `hang` without a word, or `kill` of a worker.
        ranks: `all`, or `one` by the seed.
        source: Where the wording was read.
        stack: Name of the frames of the traceback; empty where there is none.
        before: Lines that a library prints ahead of it.
        error: Last line of the traceback.
        after: Last line on the ranks that fail because of it; empty where they do not.
        kernel: What the kernel's log says of it.
    """

    name: str
    point: str
    kind: str
    ranks: str
    source: str
    stack: str = ""
    before: tuple[str, ...] = ()
    error: str = ""
    after: str = ""
    kernel: tuple[str, ...] = ()


def find_fault(name: str) -> Fault:
    """
    One fault.

    Raises:
        KnowledgeError: No such fault, or its entry is malformed.

    >>> find_fault("driver-too-old").point
    'device'
    """
    entry: Any = read_knowledge(_FILE).get(name)
    known = ", ".join(field.name for field in fields(Fault))
    try:
        lists = {key: tuple(entry.get(key, ())) for key in ("before", "kernel")}
        fault = Fault(name=name, **{**entry, **lists})
    except (AttributeError, TypeError) as error:
        raise malformed(_FILE, f"{name} with {known}", str(error)) from error
    if fault.point not in _POINTS or fault.kind not in _KINDS or fault.ranks not in {"one", "all"}:
        raise malformed(_FILE, f"{name}: a known point, kind and ranks", f"{fault.point}, {fault.kind}, {fault.ranks}")
    if fault.kind == "error" and not (fault.error and fault.stack):
        raise malformed(_FILE, f"{name}: error and stack", "one of them is empty")
    return fault
