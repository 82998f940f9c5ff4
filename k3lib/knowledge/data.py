"""Reading the YAML that ships inside this package, with four-line errors instead of tracebacks."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

from k3lib.errors import KnowledgeError

# libyaml reads these files ten times faster; a build of PyYAML without it still works.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_knowledge(name: str) -> dict[str, Any]:
    """
    One file of facts as plain data.

    Args:
        name: File name inside `k3lib/knowledge`, `hardware.yaml`.

    Returns:
        The top-level mapping.

    Raises:
        KnowledgeError: The file is missing, is not YAML, or is not a mapping.

    >>> sorted(read_knowledge("hardware.yaml"))
    ['gpus', 'machines']
    """
    try:
        data = yaml.load(files("k3lib.knowledge").joinpath(name).read_text("utf-8"), Loader=_LOADER)
    except (OSError, yaml.YAMLError) as error:
        raise malformed(name, "a readable YAML file", str(error).splitlines()[0]) from error
    if not isinstance(data, dict):
        raise malformed(name, "a mapping at the top", type(data).__name__)
    return data


def malformed(name: str, expected: str, evidence: str) -> KnowledgeError:
    """The error for a broken file of facts; the caller raises it."""
    return KnowledgeError(
        f"{name} is malformed", expected=expected, evidence=evidence, next=f"repair k3lib/knowledge/{name} or reinstall"
    )
