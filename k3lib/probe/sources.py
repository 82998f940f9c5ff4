"""The sources of a collection, asked by name: a text, a structured answer, or the reason why there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from k3lib.spec.snapshot import Collected, Source


class Sources:
    """
    What one run of the collector holds.

    Args:
        collected: Its JSON.
    """

    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    @property
    def collected(self) -> Collected:
        """The whole."""
        return self._collected

    def ok(self, name: str) -> bool:
        """Whether a source answered."""
        found = self._collected.sources.get(name)
        return found is not None and found.ok

    def text(self, name: str) -> str:
        """What a source printed, if it answered; empty otherwise."""
        found = self._collected.sources.get(name)
        return found.text or "" if found is not None and found.ok else ""

    def said(self, name: str) -> str:
        """Everything a source printed, its complaint too."""
        found = self._collected.sources.get(name)
        return "" if found is None else f"{found.text or ''}\n{found.reason or ''}"

    def line(self, name: str) -> str | None:
        """The first line of a small file, or None."""
        return next((line.strip() for line in self.text(name).splitlines() if line.strip()), None)

    def data(self, name: str) -> Any:
        """A structured answer, or None."""
        found = self._collected.sources.get(name)
        return found.data if found is not None and found.ok else None

    def json(self, name: str) -> Any:
        """A text read as JSON, or None."""
        try:
            return json.loads(self.text(name))
        except ValueError:
            return None

    def reason(self, name: str) -> str:
        """Why a source did not answer."""
        found = self._collected.sources.get(name)
        if found is None:
            return f"{name} was not asked"
        return f"{found.asked}: {found.reason or 'it answered nothing'}"

    def named(self, prefix: str) -> Iterator[tuple[str, Source]]:
        """Sources whose name begins so, with the rest of the name."""
        for name, source in self._collected.sources.items():
            if name.startswith(prefix):
                yield name[len(prefix) :], source
