"""Which of many literal texts a message holds, in one pass, so that knowing more wordings costs nothing."""

from __future__ import annotations

import hyperscan


class Literals:
    """
    Many texts to be found in short messages. Not for several threads at once.

    Args:
        texts: Case-sensitive; the same text may stand there more than once.

    >>> Literals(["memory", "CUDA", "memory"]).find("CUDA out of memory, host memory too")
    [0, 1, 2]
    """

    def __init__(self, texts: list[str]) -> None:
        places: dict[str, list[int]] = {}
        for i, text in enumerate(texts):
            places.setdefault(text, []).append(i)
        self._places = list(places.values())
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        if places:
            self._database.compile(
                [text.encode() for text in places],
                ids=list(range(len(places))),
                elements=len(places),
                flags=hyperscan.HS_FLAG_SINGLEMATCH,
                literal=True,
            )

    def find(self, message: str) -> list[int]:
        """The positions of the texts that the message holds, ascending."""
        found: list[int] = []
        if self._places and message:
            self._database.scan(
                message.encode("utf-8", "replace"),
                match_event_handler=lambda i, _from, _to, _flags, _context: found.extend(self._places[i]),
            )
        return sorted(found)
