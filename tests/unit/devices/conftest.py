"""Pretend machines for this room."""

from fakes.library import library

__all__ = ["library"]
