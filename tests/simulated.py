"""The simulator without its sockets: what a request would get, in process."""

import json
from pathlib import Path
from typing import Any

from simulator.presets import load_scenario
from simulator.reply import Reply
from simulator.scenario import Scenario
from simulator.service import Exchange, Service

KEY = {"Authorization": "Bearer k"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
        },
    }
]


def read_scenario(folder: Path, text: str) -> Scenario:
    path = folder / "scenario.yaml"
    path.write_text(text, "utf-8")
    return load_scenario(path, None, 3)


def request_of(text: str, **fields: Any) -> bytes:
    asked = {"model": "moonshotai/kimi-k2.5", "messages": [{"role": "user", "content": text}]}
    return json.dumps(asked | {"max_tokens": 4000} | fields).encode()


def ask(service: Service, text: str, **fields: Any) -> Reply:
    """One request whose client stays to the end."""
    return deliver(service, service.take(KEY, request_of(text, **fields)))


def deliver(service: Service, exchange: Exchange) -> Reply:
    service.deliver(exchange)
    exchange.release()
    return exchange.reply


def answer_of(reply: Reply) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(reply.body)
    return found


def chunks_of(reply: Reply) -> list[dict[str, Any]]:
    events = [line for line in reply.body.decode().split("\n\n") if line.startswith("data: {")]
    return [json.loads(event.removeprefix("data: ")) for event in events]


def truth_of(service: Service) -> list[dict[str, Any]]:
    return [entry.truth() for entry in service.ledger.truth]
