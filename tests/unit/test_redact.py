"""The redactor: secrets out, line numbers and everything else kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3lib.redact import Redactor

REDACTOR = Redactor(b"salt", {"node17": "host", "mmartin": "user"})


@pytest.mark.parametrize(
    "secret",
    [
        "hf_" + "AbCdEfGhIjKlMnOp",
        "sk-" + "proj-1234567890abcdef",
        "ghp_" + "0123456789abcdefABCDEF",
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "eyJhbGciOiJI.eyJzdWIiOiIx.sflKxwRJSMeKKF2QT4",
    ],
)
@pytest.mark.parametrize("around", ["{}", "token {} end", "HF_TOKEN={}", "Authorization: Bearer {}", "('key', '{}')"])
def test_tokens_never_survive(secret: str, around: str) -> None:
    """A token of a known issuer is gone wherever it stands."""
    assert secret not in REDACTOR.text(around.format(secret))


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("OPENAI_API_KEY=abcdef123456", "abcdef123456"),
        ("'api_key': 'abcdef123456'", "abcdef123456"),
        ("password: hunter22", "hunter22"),
        ("https://me:p4ssw0rd@proxy.example:3128", "p4ssw0rd"),
        ("https://p4ssw0rdalone@git.example/x", "p4ssw0rdalone"),
        ("mail anna.b@example.org now", "anna.b@example.org"),
        ("/home/mmartin/models/x", "mmartin"),
        ("on node17: ready", "node17"),
        ("peer 10.4.12.7:29500", "10.4.12.7"),
    ],
)
def test_places_and_people_are_hidden(text: str, secret: str) -> None:
    """Keys, logins, mails, homes, hosts and addresses get a placeholder."""
    assert secret not in REDACTOR.text(text)


@pytest.mark.parametrize(
    "text",
    [
        "--max-tokens 64 --max-num-batched-tokens 8192",
        "tokenizer='models/tiny-qwen3', tokenizer_mode=auto",
        "GPU KV cache size: 1,047,552 tokens",
        "Starting vLLM server on http://127.0.0.1:8000",
        "version 0.33.0, torch 2.14.0+cu130",
        "prompt_tokens_details=None",
    ],
)
def test_engine_words_stay(text: str) -> None:
    """Counts, versions, loopback and tokenizers are no secrets."""
    assert text == REDACTOR.text(text)


def test_same_secret_same_name() -> None:
    """One secret has one placeholder in every file; another salt gives another."""
    first, second = REDACTOR.text("key sk-aaaaaaaaaaaa"), REDACTOR.text("and sk-aaaaaaaaaaaa")
    assert first.split()[-1] == second.split()[-1]
    assert first != Redactor(b"other").text("key sk-aaaaaaaaaaaa")


@given(st.text(max_size=300))
def test_line_numbers_are_kept(text: str) -> None:
    """Redaction never adds or drops a line, whatever the text."""
    assert text.count("\n") == REDACTOR.text(text).count("\n")


def test_values_under_secret_names() -> None:
    """In a mapping, the name alone makes the value a secret."""
    hidden = REDACTOR.value({"HF_TOKEN": "whatever", "n": [1, "hf_abcdefgh123"], "max_tokens": 5})
    assert {"n", "max_tokens", "HF_TOKEN"} == set(hidden)  # type: ignore[call-overload]
    assert "whatever" not in str(hidden)
    assert "hf_abcdefgh123" not in str(hidden)


def test_flat_names_and_lists_of_secrets() -> None:
    """`environment.HF_TOKEN` names a secret as `HF_TOKEN` does, and each of several values is one."""
    hidden = REDACTOR.value({"environment.HF_TOKEN": ["whatever", "whichever"]})
    assert "whatever" not in str(hidden)
    assert "whichever" not in str(hidden)


@pytest.mark.parametrize(
    "text",
    ["https://me:p4ssw0rd@proxy.example:3128", "HF_TOKEN=hf_abcdefgh123", "MY_SECRET: opensesame", "/home/anna/x"],
)
def test_twice_is_once(text: str) -> None:
    """What was redacted stays as it is, so that two kept files can be compared."""
    assert REDACTOR.text(text) == REDACTOR.text(REDACTOR.text(text))
