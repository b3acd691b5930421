"""Prompt -> request bytes. Pure; field names of the API live here."""

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from transforms.failures import FailureKind, RecordError
from transforms.messages import write_message
from transforms.openrouter.source import OPENROUTER, Source
from transforms.records import Prompt

DELIVERIES = ("auto", "whole", "stream")
DEFAULT_DELIVERY = "auto"


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
            hosts drop the ends of arguments in streams, and where a stream costs no token ids.
        escapes_special_text: Literals of special tokens in a prompt are made harmless, not refused.
    """

    model: str
    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    extra: str = "{}"
    source: Source = OPENROUTER
    delivery: str = DEFAULT_DELIVERY
    escapes_special_text: bool = False

    def limits(self) -> dict[str, Any]:
        """What the flags say of the answer; `max_tokens` first."""
        given = {name: getattr(self, name) for name in ("temperature", "top_p", "seed")}
        return {"max_tokens": self.max_tokens} | {
            name: value for name, value in given.items() if value is not None
        }

    def of_sample(self, index: int) -> "Sampling":
        """What a sample is asked with: a seed of its own, or all would be the same answer."""
        return self if self.seed is None else replace(self, seed=self.seed + index)

    def streams(self, prompt: Prompt) -> bool:
        """Whether the answer to a prompt is asked for as a stream."""
        unless = prompt.tools or not self.source.body_in_streams
        return self.delivery == "stream" or (self.delivery == "auto" and not unless)


@dataclass(frozen=True, slots=True)
class Request:
    """One body, serialised once; the digest of its bytes and the sample's index is its key."""

    body: bytes
    sample_index: int = 0
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha256(self.body)
        digest.update(b"\n%d" % self.sample_index)
        object.__setattr__(self, "sha256", digest.hexdigest())


def is_of_model(asked: str, answered: object) -> bool:
    """Whether an answer is the asked model's; its name may carry a date, as `MODEL-0127`.

    Any other longer name is another model's, as `MODEL-thinking`.
    """
    return isinstance(answered, str) and _names(asked).fullmatch(answered) is not None


@cache
def _names(model: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(model.partition(':')[0])}(-[0-9]+)*")


def write_request(prompt: Prompt, sampling: Sampling) -> Request:
    """The body in a fixed order of keys, UTF-8, nothing escaped that need not be.

    Raises:
        RecordError: `INVALID_PROMPT`, a lone surrogate or NaN that JSON cannot carry.
    """
    body: dict[str, Any] = {
        "model": sampling.model,
        "messages": [write_message(one, *sampling.source.history) for one in prompt.messages],
    }
    if prompt.tools:
        body["tools"] = [json.loads(tool) for tool in prompt.tools]
    body |= sampling.of_sample(prompt.sample_index).limits()
    body |= _delivery(sampling, is_stream=sampling.streams(prompt))
    body |= json.loads(sampling.extra)
    try:
        return Request(_dump(body), prompt.sample_index)
    except ValueError as error:
        raise RecordError(FailureKind.INVALID_PROMPT, f"cannot be sent: {error}") from error


def ask_others(body: bytes, slugs: tuple[str, ...]) -> bytes:
    """The same request, of other hosts than these: its `provider.ignore` names them too."""
    fields = json.loads(body)
    wishes = fields.get("provider") or {}
    ignored = dict.fromkeys([*(wishes.get("ignore") or ()), *slugs])
    fields["provider"] = wishes | {"ignore": list(ignored)}
    return _dump(fields)


def _dump(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def _delivery(sampling: Sampling, *, is_stream: bool) -> dict[str, Any]:
    """What asks for the form of the answer, and for the token ids of those servers that have them.

    A server that refuses both together streams without ids.
    """
    source = sampling.source
    fields: dict[str, Any] = {"stream": True} if is_stream else {}
    if is_stream and source.counts_streams_if_asked:
        fields["stream_options"] = {"include_usage": True}
    return fields if is_stream and not source.body_in_streams else fields | dict(source.body)
