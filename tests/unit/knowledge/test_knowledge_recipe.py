"""The recipe is whole, sourced, keeps its contradictions, and agrees with what else is known."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import date
from importlib import resources
from typing import Any

import pytest

from k3lib.errors import KnowledgeError
from k3lib.knowledge import package_data
from k3lib.knowledge.data import read_knowledge
from k3lib.knowledge.hardware import load_gpus, load_machines
from k3lib.knowledge.package_data import read_facts
from k3lib.knowledge.recipe import find_dead_variables, find_gpu, find_image, load_recipe
from k3lib.knowledge.recipe_schema import Recipe, Source
from k3lib.knowledge.settings import carrier_of
from k3lib.knowledge.versions import parse_release, version_facts
from k3lib.spec.strict_yaml import parse_yaml

RECIPE = load_recipe()


def test_the_file_is_strict_yaml() -> None:
    """No key stands twice, and the dates are dates."""
    text = resources.files("k3lib.knowledge").joinpath("recipe.yaml").read_text("utf-8")
    assert date(2026, 8, 20) == parse_yaml(text, "recipe.yaml")["state"]["committed"]


def _without(*path: str) -> Callable[[dict[str, Any]], None]:
    def take(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return take


@pytest.mark.parametrize(
    "damage",
    [
        _without("hardware", "B300", "source"),
        _without("sources", "blog"),
        _without("all_to_all", "deepep_v2", "source"),
        lambda data: data["sources"].update(unused={"text": "nobody"}),
        lambda data: data["contradictions"][0]["sides"].pop() and data["contradictions"][0]["sides"].pop(),
        lambda data: data["contradictions"][0]["reading"].pop("fr"),
        lambda data: data["hardware"]["B300"].update(block="nowhere"),
        lambda data: data["blocks"]["blackwell"]["settings"].update(max_model_length=1),
    ],
    ids=["no source", "source gone", "deep source", "unused source", "one side", "one language", "block", "setting"],
)
def test_a_damaged_file_is_refused(damage: Callable[[dict[str, Any]], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value has a source, every source a use, every contradiction two sides in two languages."""
    data = copy.deepcopy(read_knowledge("recipe.yaml"))
    damage(data)
    monkeypatch.setattr(package_data, "read_knowledge", lambda _: data)
    with pytest.raises(KnowledgeError, match=r"recipe\.yaml is malformed"):
        read_facts("recipe.yaml", Recipe)


def test_every_block_can_be_carried_by_the_releases_it_is_for() -> None:
    """Each setting of the recipe has a flag or a variable in every release that was looked at."""
    for block in [*RECIPE.blocks.values(), RECIPE.parsers]:
        for key in block.settings.model_dump(exclude_none=True, exclude={"environment"}):
            assert all(carrier_of(key, parse_release(f"{minor}.0")) for minor in version_facts().looked_at), key


def test_every_gpu_of_a_machine_profile_is_known_to_the_recipe() -> None:
    """Names of one file are names of the other, and vendors agree."""
    for name, gpu in load_gpus().items():
        assert name == find_gpu(name)
        assert RECIPE.hardware[name].vendor == gpu.vendor
    trays = {m.gpu.name: m.gpus // m.nodes for m in load_machines().values()}
    assert {name: RECIPE.hardware[name].gpus_per_host for name in trays} == trays


def test_units_are_a_trap_and_kept_as_printed() -> None:
    """288 is printed for GB300 and MI355X alike; drivers report different GiB for them."""
    assert RECIPE.hardware["GB300"].printed == RECIPE.hardware["MI355X"].printed == 288
    assert load_gpus()["GB300"].memory_gib != load_gpus()["MI355X"].memory_gib


def test_the_age_counts_from_the_commit_and_not_from_the_page() -> None:
    """The last commit did not touch the page's date."""
    assert 6 == RECIPE.state.age_days(date(2026, 8, 26))
    assert RECIPE.state.page_dated < RECIPE.state.committed


@pytest.mark.parametrize(
    ("text", "commit", "dated", "cited"),
    [
        ("file", "abc", date(2026, 8, 1), "file, commit abc, 2026-08-01"),
        ("vllm#1", None, None, "vllm#1"),
        ("file", None, date(2026, 8, 1), "file, 2026-08-01"),
    ],
)
def test_a_source_is_cited_with_commit_and_date(text: str, commit: str | None, dated: date | None, cited: str) -> None:
    """What is not known is left out, not invented."""
    assert cited == str(Source(text=text, commit=commit, dated=dated))


@pytest.mark.parametrize(
    ("name", "release", "dead"),
    [
        ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "0.28.0", False),
        ("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", "0.29.0", True),
        ("VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4", "0.27.1", False),
        ("VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4", "0.30.0", False),  # between what was looked at nothing is said
        ("VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4", "0.33.0", True),
        ("VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT", "0.27.1", True),
        ("VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT", "0.28.0", False),
        ("VLLM_USE_V1", "0.1.dev19262+gb6bbf29dd.d20260727", False),
        ("VLLM_USE_V1", "main", False),  # an unknown release proves nothing
        ("NCCL_CUMEM_ENABLE", "0.33.0", False),
    ],
)
def test_a_variable_is_dead_only_where_that_is_known(name: str, release: str, dead: bool) -> None:
    """A variable that a release no longer has is found; what nobody looked at is not called dead."""
    assert dead is bool(find_dead_variables([name], parse_release(release)))


def test_a_dead_variable_names_its_successor() -> None:
    """The retention variable became a flag."""
    [(_, instead, source)] = find_dead_variables(["VLLM_PREFIX_CACHE_RETENTION_INTERVAL"], parse_release("0.33.0"))
    assert "--prefix-cache-retention-interval" == instead
    assert "vllm#52216" in source


@pytest.mark.parametrize(
    ("gpu", "strategy", "utilization"),
    [("B300", "single_node_tp", 0.95), ("B200", "multi_node_tp_pp", 0.90), ("H200", None, 0.97), (None, None, 0.95)],
)
def test_the_layout_speaks_after_the_gpu_and_the_gpu_after_the_base(
    gpu: str | None, strategy: Any, utilization: float
) -> None:
    """The nearer block wins."""
    assert utilization == RECIPE.block_of(gpu, strategy).gpu_memory_utilization


def test_the_container_check_goes_past_the_entry_point() -> None:
    """Without it the word nvidia-smi would be taken for a model."""
    assert all("--entrypoint" in check.value for check in RECIPE.container_checks.values())


def test_the_images_cuda_is_known_only_as_far_as_it_is() -> None:
    """The preview image is CUDA 13.0; of `latest` only the major release is known; ROCm has none."""
    assert ["13.0", "13", None] == [
        image.cuda
        for image in (
            find_image("vllm/vllm-openai", "kimi-k3"),
            find_image("vllm/vllm-openai", "latest"),
            find_image("vllm/vllm-openai-rocm", "kimi-k3"),
        )
        if image is not None
    ]


def test_contradictions_keep_both_sides() -> None:
    """Those that a reader of the recipe meets first are there, each with different sources or statements."""
    keys = {found.key for found in RECIPE.contradictions}
    assert {"smallest-hardware", "image", "rocm-name", "checkpoint-size", "amd-numerics", "nvls"} <= keys
    for found in RECIPE.contradictions:
        assert len({(side.source, side.says.en) for side in found.sides}) == len(found.sides)
