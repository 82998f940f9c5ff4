"""
YAML as parameter files use it: one mapping, no duplicate key, no anchor, no tag.

PyYAML keeps the last of two equal keys without a word, and an alias can blow a kilobyte up to
gigabytes. papermill reads the same files with plain PyYAML, so the values here are the same; the
strict models then refuse what YAML 1.1 turned into something else (`1e3` is a string there).
"""

from __future__ import annotations

from typing import Any

import yaml

from k3lib.errors import SpecError

_MOST_BYTES = 1_000_000


def parse_yaml(text: str, source: str) -> dict[str, Any]:
    """
    The mapping that a parameter file holds.

    Args:
        text: The file's text, at most 1 MB.
        source: Its name, for the error.

    Returns:
        Plain dictionaries, lists and scalars.

    Raises:
        SpecError: Not YAML, not a mapping, a duplicate key, an anchor, a tag, or too long.

    >>> parse_yaml("a: 1\\nb: [x, true]", "p.yaml")
    {'a': 1, 'b': ['x', True]}
    """
    if len(text) > _MOST_BYTES:
        raise _error(f"{source} is too long for a parameter file", "at most 1 MB", f"{len(text)} characters")
    try:
        _refuse_aliases(text, source)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            return {}
        _refuse_oddities(node, source, "")
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise _error(f"{source} is not YAML", "a YAML mapping", " ".join(str(problem).split())) from None
    if not isinstance(value, dict):
        raise _error(f"{source} holds no mapping", "lines of the form `key: value`", f"a {type(value).__name__}")
    return value


def _refuse_aliases(text: str, source: str) -> None:
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise _error(f"{source}:{line} holds an anchor or alias", "every value written out", f"line {line}")


def _refuse_oddities(node: yaml.Node, source: str, path: str) -> None:
    line = node.start_mark.line + 1
    if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.startswith("tag:yaml.org,2002:python"):
        raise _error(f"{source}:{line} holds the tag {node.tag}", "plain values", f"at {path or 'the top'}")
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            _refuse_oddities(child, source, f"{path}[{index}]")
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, child in node.value:
            name = str(key.value)
            here = key.start_mark.line + 1
            if name in seen:
                raise _error(
                    f"{source}:{here} holds the key {path + '.' if path else ''}{name} twice",
                    "each key once",
                    f"lines {seen[name]} and {here}",
                )
            seen[name] = here
            _refuse_oddities(child, source, f"{path}.{name}" if path else name)


def _error(what: str, expected: str, evidence: str) -> SpecError:
    return SpecError(what, expected=expected, evidence=evidence, next="correct the file and run again")
