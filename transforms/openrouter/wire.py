"""Prompt -> request bytes, reply bytes -> Completion. Pure; field names of the API live here."""

import hashlib
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from transforms.failures import FailureKind, RecordError
from transforms.messages import write_message
from transforms.openrouter.events import assemble_events
from transforms.records import Completion, FinishReason, Message, Prompt, Role, ToolCall, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A kind of server.

    Attributes:
        names_model: Its answers carry the model that was asked for.
        names_provider: Its answers say who made them; others are their own provider.
        has_catalogue: It tells of models, hosts, prices and keys on paths of its own.
        pads: Something comes every few seconds while it generates: silence means it is gone.
        headers: Sent with every request.
        counts_streams_if_asked: Its streams carry usage only with `stream_options`.
    """

    name: str
    names_model: bool
    names_provider: bool
    has_catalogue: bool = False
    pads: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    counts_streams_if_asked: bool = False


_FINISH_WORDS = frozenset(FinishReason)
DELIVERIES = ("auto", "whole", "stream")
SOURCES = {
    source.name: source
    for source in (
        Source(
            name="openrouter",
            names_model=True,
            names_provider=True,
            has_catalogue=True,
            pads=True,
            # Not X-OpenRouter-Cache: a hit is free, but its usage is all zero, and without a count
            # its ids cannot be proved (measured against the simulator after a kill).
            headers=(("X-OpenRouter-Metadata", "enabled"),),
        ),
        Source(
            name="openai", names_model=False, names_provider=False, counts_streams_if_asked=True
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What is asked of the model beside the prompt; absent values are not sent.

    Attributes:
        model: Slug of the model.
        max_tokens: Most tokens of an answer. Always sent: without it the service reserves the
            model's maximum, and some hosts refuse that.
        extra: Further fields of the body as JSON text of an object, last in the body.
        source: What kind of server is asked.
        delivery: `whole`, `stream`, or `auto`: a stream where no tools are declared, since several
            hosts drop the ends of arguments in streams.
    """

    model: str
    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    extra: str = "{}"
    source: Source = SOURCES["openrouter"]
    delivery: str = "whole"


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
    if sampling.delivery == "stream" or (sampling.delivery == "auto" and not prompt.tools):
        body["stream"] = True
        if sampling.source.counts_streams_if_asked:
            body["stream_options"] = {"include_usage": True}
    body |= json.loads(sampling.extra)
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return Request(text.encode())
    except ValueError as error:
        raise RecordError(FailureKind.INVALID_PROMPT, f"cannot be sent: {error}") from error


def read_body(body: bytes) -> Any:
    """The JSON of a reply: one object after its padding, or the object that a stream amounts to.

    Raises:
        ValueError: Not JSON, only padding, or a stream of another shape.
    """
    text = body.lstrip()
    if text.startswith((b"data:", b":", b"event:")):
        return assemble_events(text)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)  # lone surrogates and NaN, which the strict parser refuses


def read_completion(reply: Any) -> Completion:
    """Reads one answer; every host's spelling of its parts is known here.

    What is not of its type is absent: a count that is no whole number counts nothing.

    Raises:
        RecordError: `INVALID_RESPONSE`, no message of the API's shape.
    """
    try:
        choice = reply["choices"][0]
        word = read_text(choice.get("finish_reason"))
        return Completion(
            message=_read_message(choice["message"]),
            finish_reason=FinishReason(word) if word in _FINISH_WORDS else None,
            native_finish_reason=read_text(choice.get("native_finish_reason")) or word,
            generation_id=read_text(reply.get("id")),
            model=read_text(reply.get("model")),
            provider=_read_provider(reply.get("provider")),
            usage=_read_usage(reply.get("usage")),
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        detail = f"answer is not of the API's shape: {type(error).__name__}: {error}"
        raise RecordError(FailureKind.INVALID_RESPONSE, detail) from error


def read_text(value: Any) -> str | None:
    """A text that can be written, lone surrogates as U+FFFD; `None` for what is no text."""
    if not isinstance(value, str):
        return None
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_message(message: dict[str, Any]) -> Message:
    reasoning, others = _read_reasoning(message)
    return Message(
        role=Role.ASSISTANT,
        content=_read_content(message.get("content")),
        reasoning=reasoning,
        other_reasoning=others,
        tool_calls=tuple(_read_call(call) for call in message.get("tool_calls") or ()),
    )


def _read_content(content: Any) -> str | None:
    """A text, or parts that are all text."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list) or any(part["type"] != "text" for part in content):
        raise TypeError("content is neither a text nor text parts")
    return "".join(part["text"] for part in content)


def _read_reasoning(message: dict[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """The thought, and what other fields say differently.

    `reasoning` (OpenRouter, vLLM), `reasoning_content` (SGLang, Moonshot), and the details; the
    first that is not empty counts, an empty one is an empty thought, none at all is absent.
    """
    fields = [message.get("reasoning"), message.get("reasoning_content")]
    details = message.get("reasoning_details")
    if isinstance(details, list) and details:
        fields.append("".join(_detail_text(part) for part in details))
    texts = [text for text in fields if isinstance(text, str)]
    told = [text for text in texts if text]
    if not told:
        return (texts[0] if texts else None), ()
    return told[0], tuple(text for text in told[1:] if text != told[0])


def _detail_text(part: Any) -> str:
    """Text of a part; a summary or an encrypted part stands for itself, so that it disagrees."""
    return part["text"] if part["type"] == "reasoning.text" else f"[{part['type']}]"


def _read_call(call: dict[str, Any]) -> ToolCall:
    function = call["function"]
    name, arguments = function["name"], function.get("arguments")
    if not isinstance(name, str):
        raise TypeError("a call without a name")
    if arguments is not None and not isinstance(arguments, str):
        raise TypeError("arguments are not text: the bytes that the model wrote are lost")
    identity = call.get("id")
    return ToolCall(
        id=None if identity is None else str(identity), name=name, arguments=arguments or ""
    )


def _read_provider(provider: Any) -> str | None:
    """A name; some gateways nest it in an object."""
    if isinstance(provider, dict):
        provider = provider.get("name") or provider.get("provider_name")
    return read_text(provider)


def _read_usage(usage: Any) -> Usage | None:
    """Counts as reported; all-zero counts are a placeholder, not a count."""
    if not isinstance(usage, dict) or not (completion := _read_count(usage, "completion_tokens")):
        return None
    details = usage.get("completion_tokens_details")
    return Usage(
        prompt_tokens=_read_count(usage, "prompt_tokens"),
        completion_tokens=completion,
        reasoning_tokens=_read_count(details, "reasoning_tokens"),
        cost_usd=read_cost(usage),
    )


def _read_count(usage: Any, name: str) -> int | None:
    """A whole number of tokens that 32 bits hold; anything else is none."""
    value = usage.get(name) if isinstance(usage, dict) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 2**31 else None


def read_cost(usage: Any) -> Decimal | None:
    """`usage.cost` in US dollars; absent, or no finite number, is not zero."""
    cost = usage.get("cost") if isinstance(usage, dict) else None
    if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not math.isfinite(cost):
        return None
    return Decimal(str(cost))
