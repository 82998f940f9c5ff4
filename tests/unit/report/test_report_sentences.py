"""Sentences: every case that a rule can reach can be said, in both languages."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import k3lib.judge
from k3lib.knowledge.sentences import load_sentences

ROOM = Path(k3lib.judge.__file__ or "").parent


def reachable() -> set[tuple[str, str]]:
    """Rule and case as they stand in the source of judge/: every string that is passed or assigned as a case."""
    found = set()
    for file in ROOM.glob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            rules = {
                node.value.value
                for node in ast.walk(function)
                if isinstance(node, ast.keyword) and node.arg == "rule" and isinstance(node.value, ast.Constant)
            }
            values = [n.value for n in ast.walk(function) if isinstance(n, ast.keyword) and n.arg == "case"]
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).strip("(").split(",")[0] == "case":
                    values.append(node.value.elts[0] if isinstance(node.value, ast.Tuple) else node.value)
            cases = {
                branch.value
                for value in values
                for branch in [value, *_branches(value)]
                if isinstance(branch, ast.Constant) and isinstance(branch.value, str)
            }
            found |= {(rule, case) for rule in rules for case in cases}
    return found


def _branches(value: ast.expr) -> list[ast.expr]:
    """What `a if x else b if y else c` can give."""
    if not isinstance(value, ast.IfExp):
        return []
    return [value.body, value.orelse, *_branches(value.body), *_branches(value.orelse)]


def test_the_walk_finds_rules() -> None:
    """The reader of the source sees the rules it is meant to see."""
    assert {("start.trials", "none"), ("start.trials", "mixed"), ("start.cache_said", "unsaid")} <= reachable()
    assert len({rule for rule, _ in reachable()}) >= 8


@pytest.mark.parametrize(("rule", "case"), sorted(reachable()))
def test_every_case_has_its_sentences(rule: str, case: str) -> None:
    """A case without a sentence would break the record on the day it happens."""
    assert {"en", "fr"} <= load_sentences()[rule][case].keys()
