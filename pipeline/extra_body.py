"""What `--extra_body` may add to a request: nothing that decides the ids behind our back."""

import json
from typing import Any

from transforms.chat.profile import ModelProfile
from transforms.failures import ConfigError

_OWNED = frozenset({
    "model", "models", "messages", "tools", "max_tokens", "max_completion_tokens", "temperature",
    "top_p", "seed", "stream", "stream_options", "n", "user",
})  # fmt: skip
"""Fields of the body that flags and prompts decide."""
_FORCING = frozenset({
    "stop", "tool_choice", "response_format", "plugins", "transforms", "logit_bias", "prediction",
    "functions", "function_call", "structured_outputs",
})  # fmt: skip
"""Fields under which a server constrains or rewrites what the model samples."""


def read_extra_body(text: str, profile: ModelProfile) -> str:
    """The profile's request fields with the flag's over them, as JSON text of an object.

    Raises:
        ConfigError: Not an object of JSON, or a field that must not be set there.
    """
    extra = _read_object(text)
    if owned := sorted(_OWNED & set(extra)):
        raise ConfigError(f"--extra_body: {', '.join(owned)} is set by the prompt or by a flag")
    if forcing := sorted(_FORCING & set(extra)):
        raise ConfigError(
            f"--extra_body: under {', '.join(forcing)} the answer is not what the model samples "
            "freely; leave it out"
        )
    reasoning = extra.get("reasoning")
    if profile.answer.thought_end and isinstance(reasoning, dict):
        off = reasoning.get("enabled") is False or reasoning.get("effort") == "none"
        if off or reasoning.get("exclude"):
            raise ConfigError(
                f"--extra_body: profile {profile.name} rebuilds answers with their thought; "
                "ask for it, or use a profile without one"
            )
    return json.dumps(profile.request | extra, ensure_ascii=False)


def _read_object(text: str) -> dict[str, Any]:
    try:
        extra = json.loads(text)
        json.dumps(extra, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--extra_body {text[:200]}: not JSON: {error}") from error
    if not isinstance(extra, dict):
        raise ConfigError(f'--extra_body {text[:200]}: give an object, as {{"top_k": 40}}')
    return extra
