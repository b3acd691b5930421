"""Prompt -> request bytes, reply bytes -> Completion. Pure; field names of the API live here."""

import hashlib
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from transforms.failures import FailureKind, RecordError
from transforms.messages import write_message
from transforms.openrouter.events import assemble_events
from transforms.records import Completion, FinishReason, Message, Prompt, Role, ToolCall, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What is asked of the model beside the prompt; absent values are not sent.

    Attributes:
        model: Slug of the model.
        max_tokens: Most tokens of an answer. Always sent: without it the service reserves the
            model's maximum, and some hosts refuse that.
        extra: Further fields of the body as JSON text of an object, last in the body.
    """

    model: str
    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    extra: str = "{}"


@dataclass(frozen=True, slots=True)
class Request:
    """One body, serialised once; the digest of its bytes and the sample's index is its key."""

    body: bytes
    sample_index: int = 0

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256(self.body)
        digest.update(b"\n%d" % self.sample_index)
        return digest.hexdigest()


def write_request(prompt: Prompt, sampling: Sampling) -> Request:
    """The body in a fixed order of keys, UTF-8, nothing escaped that need not be.

    Raises:
        RecordError: `INVALID_PROMPT`, a lone surrogate or NaN that JSON cannot carry.
    """
    body: dict[str, Any] = {
        "model": sampling.model,
        "messages": [write_message(message) for message in prompt.messages],
    }
    if prompt.tools:
        body["tools"] = [json.loads(tool) for tool in prompt.tools]
    body["max_tokens"] = sampling.max_tokens
    for name in ("temperature", "top_p", "seed"):
        if (value := getattr(sampling, name)) is not None:
            body[name] = value
    body |= json.loads(sampling.extra)
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return Request(text.encode())
    except ValueError as error:
        raise RecordError(FailureKind.INVALID_PROMPT, f"cannot be sent: {error}") from error


def read_body(body: bytes) -> Any:
    """The JSON of a reply: one object after its padding, or the object that a stream amounts to.

    Raises:
        ValueError: Not JSON, only padding, or a stream without its end.
    """
    text = body.strip()
    if text.startswith((b"data:", b":", b"event:")):
        return assemble_events(text)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)  # lone surrogates and NaN, which the strict parser refuses


def read_completion(reply: Any) -> Completion:
    """Reads one answer; every host's spelling of its parts is known here.

    Raises:
        RecordError: `INVALID_RESPONSE`, not of the API's shape.
    """
    try:
        choice = reply["choices"][0]
        message = _read_message(choice["message"])
        word = choice.get("finish_reason")
        return Completion(
            message=message,
            finish_reason=FinishReason(word) if word in set(FinishReason) else None,
            native_finish_reason=choice.get("native_finish_reason") or word,
            generation_id=reply.get("id"),
            model=reply.get("model"),
            provider=_provider(reply.get("provider")),
            usage=_read_usage(reply.get("usage")),
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        detail = f"answer is not of the API's shape: {type(error).__name__}: {error}"
        raise RecordError(FailureKind.INVALID_RESPONSE, detail) from error


def _read_message(message: dict[str, Any]) -> Message:
    return Message(
        role=Role.ASSISTANT,
        content=_content(message.get("content")),
        reasoning=_reasoning(message),
        tool_calls=tuple(_read_call(call) for call in message.get("tool_calls") or ()),
    )


def _content(content: Any) -> str | None:
    if isinstance(content, list):
        return "".join(part["text"] for part in content)
    if content is not None and not isinstance(content, str):
        raise TypeError(f"content is a {type(content).__name__}")
    return content


def _reasoning(message: dict[str, Any]) -> str | None:
    """`reasoning` (OpenRouter, vLLM), `reasoning_content` (SGLang, Moonshot), or the details."""
    for name in ("reasoning", "reasoning_content"):
        if isinstance(text := message.get(name), str):
            return text
    details = message.get("reasoning_details") or ()
    texts = [part["text"] for part in details if part.get("type") == "reasoning.text"]
    return "".join(texts) if texts else None


def _read_call(call: dict[str, Any]) -> ToolCall:
    function = call["function"]
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        raise TypeError("arguments are not text: the bytes that the model wrote are lost")
    identity = call.get("id")
    return ToolCall(
        id=None if identity is None else str(identity),
        name=str(function["name"]),
        arguments=arguments or "",
    )


def _provider(provider: Any) -> str | None:
    """A name; some gateways nest it in an object."""
    if isinstance(provider, dict):
        provider = provider.get("name") or provider.get("provider_name")
    return provider if isinstance(provider, str) else None


def _read_usage(usage: Any) -> Usage | None:
    """Counts as reported; all-zero counts are a placeholder, not a count."""
    if not usage or not usage.get("completion_tokens"):
        return None
    details = usage.get("completion_tokens_details") or {}
    return Usage(
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        completion_tokens=int(usage["completion_tokens"]),
        reasoning_tokens=details.get("reasoning_tokens"),
        cost_usd=read_cost(usage),
    )


def read_cost(usage: Any) -> Decimal | None:
    """`usage.cost` in US dollars; absent is not zero."""
    cost = usage.get("cost") if isinstance(usage, dict) else None
    return None if cost is None else Decimal(str(cost))
