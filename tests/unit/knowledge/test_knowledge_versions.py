"""Whatever text an engine calls itself by, its release is known or said to be unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3lib.knowledge.versions import parse_release, version_facts

PREVIEW = "0.1.dev19262+gb6bbf29dd.d20260727"


@pytest.mark.parametrize(
    ("text", "public", "behaves_as", "local"),
    [
        ("0.33.0", "0.33.0", (0, 33), None),
        ("v0.28.0", "0.28.0", (0, 28), None),
        (" 0.32.0+cpu\n", "0.32.0", (0, 32), "cpu"),
        ("0.33.0+rehearsal", "0.33.0", (0, 33), "rehearsal"),
        ("0.27.1rc2", "0.27.1rc2", (0, 27), None),
        (PREVIEW, "0.1.dev19262", (0, 27), "gb6bbf29dd.d20260727"),
        ("0.1.dev19253+g5f76ae224.d20260727", "0.1.dev19253", (0, 27), "g5f76ae224.d20260727"),
        ("0.28.0rc1.dev123+gabc", "0.28.0rc1.dev123", (0, 28), "gabc"),
        ("0.7.3.post1", "0.7.3.post1", (0, 7), None),
        ("1.0", "1.0", (1, 0), None),
    ],
)
def test_releases(text: str, public: str, behaves_as: tuple[int, int], local: str | None) -> None:
    """The public part, the build label and the release it behaves as are read apart."""
    release = parse_release(text)
    assert (True, public, behaves_as, local) == (release.known, release.public, release.behaves_as, release.local)


def test_preview_says_why() -> None:
    """A preview image says as what it behaves; a development build between releases is one too, as itself."""
    assert "it behaves as 0.27" in (parse_release(PREVIEW).reason or "")
    assert parse_release(PREVIEW).development
    assert parse_release("0.33.1.dev5+g1").development
    assert parse_release("0.33.1.dev5+g1").reason is None


@pytest.mark.parametrize("text", ["", None, "latest", "0", "0.33.0-1", "33", "0.33.0+", "0.33.0 0.34.0", "v"])
def test_unknown(text: str | None) -> None:
    """Any other text is an unknown release with a reason, and proves nothing."""
    release = parse_release(text)
    assert not release.known
    assert release.reason
    assert release.same_public(parse_release("0.33.0")) is None
    assert release.within("0.29", None) is None
    assert release.within(None, None) is True


def test_order() -> None:
    """Releases sort by their public part: development, candidates, release, post-release."""
    ascending = [
        "latest",
        "0.27.0",
        "0.27.1.dev3",
        "0.27.1rc1",
        "0.27.1rc2",
        "0.27.1",
        "0.27.1.post1",
        "0.28.0",
        "0.100.0",
    ]
    assert ascending == [str(release) for release in sorted(map(parse_release, reversed(ascending)))]


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("0.32.0+cpu", "0.32.0", True),
        ("v0.33", "0.33.0+rehearsal", True),
        ("0.32.0", "0.32.1", False),
        ("0.27.1rc1", "0.27.1", False),
        (PREVIEW, PREVIEW, True),
        (PREVIEW, "0.1.dev19253+g5f76ae224.d20260727", False),
        ("0.32.0", "nightly", None),
    ],
)
def test_same_public(ours: str, theirs: str, same: bool | None) -> None:
    """The build label makes no other release, a commit between releases does, the unknown decides nothing."""
    assert parse_release(ours).same_public(parse_release(theirs)) is same
    assert parse_release(theirs).same_public(parse_release(ours)) is same


def test_rehearsal_is_recognised() -> None:
    """Only the stand-in is a rehearsal."""
    assert [True, False, False] == [parse_release(t).rehearsal for t in ("0.33.0+rehearsal", "0.33.0", "rehearsal")]


def test_range_includes_both_ends() -> None:
    """A range is one of minor releases; a candidate belongs to its own."""
    release = parse_release("0.28.0rc1")
    assert [True, True, False, False] == [
        release.within("0.28", None),
        release.within(None, "0.28"),
        release.within("0.29", None),
        release.within(None, "0.27"),
    ]


def test_looked_at_is_ascending() -> None:
    """The facts say up to which release anybody looked."""
    looked_at = version_facts().looked_at
    assert sorted(looked_at) == looked_at
    assert "0.33" == looked_at[-1]


@given(st.text() | st.from_regex(r"v?\d+\.\d+[a-z.+\d]{0,12}", fullmatch=True))
def test_never_raises(text: str) -> None:
    """A parser of foreign text never raises, and is known or has a reason."""
    release = parse_release(text)
    assert release.known or release.reason
    assert release.known == (release.order is not None) == (release.behaves_as is not None)
