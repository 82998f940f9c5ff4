"""Facts in, sentences out, in English or French."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from jinja2 import Environment, StrictUndefined

from k3lib.knowledge.sentences import load_sentences
from k3lib.spec.vocabulary import Outcome

if TYPE_CHECKING:
    from k3lib.judge.checklist import ChecklistItem
    from k3lib.judge.verdict import Verdict

Language = Literal["en", "fr"]

_TOPICS = {
    "poc.api": ("API compatibility", "la compatibilité de l’API"),
    "poc.rendering": ("rendering of the messages", "le rendu des messages"),
    "poc.tool_call": ("one tool call", "un appel d’outil"),
    "poc.coherence": ("coherence over two turns", "la cohérence sur deux tours"),
}


def render_verdict(verdict: Verdict, language: Language = "en") -> tuple[str, str]:
    """
    A verdict's sentence and its next step.

    Args:
        verdict: The finding.
        language: `en` or `fr`.

    Returns:
        The sentence, and the next step or an empty text.
    """
    sentences = load_sentences()
    entry = sentences["any"]["broken"] if verdict.outcome is Outcome.ERROR else sentences[verdict.rule][verdict.case]
    facts = dict(verdict.facts)
    if verdict.rule in _TOPICS:
        facts["what_en"], facts["what_fr"] = _TOPICS[verdict.rule]
    if "evidence" in facts:  # a rule that was not judged names what is missing; here stands how to get it
        facts["missing"], facts["how"] = render_case("evidence", facts["evidence"], facts, language)
    return fill(entry[language], facts), fill(entry.get(f"next_{language}", ""), facts)


def render_case(rule: str, case: str, facts: dict[str, Any], language: Language = "en") -> tuple[str, str]:
    """
    The sentence of one case, and its next step or an empty text.

    Raises:
        KeyError: There is no such case.
    """
    entry = load_sentences()[rule][case]
    return fill(entry[language], facts), fill(entry.get(f"next_{language}", ""), facts)


def render_word(topic: str, word: str, language: Language = "en", **facts: Any) -> str:
    """A word or heading of a topic, `word.severity`."""
    return render_case(f"word.{topic}", word, facts, language)[0]


def write_out(verdict: Verdict) -> Verdict:
    """The verdict with its English sentence and next step in it, as a record keeps it."""
    sentence, next_step = render_verdict(verdict)
    return verdict.model_copy(update={"sentence": sentence, "next": next_step})


def render_step(item: ChecklistItem, language: Language = "en") -> str:
    """The sentence of one step of the checklist."""
    return fill(load_sentences()[f"step.{item.key}"][item.case][language], item.facts)


def fill(template: str, facts: dict[str, Any]) -> str:
    """A template with its facts filled in, on one line; a fact that it lacks is an error."""
    return " ".join(_compile(template).render(facts).split())


@cache
def _compile(template: str) -> Any:
    return _environment().from_string(template)


@cache
def _environment() -> Environment:
    # Plain text: whoever puts a sentence into HTML escapes it there.
    environment = Environment(undefined=StrictUndefined, autoescape=False)
    environment.filters["part"] = lambda value: "unknown" if value is None else f"{value:.2f}"
    environment.filters["first_up"] = lambda text: text[:1].upper() + text[1:]
    return environment
