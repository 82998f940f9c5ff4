"""
`make accuracy`: how many cases of tests/cases/triage are answered as labelled, per field, every miss named.

    .venv/bin/python tests/bench/accuracy.py [folder with cases]

Ends with 1 if a field of a case is missed, or if a failure of the memory phase is called one of serving.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from k3lib.spec.vocabulary import Phase
from k3lib.workbook.triage import Triage, triage

FIELDS = ("failed", "phase", "first error line", "oom", "route")
CASES = Path(__file__).parents[1] / "cases" / "triage"


def read_answer(answer: Triage) -> dict[str, Any]:
    """The scored fields of an answer."""
    failure = answer.failure
    return {
        "failed": failure.failed,
        "phase": failure.phase.value if failure.phase else None,
        "first error line": failure.first_error.line if failure.first_error else None,
        "oom": failure.oom.value,
        "route": failure.route.value,
    }


def main(folder: Path) -> int:
    """Prints the score; 0 if nothing was missed."""
    names = sorted(place.name for place in folder.iterdir() if (place / "expected.yaml").exists())
    hits, asked, misses = Counter[str](), Counter[str](), []
    confusion: Counter[tuple[str, str]] = Counter()
    began = time.perf_counter()
    for name in names:
        label = yaml.safe_load((folder / name / "expected.yaml").read_text("utf-8"))
        evidence = folder / name / "evidence"
        got = read_answer(triage(str(evidence if evidence.is_dir() else folder / name / "engine.log")))
        confusion[str(label["phase"][0]), str(got["phase"])] += 1
        for field in FIELDS:
            accepted = label[field.replace(" ", "_")]
            if accepted is None:  # this line is no ground truth
                continue
            asked[field] += 1
            hits[field] += got[field] in accepted
            if got[field] not in accepted:
                misses.append(f"{name}: {field} is {got[field]}, accepted {accepted}")
    print(f"{len(names)} cases in {time.perf_counter() - began:.1f} s")
    for field in FIELDS:
        print(f"  {field:<17} {hits[field]:>3} of {asked[field]}")
    _print_confusion(confusion)
    print("\n".join(["", "missed:", *(f"  {miss}" for miss in misses)]) if misses else "\nnothing missed")
    late = sum(n for (label, got), n in confusion.items() if (label, got) == (Phase.MEMORY, Phase.SERVING))
    print(f"failures of the memory phase called serving: {late}")
    return 1 if misses or late or not names else 0


def _print_confusion(confusion: Counter[tuple[str, str]]) -> None:
    phases = [*(phase.value for phase in Phase), "None"]
    print("\nphase: label (first accepted) down, answer across")
    print(" " * 11 + "".join(f"{phase:>11}" for phase in phases))
    for label in phases:
        print(f"{label:>11}" + "".join(f"{confusion[label, got] or '·':>11}" for got in phases))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else CASES))
