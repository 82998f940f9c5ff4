"""A file of facts as a strict model: what a person's file must satisfy, our own must too."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from k3lib.errors import SpecError
from k3lib.knowledge.data import malformed, read_knowledge
from k3lib.spec.validation import load_model

FactsT = TypeVar("FactsT", bound=BaseModel)


def read_facts(name: str, model_class: type[FactsT]) -> FactsT:
    """
    One file of facts that ships with this package.

    Args:
        name: File name inside k3lib/knowledge, `settings.yaml`.
        model_class: The strict model that it must fill.

    Raises:
        KnowledgeError: The file is absent or malformed; the installation is broken, not the reader's input.
    """
    try:
        return load_model(model_class, read_knowledge(name), source=f"k3lib/knowledge/{name}")
    except SpecError as problem:
        raise malformed(name, problem.expected, f"{problem.what}: {problem.evidence}") from problem
