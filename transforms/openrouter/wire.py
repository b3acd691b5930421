"""Prompt -> request bytes. Pure; field names of the API live here."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from transforms.failures import FailureKind, RecordError
from transforms.messages import write_message
from transforms.records import Prompt


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
