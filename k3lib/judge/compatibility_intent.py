"""What stage 20 starts from before it looks at a machine: the campaign's intention, and the rehearsal's profile."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.knowledge.hardware import Machine
from k3lib.knowledge.recipe import load_recipe
from k3lib.knowledge.recipe_schema import Vendor
from k3lib.spec.accelerators import Gpu
from k3lib.spec.campaign import Control
from k3lib.spec.session import CompatibilitySpec, SessionPlan
from k3lib.spec.snapshot import Host, Place, Snapshot
from k3lib.spec.vocabulary import HostLink
from k3lib.units import GIB


def intend_facts(plan: SessionPlan, today: date) -> CompatibilityFacts:
    """
    What a session of stage 20 intends, before any machine was looked at; every rule that needs one then says so.

    Args:
        plan: The session.
        today: The day it runs.
    """
    campaign, spec = plan.campaign, plan.spec
    assert isinstance(spec, CompatibilitySpec)
    control, conditions = resolve_control(campaign.control, spec.answers())
    name = campaign.model.name
    return CompatibilityFacts(
        kind=campaign.engine.kind,
        objective=campaign.objective,
        model=name,
        release=plan.release,
        settings=campaign.base,
        image=spec.image,
        link=HostLink(spec.link) if spec.link else None,
        weights_folder=spec.weights_folder or (name if name.startswith(("/", ".", "~")) else ""),
        today=today,
        recipe_max_age_days=spec.recipe_max_age_days,
        control=control,
        conditions=conditions,
        ordered=spec.ordered,
    )


def resolve_control(said: Control, answers: Mapping[str, str]) -> tuple[Control, dict[str, str]]:
    """
    The control vector from the campaign and the day's answers; the day's answer wins (R-48).

    Args:
        said: What the campaign says.
        answers: Question to `yes`, `no`, or empty; more words after a comma are a condition, `yes, in six weeks`.

    Returns:
        The vector, and question to condition.

    >>> control, conditions = resolve_control(Control(image=True), {"driver": "yes, in six weeks", "image": ""})
    >>> control.driver, control.image, control.network, conditions
    (True, True, None, {'driver': 'in six weeks'})
    """
    update: dict[str, bool] = {}
    conditions: dict[str, str] = {}
    for question, answer in answers.items():
        word, _, condition = answer.partition(",")
        if word.strip():
            update[question] = word.strip().lower() == "yes"
        if condition.strip():
            conditions[question] = condition.strip()
    return said.model_copy(update=update), conditions


def model_hosts(machine: Machine, taken_at: str) -> list[Snapshot]:
    """
    A machine profile of the rehearsal as snapshots, one per host. There is no driver, no container and no disk in it.

    Args:
        machine: The profile.
        taken_at: Wall clock, ISO 8601 with offset.

    >>> from k3lib.knowledge.hardware import find_machine
    >>> [len(host.gpus) for host in model_hosts(find_machine("8xGB300"), "2026-11-30T00:00:00+00:00")]
    [4, 4]
    """
    known = load_recipe().hardware.get(machine.gpu.name)
    vendor: Vendor = "amd" if machine.gpu.vendor == "amd" else "nvidia"
    hosts = []
    for number in range(1, machine.nodes + 1):
        gpus = [
            Gpu(
                index=index,
                vendor=vendor,
                name=machine.gpu.name,
                memory_total_bytes=round(machine.gpu.memory_gib * GIB),
                capability=known.capability if known else None,
            )
            for index in range(machine.gpus // machine.nodes)
        ]
        name = f"{machine.name}, host {number}"
        host = Host(name=name, machine=known.host if known else None)
        place = Place(kind="host", because=["a machine profile of the rehearsal"])
        hosts.append(Snapshot(taken_at=taken_at, took_s=0.0, place=place, host=host, gpus=gpus))
    return hosts
