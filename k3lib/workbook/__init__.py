"""Composes the rooms: what notebooks and commands call."""

from k3lib.workbook.stage import Stage, open_stage

__all__ = ["Stage", "open_stage"]
