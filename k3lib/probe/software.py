"""Versions of the Python environments that run here, as their own interpreters tell them."""

from __future__ import annotations

import json
from typing import Any

from k3lib.probe.sources import Sources
from k3lib.spec.snapshot import Software


def read_software(sources: Sources) -> list[Software]:
    """
    Every environment that was asked, one that did not answer with its reason.

    Args:
        sources: A collection.
    """
    origins: dict[str, str] = sources.data("interpreters") or {}
    found = []
    for path, source in sources.named("python "):
        origin = origins.get(path, "unknown")
        answer = answer_of(source.text or "") if source.ok else None
        if answer is None:
            found.append(Software(python=path, origin=origin, reason=source.reason or "it printed no JSON"))
            continue
        torch = answer.get("torch") or {}
        found.append(
            Software(
                python=path,
                origin=origin,
                version=answer.get("version"),
                packages=answer.get("packages") or {},
                torch_cuda=torch.get("cuda"),
                torch_hip=torch.get("hip"),
            )
        )
    return found


def answer_of(text: str) -> dict[str, Any] | None:
    """The JSON on the last line of an interpreter's answer; a site's own start-up file can print before it."""
    lines = text.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
