"""Composes the rooms: what notebooks and commands call."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from k3lib.workbook.opening import open_stage
    from k3lib.workbook.stage import Stage

__all__ = ["Stage", "open_stage"]
_HOMES = {"Stage": "k3lib.workbook.stage", "open_stage": "k3lib.workbook.opening"}


def __getattr__(name: str) -> object:
    # Looked up when asked for: a command that needs one module of this room does not wait half a second for all.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
