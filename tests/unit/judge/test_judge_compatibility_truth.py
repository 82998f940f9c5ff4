"""A truth table of the constraints: one healthy machine, one thing changed, and what exactly one rule says of it."""

from __future__ import annotations

import ast
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import k3lib.judge
from k3lib.judge.compatibility import CONSTRAINTS, ESSENTIAL, judge_constraints, judge_path
from k3lib.judge.compatibility_driver import MEMORY_OPTIONS, container_check, judge_host_container
from k3lib.judge.compatibility_facts import CompatibilityFacts, parse_image
from k3lib.judge.compatibility_intent import model_hosts
from k3lib.judge.compatibility_memory import estimate_memory
from k3lib.judge.verdict import Verdict
from k3lib.knowledge.hardware import find_machine, load_machines
from k3lib.knowledge.recipe import load_recipe
from k3lib.knowledge.sentences import load_sentences
from k3lib.report.sentences import render_verdict
from k3lib.spec.accelerators import Driver, Gpu, Interconnect, Nic
from k3lib.spec.settings import EngineSettings
from k3lib.spec.snapshot import Container, Host, Mount, Place, Snapshot, Software, Variable
from k3lib.spec.vocabulary import EngineKind, HostLink, Objective, Outcome
from k3lib.units import GIB

NOW = "2026-08-26T09:00:00+00:00"
IMAGE = "vllm/vllm-openai:kimi-k3"
DIGEST = "sha256:" + "a" * 64
TB = 10**12


def mount(path: str, free_bytes: int) -> Mount:
    """A file system with this much room."""
    return Mount(path=path, kind="ext4", device="/dev/md0", free_bytes=free_bytes)


