"""From the collector's JSON to a `Snapshot`: every part is read alone, and one that breaks says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from pydantic import ValidationError

from k3lib.errors import InputError
from k3lib.probe.changes import read_changes, read_kernel_events, read_restarters
from k3lib.probe.containers import read_containers
from k3lib.probe.drivers import read_drivers
from k3lib.probe.gpu_processes import read_gpu_processes
from k3lib.probe.gpus import find_disagreements, read_gpus
from k3lib.probe.host import read_booted_at, read_host, read_place
from k3lib.probe.interconnect import read_interconnect
from k3lib.probe.software import read_software
from k3lib.probe.sources import Sources
from k3lib.probe.variables import read_variables, read_visibility
from k3lib.spec.accelerators import Interconnect
from k3lib.spec.snapshot import Collected, Host, Place, Snapshot, Source

FORMAT = 1
_PartT = TypeVar("_PartT")


def parse_collected(content: bytes | str, name: str) -> Collected:
    """
    Reads the collector's JSON.

    Args:
        content: What it printed.
        name: Where it is from, for the error.

    Returns:
        The collection.

    Raises:
        InputError: It is no output of the collector, or of a later one than this release reads.
    """
    try:
        found = Collected.model_validate(json.loads(content))
    except (ValueError, RecursionError, ValidationError) as problem:
        raise _unreadable(name, str(problem).splitlines()[0]) from problem
    # A snapshot of nothing must never pass for a machine without faults.
    if not found.sources:
        raise _unreadable(name, "it holds no source")
    if found.collector > FORMAT:
        raise _unreadable(name, f"its format is {found.collector}")
    return found


def _unreadable(name: str, evidence: str) -> InputError:
    return InputError(
        f"{name} is no output of the collector",
        expected=f"the JSON that collector.py prints, format {FORMAT} or before",
        evidence=evidence,
        next="k3 doctor --script > collector.py; python3 collector.py > host.json; k3 doctor --from host.json",
    )


def read_snapshot(collected: Collected) -> Snapshot:
    """
    What a collection says of its place.

    Args:
        collected: The collector's JSON.

    Returns:
        The snapshot; a part that cannot be read is None or empty, with the reason under its name.
    """
    sources, reasons = Sources(collected), dict[str, str]()

    def part(name: str, read: Callable[[], _PartT]) -> _PartT | None:
        try:
            return read()
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, ValidationError) as problem:
            reasons[name] = f"what was collected cannot be read: {type(problem).__name__}: {problem}".splitlines()[0]
            return None

    booted_at = part("host.booted_at", lambda: read_booted_at(sources))
    gpus = part("gpus", lambda: read_gpus(sources, reasons))
    containers = part("containers", lambda: read_containers(sources, reasons))
    events = part("kernel_events", lambda: read_kernel_events(sources, reasons))
    return Snapshot(
        taken_at=collected.taken_at,
        took_s=collected.took_s,
        as_root=None if collected.uid is None else collected.uid == 0,
        place=part("place", lambda: read_place(sources)) or Place(kind="host", because=["the signs cannot be read"]),
        host=part("host", lambda: read_host(sources, reasons)) or Host(),
        drivers=part("drivers", lambda: read_drivers(sources)) or [],
        gpus=gpus,
        gpu_processes=part("gpu_processes", lambda: read_gpu_processes(sources, booted_at, reasons)),
        disagreements=part("disagreements", lambda: find_disagreements(sources)) or [],
        interconnect=part("interconnect", lambda: read_interconnect(sources, reasons)) or Interconnect(),
        containers=containers,
        variables=part("variables", lambda: read_variables(sources)) or [],
        visibility=part("visibility", lambda: read_visibility(sources, gpus)) or [],
        software=part("software", lambda: read_software(sources)) or [],
        kernel_events=events,
        changes=part("changes", lambda: read_changes(sources, containers, events)) or [],
        restarters=part("restarters", lambda: read_restarters(sources, containers)) or [],
        reasons=reasons,
        root_would_add=[source.asked for source in collected.sources.values() if source.root_would_help],
        sources={name: _without_text(source) for name, source in collected.sources.items()},
    )


def _without_text(source: Source) -> Source:
    return source.model_copy(update={"text": None, "data": None})
