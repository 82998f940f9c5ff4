"""The redactor of this machine: its salt lies outside every archive, its words name this place and person."""

from __future__ import annotations

import getpass
import os
import platform
import re
import secrets
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel

from k3lib.redact import Redactor, find_secrets
from k3lib.spec.vocabulary import EngineKind, Objective, Phase, StageName

_SECRET_VARIABLE = re.compile(r"(?i)(token|secret|passw|api_?key|access_?key|credential)")
_EVERYBODY = {"root", "user", "admin", "ubuntu", "localhost", "jovyan", "vllm", "test"}
_OURS = {word.value for kind in (EngineKind, Objective, Phase, StageName) for word in kind}
_FOLDER_NAMES = (("name",), ("campaign",), ("campaign", "name"), ("request", "name"))
_learned: set[str] = set()

M = TypeVar("M", bound=BaseModel)


def load_redactor() -> Redactor:
    """
    The redactor for everything that leaves `raw/`.

    Returns:
        One whose placeholders are the same in every archive of this user on this machine. Where no
        salt can be kept, a salt of this process: still safe, only not comparable.
    """
    words = {value: "secret" for name, value in os.environ.items() if _SECRET_VARIABLE.search(name) and len(value) >= 8}
    words |= dict.fromkeys(_learned, "secret")
    host = platform.node()
    for kind, word in (("host", host), ("host", host.split(".")[0]), ("user", _user()), ("home", str(Path.home()))):
        if len(word) >= 3 and word.lower() not in _EVERYBODY | _OURS and word != "/root":
            words.setdefault(word, kind)
    return Redactor(_read_salt(), words)


def learn_secrets(*models: BaseModel) -> None:
    """
    Have every redactor of this process hide what these parameters hold under a secret's name, wherever it turns up.

    Args:
        models: A campaign, a session file: what people write, as it was read.
    """
    for model in models:
        _learned.update(find_secrets(model.model_dump(mode="json")))


def redact_model(model: M) -> M:
    """
    The model as it may stand in an archive; twice is the same as once, so that two kept ones can be compared.

    Args:
        model: A plan, a campaign, a session file, a record.

    Returns:
        The same with secrets and places replaced. Names of folders stay: the path says them anyway.
    """
    plain: Any = model.model_dump(mode="json")
    kept: Any = load_redactor().value(plain)
    for within, original in ((kept, plain), (kept.get("plan"), plain.get("plan"))):
        for path in _FOLDER_NAMES:
            _keep_name(within, original, path)
    return type(model).model_validate_json(orjson.dumps(kept), extra="ignore")


def _keep_name(kept: Any, plain: Any, path: tuple[str, ...]) -> None:
    *folders, last = path
    for key in folders:
        kept, plain = (side.get(key) if isinstance(side, dict) else None for side in (kept, plain))
    name = plain.get(last) if isinstance(plain, dict) else None
    if isinstance(name, str) and re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        kept[last] = name


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
