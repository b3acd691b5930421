"""A generation as OpenRouter writes it: field order and names as recorded in April 2026."""

import random
from dataclasses import dataclass
from typing import Any

from simulator.engine import Generation
from simulator.habits import Said, SaidCall, tell
from simulator.scenario import Provider
from simulator.tokens import Kimi

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def generation_id(created: int, rng: random.Random) -> str:
    """`gen-<unix seconds>-<20 letters and digits>`."""
    return f"gen-{created}-{''.join(rng.choices(_ALPHABET, k=20))}"


CACHED_DISCOUNT = 6
"""Moonshot's cached input: 0.10 for 0.60 dollars."""


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars, as billed."""

    prompt: float = 0.0
    completion: float = 0.0

    @property
    def total(self) -> float:
        return round(self.prompt + self.completion, 12)


def cost_of(prompt: int, completion: int, provider: Provider, cached: int = 0) -> Cost:
    """Price of so many tokens; `cached` ones of the prompt cost a sixth."""
    full = prompt - cached + cached / CACHED_DISCOUNT
    return Cost(
        round(full * provider.input_price / 1e6, 12),
        round(completion * provider.output_price / 1e6, 12),
    )


@dataclass(frozen=True, slots=True)
class Label:
    """What an answer is called: its id, its time in Unix seconds, the dated model, the host."""

    identity: str
    created: int
    model: str
    provider: Provider


def say(generation: Generation, provider: Provider, kimi: Kimi) -> Said:
    """The texts and counts of a generation, through the host's habits."""
    said = Said(
        thought=kimi.decode(generation.thought),
        content=kimi.decode(generation.content),
        calls=tuple(
            SaidCall(kimi.decode(call.identity), call.name, kimi.decode(call.arguments))
            for call in generation.calls
        ),
        finish_reason=generation.finish_reason,
        prompt_tokens=len(generation.prompt_ids),
        completion_tokens=len(generation.completion_ids),
        reasoning_tokens=generation.reasoning_tokens,
    )
    return tell(said, provider.habits)


def write_answer(said: Said, label: Label, cost: Cost) -> dict[str, Any]:
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
                "finish_reason": said.finish_reason,
                "native_finish_reason": said.finish_reason,
                "message": _message(said),
            }
        ],
        "usage": write_usage(said, cost),
    }


def _message(said: Said) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": said.content or (None if said.calls else ""),
        "refusal": None,
        "reasoning": said.thought,
    }
    if said.thought:
        message["reasoning_details"] = write_details(said.thought)
    if said.calls:
        message["tool_calls"] = [write_call(index, call) for index, call in enumerate(said.calls)]
    return message


def write_details(text: str) -> list[dict[str, Any]]:
    """The second copy of a thought."""
    return [{"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}]


def write_call(index: int, call: SaidCall) -> dict[str, Any]:
    """A whole tool call."""
    return {
        "type": "function",
        "index": index,
        "id": call.identity,
        "function": {"name": call.name, "arguments": call.arguments},
    }


def write_usage(said: Said, cost: Cost) -> dict[str, Any]:
    """Counts as the host reports them, and what was billed."""
    return {
        "prompt_tokens": said.prompt_tokens,
        "completion_tokens": said.completion_tokens,
        "total_tokens": said.prompt_tokens + said.completion_tokens,
        "cost": cost.total,
        "is_byok": False,
        "prompt_tokens_details": {
            "cached_tokens": said.cached_tokens, "cache_write_tokens": 0, "audio_tokens": 0,
            "video_tokens": 0,
        },
        "cost_details": {
            "upstream_inference_cost": cost.total,
            "upstream_inference_prompt_cost": cost.prompt,
            "upstream_inference_completions_cost": cost.completion,
        },
        "completion_tokens_details": {
            "reasoning_tokens": said.reasoning_tokens, "image_tokens": 0, "audio_tokens": 0,
        },
    }  # fmt: skip
