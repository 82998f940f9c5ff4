"""The sentences of verdicts and checklist steps, as templates in two languages."""

from __future__ import annotations

from functools import cache

from k3lib.knowledge.data import malformed, read_knowledge

_FILES = ("sentences.yaml", "sentences_compatibility.yaml", "sentences_doctor.yaml")


@cache
def load_sentences() -> dict[str, dict[str, dict[str, str]]]:
    """
    Templates by rule, case and key: `en`, `fr`, and perhaps `next_en`, `next_fr`.

    Raises:
        KnowledgeError: A case without one of its languages, or a rule in two files.
    """
    every: dict[str, dict[str, dict[str, str]]] = {}
    for file in _FILES:
        for rule, cases in read_knowledge(file).items():
            if rule in every:
                raise malformed(file, "each rule in one file", f"{rule} stands in another file too")
            for case, entry in cases.items():
                if not {"en", "fr"} <= entry.keys() or ("next_en" in entry) != ("next_fr" in entry):
                    raise malformed(
                        file,
                        f"{rule}.{case} in en and fr, and both or neither of next_en and next_fr",
                        f"it has {', '.join(entry)}",
                    )
            every[rule] = cases
    return every
