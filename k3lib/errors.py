"""The errors that are ours. An engine that dies is a result and never one of these."""

from __future__ import annotations


class K3Error(Exception):
    """
    We could not do our work; says so in four lines: what, expected, evidence, next.

    Args:
        what: What went wrong, one line, naming the thing.
        expected: What would have been right.
        evidence: What was seen, with file and line or value.
        next: What the reader should do.

    >>> print(SpecError("unknown key", expected="a", evidence="b", next="c"))
    SpecError: unknown key
      expected: a
      evidence: b
      next:     c
    """

    exit_code = 1

    def __init__(self, what: str, *, expected: str, evidence: str, next: str) -> None:
        super().__init__(_one_line(what))
        # Four lines stay four, whatever a value or another program's message holds.
        self.what, self.expected, self.evidence, self.next = map(_one_line, (what, expected, evidence, next))

    def __str__(self) -> str:
        return (
            f"{type(self).__name__}: {self.what}\n"
            f"  expected: {self.expected}\n"
            f"  evidence: {self.evidence}\n"
            f"  next:     {self.next}"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.expected, self.evidence, self.next)

    def as_dict(self) -> dict[str, str]:
        """The same four lines for `--json`, with the error's name."""
        return {
            "error": type(self).__name__,
            "what": self.what,
            "expected": self.expected,
            "evidence": self.evidence,
            "next": self.next,
        }


def _one_line(text: str) -> str:
    return " ".join(text.split("\n")) if "\n" in text else text


def _rebuild(kind: type[K3Error], what: str, expected: str, evidence: str, next_: str) -> K3Error:
    return kind(what, expected=expected, evidence=evidence, next=next_)


class SpecError(K3Error):
    """A parameter file, a setting or a request is not what it must be."""

    exit_code = 2


class InputError(K3Error):
    """A file or folder that we were pointed at cannot be read."""

    exit_code = 2


class LaunchError(K3Error):
    """No engine could be started, for a reason that is ours or the machine's; nothing is running."""

    exit_code = 2


class RecordError(K3Error):
    """An archive cannot be read or written."""

    exit_code = 1


class BusyError(K3Error):
    """Another run holds this campaign."""

    exit_code = 2


class GateClosed(K3Error):
    """The calendar does not allow this session yet."""

    exit_code = 3


class KnowledgeError(K3Error):
    """A file of facts that ships with the package is malformed."""

    exit_code = 1


class CapacityError(K3Error):
    """A number that a capacity formula cannot take."""

    exit_code = 2
