"""
The release of an engine, read from whatever text it calls itself by.

Input comes from `vllm --version`, from `/version` and from a log's banner. Seen:
    0.33.0                                    a release
    0.32.0+cpu                                the same release, CPU build
    0.33.0+rehearsal                          the stand-in
    0.27.1rc2                                 a release candidate
    0.1.dev19262+gb6bbf29dd.d20260727         the Kimi K3 preview image, a build of the 0.27 line
An empty text, or any other, is an unknown release with its reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from pydantic import Field

from k3lib.knowledge.package_data import read_facts
from k3lib.spec.model import Strict

Minor = tuple[int, int]

_RELEASE = re.compile(
    r"v?(?P<numbers>\d{1,6}(?:\.\d{1,6}){1,3})(?:\.?(?P<pre>a|b|rc)(?P<pre_number>\d{1,6}))?"
    r"(?:\.post(?P<post>\d{1,6}))?(?P<dev>\.dev\d*)?(?:\+(?P<local>[A-Za-z0-9._-]+))?"
)
_REHEARSAL = "rehearsal"


class Preview(Strict):
    """
    A line of builds whose own number says nothing.

    Args:
        public: The number they carry.
        behaves_as: The minor release they are a build of.
        source: Who saw such a build.
    """

    public: str
    behaves_as: str
    source: str


class VersionFacts(Strict):
    """
    What is known about releases.

    Args:
        schema_version: Of the file.
        dated: The day of the last look, ISO 8601.
        preview: The preview builds.
        looked_at: Minor releases whose arguments and defaults were looked at, ascending.
    """

    schema_version: int
    dated: str
    preview: Preview
    looked_at: list[str] = Field(min_length=1)


@dataclass(frozen=True)
class Release:
    """
    One release of an engine; two are compared by their public part.

    Args:
        text: As the engine gave it.
        public: `0.32.0`, without build labels; None where the text is no release.
        order: Numbers that sort public releases, None where the text is no release.
        behaves_as: Minor release that says which arguments and defaults hold, None where unknown.
        development: A build between releases.
        local: The build label, `cpu`, or None.
        reason: Why it is unknown, or why it behaves as another release; None where nothing is to say.
    """

    text: str
    public: str | None = None
    order: tuple[int, ...] | None = None
    behaves_as: Minor | None = None
    development: bool = False
    local: str | None = None
    reason: str | None = None

    @property
    def known(self) -> bool:
        """True if the text is a release."""
        return self.public is not None

    @property
    def rehearsal(self) -> bool:
        """True for the stand-in engine."""
        return self.local is not None and _REHEARSAL in self.local.split(".")

    def same_public(self, other: Release) -> bool | None:
        """
        Whether both are one public release; None where either is unknown, which proves nothing.

        >>> parse_release("0.32.0+cpu").same_public(parse_release("0.32.0"))
        True
        """
        if not (self.known and other.known):
            return None
        if self.development or other.development:
            return self.text.removeprefix("v") == other.text.removeprefix("v")
        return self.order == other.order

    def within(self, since: str | None, until: str | None) -> bool | None:
        """
        Whether its minor release lies in a range, both ends included; None where it is unknown.

        >>> parse_release("0.28.1").within("0.28", None), parse_release("0.28.1").within(None, "0.27")
        (True, False)
        """
        if since is None and until is None:
            return True
        if self.behaves_as is None:
            return None
        after = since is None or self.behaves_as >= parse_minor(since)
        return after and (until is None or self.behaves_as <= parse_minor(until))

    def __lt__(self, other: Release) -> bool:
        """By public release; an unknown one comes first."""
        return (self.order or ()) < (other.order or ())

    def __str__(self) -> str:
        return self.text or "unknown"


@cache
def version_facts() -> VersionFacts:
    """The dated facts about releases that ship with this package."""
    return read_facts("versions.yaml", VersionFacts)


def parse_release(text: str | None) -> Release:
    """
    The release that a text names; never raises.

    Args:
        text: As the engine gave it; None where it gave none.

    >>> parse_release("0.32.0+cpu").public, parse_release("0.27.1rc2") < parse_release("0.27.1")
    ('0.32.0', True)
    >>> parse_release("0.1.dev19262+gb6bbf29dd.d20260727").behaves_as
    (0, 27)
    >>> parse_release("latest").reason
    "'latest' is not a release number"
    """
    given = (text or "").strip()
    match = _RELEASE.fullmatch(given)
    if match is None:
        return Release(given, reason=f"{given[:80]!r} is not a release number" if given else "no version was given")
    numbers = tuple(int(number) for number in match["numbers"].split("."))
    development = match["dev"] is not None
    preview = version_facts().preview
    is_preview = development and numbers == tuple(int(number) for number in preview.public.split("."))
    return Release(
        text=given,
        public=_public_text(match),
        order=_order(numbers, match),
        behaves_as=parse_minor(preview.behaves_as) if is_preview else (numbers[0], numbers[1]),
        development=development,
        local=match["local"],
        reason=f"a preview build; it behaves as {preview.behaves_as} ({preview.source})" if is_preview else None,
    )


def parse_minor(text: str) -> Minor:
    """
    A minor release of a file of facts as two numbers that compare.

    >>> parse_minor("0.28")
    (0, 28)
    """
    major, minor = text.split(".")
    return int(major), int(minor)


def _public_text(match: re.Match[str]) -> str:
    pre = f"{match['pre']}{match['pre_number']}" if match["pre"] else ""
    post = f".post{match['post']}" if match["post"] else ""
    return f"{match['numbers']}{pre}{post}{match['dev'] or ''}"


def _order(numbers: tuple[int, ...], match: re.Match[str]) -> tuple[int, ...]:
    padded = (*numbers, 0, 0, 0)[:4]
    stages = {"a": 1, "b": 2, "rc": 3}
    stage = (stages[match["pre"]], int(match["pre_number"])) if match["pre"] else (0 if match["dev"] else 4, 0)
    post = int(match["post"]) + 1 if match["post"] else 0
    return (*padded, *stage, post, 0 if match["dev"] else 1)
