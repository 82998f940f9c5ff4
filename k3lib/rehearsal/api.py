"""
The routes of vLLM that the workbook and its users talk to: same paths, bodies, status codes and texts of refusal, in
the manner of the front end that is played.
"""

from __future__ import annotations

import hmac
import json
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from k3lib.rehearsal.chat import ChatCall, read_chat, write_chat
from k3lib.rehearsal.checks import Refusal, check_model, invalid
from k3lib.rehearsal.config import EngineConfig, Stage
from k3lib.rehearsal.failures import DEAD, RuntimeFailure
from k3lib.rehearsal.fleet import Fleet
from k3lib.rehearsal.http_metrics import HttpDone
from k3lib.rehearsal.journal import Journal
from k3lib.rehearsal.metrics import Families
from k3lib.rehearsal.pacing import Pacing
from k3lib.rehearsal.stream import stream_chat
from k3lib.rehearsal.tokenizer import Vocabulary, render_messages, split_tokens
from k3lib.rehearsal.wire import Exchange
from k3lib.rehearsal.wording import Wording

RUST_DEAD = "engine core reported fatal failure"
Route = Callable[[Exchange], Awaitable[None]]


def error_body(message: str, kind: str, code: int, param: str | None = None) -> dict[str, Any]:
    """The body of a refusal, as the Python front end words it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def rust_error_body(message: str, code: int, param: str | None = None) -> dict[str, Any]:
    """
    The same refusal from the Rust front end, which follows OpenAI's own types.

    Source: vLLM rust/src/server/src/error.rs.

    >>> rust_error_body("The model `m` does not exist. Valid aliases: k3.", 404, "model")["error"]["code"]
    'model_not_found'
    """
    kind = "server_error" if code >= 500 else "invalid_request_error"
    if code == 404:
        error = {"message": message.partition(" Valid aliases: ")[0], "param": param, "code": "model_not_found"}
    elif "'json_invalid'" in message:
        error = {"message": message, "param": None, "code": "json_parse_error"}
    else:
        error = {"message": message, "param": param, "code": kind}
    return {"error": {"type": kind, **error}}


class Api:
    """
    Answers HTTP requests.

    Args:
        config, fleet, families, journal, say: The running engines and where they write.
        stage: Its seed decides the answers, with the request.
    """

    def __init__(
        self,
        config: EngineConfig,
        fleet: Fleet,
        families: Families,
        journal: Journal,
        say: Wording,
        stage: Stage,
    ) -> None:
        self._config, self._fleet, self._families = config, fleet, families
        self._journal, self._say = journal, say
        self._rust = config.profile.front_end == "rust"
        self._stage = stage
        self._words = Vocabulary()
        self._created = int(time.time())
        self._routes: dict[tuple[str, str], Route] = {
            ("GET", "/health"): self._health,
            ("GET", "/load"): self._load,
            ("GET", "/ping"): self._health,
            ("POST", "/ping"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/metrics"): self._show_metrics,
            ("GET", "/v1/models"): self._models,
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/detokenize"): self._detokenize,
        }
        if config.developer_routes:
            self._routes["POST", "/reset_prefix_cache"] = self._reset_prefix_cache
        self._pacing = Pacing() if stage.variables.get("K3_REHEARSAL_PACING") == "1" else None
        if self._pacing:
            self._routes["GET", "/rehearsal/pacing"] = self._show_pacing
        for key in [key for key in self._routes if key[1] in config.profile.routes_without]:
            del self._routes[key]

    def route_lines(self) -> list[str]:
        """`/health, Methods: GET`, as the start-up log lists them."""
        return [f"{path}, Methods: {method}" for method, path in self._routes]

    def report(self, exchange: Exchange) -> None:
        """An access line and the HTTP counter, as soon as a status is known."""
        status, request = exchange.status or 500, exchange.request
        handler = request.path if any(path == request.path for _, path in self._routes) else "none"
        if handler not in {"/metrics", "/health", "/load", "/ping", "/version"}:
            took_s = time.monotonic() - exchange.began
            sizes = len(request.body), exchange.response_bytes
            self._families.count_http(HttpDone(handler, request.method, status, *sizes, took_s))
        if self._config.access_log:
            asked, phrase = f"{request.method} {request.target}", HTTPStatus(status).phrase
            self._say.line("access", peer=exchange.peer, request=asked, status=status, phrase=phrase)

    async def handle(self, exchange: Exchange) -> None:
        """Find the route and answer; every failure becomes the body vLLM gives it."""
        request = exchange.request
        if not self._allowed(exchange):
            return exchange.send_json(401, {"error": "Unauthorized"})
        route = self._routes.get((request.method, request.path))
        if route is None:
            known = any(path == request.path for _, path in self._routes)
            status, text = (405, "Method Not Allowed") if known else (404, "Not Found")
            return exchange.send(status, b"", "") if self._rust else exchange.send_json(status, {"detail": text})
        try:
            await route(exchange)
        except Refusal as refusal:
            if refusal.status == 404:
                self._log_refusal(refusal)
            self._refuse(exchange, refusal.status, str(refusal), refusal.kind, refusal.param)
        except RuntimeFailure:
            self._refuse(exchange, 500, RUST_DEAD if self._rust else DEAD, "InternalServerError")
        except Exception as error:
            # A slip of ours in one request must not look like a dead engine: 500, the trace in the log, and on.
            self._journal.bare("".join(traceback.format_exception(error)).rstrip())
            if exchange.status is None:
                self._refuse(exchange, 500, str(error), "InternalServerError")

    def _refuse(self, exchange: Exchange, status: int, text: str, kind: str, param: str | None = None) -> None:
        body = rust_error_body(text, status, param) if self._rust else error_body(text, kind, status, param)
        exchange.send_json(status, body)

    def _log_refusal(self, refusal: Refusal) -> None:
        self._say.line(
            "refused-model", message=str(refusal), kind=refusal.kind, param=refusal.param, status=refusal.status
        )

    def _allowed(self, exchange: Exchange) -> bool:
        keys, request = self._config.api_keys, exchange.request
        if not keys or not request.path.startswith("/v1"):
            return True
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        matches = [hmac.compare_digest(token.encode(), key.encode()) for key in keys]
        return scheme.lower() == "bearer" and any(matches)

    async def _health(self, exchange: Exchange) -> None:
        exchange.send(503 if self._fleet.dead else 200, b"", "text/plain; charset=utf-8")

    async def _load(self, exchange: Exchange) -> None:
        exchange.send_json(200, {"server_load": self._fleet.load})

    async def _version(self, exchange: Exchange) -> None:
        version = self._config.profile.version
        own = {"rust_frontend_version": version} if self._rust else {}
        exchange.send_json(200, {"version": version, **own})

    async def _show_metrics(self, exchange: Exchange) -> None:
        exchange.send(200, *self._families.render())

    async def _show_pacing(self, exchange: Exchange) -> None:
        if self._pacing:
            exchange.send_json(200, self._pacing.tell())

    async def _models(self, exchange: Exchange) -> None:
        permission = {
            "id": f"modelperm-{uuid.uuid4().hex[:16]}",
            "object": "model_permission",
            "created": self._created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        data = [
            {
                "id": name,
                "object": "model",
                "created": self._created,
                "owned_by": "vllm",
                "root": self._config.model,
                "parent": None,
                "max_model_len": self._fleet.pool.max_model_len,
                "permission": [permission],
            }
            for name in self._config.served_names
        ]
        exchange.send_json(200, {"object": "list", "data": data})

    async def _chat(self, exchange: Exchange) -> None:
        body = read_json(exchange)
        call: ChatCall = read_chat(body, self._config, self._fleet.pool.max_model_len, self._stage)
        self._fleet.submit(call.request)
        try:
            if call.stream:
                await stream_chat(call, exchange, self._pacing)
            else:
                await write_chat(call, exchange)
        finally:
            self._fleet.abort(call.request)

    async def _tokenize(self, exchange: Exchange) -> None:
        body = read_json(exchange)
        check_model(body, self._config)
        if isinstance(body.get("messages"), list):
            opened = body.get("add_generation_prompt", True)
            pieces = render_messages(body["messages"], body.get("tools") or (), open_answer=opened)
        elif isinstance(body.get("prompt"), str):
            pieces = split_tokens(body["prompt"])
        else:
            raise invalid(*(("missing", f"body.{field}", "Field required", body) for field in ("prompt", "messages")))
        numbers = self._words.encode(pieces)
        strings = pieces if body.get("return_token_strs") else None
        limit = self._fleet.pool.max_model_len
        exchange.send_json(
            200, {"count": len(numbers), "max_model_len": limit, "tokens": numbers, "token_strs": strings}
        )

    async def _detokenize(self, exchange: Exchange) -> None:
        body = read_json(exchange)
        numbers = body.get("tokens")
        if not isinstance(numbers, list) or not all(isinstance(number, int) for number in numbers):
            raise invalid(("missing", "body.tokens", "Field required", body))
        check_model(body, self._config)
        exchange.send_json(200, {"prompt": self._words.decode(numbers)})

    async def _reset_prefix_cache(self, exchange: Exchange) -> None:
        exchange.send_json(200, {"success": self._fleet.reset_prefix_cache()})


def read_json(exchange: Exchange) -> dict[str, Any]:
    """
    The body as a JSON object.

    Raises:
        Refusal: It is not one.
    """
    data = exchange.request.body
    if not data:
        raise invalid(("missing", "body", "Field required", None))
    try:
        body = json.loads(data)
    except ValueError as error:
        place, reason = getattr(error, "pos", 0), getattr(error, "msg", str(error))
        text = (
            f"1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{place}', 'msg': 'JSON decode error', "
            f"'input': '<dict of 0 items>', 'ctx': {{'error': {reason!r}}}}}"
        )
        raise Refusal(text, kind="Bad Request", param=f"body.{place}") from error
    if not isinstance(body, dict):
        text = "Input should be a valid dictionary or object to extract fields from"
        raise invalid(("model_attributes_type", "body", text, body))
    return body
