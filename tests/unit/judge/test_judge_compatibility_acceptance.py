"""A rented node: ordered against delivered, healthy or not, and what it may be used for."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from k3lib.errors import SpecError
from k3lib.judge.compatibility_acceptance import compare_delivery, judge_acceptance, judge_health, judge_use
from k3lib.judge.compatibility_facts import CompatibilityFacts
from k3lib.judge.conditions import Condition
from k3lib.report.compatibility import table_acceptance
from k3lib.report.sentences import render_verdict
from k3lib.spec.accelerators import Driver, Gpu
from k3lib.spec.order import NodeOrder
from k3lib.spec.session import CompatibilitySpec
from k3lib.spec.settings import EngineSettings
from k3lib.spec.snapshot import Container, Host, Mount, Place, Snapshot, Software
from k3lib.spec.validation import load_model
from k3lib.spec.vocabulary import EngineKind, HostLink, Objective, Severity, Voids
from k3lib.units import GIB

ORDER = {
    "gpu": "B300",
    "gpus": 8,
    "hosts": 1,
    "gpu_memory_gib": 268,
    "driver_branch": 580,
    "cuda": "13.0",
    "machine": "x86_64",
    "memory_gib": 1800,
    "free_disk_tb": 2,
    "link": "rdma",
}
IMAGE = "vllm/vllm-openai:kimi-k3"


def node(**changes: Any) -> Snapshot:
    """Eight B300 as a provider delivers them."""
    gpu = {
        "vendor": "nvidia",
        "name": "NVIDIA B300 SXM6 AC",
        "memory_total_bytes": round(267.7 * GIB),
        "capability": "10.3",
    }
    fields: dict[str, Any] = {
        "host": Host(
            name="n1",
            machine="x86_64",
            boot_id="b",
            memory_bytes=2000 * GIB,
            mounts=[Mount(path="/srv", kind="xfs", device="/dev/md0", free_bytes=3 * 10**12)],
        ),
        "drivers": [Driver(vendor="nvidia", loaded="595.58.03", cuda="13.3")],
        "gpus": [Gpu(index=i, **gpu) for i in range(8)],
        "containers": [Container(name="k3", id="c", image=IMAGE, image_id="sha256:a", tag_image_id="sha256:a")],
    }
    return Snapshot(taken_at="2026-08-26T09:00:00+00:00", took_s=4.0, place=Place(kind="host"), **(fields | changes))


def rented(ordered: dict[str, Any] | None = None, host: Snapshot | None = None, **changes: Any) -> CompatibilityFacts:
    """A node that was ordered, looked at from host and container."""
    host = host or node()
    inside = Snapshot(
        taken_at="2026-08-26T09:00:00+00:00",
        took_s=2.0,
        place=Place(kind="container"),
        host=Host(boot_id="b", memory_bytes=2000 * GIB, shm_size_bytes=64 * GIB),
        gpus=host.gpus,
        software=[Software(python="p", origin="t", packages={"vllm": "0.33.0"}, torch_cuda="13.0")],
    )
    settings = EngineSettings(
        tensor_parallel=8,
        gpu_memory_utilization=0.95,
        prefix_caching=False,
        reasoning_parser="kimi_k3",
        tool_call_parser="kimi_k3",
        auto_tool_choice=True,
        engine_ready_timeout_s=3600,
    )
    fields: dict[str, Any] = {
        "kind": EngineKind.DOCKER,
        "objective": Objective.PRODUCTION,
        "model": "moonshotai/Kimi-K3",
        "release": "0.33.0",
        "settings": settings,
        "image": IMAGE,
        "link": HostLink.RDMA,
        "hosts": [host],
        "containers": [inside],
        "weights_folder": "/srv/k3",
        "today": date(2026, 11, 30),
        "recipe_max_age_days": 14,
        "ordered": ORDER if ordered is None else ordered,
    }
    return CompatibilityFacts(**(fields | changes))


def wrong(severity: Severity) -> list[Condition]:
    """Something that is wrong with the machine."""
    return [Condition(kind="gpu-lost", severity=severity, voids=Voids.TRIALS)]


def test_every_line_of_a_kept_order_is_kept() -> None:
    """Ten lines; a round figure may be missed by one per cent, and a newer driver is more than was asked."""
    lines = compare_delivery(rented())
    assert list(NodeOrder.model_fields) == [line.name for line in lines]
    assert [] == [line.name for line in lines if line.kept is not True]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("gpu", "GB300"),
        ("gpus", 16),
        ("hosts", 2),
        ("gpu_memory_gib", 288),
        ("driver_branch", 600),
        ("cuda", "13.10"),
        ("machine", "aarch64"),
        ("memory_gib", 4000),
        ("free_disk_tb", 4),
        ("link", "nvlink"),
    ],
)
def test_each_line_can_be_short(name: str, asked: Any) -> None:
    """One line more than was delivered, and exactly that one is named; versions are not compared as text."""
    verdict = judge_acceptance(rented(ORDER | {name: asked}))
    assert "short" == verdict.case
    assert [name] == [line["name"] for line in verdict.facts["short"]]


def test_a_line_that_nobody_looked_at_is_unknown_and_not_short() -> None:
    """Without a folder for the weights the disk cannot be compared."""
    verdict = judge_acceptance(rented(weights_folder=""))
    assert ("unknown", ["free_disk_tb"]) == (verdict.case, verdict.facts["unknown"])


def test_an_empty_order_accepts_nothing() -> None:
    """Nothing ordered is not applicable, and no use is stated."""
    assert {"nothing-ordered"} == {judge(rented({})).case for judge in (judge_acceptance, judge_use)}


@pytest.mark.parametrize(
    ("changes", "use", "outcome"),
    [
        ({}, "base-of-a-series", "PASS"),
        ({"machine_conditions": wrong(Severity.NOTE)}, "base-of-a-series", "PASS"),
        ({"machine_conditions": wrong(Severity.WARN)}, "labelled-proof-of-concept", "WARN"),
        ({"machine_conditions": wrong(Severity.BREAK)}, "not-for-k3", "FAIL"),
        ({"host": node(drivers=[Driver(vendor="nvidia", loaded="575.57.08", cuda="12.9")])}, "not-for-k3", "FAIL"),
        ({"ordered": ORDER | {"gpus": 16}}, "labelled-proof-of-concept", "WARN"),
        ({"weights_folder": ""}, "nothing-yet", "SKIP"),
        ({"hosts": [], "containers": []}, "nothing-yet", "SKIP"),
        ({"model": "Qwen/Qwen3-0.6B"}, "nothing-yet", "SKIP"),
    ],
    ids=["good", "noted", "watched", "broken", "old driver", "short", "no folder", "blind", "other model"],
)
def test_the_page_says_what_the_node_may_be_used_for(changes: dict[str, Any], use: str, outcome: str) -> None:
    """A series needs everything; an old recipe alone takes nothing away."""
    verdict = judge_use(rented(**changes))
    assert (use, outcome) == (verdict.case, verdict.outcome.value)
    assert all(render_verdict(verdict, language)[1] for language in ("en", "fr"))


@pytest.mark.parametrize(
    ("severity", "case"), [(Severity.BREAK, "broken"), (Severity.WARN, "watch"), (None, "nothing")]
)
def test_health_is_what_is_wrong_with_the_machine_by_itself(severity: Severity | None, case: str) -> None:
    """The worst condition decides."""
    verdict = judge_health(rented(machine_conditions=wrong(severity) if severity else []))
    assert case == verdict.case
    assert all(render_verdict(verdict, language)[0] for language in ("en", "fr"))


def test_the_table_puts_ordered_beside_delivered() -> None:
    """A short line can be found without reading the numbers."""
    table = table_acceptance(rented(ORDER | {"gpus": 16}))
    assert ["gpus", 16, 8, "SHORT"] in [list(row) for row in table.rows]
    assert "MANQUE" in str(table_acceptance(rented(ORDER | {"gpus": 16}), "fr"))


@pytest.mark.parametrize("order", [{"gpuz": 8}, {"gpus": "8"}, {"cuda": "13"}, {"link": "pigeon"}, {"memory_gib": 0}])
def test_an_order_in_other_words_is_refused(order: dict[str, Any]) -> None:
    """A misspelt line would never be checked."""
    with pytest.raises(SpecError, match="ordered"):
        load_model(CompatibilitySpec, {"ordered": order}, source="20_compatibility.yaml")
