"""
Where something ran: fields split into identity (must match inside a series), factor (may differ by one) and noise.

A field is a flat name and a JSON value. Names of another view than the main host's begin with that view:
`container/driver.module`, `node-2/gpus`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import Field

from k3lib.spec.model import Fact


class Fingerprint(Fact):
    """
    Where something ran.

    Args:
        identity: Must match inside a series.
        factor: May differ by one between two sessions.
        noise: Ignored by the hash; conditions such as throttled clocks are read from it.
        reasons: For each field that is None, why.
        taken_at: Wall clock, ISO 8601 with offset, or None where the source does not say.

    >>> here = Fingerprint(identity={"gpus": None, "engine.release": "0.33.0"}, noise={"load": 1.5})
    >>> here.digest == here.model_copy(update={"noise": {}}).digest
    True
    >>> here.digest == here.model_copy(update={"identity": {"engine.release": "0.32.0"}}).digest
    False
    """

    identity: dict[str, Any] = Field(default_factory=dict)
    factor: dict[str, Any] = Field(default_factory=dict)
    noise: dict[str, Any] = Field(default_factory=dict)
    reasons: dict[str, str] = Field(default_factory=dict)
    taken_at: str | None = None

    def compared(self) -> dict[str, Any]:
        """What takes part in a comparison: identity and factor, without what is absent."""
        return {name: value for name, value in (self.identity | self.factor).items() if value is not None}

    def canonical(self) -> bytes:
        """The same facts are the same bytes, in whatever order they were collected."""
        return canonical_json(self.compared())

    @property
    def digest(self) -> str:
        """SHA-256 of `canonical`, 64 hex digits."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def value(self, name: str) -> Any:
        """A field's value, wherever it stands; None if it is absent."""
        return next((part[name] for part in (self.identity, self.factor, self.noise) if name in part), None)

    def views(self) -> list[str]:
        """The views that left a field, the main host's (`""`) first."""
        names = [*self.identity, *self.factor, *self.noise]
        return sorted({view_of(name) for name in names} | {""})


def canonical_json(value: object) -> bytes:
    """
    JSON with sorted keys and no spaces, so that equal values are equal bytes.

    >>> canonical_json({"b": [1, "é"], "a": None})
    b'{"a":null,"b":[1,"\\xc3\\xa9"]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def view_of(name: str) -> str:
    """
    The view that a field belongs to, empty for the main host's.

    >>> view_of("container/driver.module"), view_of("driver.module"), view_of("mount./models/k3")
    ('container', '', '')
    """
    view, slash, _ = name.partition("/")
    return view if slash and "." not in view else ""


def plain_name(name: str) -> str:
    """
    A field's name without its view.

    >>> plain_name("node-2/gpus")
    'gpus'
    """
    view = view_of(name)
    return name.removeprefix(f"{view}/") if view else name
