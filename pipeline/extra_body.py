"""What `--extra_body` may add to a request: nothing that decides the ids behind our back."""

import json
from typing import Any

from pipeline.hosts import merge_hosts
from transforms.chat.profile import ModelProfile
from transforms.failures import ConfigError
from transforms.openrouter.source import OPENROUTER, Source

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
_OBJECTS = ("provider", "reasoning", "chat_template_kwargs")
_NO_THOUGHT: tuple[tuple[str, str, Any], ...] = (
    ("reasoning", "enabled", False),
    ("reasoning", "effort", "none"),
    ("reasoning", "exclude", True),
    ("chat_template_kwargs", "thinking", False),
    ("chat_template_kwargs", "enable_thinking", False),
    ("thinking", "type", "disabled"),
)
"""Every server's way to switch thinking off, or to hide it."""


def read_extra_body(
    text: str,
    profile: ModelProfile,
    source: Source = OPENROUTER,
    hosts: dict[str, Any] | None = None,
) -> str:
    """The profile's request fields with the flags' over them, as JSON text of an object.

    Raises:
        ConfigError: Not an object of JSON, or a field that must not be set there.
    """
    extra = _read_object(text)
    if owned := sorted(_OWNED & set(extra)):
        raise ConfigError(f"--extra_body: {', '.join(owned)} is set by the prompt or by a flag")
    for name in _OBJECTS:
        if not isinstance(extra.get(name, {}), dict):
            raise ConfigError(f"--extra_body: {name} is {extra[name]!r}, not an object")
    if forcing := sorted(_FORCING & set(extra)):
        raise ConfigError(
            f"--extra_body: under {', '.join(forcing)} the answer is not what the model samples "
            "freely; leave it out"
        )
    if profile.answer.thought_end and _is_without_thought(extra):
        raise ConfigError(
            f"--extra_body: profile {profile.name} rebuilds answers with their thought; "
            "ask for it, or use a profile without one"
        )
    fields = merge_hosts(_in_words_of(source, profile.request | extra), hosts or {})
    return json.dumps(fields, ensure_ascii=False)


def _is_without_thought(extra: dict[str, Any]) -> bool:
    switched = any(
        isinstance(extra.get(name), dict) and extra[name].get(key) == value
        for name, key, value in _NO_THOUGHT
    )
    return switched or extra.get("reasoning_effort") == "none"


def _in_words_of(source: Source, fields: dict[str, Any]) -> dict[str, Any]:
    """`reasoning.enabled`, which profiles use, under the source's own name for it."""
    name, key = source.thinking
    reasoning = dict(fields.get("reasoning", {}))
    if name == "reasoning" or "enabled" not in reasoning:
        return fields
    switch = {key: reasoning.pop("enabled")}
    others = {field: value for field, value in fields.items() if field != "reasoning"}
    kept = {"reasoning": reasoning} if reasoning else {}
    return others | kept | {name: switch | fields.get(name, {})}


def _read_object(text: str) -> dict[str, Any]:
    try:
        extra = json.loads(text)
        json.dumps(extra, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--extra_body {text[:200]}: not JSON: {error}") from error
    if not isinstance(extra, dict):
        raise ConfigError(f'--extra_body {text[:200]}: give an object, as {{"top_k": 40}}')
    return extra
