"""Settings are strict, change one at a time, and say how they differ."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from k3lib.errors import SpecError
from k3lib.spec.settings import TOPOLOGY_SETTINGS, ChangeGroup, EngineSettings, name_changes, setting_names

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tensor_parallel": st.integers(1, 64),
    "nodes": st.integers(1, 8),
    "headless": st.booleans(),
    "max_model_len": st.integers(1, 2**20) | st.just("auto"),
    "gpu_memory_utilization": st.floats(0.1, 1),
    "prefix_caching": st.booleans(),
    "retention_interval_tokens": st.integers(0, 2**16) | st.just("dense"),
    "attention_config": st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    "load_format": st.sampled_from(["auto", "dummy", "fastsafetensors"]),
    "engine_ready_timeout_s": st.integers(1, 7200),
    "environment.NCCL_DEBUG": st.sampled_from(["INFO", "WARN"]),
    "environment.UCX_TLS": st.text(min_size=1),
}
CHANGES = st.sampled_from(sorted(VALUES)).flatmap(lambda key: st.tuples(st.just(key), st.none() | VALUES[key]))


@given(st.lists(CHANGES, max_size=6), CHANGES)
def test_a_change_is_exactly_that_difference(before: list[tuple[str, Any]], change: tuple[str, Any]) -> None:
    """Changing one key differs in exactly that key, with both values, and changing it back in nothing."""
    base = EngineSettings()
    for key, value in before:
        base = base.with_change(key, value)
    key, value = change
    old = base.flat().get(key)
    changed = base.with_change(key, value)
    found = [(difference.key, difference.ours, difference.theirs) for difference in base.differences(changed)]
    assert ([] if value == old else [(key, old, value)]) == found
    assert base == changed.with_change(key, old)


@given(st.lists(CHANGES, max_size=6))
def test_flat_is_the_whole_story(changes: list[tuple[str, Any]]) -> None:
    """What is flat can be made settings again, and so can their JSON."""
    settings = EngineSettings()
    for key, value in changes:
        settings = settings.with_change(key, value)
    assert settings == EngineSettings.from_flat(settings.flat())
    assert settings == EngineSettings.model_validate_json(settings.model_dump_json())
    assert None not in settings.flat().values()


def test_unset_is_not_zero() -> None:
    """A setting that is 0 or false is said; only None is silence."""
    assert {"prefix_caching": False, "retention_interval_tokens": 0} == EngineSettings(
        prefix_caching=False, retention_interval_tokens=0
    ).flat()
    assert {} == EngineSettings().flat()


@pytest.mark.parametrize(
    ("key", "nearest"), [("prefix_cachin", "prefix_caching"), ("tensor_paralel", "tensor_parallel"), ("zzz", None)]
)
def test_unknown_key_names_the_nearest(key: str, nearest: str | None) -> None:
    """A misspelt key is refused with the nearest valid one, if any is near."""
    with pytest.raises(SpecError) as caught:
        EngineSettings().with_change(key, True)
    assert f"{key!r} is not an engine setting" == caught.value.what
    assert (f"{nearest}, the nearest setting" if nearest else "a field of EngineSettings, or environment.NAME") == (
        caught.value.expected
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tensor_parallel", 0),
        ("tensor_parallel", "8"),
        ("tensor_parallel", True),
        ("gpu_memory_utilization", 1.5),
        ("gpu_memory_utilization", 0.0),
        ("prefix_caching", "on"),
        ("prefix_caching", 1),
        ("retention_interval_tokens", -1),
        ("retention_interval_tokens", "none"),
        ("master_port", 70_000),
        ("attention_config", "{}"),
        ("load_format", ""),
        ("environment.A", 1),
        ("environment.9", "x"),
        ("environment.", "x"),
    ],
)
def test_wrong_value(key: str, value: Any) -> None:
    """A value that a setting can't take is refused and shown, never converted."""
    with pytest.raises(SpecError) as caught:
        EngineSettings().with_change(key, value)
    assert f"{key} cannot be {value!r}" == caught.value.what
    assert caught.value.expected


def test_unknown_field_is_refused() -> None:
    """A file with a key that is no setting does not load."""
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        EngineSettings.model_validate({"prefix_cachin": True})


def test_topology_counts_once() -> None:
    """Nodes and ranks move together and count as one change; another setting beside them is a second."""
    base = EngineSettings(tensor_parallel=8)
    wide = EngineSettings(tensor_parallel=8, pipeline_parallel=2, nodes=2, master_address="10.0.0.1", max_num_seqs=4)
    found = base.differences(wide)
    groups = {difference.key: difference.group for difference in found}
    assert {
        "pipeline_parallel": ChangeGroup.TOPOLOGY,
        "nodes": ChangeGroup.TOPOLOGY,
        "master_address": ChangeGroup.TOPOLOGY,
        "max_num_seqs": None,
    } == groups
    assert ["topology", "max_num_seqs"] == name_changes(found)


def test_topology_holds_settings_only() -> None:
    """Every name of the group is a setting."""
    assert set() == TOPOLOGY_SETTINGS - set(setting_names())


def test_every_setting_says_what_it_is() -> None:
    """Each field has its sentence, which the JSON schema carries."""
    fields = EngineSettings.model_fields
    assert [] == [key for key, field in fields.items() if not field.description]
