"""Does one frozen request come back whole, every time, and is the path of a proof of concept alive (R-28)?"""

from __future__ import annotations

from k3lib.judge.start import SessionFacts
from k3lib.judge.verdict import Evidence, Verdict
from k3lib.spec.results import ProbeResult
from k3lib.spec.vocabulary import Outcome, Probe


def judge_frozen_request(facts: SessionFacts) -> Verdict:
    """Does the frozen request get a whole answer in every trial that became ready (R-21)?"""
    ready = [t for t in facts.counted if t.launch.ready]
    # An engine that dies of the warm-up never sees the frozen request: that is its answer.
    rows = [(t, r) for t in ready for r in (t.frozen() or t.broken()[:1])]
    if not rows:
        return Verdict(rule="request.answers", sources=["R-21"], outcome=Outcome.SKIP, case="none")
    good = [(t, r) for t, r in rows if r.ok]
    bad = [(t, r) for t, r in rows if not r.ok]
    return Verdict(
        rule="request.answers",
        sources=["R-21", "R-04"],
        outcome=Outcome.FAIL if bad else Outcome.PASS,
        case="broken" if bad else "whole",
        facts={
            "k": len(good),
            "n": len(rows),
            "error": bad[0][1].error if bad else None,
            "finish": sorted({r.finish_reason for _, r in good if r.finish_reason}),
        },
        evidence=[Evidence(file=f"trial-{t.number}/requests.jsonl", text=r.error or "") for t, r in bad],
    )


def judge_same_request(facts: SessionFacts) -> Verdict:
    """Was it byte for byte the same request in every trial (R-22)?"""
    ids = sorted({r.request_id for t in facts.trials for r in t.frozen()})
    if not ids:
        return Verdict(rule="request.frozen", sources=["R-22"], outcome=Outcome.SKIP, case="none")
    same = ids == [facts.plan.request_id]
    return Verdict(
        rule="request.frozen",
        sources=["R-22"],
        outcome=Outcome.PASS if same else Outcome.FAIL,
        case="same" if same else "differs",
        facts={"ids": ids, "planned": facts.plan.request_id},
    )


def judge_api(facts: SessionFacts) -> Verdict:
    """POC check 1: does the engine speak the API as the client expects it?"""
    return _judge_probe(facts, Probe.API, "poc.api")


def judge_rendering(facts: SessionFacts) -> Verdict:
    """POC check 2: are the messages rendered whole, and no marker leaked into the answer?"""
    return _judge_probe(facts, Probe.RENDERING, "poc.rendering")


def judge_tool_call(facts: SessionFacts) -> Verdict:
    """POC check 3: does one tool call come back parsed?"""
    return _judge_probe(facts, Probe.TOOL_CALL, "poc.tool_call")


def judge_coherence(facts: SessionFacts) -> Verdict:
    """POC check 4: does the second turn still know what the first one said?"""
    return _judge_probe(facts, Probe.COHERENCE, "poc.coherence")


def read_probe(result: ProbeResult) -> tuple[str, str]:
    """
    How one probe went.

    Returns:
        `fault` (the server failed), `not-useful` (it answered, the model did not do the thing),
        `unknown` (nothing could be told) or `passes`; and what was seen.
    """
    if result.server_fault:
        return "fault", result.server_fault
    missed = [c for c in result.checks if c.held is False]
    server = [c for c in missed if c.about == "server"]
    if missed:
        worst = (server or missed)[0]
        seen = worst.seen or worst.reason or "nothing"
        return "fault" if server else "not-useful", f"{worst.name}: expected {worst.expected}, saw {seen}"
    held = [c.name for c in result.checks if c.held]
    if not held:
        reasons = "; ".join(f"{c.name}: {c.reason}" for c in result.checks) or "no check was made"
        return "unknown", reasons
    return "passes", ", ".join(held)


def _judge_probe(facts: SessionFacts, probe: Probe, rule: str) -> Verdict:
    rows = [(t, *read_probe(p)) for t in facts.counted for p in t.probes if p.probe is probe]
    told = [row for row in rows if row[1] != "unknown"]
    if not told:
        return Verdict(rule=rule, sources=["R-28"], outcome=Outcome.SKIP, case="none")
    broken = [row for row in told if row[1] == "fault"]
    worst = broken or [row for row in told if row[1] == "not-useful"]
    return Verdict(
        rule=rule,
        sources=["R-28"],
        outcome=Outcome.FAIL if broken else Outcome.WARN if worst else Outcome.PASS,
        case="fault" if broken else "not-useful" if worst else "passes",
        facts={
            "k": sum(state == "passes" for _, state, _ in told),
            "n": len(told),
            "why": worst[0][2] if worst else None,
        },
        evidence=[Evidence(file=f"trial-{t.number}/probes.jsonl", text=detail) for t, _, detail in worst[:3]],
    )
