"""The paths beside completions: models, endpoints, key, credits, generations."""

import json
import time
from typing import Any
from urllib.parse import quote

from aiohttp import web

from simulator.faults.refusals import write_error
from simulator.ledger import Entry
from simulator.orders import CONTEXT_LENGTH, MODELS
from simulator.peers import Peers
from simulator.routing import SUPPORTED_PARAMETERS
from simulator.scenario import Provider
from simulator.service import Service
from simulator.wire import CACHED_DISCOUNT

_SETTLED_S = 0.5
"""`/generation` does not know a generation before."""


class Catalog:
    """What the service tells of itself."""

    def __init__(self, service: Service, peers: Peers | None = None) -> None:
        self._service = service
        self._peers = peers

    def routes(self) -> list[web.RouteDef]:
        """Paths below the API's base, in both of its spellings."""
        paths = {
            "/models": self._models, "/models/{author}/{slug}/endpoints": self._endpoints,
            "/key": self._key, "/credits": self._credits, "/generation": self._generation,
            "/generation/content": self._content,
        }  # fmt: skip
        bases = ("/api/v1", "/v1")
        return [web.get(base + path, handler) for base in bases for path, handler in paths.items()]

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": list(map(self._model, MODELS))})

    def _model(self, slug: str) -> dict[str, Any]:
        scenario = self._service.scenario
        cheapest = min(scenario.providers, key=lambda provider: provider.output_price)
        return {
            "id": slug,
            "object": "model",
            "canonical_slug": MODELS[slug],
            "hugging_face_id": "moonshotai/Kimi-K2.5",
            "name": "MoonshotAI: Kimi K2.5",
            "created": 1769487076,
            "context_length": CONTEXT_LENGTH,
            "architecture": {
                "modality": "text+image->text", "tokenizer": "Other", "instruct_type": None,
            },
            "pricing": _pricing(cheapest),
            "top_provider": {
                "context_length": CONTEXT_LENGTH, "max_completion_tokens": CONTEXT_LENGTH,
                "is_moderated": False,
            },
            "per_request_limits": None,
            "supported_parameters": SUPPORTED_PARAMETERS,
            "default_parameters": {},
            "reasoning": {
                "mandatory": scenario.reasoning_mandatory, "default_enabled": True,
                "supported_efforts": None, "default_effort": None,
            },
            "expiration_date": scenario.expiration_date,
        }  # fmt: skip

    async def _endpoints(self, request: web.Request) -> web.Response:
        slug = f"{request.match_info['author']}/{request.match_info['slug']}"
        if slug not in MODELS:
            return _error(404, "Model not found")
        endpoints = [_endpoint(slug, provider) for provider in self._service.scenario.providers]
        return web.json_response({"data": {**self._model(slug), "endpoints": endpoints}})

    async def _key(self, request: web.Request) -> web.Response:
        if not request.headers.get("Authorization", "").startswith("Bearer "):
            return _error(401, "No auth credentials found")
        limit = self._service.scenario.limits.key_limit_usd
        usage = self._service.ledger.charged_usd
        left = None if limit is None else max(0.0, limit - usage)
        data = {
            "label": "sk-or-v1-sim...ate", "limit": limit, "limit_remaining": left,
            "limit_reset": None, "usage": usage, "usage_daily": usage, "usage_weekly": usage,
            "usage_monthly": usage, "is_free_tier": False, "is_management_key": False,
            "expires_at": None, "rate_limit": {"requests": -1, "interval": "10s"},
        }  # fmt: skip
        return web.json_response({"data": data})

    async def _credits(self, _request: web.Request) -> web.Response:
        return _error(403, "Only management keys can fetch credits")

    async def _generation(self, request: web.Request) -> web.Response:
        identity = request.query.get("id", "")
        account = self.account(identity) or await self._ask_others("generation", identity)
        if account is None:
            return _error(404, f"Generation {identity} not found")
        return web.json_response({"data": account})

    def account(self, identity: str) -> dict[str, Any] | None:
        """What this process knows of a generation, once it is settled."""
        entry = self._service.find_entry(identity)
        settled_s = _SETTLED_S / self._service.scenario.speed
        if entry is None or time.monotonic() - entry.ended_s < settled_s:
            return None
        return _account(entry)

    async def _ask_others(self, what: str, identity: str) -> dict[str, Any] | None:
        if self._peers is None:
            return None
        told = await self._peers.ask("GET", f"/own/{what}?id={quote(identity)}")
        return next(filter(None, map(json.loads, told)), None)

    async def _content(self, request: web.Request) -> web.Response:
        identity = request.query.get("id", "")
        if not self._service.scenario.logs_content:
            return _error(404, "Input/Output logging is not enabled for this generation")
        content = self._service.content_of(identity)
        content = content or await self._ask_others("content", identity)
        if content is None:
            return _error(404, f"Generation {identity} not found")
        return web.json_response({"data": content})


def _error(status: int, message: str) -> web.Response:
    return web.json_response(write_error(status, message), status=status)


def _pricing(provider: Provider) -> dict[str, str]:
    """US dollars per token, as texts."""
    return {
        "prompt": f"{provider.input_price / 1e6:.10f}".rstrip("0"),
        "completion": f"{provider.output_price / 1e6:.10f}".rstrip("0"),
        "request": "0", "image": "0",
        "input_cache_read": f"{provider.input_price / 1e6 / CACHED_DISCOUNT:.10f}".rstrip("0"),
    }  # fmt: skip


def _endpoint(slug: str, provider: Provider) -> dict[str, Any]:
    return {
        "name": f"{provider.name} | {MODELS[slug]}",
        "provider_name": provider.name,
        "tag": f"{provider.slug}/{provider.quantization}",
        "quantization": provider.quantization,
        "context_length": CONTEXT_LENGTH,
        "max_completion_tokens": CONTEXT_LENGTH,
        "max_prompt_tokens": None,
        "pricing": _pricing(provider),
        "supported_parameters": SUPPORTED_PARAMETERS,
        "status": 0,
        "uptime_last_5m": 100,
        "uptime_last_30m": 99.9,
        "uptime_last_1d": 99.5,
        "supports_implicit_caching": False,
        "supports_tool_choice": {"auto": True, "none": True, "required": True},
    }


def _account(entry: Entry) -> dict[str, Any]:
    usd = entry.usd if entry.is_charged else 0.0
    prompt, completion = entry.prompt_tokens, entry.completion_tokens
    return {
        "id": entry.generation_id, "upstream_id": None, "total_cost": usd, "usage": usd,
        "cache_discount": None, "upstream_inference_cost": 0, "model": entry.model,
        "streamed": entry.is_stream, "cancelled": entry.is_cancelled and entry.is_stream,
        "provider_name": entry.provider, "finish_reason": entry.finish_reason,
        "native_finish_reason": entry.finish_reason,
        "tokens_prompt": prompt, "tokens_completion": completion,
        "native_tokens_prompt": prompt, "native_tokens_completion": completion,
        "native_tokens_reasoning": entry.reasoning_tokens,
        "native_tokens_cached": entry.cached_tokens,
        "is_byok": False, "api_type": "completions",
        "response_cache_source_id": entry.source_id,
    }  # fmt: skip
