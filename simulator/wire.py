"""A generation as OpenRouter writes it: field order and names as recorded in April 2026."""

import random
from dataclasses import dataclass
from typing import Any

from simulator.engine import Generation
from simulator.scenario import Provider
from simulator.tokens import Kimi

PADDING = b"\n         \n"
"""Keep-alive before the body: LF, nine blanks, LF; 137 of 146 recorded bodies begin with some."""
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def generation_id(created: int, rng: random.Random) -> str:
    """`gen-<unix seconds>-<20 letters and digits>`."""
    return f"gen-{created}-{''.join(rng.choices(_ALPHABET, k=20))}"


def cost_usd(generation: Generation, provider: Provider) -> float:
    """Price of the tokens, as billed."""
    prompt = len(generation.prompt_ids) * provider.input_price
    return round((prompt + len(generation.completion_ids) * provider.output_price) / 1e6, 10)


@dataclass(frozen=True, slots=True)
class Label:
    """What an answer is called: its id, its time in Unix seconds, the dated model, the host."""

    identity: str
    created: int
    model: str
    provider: Provider


def write_answer(generation: Generation, label: Label, kimi: Kimi) -> dict[str, Any]:
    """The body of a whole answer."""
    return {
        "id": label.identity,
        "object": "chat.completion",
        "created": label.created,
        "model": label.model,
        "provider": label.provider.name,
        "system_fingerprint": None,
        "choices": [
            {
                "index": 0,
                "logprobs": None,
                "finish_reason": generation.finish_reason,
                "native_finish_reason": generation.finish_reason,
                "message": _message(generation, kimi),
            }
        ],
        "usage": _usage(generation, label.provider),
    }


def _message(generation: Generation, kimi: Kimi) -> dict[str, Any]:
    content = kimi.decode(generation.content)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content or (None if generation.calls else ""),
        "refusal": None,
    }
    message["reasoning"] = thought = kimi.decode(generation.thought)
    if thought:
        message["reasoning_details"] = [
            {"type": "reasoning.text", "text": thought, "format": "unknown", "index": 0}
        ]
    if generation.calls:
        message["tool_calls"] = [
            {
                "type": "function",
                "index": index,
                "id": kimi.decode(call.identity),
                "function": {"name": call.name, "arguments": kimi.decode(call.arguments)},
            }
            for index, call in enumerate(generation.calls)
        ]
    return message


def _usage(generation: Generation, provider: Provider) -> dict[str, Any]:
    prompt, completion = len(generation.prompt_ids), len(generation.completion_ids)
    cost = cost_usd(generation, provider)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "cost": cost,
        "is_byok": False,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "cost_details": {"upstream_inference_cost": cost},
        "completion_tokens_details": {
            "reasoning_tokens": generation.reasoning_tokens,
            "image_tokens": 0,
        },
    }


def write_error(code: int, message: str, **metadata: Any) -> dict[str, Any]:
    """The envelope of every error."""
    error: dict[str, Any] = {"code": code, "message": message}
    if metadata:
        error["metadata"] = metadata
    return {"error": error, "user_id": "user_2SimulatedAccountOfNobody"}