def host(name: str = "n1", **changes: Any) -> Snapshot:
    """A healthy host with eight B300."""
    fields: dict[str, Any] = {
        "host": Host(
            name=name,
            machine="x86_64",
            boot_id=f"boot-{name}",
            memory_bytes=2 * TB,
            shm_size_bytes=TB,
            mounts=[mount("/", TB // 10), mount("/srv", 4 * TB)],
        ),
        "drivers": [Driver(vendor="nvidia", loaded="595.58.03", library="595.58.03", cuda="13.3")],
        "gpus": gpus("NVIDIA B300 SXM6 AC"),
        "containers": [
            Container(name="k3", id="c1", image=IMAGE, image_id=DIGEST, tag_image_id=DIGEST, digests=[f"r@{DIGEST}"])
        ],
        "interconnect": Interconnect(nics=[Nic(name="mlx5_0/1", kind="infiniband", up=True)]),
    }
    return Snapshot(taken_at=NOW, took_s=4.0, place=Place(kind="host"), **(fields | changes))


def container(of: str = "n1", **changes: Any) -> Snapshot:
    """The inside of the engine's container on that host."""
    fields: dict[str, Any] = {
        "host": Host(machine="x86_64", boot_id=f"boot-{of}", memory_bytes=2 * TB, shm_size_bytes=64 * GIB),
        "gpus": gpus("NVIDIA B300 SXM6 AC"),
        "software": [Software(python="python3", origin="test", packages={"vllm": "0.33.0"}, torch_cuda="13.0")],
    }
    return Snapshot(taken_at=NOW, took_s=4.0, place=Place(kind="container"), **(fields | changes))


def gpus(name: str, count: int = 8, gib: float = 267.7, capability: str | None = "10.3", **more: Any) -> list[Gpu]:
    """Like GPUs."""
    vendor = "amd" if name.startswith("AMD") else "nvidia"
    size = round(gib * GIB)
    return [
        Gpu(index=i, vendor=vendor, name=name, memory_total_bytes=size, capability=capability, **more)  # type: ignore[arg-type]
        for i in range(count)
    ]


def facts(settings: dict[str, Any] | None = None, **changes: Any) -> CompatibilityFacts:
    """A healthy campaign on a healthy machine, with these fields changed."""
    said = {
        "tensor_parallel": 8,
        "gpu_memory_utilization": 0.95,
        "prefix_caching": False,
        "tool_call_parser": "kimi_k3",
        "reasoning_parser": "kimi_k3",
        "auto_tool_choice": True,
        "engine_ready_timeout_s": 3600,
    }
    fields: dict[str, Any] = {
        "kind": EngineKind.DOCKER,
        "objective": Objective.PRODUCTION,
        "model": "moonshotai/Kimi-K3",
        "release": "0.33.0",
        "image": IMAGE,
        "weights_folder": "/srv/weights",
        "hosts": [host()],
        "containers": [container()],
        "today": date(2026, 8, 26),
        "recipe_max_age_days": 14,
    }
    return CompatibilityFacts(settings=EngineSettings(**(said | (settings or {}))), **(fields | changes))


def driver(**changes: Any) -> dict[str, Any]:
    """A host whose NVIDIA driver is this one."""
    return {"hosts": [host(drivers=[Driver(vendor="nvidia", **changes)])]}


def two(**changes: Any) -> dict[str, Any]:
    """Two hosts and their containers."""
    return {"hosts": [host("n1"), host("n2")], "containers": [container("n1"), container("n2")], **changes}


def kind(name: str, gib: float, capability: str | None) -> dict[str, Any]:
    """A host with other GPUs."""
    return {"hosts": [host(gpus=gpus(name, 8, gib, capability))]}


def inside(**changes: Any) -> dict[str, Any]:
    """Another container."""
    return {"containers": [container(**changes)]}


def running(**changes: Any) -> dict[str, Any]:
    """Another engine container in the eyes of the runtime."""
    return {"hosts": [host(containers=[Container(name="k3", id="c1", **changes)])]}


NEWER_CUDA = inside(
    software=[Software(python="python3", origin="test", packages={"vllm": "0.33.0"}, torch_cuda="13.2")]
)
RETENTION = inside(
    software=[],
    variables=[Variable(name="VLLM_PREFIX_CACHE_RETENTION_INTERVAL", value="0", origin="this process")],
)
ASKED = [Driver(vendor="nvidia", library="595.58.03")]
OTHER_DRIVER = {"hosts": [host(), host("n2", drivers=[Driver(vendor="nvidia", loaded="600.1", cuda="13.3")])]}
ONE_LOST = [*gpus("NVIDIA B300", 7), Gpu(index=7, vendor="nvidia", name="NVIDIA B300", lost="fell off the bus")]
ONLY_ETHERNET = {"hosts": [host(interconnect=Interconnect(nics=[Nic(name="eth0", kind="ethernet", up=True)]))]}
OLD = driver(loaded="575.57.08", cuda="12.9")
LATEST = {"image": "vllm/vllm-openai:latest", "containers": []}
BY_DIGEST = {"image": f"r@{DIGEST}"}
FORWARD = {"environment": {"VLLM_ENABLE_CUDA_COMPATIBILITY": "1"}}
SHARD = {"environment": {"VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT": "1"}}
MIXED = {"hosts": [host(gpus=gpus("NVIDIA B300", 4) + gpus("NVIDIA B200", 4))]}
TP_DP = {"tensor_parallel": 8, "data_parallel": 2, "data_parallel_local": 1}
TWO_HOSTS = {"tensor_parallel": 8, "pipeline_parallel": 2, "nodes": 2, "gpu_memory_utilization": 0.9}
DEP = {"tensor_parallel": 8, "data_parallel": 2, "data_parallel_local": 1, "expert_parallel": True}
LOCAL = {"kind": EngineKind.LOCAL, "image": "", "containers": []}

TABLE: list[tuple[str, str, str, dict[str, Any], dict[str, Any]]] = [
    # rule, outcome, case, settings, other facts
    ("look", "PASS", "looked", {}, {}),
    ("look", "WARN", "modelled", {}, {"modelled": "8xB300"}),
    ("look", "SKIP", "missing", {}, {"hosts": [], "containers": []}),
    ("recipe_age", "PASS", "fresh", {}, {"today": date(2026, 9, 3)}),
    ("recipe_age", "WARN", "old", {}, {"today": date(2026, 9, 4)}),
    ("recipe_age", "PASS", "fresh", {}, {"today": date(2026, 9, 4), "recipe_max_age_days": 15}),
    ("host_container", "PASS", "same", {}, {}),
    ("host_container", "NOT_APPLICABLE", "no-container", {}, LOCAL),
    ("host_container", "SKIP", "missing", {}, {"containers": []}),
    ("host_container", "SKIP", "missing", {}, inside(gpus=None)),
    ("host_container", "FAIL", "none", {}, inside(gpus=[])),
    ("host_container", "FAIL", "none", {}, inside(gpus=None, reasons={"gpus": "nvidia-smi: not on PATH"})),
    ("host_container", "SKIP", "missing", {}, inside(gpus=None, reasons={"gpus": "ended with 9"}, drivers=ASKED)),
    ("host_container", "FAIL", "fewer", {}, inside(gpus=gpus("NVIDIA B300", 7))),
    ("host_container", "WARN", "fewer", {"tensor_parallel": 4}, inside(gpus=gpus("NVIDIA B300", 4))),
    ("driver_loaded", "PASS", "one", {}, {}),
    ("driver_loaded", "SKIP", "missing", {}, {"hosts": [host(drivers=[])]}),
    ("driver_loaded", "FAIL", "half-upgraded", {}, driver(loaded="580.82.07", library="580.95.05")),
    ("driver_loaded", "FAIL", "not-loaded", {}, driver(on_disk="595.58.03", error="couldn't communicate")),
    ("driver_loaded", "WARN", "waits", {}, driver(loaded="595.58.03", on_disk="595.71.05")),
    ("driver_loaded", "WARN", "hosts-differ", {}, OTHER_DRIVER),
    ("driver_branch", "PASS", "new-enough", {}, driver(loaded="580.65.06", cuda="13.0")),
    ("driver_branch", "FAIL", "old", {}, OLD),
    ("driver_branch", "SKIP", "missing", {}, driver(on_disk="580.65.06")),
    ("driver_branch", "WARN", "forward", FORWARD, OLD),
    ("driver_branch", "FAIL", "old", {"environment": {"VLLM_ENABLE_CUDA_COMPATIBILITY": "0"}}, OLD),
    ("driver_cuda", "PASS", "supports", {}, driver(loaded="580.65.06", cuda="13.0")),
    ("driver_cuda", "PASS", "supports", {}, driver(loaded="580.65.06")),
    ("driver_cuda", "FAIL", "old", {}, driver(loaded="575.57.08")),
    ("driver_cuda", "FAIL", "old", {}, OLD),
    ("driver_cuda", "FAIL", "old", {}, {**driver(loaded="580.159.01", cuda="13.0"), **NEWER_CUDA}),
    ("driver_cuda", "SKIP", "missing", {}, {**driver(loaded="590.1"), **NEWER_CUDA}),
    ("driver_cuda", "SKIP", "missing", {}, LATEST),
    ("driver_cuda", "FAIL", "old", {}, LATEST | OLD),
    ("driver_cuda", "SKIP", "missing", {}, {"image": "local/vllm:1", "containers": []}),
    ("driver_cuda", "SKIP", "missing", {}, driver(on_disk="595.58.03")),
    ("driver_cuda", "NOT_APPLICABLE", "no-image", {}, {"kind": EngineKind.REHEARSAL, "image": "", "containers": []}),
    ("driver_cuda", "WARN", "forward", FORWARD, OLD),
    ("hardware", "PASS", "verified", {}, {}),
    ("hardware", "SKIP", "missing", {}, {"hosts": [host(gpus=None, reasons={"gpus": "not on PATH"})]}),
    ("hardware", "FAIL", "none", {}, {"hosts": [host(gpus=[])]}),
    ("hardware", "FAIL", "mixed", {}, MIXED),
    ("hardware", "FAIL", "unlisted", {}, kind("NVIDIA RTX PRO 6000", 96, "12.0")),
    ("hardware", "WARN", "unlisted", {}, {"objective": Objective.POC, **kind("NVIDIA RTX PRO 6000", 96, "12.0")}),
    ("hardware", "FAIL", "floor", {}, kind("NVIDIA H100 80GB HBM3", 79.2, "9.0")),
    ("hardware", "FAIL", "refused", {}, {"objective": Objective.POC, **kind("NVIDIA A100-SXM4-80GB", 79.2, "8.0")}),
    ("compute_capability", "PASS", "supported", {}, {}),
    ("compute_capability", "FAIL", "refused", {}, kind("NVIDIA A100-SXM4-80GB", 79.2, "8.0")),
    ("compute_capability", "FAIL", "unproven", {}, kind("NVIDIA RTX PRO 6000", 96, "12.0")),
    ("compute_capability", "WARN", "unproven", {}, {"objective": Objective.POC, **kind("NVIDIA L40S", 45, "8.9")}),
    ("compute_capability", "SKIP", "missing", {}, kind("NVIDIA B300", 267.7, None)),
    ("gpu_count", "PASS", "enough", {}, {}),
    ("gpu_count", "FAIL", "too-few", {}, {"hosts": [host(gpus=gpus("NVIDIA B300", 7))]}),
    ("gpu_count", "FAIL", "too-few", {}, {"hosts": [host(gpus=ONE_LOST)]}),
    ("gpu_count", "FAIL", "below-minimum", {"tensor_parallel": 4}, {}),
    ("gpu_count", "WARN", "below-minimum", {"tensor_parallel": 4}, {"objective": Objective.AGENT}),
    ("gpu_count", "SKIP", "missing", TWO_HOSTS, {}),
    ("hosts", "PASS", "one", {}, {}),
    ("hosts", "PASS", "several", TWO_HOSTS, two()),
    ("hosts", "FAIL", "needs-more", {"tensor_parallel": 16}, two()),
    ("hosts", "SKIP", "missing", TWO_HOSTS, {}),
    ("hosts", "PASS", "several", DEP, two()),
    ("strategy", "PASS", "offered", {}, {}),
    ("strategy", "FAIL", "not-offered", TP_DP, two()),
    ("strategy", "SKIP", "missing", {}, kind("NVIDIA L40S", 45, "8.9")),
    ("memory_reported", "PASS", "usual", {}, {}),
    ("memory_reported", "WARN", "less", {}, kind("NVIDIA B300", 250, "10.3")),
    ("memory_reported", "FAIL", "cut-up", {}, {"hosts": [host(gpus=gpus("NVIDIA B300", mig=True))]}),
    ("memory_reported", "SKIP", "missing", {}, kind("NVIDIA L40S", 45, "8.9")),
    ("memory_total", "PASS", "enough", {}, {}),
    ("memory_total", "WARN", "below-recipe", {}, kind("NVIDIA B300", 190, "10.3")),
    ("memory_total", "FAIL", "below-weights", {}, kind("NVIDIA B200", 178.35, "10.0")),
    ("memory_total", "SKIP", "missing", TWO_HOSTS, {}),
    ("weights_fit", "PASS", "not-excluded", {}, {}),
    ("weights_fit", "WARN", "tight", {}, kind("NVIDIA B300", 205, "10.3")),
    ("weights_fit", "FAIL", "too-big", {}, kind("NVIDIA GB200", 184.31, "10.0")),
    ("weights_fit", "WARN", "padded", {"tensor_parallel": 16, "nodes": 2}, two()),
    ("weights_fit", "FAIL", "padding", {"tensor_parallel": 32, "nodes": 4}, kind("NVIDIA H100", 79.2, "9.0")),
    ("weights_fit", "NOT_APPLICABLE", "no-arithmetic", {}, {"model": "RedHatAI/Kimi-K3-NVFP4"}),
    ("image_name", "PASS", "listed", {}, {}),
    ("image_name", "NOT_APPLICABLE", "no-image", {}, LOCAL),
    ("image_name", "SKIP", "missing", {}, {"image": ""}),
    ("image_name", "WARN", "moving", {}, {"image": "vllm/vllm-openai"}),
    ("image_name", "WARN", "other", {}, {"image": "local/vllm:1"}),
    ("image_name", "FAIL", "misspelt", {}, {"image": "vllm/vllm-openai_rocm:kimi-k3"}),
    ("image_name", "FAIL", "other-vendor", {}, {"image": "vllm/vllm-openai-rocm:kimi-k3"}),
    ("image_digest", "PASS", "same", {}, {}),
    ("image_digest", "NOT_APPLICABLE", "no-image", {}, LOCAL),
    ("image_digest", "SKIP", "missing", {}, {"hosts": [host(containers=None)]}),
    ("image_digest", "WARN", "unchecked", {}, running(image=IMAGE, image_id=DIGEST)),
    ("image_digest", "FAIL", "moved", {}, running(image=IMAGE, image_id=DIGEST, tag_image_id="sha256:b")),
    ("image_digest", "PASS", "pinned", {}, BY_DIGEST | running(image=f"r@{DIGEST}", digests=[f"r@{DIGEST}"])),
    ("image_digest", "FAIL", "other-digest", {}, BY_DIGEST | running(image=f"r@{DIGEST}", digests=["r@sha256:b"])),
    ("image_digest", "SKIP", "missing", {}, BY_DIGEST),
    ("image_architecture", "NOT_APPLICABLE", "not-arm", {}, {}),
    ("image_architecture", "NOT_APPLICABLE", "no-image", {}, LOCAL),
    ("image_architecture", "SKIP", "missing", {}, {"hosts": [host(host=Host(machine="aarch64"))], "containers": []}),
    ("image_architecture", "PASS", "runs", {}, {"hosts": [host(host=Host(machine="aarch64"))]}),
    ("image_architecture", "FAIL", "mixed", {}, {"hosts": [host(), host("n2", host=Host(machine="aarch64"))]}),
    ("release", "PASS", "new-enough", {}, {}),
    ("release", "SKIP", "missing", {}, {"release": "unknown", "containers": []}),
    ("release", "FAIL", "old", {}, {"release": "0.27.0", "containers": []}),
    ("release", "PASS", "new-enough", {}, {"release": "0.27.1", "containers": []}),
    ("release", "WARN", "preview", {}, {"release": "0.1.dev19253+g5f76ae224.d20260727", "containers": []}),
    ("release", "WARN", "newer", {}, {"release": "0.99.0", "containers": []}),
    ("release", "FAIL", "old", {}, inside(software=[Software(python="p", origin="test", packages={"vllm": "0.26.0"})])),
    ("dead_variables", "PASS", "none", {}, {}),
    ("dead_variables", "PASS", "known", {"environment": {"NCCL_CUMEM_ENABLE": "1"}}, {}),
    ("dead_variables", "WARN", "dead", {"environment": {"VLLM_USE_V1": "1"}}, {}),
    ("dead_variables", "WARN", "dead", {}, RETENTION),
    ("dead_variables", "PASS", "known", {}, {"release": "0.28.0", **RETENTION}),
    ("dead_variables", "WARN", "idle", SHARD, {}),
    ("dead_variables", "PASS", "known", DEP | SHARD, two()),
    ("dead_variables", "SKIP", "missing", {}, {"release": "main", "containers": []}),
    ("cache_default", "PASS", "said", {}, {}),
    ("cache_default", "WARN", "unsaid", {"prefix_caching": None}, {}),
    ("parsers", "PASS", "named", {}, {}),
    ("parsers", "WARN", "incomplete", {"reasoning_parser": None}, {}),
    ("ready_timeout", "PASS", "patient", {}, {}),
    ("ready_timeout", "WARN", "short", {"engine_ready_timeout_s": 900}, {}),
    ("ready_timeout", "WARN", "default", {"engine_ready_timeout_s": None}, {}),
    ("utilization", "NOT_APPLICABLE", "not-used", {}, {}),
    ("utilization", "PASS", "leaves", TWO_HOSTS, two()),
    ("utilization", "WARN", "high", {**TWO_HOSTS, "gpu_memory_utilization": None}, two()),
    ("link", "NOT_APPLICABLE", "one-host", {}, {}),
    ("link", "SKIP", "missing", TWO_HOSTS, two()),
    ("link", "PASS", "known", TWO_HOSTS, two(link=HostLink.RDMA)),
    ("link", "FAIL", "no-adapter", TWO_HOSTS, {"link": HostLink.RDMA, **ONLY_ETHERNET}),
    ("link", "PASS", "known", TWO_HOSTS, {"link": HostLink.RDMA, "hosts": [host(interconnect=Interconnect())]}),
    ("link", "WARN", "ethernet", TWO_HOSTS, two(link=HostLink.ETHERNET)),
    ("all_to_all", "NOT_APPLICABLE", "not-used", {}, {}),
    ("all_to_all", "SKIP", "missing", {"all2all_backend": "deepep_v2"}, {}),
    ("all_to_all", "PASS", "advised", {"all2all_backend": "deepep_v2"}, {"link": HostLink.RDMA}),
    ("all_to_all", "PASS", "advised", {"all2all_backend": "flashinfer_nvlink_one_sided"}, {"link": HostLink.NVLINK}),
    ("all_to_all", "FAIL", "impossible", {"all2all_backend": "flashinfer_nvlink_one_sided"}, {"link": HostLink.RDMA}),
    ("all_to_all", "WARN", "not-advised", {"all2all_backend": "deepep_v2"}, {"link": HostLink.NVLINK}),
    ("all_to_all", "WARN", "unlisted", {"all2all_backend": "nixl_ep"}, {"link": HostLink.NVLINK}),
    ("all_to_all", "PASS", "advised", DEP, two(link=HostLink.RDMA)),
    ("moe_backend", "NOT_APPLICABLE", "no-limit", {}, {}),
    ("moe_backend", "NOT_APPLICABLE", "no-limit", {"moe_backend": "marlin"}, {}),
    ("moe_backend", "FAIL", "impossible", {**DEP, "moe_backend": "deep_gemm_mega_moe"}, two(link=HostLink.RDMA)),
    ("moe_backend", "SKIP", "missing", {**DEP, "moe_backend": "deep_gemm_mega_moe"}, two()),
    ("moe_backend", "SKIP", "missing", {"moe_backend": "deep_gemm_mega_moe"}, kind("NVIDIA L40S", 45, "8.9")),
    ("moe_backend", "WARN", "other-gpu", {**DEP, "moe_backend": "deep_gemm_mega_moe"}, two(link=HostLink.NVLINK)),
    ("moe_backend", "PASS", "fits", {"moe_backend": "deep_gemm_mega_moe"}, kind("NVIDIA GB300", 277.6, "10.3")),
    ("speculation", "NOT_APPLICABLE", "none", {}, {}),
    ("speculation", "PASS", "goes", {"speculative_config": {"method": "dspark"}}, {}),
    ("speculation", "FAIL", "with-pipeline", {**TWO_HOSTS, "speculative_config": {"method": "dspark"}}, two()),
    ("host_memory", "PASS", "room", {}, {}),
    ("host_memory", "WARN", "small", {}, inside(host=Host(memory_bytes=2 * TB, memory_limit_bytes=96 * GIB))),
    ("host_memory", "WARN", "limited", {}, inside(host=Host(memory_bytes=2 * TB, memory_limit_bytes=TB))),
    ("host_memory", "SKIP", "missing", {}, {"hosts": [host(host=Host(name="n1"))]}),
    ("shared_memory", "PASS", "room", {}, {}),
    ("shared_memory", "PASS", "one-rank", {"tensor_parallel": 1}, {}),
    ("shared_memory", "FAIL", "default", {}, inside(host=Host(shm_size_bytes=64 * 1024**2))),
    ("shared_memory", "WARN", "small", {}, inside(host=Host(shm_size_bytes=8 * GIB))),
    ("shared_memory", "SKIP", "missing", {}, {"containers": []}),
    ("shared_memory", "PASS", "room", {}, {"containers": [], **running(image=IMAGE, ipc="host")}),
    ("shared_memory", "FAIL", "default", {}, {"containers": [], **running(image=IMAGE, shm_bytes=67_108_864)}),
    ("shared_memory", "PASS", "room", {}, LOCAL),
    ("disk", "PASS", "room", {}, {}),
    ("disk", "PASS", "there", {}, {"weights_bytes": 1_560_000_000_000, "weights_folder": "/weights"}),
    ("disk", "FAIL", "too-small", {}, {"weights_folder": "/weights"}),
    ("disk", "PASS", "room", {}, {"weights_folder": "/weights", "weights_bytes": 1_500_000_000_000}),
    ("disk", "SKIP", "missing", {}, {"weights_folder": ""}),
    ("disk", "SKIP", "missing", {}, {"hosts": [host(host=Host(name="n1"))]}),
    ("disk", "SKIP", "missing", {}, {"model": "RedHatAI/Kimi-K3-NVFP4"}),
]  # fmt: skip


def find(name: str, seen: CompatibilityFacts) -> Verdict:
    """What one rule says."""
    return next(v for v in judge_constraints(seen) if v.rule == f"compatibility.{name}")


@pytest.mark.parametrize(
    ("rule", "outcome", "case", "settings", "other"),
    TABLE,
    ids=[f"{n}-{r}-{c}" for n, (r, _, c, _, _) in enumerate(TABLE)],
)
def test_one_thing_changed_changes_one_answer(
    rule: str, outcome: str, case: str, settings: dict[str, Any], other: dict[str, Any]
) -> None:
    """The rule answers as the row says, and can say so in both languages."""
    verdict = find(rule, facts(settings, **other))
    assert (outcome, case) == (verdict.outcome.value, verdict.case)
    assert all(render_verdict(verdict, language)[0] for language in ("en", "fr"))


def reachable() -> set[tuple[str, str]]:
    """Rule and case, from the source: each string that stands as the case of a finding in a constraint."""
    found = set()
    for file in Path(k3lib.judge.__file__ or "").parent.glob("*.py"):
        for function in [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.FunctionDef)]:
            rules = [
                d.args[0].value
                for d in function.decorator_list
                if isinstance(d, ast.Call)
                and ast.unparse(d.func) == "constraint"
                and isinstance(d.args[0], ast.Constant)
            ]
            for call in [n for n in ast.walk(function) if isinstance(n, ast.Call)] if rules else []:
                place = {
                    "passes": 0,
                    "warns": 0,
                    "fails": 0,
                    "make": 0,
                    "not_applicable": 0,
                    "off_path": 1,
                    "Finding": 1,
                }
                at = place.get(ast.unparse(call.func))
                if at is not None and len(call.args) > at:
                    words = [n.value for n in ast.walk(call.args[at]) if isinstance(n, ast.Constant)]
                    found |= {(str(rules[0]), word) for word in words if isinstance(word, str)}
    return found


def test_every_case_of_a_constraint_has_a_row() -> None:
    """No case is there that this table does not reach; those of path, control and acceptance have their own tests."""
    named = {str(rule.__name__).removeprefix("judge_") for rule in CONSTRAINTS}
    shared = {(rule, "no-image") for rule in ("image_name", "image_digest", "image_architecture")}
    wanted = {(r, c) for r, c in reachable() if r in named} | shared
    assert wanted == {(r, c) for r, _, c, _, _ in TABLE if c != "missing"}


def test_every_case_of_the_room_has_its_sentences() -> None:
    """A case without a sentence would break the record on the day it happens."""
    sentences = load_sentences()
    assert [] == [f"{r}.{c}" for r, c in sorted(reachable()) if c not in sentences[f"compatibility.{r}"]]


def test_no_evidence_is_missing_without_a_name() -> None:
    """Every kind of missing evidence can be named, and the other way round."""
    used = set()
    for file in Path(k3lib.judge.__file__ or "").parent.glob("*.py"):
        for call in [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)]:
            if ast.unparse(call.func) == "skips" and call.args:
                branches = [call.args[0], *ast.iter_child_nodes(call.args[0])]
                used |= {n.value for n in branches if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    assert set(load_sentences()["evidence"]) == used - {"evidence"} | {"gpus"}  # "gpus" also stands in a variable


def test_an_empty_look_never_passes() -> None:
    """Every essential rule says what it misses, and the path is unknown."""
    blind = facts(hosts=[], containers=[], release="unknown")
    assert {"SKIP"} == {find(name, blind).outcome.value for name in ESSENTIAL}
    assert Outcome.SKIP is judge_path(blind).outcome


@given(st.sets(st.sampled_from(["drivers", "gpus", "containers", "host", "interconnect"]), min_size=1))
def test_taking_evidence_away_never_makes_a_rule_pass(taken: set[str]) -> None:
    """What passes on less evidence passed on more."""
    empty: dict[str, Any] = {
        "drivers": [],
        "gpus": None,
        "containers": None,
        "host": Host(),
        "interconnect": Interconnect(),
    }
    less = facts(hosts=[host(**{name: empty[name] for name in taken})])
    before = {v.rule: v.outcome for v in judge_constraints(facts())}
    passed = [v.rule for v in judge_constraints(less) if v.outcome is Outcome.PASS]
    assert [] == [rule for rule in passed if before[rule] not in (Outcome.PASS, Outcome.NOT_APPLICABLE)]


def test_memory_options_are_forbidden_while_the_container_sees_nothing() -> None:
    """The finding names them, and its next step goes past the image's entry point (R-13)."""
    verdict = judge_host_container(facts(**inside(gpus=[])))
    assert list(MEMORY_OPTIONS) == verdict.facts["forbidden"]
    assert f"--entrypoint nvidia-smi {IMAGE}" in render_verdict(verdict)[1]
    assert "rocm-smi" in container_check(facts(**kind("AMD Instinct MI355X", 268.2, "gfx950")))


def test_the_recipe_judges_k3_only() -> None:
    """For another model nothing but the look and dead variables is judged, each other rule with its reason."""
    verdicts = judge_constraints(facts(model="Qwen/Qwen3-0.6B"))
    assert ["look", "dead_variables"] == [
        v.rule.removeprefix("compatibility.") for v in verdicts if v.outcome is not Outcome.NOT_APPLICABLE
    ]
    assert {"not-k3"} == {v.case for v in verdicts if v.outcome is Outcome.NOT_APPLICABLE}


def test_a_successor_is_another_model() -> None:
    """Kimi K3.1 has a recipe of its own, and a folder whose config names another architecture is no K3."""
    assert facts(model="moonshotai/Kimi-K3.1-Pro").judged is None
    assert facts(model="/srv/weights/Kimi-K3", architecture="Qwen3ForCausalLM").judged is None
    assert facts(model="/srv/weights/Kimi-K3", architecture="KimiK3ForConditionalGeneration").judged is not None


def test_an_old_recipe_never_closes_the_path() -> None:
    """Years later the same healthy machine is still on it; the age stands beside."""
    late = facts(today=date(2026, 8, 26) + timedelta(days=2000))
    assert (Outcome.PASS, Outcome.WARN) == (judge_path(late).outcome, find("recipe_age", late).outcome)


@pytest.mark.parametrize("name", sorted(load_machines()))
def test_the_rehearsal_models_gpus_and_nothing_else(name: str) -> None:
    """Every profile gives its GPUs over its hosts, and no rule judges a driver, an image or a disk that isn't there."""
    machine = find_machine(name)
    hosts = model_hosts(machine, NOW)
    seen = facts(kind=EngineKind.REHEARSAL, hosts=hosts, containers=[], image="", modelled=name)
    assert (machine.nodes, machine.gpus) == (len(hosts), len(seen.gpus or []))
    quiet = ("host_container", "driver_loaded", "driver_cuda", "image_digest", "host_memory", "shared_memory", "disk")
    assert {Outcome.NOT_APPLICABLE} == {find(rule, seen).outcome for rule in quiet}


def test_the_estimate_is_arithmetic_on_sourced_numbers() -> None:
    """What is left is what the engine may take less the weights; a run-time assumption makes it smaller."""
    estimate = estimate_memory(facts())
    assert estimate is not None
    assert estimate.memory_bytes * 0.95 == pytest.approx(estimate.usable_bytes)
    assert estimate.usable_bytes - estimate.weights_bytes == pytest.approx(estimate.left_bytes)
    assert estimate.cache_bytes < estimate.left_bytes


@pytest.mark.parametrize(
    ("text", "repository", "tag", "digest"),
    [
        ("vllm/vllm-openai:kimi-k3", "vllm/vllm-openai", "kimi-k3", None),
        ("vllm/vllm-openai", "vllm/vllm-openai", "latest", None),
        (f"r.example:5000/a/b@{DIGEST}", "r.example:5000/a/b", None, DIGEST),
        (f"r.example:5000/a/b:1@{DIGEST}", "r.example:5000/a/b", "1", DIGEST),
    ],
)
def test_the_name_of_an_image_is_read_in_its_parts(
    text: str, repository: str, tag: str | None, digest: str | None
) -> None:
    """A port is no tag, and a digest makes a tag needless."""
    name = parse_image(text)
    assert (repository, tag, digest) == (name.repository, name.tag, name.digest)


def test_the_recipe_is_named_beside_every_judgement_by_it() -> None:
    """A failure by a published value says where that value stands."""
    for rule, changed in (
        ("driver_branch", driver(loaded="575.57.08")),
        ("hardware", kind("NVIDIA A100", 79.2, "8.0")),
    ):
        verdict = find(rule, facts(**changed))
        assert verdict.facts["source"] in {load_recipe().cite(key) for key in load_recipe().sources}
