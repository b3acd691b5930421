"""Whether a recorded pair is an answer that a run with these settings would have paid for."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from transforms.failures import RecordError
from transforms.openrouter.faults import judge
from transforms.openrouter.recorded import Recorded
from transforms.openrouter.replies import read_completion
from transforms.openrouter.same_prompt import find_difference
from transforms.openrouter.store import Attempt
from transforms.openrouter.wire import Sampling, is_of_model


class Refusal(StrEnum):
    """Why a record is not imported."""

    UNREADABLE = "unreadable"
    """Not JSON, or neither a request nor an answer."""
    NO_ANSWER = "no_answer"
    """A request whose answer is in none of the files."""
    AMBIGUOUS_ID = "ambiguous_id"
    """Two requests, or two answers, of one `custom_id`."""
    NOT_A_PROMPT = "not_a_prompt"
    """A request that a run cannot ask: images, a begun answer, a special token's text."""
    OTHER_PROMPT = "other_prompt"
    """A run would send other messages or tools for it: the answer is to what was sent."""
    OTHER_MODEL = "other_model"
    """Another model was asked, or answered."""
    OTHER_SERVER = "other_server"
    """Another server was asked than `--base_url`: its answers would be taken for this one's."""
    OTHER_SETTINGS = "other_settings"
    """Asked with settings of sampling that the flags do not name."""
    FAILED = "failed"
    """An error, or an answer that is not whole."""
    REPEATED = "repeated"
    """The same answer to the same prompt was read before: one row of it is enough."""
    CUT = "cut"
    """Ended by the `max_tokens` of its own request, or longer than `--max_tokens`."""


class RefusedError(Exception):
    """This record and nothing else."""

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal}: {detail}")
        self.refusal = refusal
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a run would ask with.

    Attributes:
        defaults: Fields that the model's profile adds: a request without them says the same.
        host: The server's name.
        thinks: The model is to think: a thought alone is no answer.
    """

    sampling: Sampling
    defaults: Mapping[str, Any]
    host: str
    thinks: bool


def check_request(recorded: Recorded, terms: Terms) -> None:
    """Refuses what was asked otherwise than a run would ask it.

    Raises:
        RefusedError: `OTHER_MODEL`, `OTHER_SERVER`, `OTHER_SETTINGS`, `NOT_A_PROMPT`.
    """
    request, wanted = recorded.request or {}, terms.sampling.model
    model = request.get("model")
    if model is not None and model != wanted and not is_of_model(wanted, model):
        detail = f"{model!r} was asked; --model {model} imports it"
        raise RefusedError(Refusal.OTHER_MODEL, detail)
    host = _host_of(recorded.endpoint or "")
    if host is not None and host != terms.host and not host.endswith(f".{terms.host}"):
        detail = f"{host} was asked; --source and --base_url of that server import it"
        raise RefusedError(Refusal.OTHER_SERVER, detail)
    if (name := _differing(request, terms)) is not None:
        raise RefusedError(Refusal.OTHER_SETTINGS, _say_setting(name, request, terms))
    last = request["messages"][-1] if request["messages"] else None
    if isinstance(last, dict) and last.get("role") == "assistant":
        raise RefusedError(Refusal.NOT_A_PROMPT, "its last message is the begin of the answer")


def _host_of(endpoint: str) -> str | None:
    try:
        return urlsplit(endpoint).hostname
    except ValueError:  # what is no address is another server
        return endpoint


_FREE = frozenset({
    "model", "messages", "tools", "max_tokens", "max_completion_tokens", "stream",
    "stream_options", "usage", "user", "metadata", "session_id", "trace", "provider", "logprobs",
    "top_logprobs", "store", "service_tier", "prompt_cache_key", "return_token_ids",
    "return_meta_info",
})  # fmt: skip
"""Fields that do not change what is sampled, or that are compared elsewhere."""
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "tool_choice": ("auto",), "n": (1,), "parallel_tool_calls": (True,), "stop": ([],),
    "plugins": ([],), "transforms": ([],), "response_format": ({"type": "text"},),
    "logit_bias": ({},), "include_reasoning": (True,),
}  # fmt: skip
"""Values that say what is so without them."""


def _sent(terms: Terms) -> dict[str, Any]:
    extra: dict[str, Any] = json.loads(terms.sampling.extra)
    return terms.sampling.limits() | extra


def _differing(request: Mapping[str, Any], terms: Terms) -> str | None:
    """The first setting of sampling that is another."""
    sent = _sent(terms)
    for name in sorted({*request, *sent} - _FREE):
        given, wanted = request.get(name), sent.get(name)
        is_default = given is None and terms.defaults.get(name) == wanted
        if given != wanted and not is_default and given not in _NEUTRAL.get(name, ()):
            return name
    return None


def _say_setting(name: str, request: Mapping[str, Any], terms: Terms) -> str:
    given, wanted = (json.dumps(found.get(name)) for found in (request, _sent(terms)))
    return f"asked with {name} = {given}, these flags ask with {wanted}; give the same to import it"


def check_prompt(recorded: Recorded, sent: bytes) -> None:
    """Refuses what a run would send otherwise, as `sent`, than it was sent.

    Raises:
        RefusedError: `OTHER_PROMPT`, with the first place that differs.
    """
    if (told := find_difference(recorded.request or {}, json.loads(sent))) is not None:
        raise RefusedError(Refusal.OTHER_PROMPT, told)


def check_answer(recorded: Recorded, attempt: Attempt, terms: Terms) -> Any:
    """The JSON of the answer, unless it is a failure, another model's, or cut.

    Raises:
        RefusedError: `FAILED`, `OTHER_MODEL`, `CUT`.
    """
    judged = judge(attempt, thinks=terms.thinks)
    if judged.reply is None or judged.fault is not None:  # a run would ask another host
        raise RefusedError(Refusal.FAILED, judged.detail)
    model, asked = judged.reply.get("model"), terms.sampling.model
    request, usage = recorded.request or {}, judged.reply.get("usage")
    if terms.sampling.source.names_model and not is_of_model(asked, model):
        raise RefusedError(Refusal.OTHER_MODEL, f"{asked} was asked, {model!r} answered")
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    own = request.get("max_tokens") or request.get("max_completion_tokens")
    for limit, what in ((own, "its own max_tokens"), (terms.sampling.max_tokens, "--max_tokens")):
        if isinstance(counted, int) and isinstance(limit, int) and counted >= limit:
            detail = f"{counted} tokens counted, {what} is {limit}"
            raise RefusedError(Refusal.CUT, detail)
    return judged.reply


def is_same_answer(one: Any, other: Any) -> bool:
    """Whether two replies are one generation, which logs may have written in two ways."""
    try:
        first, second = read_completion(one), read_completion(other)
    except RecordError:
        return bool(one == other)
    if first.generation_id is None:
        return bool(one == other)
    return first.generation_id == second.generation_id and first.message == second.message
