"""The redactor of this machine: its salt lies outside every archive, its words name this place and person."""

from __future__ import annotations

import getpass
import os
import platform
import re
import secrets
from pathlib import Path

from k3lib.redact import Redactor

_SECRET_VARIABLE = re.compile(r"(?i)(token|secret|passw|api_?key|access_?key|credential)")
_EVERYBODY = {"root", "user", "admin", "ubuntu", "localhost", "jovyan", "vllm", "test"}


def load_redactor() -> Redactor:
    """
    The redactor for everything that leaves `raw/`.

    Returns:
        One whose placeholders are the same in every archive of this user on this machine. Where no
        salt can be kept, a salt of this process: still safe, only not comparable.
    """
    words = {value: "secret" for name, value in os.environ.items() if _SECRET_VARIABLE.search(name) and len(value) >= 8}
    host = platform.node()
    for kind, word in (("host", host), ("host", host.split(".")[0]), ("user", _user()), ("home", str(Path.home()))):
        if len(word) >= 3 and word.lower() not in _EVERYBODY and word != "/root":
            words.setdefault(word, kind)
    return Redactor(_read_salt(), words)


def _read_salt() -> bytes:
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    file = base / "k3" / "salt"
    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(secrets.token_bytes(32))
        return file.read_bytes()[:64] or _PROCESS_SALT
    except OSError:
        return _PROCESS_SALT


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


_PROCESS_SALT = secrets.token_bytes(32)
