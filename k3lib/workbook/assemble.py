"""The record of a session, from its folder alone: closing, cleaning up after a kill and re-judging are one path."""

from __future__ import annotations

from datetime import date
from typing import Any

from k3lib import __version__
from k3lib.errors import RecordError
from k3lib.judge.answer import Failure
from k3lib.judge.checklist import compute_checklist
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.judge.compatibility_intent import intend_facts
from k3lib.judge.effective import compare_effective
from k3lib.judge.failure import judge_failure
from k3lib.judge.gates import Gate
from k3lib.judge.judgement import judge_ending, judge_session, judge_stage
from k3lib.judge.place import explain_incomparable
from k3lib.judge.scene_items import compute_scene_items
from k3lib.judge.start import SessionFacts
from k3lib.judge.trial import TrialRecord, judge_trial
from k3lib.knowledge.settings import debug_variables
from k3lib.logs.journal import journal_steps
from k3lib.logs.lines import read_lines
from k3lib.logs.timeline import Timeline, parse_timeline
from k3lib.record.evidence import read_endpoint_state, read_launch, read_probes, read_requests
from k3lib.record.files import read_json, read_model
from k3lib.record.paths import SessionPaths, TrialPaths
from k3lib.record.scene import read_scene
from k3lib.record.schema import Record, SessionInfo
from k3lib.record.sessions import read_info, read_plan, read_record
from k3lib.report.sentences import write_out
from k3lib.spec.session import SessionPlan
from k3lib.spec.vocabulary import Probe, Provenance, StageName
from k3lib.stats.latency import summarize_latency
from k3lib.stats.measurement import Measurement
from k3lib.stats.stability import wilson_interval
from k3lib.workbook.place import read_place
from k3lib.workbook.triage import read_signs


def assemble_record(paths: SessionPaths, gate: Gate | None = None) -> Record:
    """
    Everything the folder shows, judged.

    Args:
        paths: The session's folder.
        gate: The gate that let it in; None keeps what an earlier record says.

    Returns:
        The record; nothing is written.

    Raises:
        RecordError: The folder holds no intent.
    """
    plan, info = read_plan(paths), read_info(paths)
    debug = sorted({name for arm in plan.arms for name in debug_variables(arm.settings.environment)})
    read, left_out = _read_trials(paths, plan)
    trials = [judge_trial(t, debug, asks=plan.stage is StageName.SINGLE_REQUEST) for t in read]
    facts = SessionFacts(
        plan=plan,
        trials=trials,
        debug_variables=debug,
        place=read_place(paths),
        scene=read_scene(paths),
        compatibility=_read_compatibility(paths, plan, info),
    )
    fingerprint: Any = read_json(paths.fingerprint) if paths.fingerprint.exists() else {}
    verdicts = [write_out(v) for v in judge_session(facts)]
    return Record(
        product=__version__,
        session=info,
        plan=plan,
        fingerprint=fingerprint,
        trials=trials,
        measurements=_measure(facts, info.provenance),
        checklist=compute_checklist(facts, fingerprint.get("identity", {})) if plan.trials() else [],
        scene=compute_scene_items(facts),
        verdicts=verdicts,
        outcome=judge_ending(judge_stage(verdicts), info.state),
        comparable=not (reasons := left_out + _why_not_comparable(facts)),
        reasons=reasons,
        gate=gate or _kept_gate(paths),
    )


