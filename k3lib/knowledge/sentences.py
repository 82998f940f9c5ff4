"""The sentences of verdicts and checklist steps, as templates in two languages."""

from __future__ import annotations

from functools import cache

from k3lib.knowledge.data import malformed, read_knowledge


@cache
def load_sentences() -> dict[str, dict[str, dict[str, str]]]:
    """
    Templates by rule, case and key: `en`, `fr`, and perhaps `next_en`, `next_fr`.

    Raises:
        KnowledgeError: A case without one of its languages.
    """
    loaded = read_knowledge("sentences.yaml")
    for rule, cases in loaded.items():
        for case, entry in cases.items():
            if not {"en", "fr"} <= entry.keys() or ("next_en" in entry) != ("next_fr" in entry):
                raise malformed(
                    "sentences.yaml",
                    f"{rule}.{case} in en and fr, and both or neither of next_en and next_fr",
                    f"it has {', '.join(entry)}",
                )
    return loaded
