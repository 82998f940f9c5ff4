"""Settings become the words and variables that a release understands."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3lib.errors import SpecError
from k3lib.knowledge.settings import setting_facts
from k3lib.knowledge.versions import parse_release
from k3lib.launch.command import Command, render_command, render_paste
from k3lib.spec.settings import EngineSettings, setting_names


def render(release: str = "0.33.0", **fields: Any) -> Command:
    """The command for these settings."""
    return render_command(
        ["vllm"], "m", EngineSettings(**fields), release=parse_release(release), host="127.0.0.1", port=8000
    )


def words(release: str = "0.33.0", **fields: Any) -> list[str]:
    """The words after model, host and port."""
    return list(render(release, **fields).argv[7:])


def test_nothing_said() -> None:
    """Without a setting the command holds model, host and port, and no variable."""
    assert Command(("vllm", "serve", "m", "--host", "127.0.0.1", "--port", "8000"), {}) == render()


def test_served_model_name() -> None:
    """The name that requests use follows the place."""
    command = render_command(
        ["python", "-m", "x"],
        "/models/k3",
        EngineSettings(seed=0),
        release=parse_release("0.33.0"),
        host="::1",
        port=1,
        served_model_name="k3",
    )
    assert "python -m x serve /models/k3 --host ::1 --port 1 --served-model-name k3 --seed 0" == " ".join(command.argv)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, []), (True, ["--enable-prefix-caching"]), (False, ["--no-enable-prefix-caching"])]
)
@pytest.mark.parametrize("release", ["0.27.1", "0.28.0", "0.33.0", "0.1.dev19262+gb6bbf29dd.d20260727"])
def test_prefix_caching(release: str, value: bool | None, expected: list[str]) -> None:
    """Off is said explicitly, None stays unsaid; the pair is the same in every release."""
    assert expected == words(release, prefix_caching=value)


@pytest.mark.parametrize(
    ("release", "value", "argv", "env"),
    [
        ("0.27.1", 0, [], {"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "0"}),
        ("0.28.0", 1536, [], {"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "1536"}),
        ("0.28.1", "dense", [], {}),
        ("0.1.dev19262+gb6bbf29dd.d20260727", 0, [], {"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "0"}),
        ("0.29.0rc1", 0, ["--prefix-cache-retention-interval", "0"], {}),
        ("0.33.0+cpu", 32256, ["--prefix-cache-retention-interval", "32256"], {}),
        ("0.33.0", "dense", ["--prefix-cache-retention-interval", "None"], {}),
        ("0.40.0", 0, ["--prefix-cache-retention-interval", "0"], {}),
    ],
)
def test_retention_interval(release: str, value: int | str, argv: list[str], env: dict[str, str]) -> None:
    """The interval is a variable up to 0.28 and a flag from 0.29 on; dense is silence there and `None` here."""
    command = render(release, retention_interval_tokens=value)
    assert (argv, env) == (list(command.argv[7:]), command.env)


def test_unknown_release_is_no_obstacle_where_it_does_not_matter() -> None:
    """A setting that every release carries alike can be rendered for an unknown one; another can't."""
    assert ["--tensor-parallel-size", "8"] == words("latest", tensor_parallel=8)
    with pytest.raises(SpecError) as caught:
        words("latest", retention_interval_tokens=0)
    assert "retention_interval_tokens cannot be carried to vLLM latest" == caught.value.what
    assert (
        "a release that has it: VLLM_PREFIX_CACHE_RETENTION_INTERVAL (up to 0.28); "
        "--prefix-cache-retention-interval (from 0.29 on)"
    ) == caught.value.expected
    assert "'latest' is not a release number" == caught.value.evidence


def test_opposites() -> None:
    """A switch named for what it disables is turned round, and one without an opposite can't be off."""
    assert ["--disable-custom-all-reduce"] == words(custom_all_reduce=False)
    assert ["--no-disable-custom-all-reduce"] == words(custom_all_reduce=True)
    assert ["--no-disable-hybrid-kv-cache-manager"] == words(hybrid_kv_cache_manager=True)
    assert ["--headless"] == words(headless=True)
    with pytest.raises(SpecError, match="headless cannot be said to be off"):
        words(headless=False)


