"""What each source adds to a whole answer beside the fields that all have (openrouter.md, 21)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulator.engine import Generation
from simulator.tokens import Kimi

_FLAT_LOGPROB = -0.25
"""What every token gets: the simulator has ids, not probabilities."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What an answer is made of: the request, what was sampled, its price in US dollars."""

    body: dict[str, Any]
    generation: Generation
    kimi: Kimi
    cost_usd: float
    cached_tokens: int

    def texts(self) -> list[str]:
        """Of each sampled token; half a character becomes U+FFFD."""
        tokens = self.kimi.decode_bytes(self.generation.completion_ids)
        return [token.decode("utf-8", "replace") for token in tokens]


Extend = Callable[[dict[str, Any], Sampled], None]


def add_ids(answer: dict[str, Any], sampled: Sampled) -> None:
    """vLLM: ids on request."""
    if sampled.body.get("return_token_ids"):
        answer["prompt_token_ids"] = sampled.generation.prompt_ids
        answer["choices"][0]["token_ids"] = sampled.generation.completion_ids


def add_meta_info(answer: dict[str, Any], sampled: Sampled) -> None:
    """SGLang: the same, and ids beside log probabilities."""
    add_ids(answer, sampled)
    body, generation, choice = sampled.body, sampled.generation, answer["choices"][0]
    if body.get("return_prompt_token_ids"):
        choice["prompt_token_ids"] = generation.prompt_ids
    if body.get("return_meta_info") and body.get("logprobs"):
        pairs = zip(generation.completion_ids, sampled.texts(), strict=True)
        choice["meta_info"] = {
            "prompt_tokens": len(generation.prompt_ids),
            "completion_tokens": len(generation.completion_ids),
            "output_token_logprobs": [[_FLAT_LOGPROB, one, text] for one, text in pairs],
        }


def add_cached_tokens(answer: dict[str, Any], sampled: Sampled) -> None:
    """Moonshot: at the top of the usage."""
    answer["usage"]["cached_tokens"] = sampled.cached_tokens


def add_legacy_ids(answer: dict[str, Any], sampled: Sampled) -> None:
    """Together: log probabilities as lists side by side, with ids."""
    if sampled.body.get("logprobs"):
        legacy = _legacy(sampled) | {"token_ids": sampled.generation.completion_ids}
        answer["choices"][0]["logprobs"] = legacy


def add_logprobs(answer: dict[str, Any], sampled: Sampled) -> None:
    """Fireworks: in OpenAI's form for `true`, in the legacy one for a number."""
    wanted = sampled.body.get("logprobs")
    if wanted is True:
        answer["choices"][0]["logprobs"] = {"content": _entries(sampled), "refusal": None}
    elif wanted:
        answer["choices"][0]["logprobs"] = _legacy(sampled)
    answer["usage"]["perf_metrics"] = None


def add_estimated_cost(answer: dict[str, Any], sampled: Sampled) -> None:
    """DeepInfra: a price in the usage, under a name of its own."""
    answer["usage"]["estimated_cost"] = sampled.cost_usd


def _legacy(sampled: Sampled) -> dict[str, Any]:
    texts = sampled.texts()
    return {"tokens": texts, "token_logprobs": [_FLAT_LOGPROB] * len(texts)}


def _entries(sampled: Sampled) -> list[dict[str, Any]]:
    tokens = sampled.kimi.decode_bytes(sampled.generation.completion_ids)
    return [
        {"token": text, "logprob": _FLAT_LOGPROB, "bytes": list(token), "top_logprobs": []}
        for text, token in zip(sampled.texts(), tokens, strict=True)
    ]
