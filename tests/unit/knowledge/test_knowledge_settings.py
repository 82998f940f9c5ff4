"""The facts about settings are whole, sourced, and don't contradict themselves."""

from __future__ import annotations

import itertools
from importlib import resources
from typing import Any

import pytest

from k3lib.errors import KnowledgeError, SpecError
from k3lib.knowledge import package_data
from k3lib.knowledge.package_data import read_facts
from k3lib.knowledge.settings import (
    SettingFacts,
    check_environment,
    concept_of_variable,
    debug_variables,
    default_of,
    setting_facts,
)
from k3lib.knowledge.versions import parse_release, version_facts
from k3lib.spec.settings import EngineSettings, setting_names
from k3lib.spec.strict_yaml import parse_yaml


@pytest.mark.parametrize("name", ["settings.yaml", "versions.yaml"])
def test_file_is_strict_yaml(name: str) -> None:
    """No key stands twice in a file of facts."""
    text = resources.files("k3lib.knowledge").joinpath(name).read_text(encoding="utf-8")
    assert parse_yaml(text, name)["schema_version"] == 1


def test_one_carrier_per_release() -> None:
    """In every release that was looked at, each setting has exactly one carrier."""
    for key, text in itertools.product(setting_names(), version_facts().looked_at):
        release = parse_release(text + ".0")
        carriers = [c.name for c in setting_facts().carriers[key] if release.within(c.since, c.until)]
        assert 1 == len(carriers), f"{key} in {text}: {carriers}"


def test_no_name_carries_two_settings() -> None:
    """A flag or a variable stands for one setting only."""
    names = [carrier.name for carriers in setting_facts().carriers.values() for carrier in carriers]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(
    ("release", "hybrid", "expected"),
    [("0.27.1", True, False), ("0.28.0", True, True), ("0.33.0", True, True), ("0.27.1", False, None)],
)
def test_prefix_caching_default(release: str, hybrid: bool, expected: bool | None) -> None:
    """For hybrid models prefix caching is off up to 0.27 and on from 0.28; of others nothing is said."""
    assert default_of("prefix_caching", parse_release(release), hybrid=hybrid) is expected


@pytest.mark.parametrize(("release", "expected"), [("0.28.0", "dense"), ("0.29.0", 0), ("0.33.0", 0), ("main", None)])
def test_retention_default(release: str, expected: Any) -> None:
    """Dense up to 0.28, semantic checkpoints only from 0.29; unknown where the release is."""
    assert default_of("retention_interval_tokens", parse_release(release), hybrid=True) == expected


def test_environment_without_a_concept_passes() -> None:
    """A variable that no setting stands for is free; one that any release knows as a setting is not."""
    check_environment(EngineSettings(environment={"NCCL_CUMEM_ENABLE": "1"}))
    assert "engine_ready_timeout_s" == concept_of_variable("VLLM_ENGINE_READY_TIMEOUT_S")
    with pytest.raises(SpecError, match=r"environment\.VLLM_CPU_KVCACHE_SPACE is the setting cpu_kv_cache_space_gib"):
        check_environment(EngineSettings(environment={"VLLM_CPU_KVCACHE_SPACE": "1"}))


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"NCCL_DEBUG": "trace"}, ["NCCL_DEBUG=trace"]),
        ({"NCCL_DEBUG": "WARN"}, []),
        ({"CUDA_LAUNCH_BLOCKING": "1", "VLLM_TRACE_FUNCTION": "0"}, ["CUDA_LAUNCH_BLOCKING=1"]),
        ({"VLLM_LOGGING_LEVEL": "DEBUG"}, ["VLLM_LOGGING_LEVEL=DEBUG"]),
        ({"VLLM_LOGGING_LEVEL": "INFO", "NCCL_P2P_DISABLE": ""}, []),
        ({"NCCL_P2P_DISABLE": "1"}, ["NCCL_P2P_DISABLE=1"]),
        ({"PATH": "/bin"}, []),
    ],
)
def test_debug_variables(environment: dict[str, str], found: list[str]) -> None:
    """A debug variable is one by its value: switched off it keeps no trial out."""
    assert found == debug_variables(environment)


def test_malformed_facts_are_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken file of facts is a KnowledgeError that names the file, not the reader's mistake."""
    data = package_data.read_knowledge("settings.yaml")
    data["carriers"].pop("seed")
    monkeypatch.setattr(package_data, "read_knowledge", lambda name: data)
    with pytest.raises(KnowledgeError, match=r"settings\.yaml is malformed") as caught:
        read_facts("settings.yaml", SettingFacts)
    assert "carriers and EngineSettings disagree on ['seed']" in caught.value.evidence + caught.value.expected