def test_variables() -> None:
    """Numbers and switches that are variables are written as vLLM reads them."""
    command = render(
        rust_frontend=True,
        v2_model_runner=False,
        engine_ready_timeout_s=3600,
        log_stats_interval_s=1.0,
        cpu_omp_threads_bind="0|1",
        environment={"NCCL_CUMEM_ENABLE": "1"},
    )
    assert {
        "NCCL_CUMEM_ENABLE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0|1",
        "VLLM_ENGINE_READY_TIMEOUT_S": "3600",
        "VLLM_LOG_STATS_INTERVAL": "1",
        "VLLM_USE_RUST_FRONTEND": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
    } == command.env
    assert sorted(command.env) == list(command.env)


def test_numbers_and_json() -> None:
    """A fraction keeps its digits, JSON keeps its order and has no blanks."""
    config = {"use_prefill_query_quantization": True, "mla_prefill_backend": "flashinfer"}
    assert [
        "--gpu-memory-utilization",
        "0.95",
        "--attention-config",
        '{"use_prefill_query_quantization":true,"mla_prefill_backend":"flashinfer"}',
    ] == words(attention_config=config, gpu_memory_utilization=0.95)
    assert ["--gpu-memory-utilization", "0.123456789"] == words(gpu_memory_utilization=0.123456789)


def test_recipe_of_hopper() -> None:
    """The recipe's command for Hopper comes out word for word."""
    command = render(
        trust_remote_code=True,
        gpu_memory_utilization=0.97,
        max_num_seqs=5,
        max_model_len=32768,
        moe_backend="marlin",
        custom_all_reduce=False,
        flashinfer_autotune=False,
        max_num_batched_tokens=4096,
        attention_backend="FLASHMLA",
    )
    recipe = (
        "--trust-remote-code --gpu-memory-utilization 0.97 --max-num-seqs 5 --max-model-len 32768 --moe-backend marlin "
        "--disable-custom-all-reduce --no-enable-flashinfer-autotune --max-num-batched-tokens 4096 "
        "--attention-backend FLASHMLA"
    )
    assert sorted(recipe.split()) == sorted(command.argv[7:])


def test_variable_of_a_setting_is_refused() -> None:
    """One concept has one place: its variable can't hide in `environment`, whatever the release."""
    with pytest.raises(SpecError) as caught:
        render(environment={"VLLM_PREFIX_CACHE_RETENTION_INTERVAL": "0"})
    assert (
        "environment.VLLM_PREFIX_CACHE_RETENTION_INTERVAL is the setting retention_interval_tokens" == caught.value.what
    )
    assert 2 == caught.value.exit_code


@pytest.mark.parametrize("key", setting_names())
def test_every_setting_reaches_the_engine(key: str) -> None:
    """Each setting, set alone, adds its flag or its variable, by the name that the facts give."""
    value = next(value for value in (True, 1, "1", {"a": 1}, 0.5) if _takes(key, value))
    command = render(**{key: value})
    names = {carrier.name for carrier in setting_facts().carriers[key]}
    assert names & {*command.argv[7:], *command.env}


def _takes(key: str, value: object) -> bool:
    try:
        EngineSettings().with_change(key, value)  # type: ignore[arg-type]
    except SpecError:
        return False
    return True


def test_paste() -> None:
    """The one line holds variables in alphabet and is quoted for a shell."""
    line = render_paste(["vllm", "serve", "my model", "--attention-config", '{"a":"b"}'], {"Z": "1", "A": "x y|z"})
    assert """A='x y|z' Z=1 vllm serve 'my model' --attention-config '{"a":"b"}'""" == line


@given(st.lists(st.text(min_size=1).filter(lambda text: "\0" not in text), min_size=1))
def test_paste_can_be_read_back(argv: list[str]) -> None:
    """A shell splits the line into the very words."""
    assert argv == shlex.split(render_paste(argv, {}))


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans(), min_size=1))
def test_json_can_be_read_back(config: dict[str, Any]) -> None:
    """What the engine decodes is what was set."""
    assert config == json.loads(words(compilation_config=config)[1])
