"""
Secrets and places out of text, line for line, the same secret always under the same name.

A placeholder is typed and salted: `<token:3f2a9c>`. The salt is given by the caller and never
stands in an archive, so that a placeholder can be compared but not looked up.

Source: shapes of tokens as their issuers document them (Hugging Face `hf_`, OpenAI `sk-`,
GitHub `ghp_`, AWS `AKIA`), RFC 3986 user information, RFC 6750 bearer tokens.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import partial

_SECRET_NAME = (
    r"[A-Za-z0-9_.-]*(?:token(?!s|iz)|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|credential)[A-Za-z0-9_.-]*"
)
_RULES: list[tuple[str, re.Pattern[str]]] = [
    ("key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.S)),
    ("login", re.compile(r"(?<=://)(?!<login:)[^/\s:@'\"]+(?::[^/\s@'\"]*)?(?=@)")),
    (
        "token",
        re.compile(
            r"\b(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{16,}|xox[abp]-[A-Za-z0-9-]{8,}"
            r"|AKIA[A-Z0-9]{16}|eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*)"
        ),
    ),
    ("token", re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{6,}")),
    # NAME=value and 'name': 'value', but never the numbers of --max-tokens or token counts.
    (
        "secret",
        re.compile(rf"(?i)(?<![A-Za-z0-9<])(?:{_SECRET_NAME})['\"]?\s*[=:]\s*['\"]?(?P<value>[^\s'\",;]{{6,}})"),
    ),
    ("email", re.compile(r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}\b")),
    ("home", re.compile(r"(?<![\w.])(?:/home|/Users|/lustre/home|/nfs/home)/[A-Za-z0-9._-]+")),
    ("address", re.compile(r"(?<![\d.])(?!127\.|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?![\d.]|\+)")),
]
_NAMED = re.compile(_SECRET_NAME, re.I)
_FIELD = re.compile(r"[a-z_]+")
_HARMLESS = re.compile(r"^(?:[\d.,]+|None|null|True|False|true|false|<[a-z]+:[0-9a-f]{6}>.*|\*+)$")


class Redactor:
    """
    Replaces what must not be shared, by typed, salted, consistent placeholders.

    Args:
        salt: Bytes that stay outside every archive.
        words: Literal strings to hide beside the patterns: host names, user names, key values.

    >>> Redactor(b"x").text("curl -H 'Authorization: Bearer abcdef123456' http://127.0.0.1:8000/v1")
    "curl -H 'Authorization: Bearer <token:1c133a>' http://127.0.0.1:8000/v1"
    """

    def __init__(self, salt: bytes, words: Mapping[str, str] | None = None) -> None:
        self._salt = salt
        # Longest first, so that a name inside another does not break it.
        known = sorted((words or {}).items(), key=lambda pair: -len(pair[0]))
        self._words = [(kind, word, re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")) for word, kind in known]

    def placeholder(self, kind: str, secret: str) -> str:
        """The stand-in of one secret, `<kind:6 hex digits>`."""
        return f"<{kind}:{hashlib.blake2b(secret.encode(), key=self._salt[:64], digest_size=3).hexdigest()}>"

    def text(self, text: str) -> str:
        """The same text, the same number of lines, secrets replaced."""
        for kind, word, pattern in self._words:
            if word in text:
                text = pattern.sub(self.placeholder(kind, word), text)
        for kind, pattern in _RULES:
            text = pattern.sub(partial(self._replace, kind), text)
        return text

    def _replace(self, kind: str, found: re.Match[str]) -> str:
        whole = found.group(0)
        secret = found.groupdict().get("value")
        if secret is None:
            secret = whole
        elif _HARMLESS.match(secret):
            return whole  # a name that sounds secret beside a count, a flag or nothing
        return whole.replace(secret, self.placeholder(kind, secret)) + "\n" * secret.count("\n")

    def value(self, value: object) -> object:
        """
        The same JSON-like value with every text redacted, keys too; a key that names a secret hides its value.

        A key of small letters alone is a field's name and stays, whatever this machine and its users are called.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._key(str(k)): self._named(str(k), v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(v) for v in value]
        return value

    def _key(self, key: str) -> str:
        return key if _FIELD.fullmatch(key) else self.text(key)

    def _named(self, name: str, value: object) -> object:
        if not _NAMED.fullmatch(name):
            return self.value(value)
        if isinstance(value, list | tuple):
            return [self._named(name, v) for v in value]
        if isinstance(value, str) and value and not _HARMLESS.match(value):
            return self.placeholder("secret", value)
        return self.value(value)


def find_secrets(value: object) -> set[str]:
    """
    The texts that stand under the name of a secret anywhere in a JSON-like value, so that they can be hidden elsewhere.

    Args:
        value: Parameters as they were read.

    Returns:
        Texts of at least six characters; a shorter one would hide too much else.

    >>> find_secrets({"environment": {"MY_SECRET": "opensesame", "TZ": "UTC"}})
    {'opensesame'}
    """
    if isinstance(value, list | tuple):
        return {secret for one in value for secret in find_secrets(one)}
    if not isinstance(value, Mapping):
        return set()
    found: set[str] = set()
    for name, under in value.items():
        values = under if isinstance(under, list | tuple) else [under]
        if _NAMED.fullmatch(str(name)):
            found |= {v for v in values if isinstance(v, str) and len(v) >= 6 and not _HARMLESS.match(v)}
        found |= find_secrets(under)
    return found
