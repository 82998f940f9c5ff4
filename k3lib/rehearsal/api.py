"""
The routes of vLLM 0.33.0 that the workbook and its users talk to: same paths, bodies, status codes and texts of
refusal.
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

from k3lib.rehearsal.arguments import VERSION
from k3lib.rehearsal.chat import ChatCall, read_chat, stream_chat, write_chat
from k3lib.rehearsal.checks import Refusal
from k3lib.rehearsal.config import EngineConfig
from k3lib.rehearsal.engine import Engine
from k3lib.rehearsal.failures import DEAD, RuntimeFailure
from k3lib.rehearsal.journal import Journal
from k3lib.rehearsal.metrics import Metrics
from k3lib.rehearsal.tokenizer import Vocabulary, render_messages, split_tokens
from k3lib.rehearsal.wire import Exchange

Route = Callable[[Exchange], Awaitable[None]]


def error_body(message: str, kind: str, code: int, param: str | None = None) -> dict[str, Any]:
    """The body of a refusal."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class Api:
    """
    Answers HTTP requests.

    Args:
        config, engine, metrics, journal: The running engine and where it writes.
        seed: Decides the answers, with the request.
    """

    def __init__(
        self,
        config: EngineConfig,
        engine: Engine,
        metrics: Metrics,
        journal: Journal,
        *,
        seed: int,
    ) -> None:
        self._config, self._engine, self._metrics, self._journal = config, engine, metrics, journal
        self._seed = seed
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

    def route_lines(self) -> list[str]:
        """`/health, Methods: GET`, as the start-up log lists them."""
        return [f"{path}, Methods: {method}" for method, path in self._routes]

    def report(self, exchange: Exchange) -> None:
        """An access line and the HTTP counter, as soon as a status is known."""
        status, request = exchange.status or 500, exchange.request
        handler = request.path if any(path == request.path for _, path in self._routes) else "none"
        if handler not in {"/metrics", "/health", "/load", "/ping", "/version"}:
            self._metrics.count_http(handler, request.method, status)
        if self._config.access_log:
            line = (
                f'{exchange.peer} - "{request.method} {request.target} HTTP/1.1" {status} {HTTPStatus(status).phrase}'
            )
            self._journal.uvicorn(line, access=True)

    async def handle(self, exchange: Exchange) -> None:
        """Find the route and answer; every failure becomes the body vLLM gives it."""
        request = exchange.request
        if not self._allowed(exchange):
            return exchange.send_json(401, {"error": "Unauthorized"})
        route = self._routes.get((request.method, request.path))
        if route is None:
            known = any(path == request.path for _, path in self._routes)
            status, text = (405, "Method Not Allowed") if known else (404, "Not Found")
            return exchange.send_json(status, error_body(text, text.replace(" ", ""), status))
        try:
            await route(exchange)
        except Refusal as refusal:
            if refusal.status == 404:
                self._log_refusal(refusal)
            exchange.send_json(refusal.status, error_body(str(refusal), refusal.kind, refusal.status, refusal.param))
        except RuntimeFailure:
            exchange.send_json(500, error_body(DEAD, "InternalServerError", 500))
        except Exception as error:
            # A slip of ours in one request must not look like a dead engine: 500, the trace in the log, and on.
            self._journal.bare("".join(traceback.format_exception(error)).rstrip())
            if exchange.status is None:
                exchange.send_json(500, error_body(str(error), "InternalServerError", 500))

    def _log_refusal(self, refusal: Refusal) -> None:
        text = (
            f"Error with model error=ErrorInfo(message='{refusal}', type='{refusal.kind}', param='{refusal.param}', "
            f"code={refusal.status})"
        )
        self._journal.api("serving.py:281", text, "ERROR")

    def _allowed(self, exchange: Exchange) -> bool:
        keys, request = self._config.api_keys, exchange.request
        if not keys or not request.path.startswith("/v1"):
            return True
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        matches = [hmac.compare_digest(token.encode(), key.encode()) for key in keys]
        return scheme.lower() == "bearer" and any(matches)

    async def _health(self, exchange: Exchange) -> None:
        exchange.send(503 if self._engine.dead else 200, b"", "text/plain; charset=utf-8")

    async def _load(self, exchange: Exchange) -> None:
        exchange.send_json(200, {"server_load": len(self._engine.running) + len(self._engine.waiting)})

    async def _version(self, exchange: Exchange) -> None:
        exchange.send_json(200, {"version": VERSION})

    async def _show_metrics(self, exchange: Exchange) -> None:
        exchange.send(200, self._metrics.render(), "text/plain; version=1.0.0; charset=utf-8")

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
                "max_model_len": self._engine.pool.max_model_len,
                "permission": [permission],
            }
            for name in self._config.served_names
        ]
        exchange.send_json(200, {"object": "list", "data": data})

    async def _chat(self, exchange: Exchange) -> None:
        body = read_json(exchange)
        call: ChatCall = read_chat(body, self._config, self._engine.pool.max_model_len, self._seed)
        self._engine.submit(call.request)
        try:
            await (stream_chat if call.stream else write_chat)(call, exchange)
        finally:
            self._engine.abort(call.request)

    async def _tokenize(self, exchange: Exchange) -> None:
        body = read_json(exchange)
        if isinstance(body.get("messages"), list):
            opened = body.get("add_generation_prompt", True)
            pieces = render_messages(body["messages"], body.get("tools") or (), open_answer=opened)
        elif isinstance(body.get("prompt"), str):
            pieces = split_tokens(body["prompt"])
        else:
            raise Refusal("1 validation error: {'type': 'missing', 'loc': ('body', 'prompt'), 'msg': 'Field required'}")
        numbers = self._words.encode(pieces)
        strings = pieces if body.get("return_token_strs") else None
        limit = self._engine.pool.max_model_len
        exchange.send_json(
            200, {"count": len(numbers), "max_model_len": limit, "tokens": numbers, "token_strs": strings}
        )

    async def _detokenize(self, exchange: Exchange) -> None:
        numbers = read_json(exchange).get("tokens")
        if not isinstance(numbers, list) or not all(isinstance(number, int) for number in numbers):
            raise Refusal("1 validation error: {'type': 'missing', 'loc': ('body', 'tokens'), 'msg': 'Field required'}")
        exchange.send_json(200, {"prompt": self._words.decode(numbers)})

    async def _reset_prefix_cache(self, exchange: Exchange) -> None:
        exchange.send_json(200, {"success": self._engine.blocks.forget()})


def read_json(exchange: Exchange) -> dict[str, Any]:
    """
    The body as a JSON object.

    Raises:
        Refusal: It is not one.
    """
    try:
        body = json.loads(exchange.request.body)
    except ValueError as error:
        position = getattr(error, "pos", 0)
        text = f"[{{'type': 'json_invalid', 'loc': ('body', {position}), 'msg': 'JSON decode error', 'input': {{}}}}]"
        raise Refusal(text, kind="Bad Request") from error
    if not isinstance(body, dict):
        raise Refusal("1 validation error: {'type': 'model_attributes_type', 'loc': ('body',)}", kind="Bad Request")
    return body
