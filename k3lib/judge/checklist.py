"""The seven steps of a proof of concept (R-27), each computed from the session, none ticked by hand."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from k3lib.judge.start import SessionFacts
from k3lib.spec.model import Fact
from k3lib.spec.settings import EngineSettings
from k3lib.spec.vocabulary import Phase


class ChecklistItem(Fact):
    """
    One step.

    Args:
        number: 1 to 7.
        key: Its name.
        done: True, False, or None where this session cannot know.
        case: Which sentence fits.
        facts: Values that the sentence needs.
    """

    number: int
    key: str
    done: bool | None
    case: str
    facts: dict[str, Any] = Field(default_factory=dict)


def compute_checklist(facts: SessionFacts, identity: dict[str, Any]) -> list[ChecklistItem]:
    """
    The seven steps as this session shows them.

    Args:
        facts: The session.
        identity: The identity part of its fingerprint.

    Returns:
        Seven items in order.
    """
    return [
        _frozen_identity(facts, identity),
        ChecklistItem(number=2, key="official-path", done=None, case="not-here"),
        _short_length(facts),
        _one_at_a_time(facts),
        _few_features(facts),
        _first_result(facts),
        _structural(facts),
    ]


def _frozen_identity(facts: SessionFacts, identity: dict[str, Any]) -> ChecklistItem:
    wanted = {
        "release": identity.get("engine.release"),
        "model": facts.plan.campaign.model.name,
        "weights": identity.get("model.revision") or identity.get("model.shards_sha256"),
    }
    missing = [name for name, value in wanted.items() if not value]
    return ChecklistItem(
        number=1,
        key="freeze-identity",
        done=not missing,
        case="missing" if missing else "known",
        facts={**wanted, "missing": missing},
    )


def _short_length(facts: SessionFacts) -> ChecklistItem:
    lengths = sorted({arm.settings.max_model_len for arm in facts.plan.arms if arm.settings.max_model_len}, key=str)
    return ChecklistItem(
        number=3,
        key="short-length",
        done=len(lengths) == 1 and lengths != ["auto"],
        case="said" if len(lengths) == 1 and lengths != ["auto"] else "unsaid",
        facts={"length": lengths[0] if lengths else None},
    )


def _one_at_a_time(facts: SessionFacts) -> ChecklistItem:
    sent = sum(len(t.frozen()) for t in facts.trials)
    return ChecklistItem(
        number=4, key="concurrency-one", done=True if sent else None, case="one" if sent else "none", facts={"n": sent}
    )


def _few_features(facts: SessionFacts) -> ChecklistItem:
    on = sorted({name for arm in facts.plan.arms for name in _features(arm.settings)})
    return ChecklistItem(
        number=5, key="few-variables", done=len(on) <= 1, case="few" if len(on) <= 1 else "many", facts={"on": on}
    )


def _features(settings: EngineSettings) -> list[str]:
    """What a proof of concept must not switch on together; caching left unsaid may be on."""
    return [
        name
        for name, is_on in {
            "prefix caching": settings.prefix_caching is not False,
            "speculation": settings.speculative_config is not None,
            "expert parallelism": bool(settings.expert_parallel),
            "data parallelism": (settings.data_parallel or 1) > 1,
        }.items()
        if is_on
    ]


def _first_result(facts: SessionFacts) -> ChecklistItem:
    ready = [t for t in facts.counted if t.launch.ready and t.timeline]
    answered = [t for t in ready if any(r.ok for r in t.frozen())]
    return ChecklistItem(
        number=6,
        key="first-result",
        done=bool(answered) if ready else False,
        case="answered" if answered else "ready" if ready else "none",
        facts={"trial": (answered or ready)[0].number if ready else None},
    )


def _structural(facts: SessionFacts) -> ChecklistItem:
    """Weights that do not load are structural: no tuning helps. Whether the path is official is stage 20's."""
    counted = facts.counted
    stuck = [t for t in counted if t.failed_phase is Phase.WEIGHTS]
    every = bool(counted) and len(stuck) == len(counted)
    return ChecklistItem(
        number=7,
        key="structural",
        done=True if counted else None,
        case="structural" if every else "not-structural" if counted else "unknown",
        facts={"k": len(stuck), "n": len(counted)},
    )