def _read_trials(paths: SessionPaths, plan: SessionPlan) -> tuple[list[TrialRecord], list[str]]:
    """The trials that left evidence, and why any other one is left out."""
    settings = {arm.name: arm.settings for arm in plan.arms}
    trials, left_out = [], []
    for number, trial in paths.trials():
        try:
            started, endpoint = read_launch(trial), read_endpoint_state(trial)
        except RecordError as damaged:
            left_out.append(f"trial {number} is left out: {damaged.what}")
            continue
        if started is None:
            continue  # cut off before the engine was started: there is no trial yet
        arm, launch = started
        if arm not in settings:
            left_out.append(f"trial {number} is left out: its launch.json names an arm {arm} that is not planned")
            continue
        timeline = _read_timeline(trial)
        intended = {
            **settings[arm].flat(),
            "served_model": plan.served_model,
            "model": launch.argv[launch.argv.index("serve") + 1] if "serve" in launch.argv[:-1] else None,
            "release": plan.release,
        }
        trials.append(
            TrialRecord(
                number=number,
                arm=arm,
                launch=launch,
                timeline=timeline,
                diagnosis=_diagnose(trial, number),
                journal=journal_steps(timeline) if timeline else [],
                endpoint=endpoint,
                effective=compare_effective(intended, endpoint, timeline.values if timeline else {})
                if launch.ready
                else [],
                requests=read_requests(trial),
                probes=read_probes(trial),
            )
        )
    return trials, left_out


def _read_compatibility(paths: SessionPaths, plan: SessionPlan, info: SessionInfo) -> CompatibilityFacts | None:
    """What was seen of the machines; before the look, what is intended, so that every rule says what it misses."""
    if plan.stage is not StageName.COMPATIBILITY:
        return None
    if paths.compatibility.exists():
        return read_model(CompatibilityFacts, paths.compatibility)
    return intend_facts(plan, date.fromisoformat(info.started_at[:10]))


def _diagnose(trial: TrialPaths, number: int) -> Failure | None:
    log = trial.log if trial.log.exists() else trial.raw_log
    if not log.exists():
        return None
    with log.open("rb") as stored:
        failure = judge_failure([read_signs(f"trial-{number}/engine.log", iter(lambda: stored.read(1 << 20), b""))])
    # The timeline of the trial holds them already.
    return failure.model_copy(update={"milestones": []})


def _read_timeline(trial: TrialPaths) -> Timeline | None:
    log = trial.log if trial.log.exists() else trial.raw_log
    if not log.exists():
        return None
    with log.open("rb") as chunks:
        return parse_timeline(read_lines(chunks))


def _measure(facts: SessionFacts, provenance: Provenance) -> list[Measurement]:
    """The numbers of each arm; with several arms, `[arm]` behind the key says whose they are."""
    arms = facts.by_arm()
    return [
        m.model_copy(update={"key": f"{m.key}[{arm}]"}) if len(arms) > 1 else m
        for arm, counted in arms.items()
        for m in _measure_arm(counted, provenance)
    ]


def _measure_arm(counted: list[TrialRecord], provenance: Provenance) -> list[Measurement]:
    """Success rate and latencies; where the clock is a model's, a latency is absent and never a number."""
    evidence = [f"trial-{t.number}/launch.json" for t in counted]
    good = sum(t.failed_phase is None for t in counted)
    ready = [t.launch.ready_s for t in counted if t.launch.ready_s is not None]
    latencies = [
        Measurement.of_samples("start.ready_s", ready, unit="s", evidence=evidence),
        *summarize_latency([r for t in counted for r in t.requests if r.probe is Probe.FROZEN and r.ok]),
    ]
    if provenance is Provenance.REHEARSAL:
        reason = "the rehearsal's clock is a model's"
        latencies = [Measurement.absent(m.key, unit=m.unit, reason=reason) for m in latencies]
    return [_share("start.success_fraction", good, len(counted), evidence), *latencies]


def _share(key: str, k: int, n: int, evidence: list[str]) -> Measurement:
    if n == 0:
        return Measurement.absent(key, unit="fraction", reason="no trial counts")
    low, high = wilson_interval(k, n)
    return Measurement(
        key=key, value=k / n, unit="fraction", n=n, low=low, high=high, method="share, Wilson", evidence=evidence
    )


def _why_not_comparable(facts: SessionFacts) -> list[str]:
    reasons = [f"trial {t.number} is void: {t.void}" for t in facts.trials if t.void]
    if facts.plan.gate_accepted:
        reasons.append(f"its gate was opened by hand: {facts.plan.gate_accepted}")
    return reasons + explain_incomparable(facts)


def _kept_gate(paths: SessionPaths) -> Gate | None:
    try:
        return read_record(paths).gate
    except RecordError:
        return None
