"""
From plain data to a strict model, and from pydantic's complaint to the project's four lines.

Every file a person writes passes here once, so that a misspelt key reads the same in a campaign, a
session and a request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, datetime
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from k3lib.errors import SpecError

ModelT = TypeVar("ModelT", bound=BaseModel)

_NEXT = "correct the file and run again"
_LONGEST_VALUE = 120
_WHOLE = "the file"


def load_model(model_class: type[ModelT], data: dict[str, Any], *, source: str) -> ModelT:
    """
    The model that plain data describes.

    The data is read as JSON would be: an enumeration takes its value as text, nothing else is
    converted, and the order of keys in free-form parts is kept.

    Args:
        model_class: The model to fill.
        data: Mapping as a YAML or JSON file gives it.
        source: The file's name, for the error.

    Returns:
        The model, validated.

    Raises:
        SpecError: The first thing that is wrong, with its key path and, for a misspelt key or
            word, the nearest valid one. Says how many others there are.

    >>> from k3lib.spec.campaign import ModelSource
    >>> load_model(ModelSource, {"name": "m"}, source="campaign.yaml").name
    'm'
    """
    try:
        return model_class.model_validate_json(json.dumps(data, default=_date_as_text, allow_nan=False))
    except ValidationError as problem:
        raise _as_spec_error(problem, model_class, data, source) from None
    except (TypeError, ValueError, RecursionError) as problem:
        raise SpecError(
            f"{source} holds a value that no parameter can have",
            expected="text, numbers, true or false, lists and mappings",
            evidence=_one_line(problem),
            next=_NEXT,
        ) from None


def refuse(what: str, *, expected: str, next: str = _NEXT) -> PydanticCustomError:
    """
    What a validator raises when it knows better than a type does; `load_model` keeps its words.

    Args:
        what: What is wrong, without the key, which is added.
        expected: What would have been right.
        next: What the reader should do.

    Returns:
        The error to raise inside a pydantic validator.
    """
    return PydanticCustomError("refused", "{what}", {"what": what, "expected": expected, "next": next})


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """
    The valid word that the reader most likely meant.

    Args:
        word: What was written.
        valid: What could have been written.

    Returns:
        The nearest one, or None if nothing is near.

    >>> nearest("max_tokns", ["max_tokens", "seed"])
    'max_tokens'
    >>> nearest("xyz", ["max_tokens", "seed"])
    """
    found = get_close_matches(word, list(valid), n=1, cutoff=0.6)
    return found[0] if found else None


def _as_spec_error(
    problem: ValidationError, model_class: type[BaseModel], data: dict[str, Any], source: str
) -> SpecError:
    errors = problem.errors(include_url=False)
    # A value that fits no member of a union is reported once per member; the deepest one is the one that was meant.
    first = max(errors, key=lambda error: (error["type"] == "refused", _path_in(data, error["loc"]).count(".")))
    path = _path_in(data, first["loc"])
    what, expected, next_step = _explain(first, path, model_class)
    others = {_path_in(data, error["loc"]) for error in errors} - {path}
    return SpecError(
        f"{source}: {what}" + (f" (and {len(others)} more)" if others else ""),
        expected=expected,
        evidence=_evidence(first, path),
        next=next_step,
    )


def _explain(error: ErrorDetails, path: str, model_class: type[BaseModel]) -> tuple[str, str, str]:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        valid = _fields_at(model_class, error["loc"][:-1])
        meant = nearest(str(error["loc"][-1]), valid)
        next_step = f"write {meant}, or take the key out" if meant else _NEXT
        return f"unknown key {path}", meant or "one of " + ", ".join(valid), next_step
    if kind == "missing":
        return f"{path} is missing", f"a value for {path}", _NEXT
    if kind == "refused":
        place = "" if path == _WHOLE else f"{path}: "
        return f"{place}{context['what']}", context["expected"], context["next"]
    if kind in ("enum", "literal_error"):
        words = [word for word in context["expected"].split("'") if word.strip(" ,or")]
        meant = nearest(str(error["input"]), words)
        next_step = f"write {meant}" if meant else _NEXT
        return f"{path} is not one of its words", context["expected"], next_step
    if kind in ("int_type", "float_type", "finite_number") and isinstance(error["input"], str):
        return f"{path} is text", "a number", "take the quotes away; YAML reads 1e3 as text, so write 1000"
    return f"{path} is not valid", _one_line(error["msg"]).removeprefix("Input should be "), _NEXT


def _fields_at(model_class: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Names that would be valid at a place, found by walking the annotations."""
    here = [model_class]
    for step in location:
        inside = [model for parent in here if step in parent.model_fields for model in _models_in(parent, str(step))]
        here = inside or here  # a list index, a dictionary key or the tag of a union leads to no other model
    return sorted({name for model in here for name in model.model_fields})


def _models_in(parent: type[BaseModel], field: str) -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []
    annotations: list[Any] = [parent.model_fields[field].annotation]
    while annotations:
        annotation = annotations.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found.append(annotation)
        annotations.extend(get_args(annotation))
    return found


def _evidence(error: ErrorDetails, path: str) -> str:
    if error["type"] == "missing" or path == _WHOLE:
        keys = ", ".join(map(str, error["input"])) if isinstance(error["input"], dict) else ""
        return f"the keys there are {keys}" if keys else "nothing is there"
    value = json.dumps(error["input"], ensure_ascii=False, default=str)
    shown = value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"
    return f"{path} = {shown}"


def _path_in(data: object, location: tuple[int | str, ...]) -> str:
    """The dotted path of an error, without the labels pydantic adds for the members of a union."""
    path = ""
    for step in location:
        if isinstance(data, list) and isinstance(step, int):
            path += f"[{step}]"
            data = data[step]
        elif isinstance(data, dict) and isinstance(step, str):
            if step not in data and step != location[-1]:
                continue
            path += f".{step if step.isprintable() else repr(step)}"
            data = data.get(step)
    return path.removeprefix(".") or _WHOLE


def _one_line(problem: object) -> str:
    return " ".join(str(problem).split())


def _date_as_text(value: object) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} has no place in a parameter file")
