"""Reply bytes -> Completion. Pure; hosts' names for the parts of an answer live here."""

from typing import Any

from transforms.failures import FailureKind, RecordError
from transforms.openrouter.costs import read_cost
from transforms.openrouter.events import assemble_events, read_json
from transforms.records import (
    Chunks,
    Completion,
    FinishReason,
    Message,
    Role,
    TokenLogprob,
    ToolCall,
    Usage,
)

_FINISH_WORDS = {reason.value: reason for reason in FinishReason} | {"eos": FinishReason.STOP}
"""Together writes `eos` now and then."""


def read_body(body: bytes) -> Any:
    """The JSON of a reply: one object after its padding, or the object that a stream amounts to.

    Raises:
        ValueError: Not JSON, only padding, or a stream of another shape.
    """
    text = body.lstrip()
    if text.startswith((b"data:", b":", b"event:", b"id:", b"retry:")):
        return assemble_events(text)
    return read_json(text)


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
            finish_reason=_FINISH_WORDS.get(word or ""),
            native_finish_reason=read_text(choice.get("native_finish_reason")) or word,
            generation_id=read_text(reply.get("id")),
            model=read_text(reply.get("model")),
            provider=read_provider(reply.get("provider")),
            usage=_read_usage(reply.get("usage")),
            token_ids=_read_server_ids(choice),
            prompt_token_ids=_read_ids(reply.get("prompt_token_ids"))
            or _read_ids(choice.get("prompt_token_ids")),
            logprobs=_read_logprobs(choice.get("logprobs")),
            chunks=_read_chunks(choice.get("chunks")),
            is_rewritten=bool(choice["message"].get("annotations")),
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


def _read_chunks(chunks: Any) -> Chunks | None:
    """Of a stream; `assemble_events` puts them beside the message."""
    if not isinstance(chunks, dict) or not chunks.get("texts"):
        return None
    return Chunks(tuple(chunks["texts"]), tuple([name != "content" for name in chunks["fields"]]))


def _read_server_ids(choice: dict[str, Any]) -> tuple[int, ...] | None:
    """Sampled ids: `token_ids` (vLLM, SGLang), those of logprobs (Together), or `meta_info`."""
    logprobs = choice.get("logprobs")
    beside = logprobs.get("token_ids") if isinstance(logprobs, dict) else None
    if ids := _read_ids(choice.get("token_ids")) or _read_ids(beside):
        return ids
    told = choice.get("meta_info")
    entries = told.get("output_token_logprobs") if isinstance(told, dict) else None
    if not isinstance(entries, list):
        return None
    return _read_ids(
        [entry[1] if isinstance(entry, list) and len(entry) > 1 else None for entry in entries]
    )


def _read_ids(ids: Any) -> tuple[int, ...] | None:
    """Whole numbers of 32 bits, or none at all."""
    if not isinstance(ids, list) or not ids:
        return None
    if any(not isinstance(i, int) or isinstance(i, bool) or not 0 <= i < 2**31 for i in ids):
        return None
    return tuple(ids)


def _read_logprobs(logprobs: Any) -> tuple[TokenLogprob, ...] | None:
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(entries, list) or not entries:
        return None
    return tuple(_read_logprob(entry) for entry in entries)


def _read_logprob(entry: Any) -> TokenLogprob:
    told = entry if isinstance(entry, dict) else {}
    value, numbers = told.get("logprob"), told.get("bytes")
    try:
        token = bytes(numbers) if isinstance(numbers, list) else None
    except (ValueError, TypeError):
        token = None
    return TokenLogprob(token, float(value) if isinstance(value, int | float) else 0.0)


def _read_content(content: Any) -> str | None:
    """A text, or parts that are all text."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list) or any(part["type"] != "text" for part in content):
        raise TypeError("content is neither a text nor text parts")
    return "".join(part["text"] for part in content)


def _read_reasoning(message: dict[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """The thought, and what other fields say of it: a copy, or something else.

    `reasoning` (OpenRouter, vLLM), `reasoning_content` (SGLang, Moonshot), and the details; the
    first that is not empty counts, an empty one is an empty thought, none at all is absent.
    """
    texts = [message.get("reasoning"), message.get("reasoning_content")]
    texts = [text for text in texts if isinstance(text, str)]
    told = [text for text in texts if text]
    details = message.get("reasoning_details")
    if isinstance(details, list) and details:
        detailed = "".join(_detail_text(part) for part in details)
        if detailed and detailed not in told:  # beside `reasoning` they always stand
            told.append(detailed)
    if not told:
        return (texts[0] if texts else None), ()
    return told[0], tuple(told[1:])


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


def read_provider(provider: Any) -> str | None:
    """The name of who answered; some gateways nest it in an object."""
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
