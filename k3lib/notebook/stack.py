"""The Jupyter libraries, imported late and without what they never use here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_UNUSED: Final = ("rfc3987_syntax", "isoduration")


@contextmanager
def quick_imports() -> Iterator[None]:
    """
    Imports inside skip two optional format checkers of jsonschema.

    nbformat imports jsonschema, which offers to check IRIs and durations if `rfc3987_syntax` and `isoduration` are
    there. Building the grammar of the first takes 1.1 s of the 1.7 s that `import papermill` needs; the second
    imports a calendar library. Notebooks hold neither, and jsonschema works without them.

    >>> with quick_imports():
    ...     import nbformat
    >>> None in (sys.modules.get("rfc3987_syntax", "absent"), sys.modules.get("isoduration", "absent"))
    False
    """
    hidden = [name for name in _UNUSED if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # how Python spells "no such module"
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
