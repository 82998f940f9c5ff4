"""signatures.yaml: every wording is met by its sample, every advice is used, both languages are there."""

from __future__ import annotations

import re

import pytest

from k3lib.knowledge.signatures import SignKind, load_failures, match_signature, needles
from k3lib.spec.vocabulary import Phase

KNOWN = load_failures()
WORDINGS = [(signature, pattern) for signature in KNOWN.signatures for pattern in signature.patterns]
NAMES = [f"{signature.id}-{pattern.needle}" for signature, pattern in WORDINGS]


@pytest.mark.parametrize(("signature", "pattern"), WORDINGS, ids=NAMES)
def test_a_sample_is_met_by_its_own_signature_first(signature, pattern) -> None:  # type: ignore[no-untyped-def]
    """The literal is in it, the expression finds it, and no signature above takes it away."""
    assert pattern.needle in pattern.sample
    assert pattern.search(pattern.sample)
    match = match_signature(pattern.sample)
    assert match is not None
    assert signature.id == match.signature.id
    assert pattern.source


def test_every_needle_is_a_prefilter_s() -> None:
    """Nothing that a signature could meet is lost to a prefilter with these literals."""
    assert {pattern.needle for _, pattern in WORDINGS} <= set(needles())
    assert all(len(needle) >= 2 for needle in needles())


def test_what_can_be_the_root_says_where_it_leads() -> None:
    """A cause, symptom or request has a route, except the lack of GPU memory, whose route follows from its phase."""
    deciding = [s for s in KNOWN.signatures if s.kind not in (SignKind.WRAPPER, SignKind.HARMLESS)]
    assert ["gpu-out-of-memory"] == [s.id for s in deciding if s.route is None]
    assert [] == [s.id for s in deciding if s.domain is None or s.advice is None]


def test_every_text_stands_in_both_languages() -> None:
    """English and French, and not the same."""
    texts = [s.means for s in KNOWN.signatures]
    texts += [words for advice in KNOWN.advice.values() for words in (advice.next, advice.avoid) if words]
    assert [] == [t.en for t in texts if not t.en or not t.fr or t.en == t.fr]


def test_before_requests_exist_no_limit_of_requests_is_a_remedy() -> None:
    """The next step for weights that do not fit names neither length nor concurrency (R-02)."""
    step = KNOWN.advice["gpu-memory-weights"].next.en
    assert re.search(r"concurren|max_num_seqs|max_model_len|length", step) is None


def test_a_function_tells_one_phase() -> None:
    """No name stands under two phases, and each phase after the container has some."""
    names = [name for known in KNOWN.frames for name in known.functions]
    assert len(names) == len(set(names))
    assert {*Phase} - {Phase.CONTAINER} == {known.phase for known in KNOWN.frames}
