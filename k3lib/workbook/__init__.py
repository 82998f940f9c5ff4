"""Composes the rooms: what notebooks and commands call."""

from k3lib.workbook.opening import open_stage
from k3lib.workbook.stage import Stage

__all__ = ["Stage", "open_stage"]
