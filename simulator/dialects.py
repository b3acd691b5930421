"""Whose field names an answer has: the gateway's, an engine's or a host's. One engine samples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulator import extensions, refusal_bodies
from simulator.engine import Generation
from simulator.extensions import Extend, Sampled
from simulator.tokens import Kimi
from simulator.wire import Label, write_details


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What differs between the sources.

    Attributes:
        needs_key: Refuses requests without one.
        pads: Sends keep-alive padding and comments.
        reasoning_key: Where a message has its thought; in a request, engines read no other name.
        finish: Fields of a choice beside finish_reason.
        extend: Adds to a whole answer what only this source has, ids where the request asks for
            them.
        refusal: An error body of a status and a message; none is OpenRouter's envelope.
        unknown_model: What is said of one.
    """

    name: str
    needs_key: bool = False
    pads: bool = False
    reasoning_key: str = "reasoning"
    finish: Callable[[str | None], dict[str, Any]] = lambda _reason: {}
    extend: Extend = lambda _answer, _sampled: None
    refusal: Callable[[int, str], dict[str, Any]] | None = None
    streams_ids: bool = False
    accepts_any_model: bool = False
    unknown_model: str = "The model `{}` does not exist."

    @property
    def is_gateway(self) -> bool:
        return self.refusal is None

    def read_messages(self, body: dict[str, Any]) -> dict[str, Any]:
        """A request's body as the engine sees it; the gateway takes a thought by either name."""
        if self.is_gateway:
            return body
        ignored = {"reasoning", "reasoning_content"} - {self.reasoning_key}
        messages = [
            {key: value for key, value in message.items() if key not in ignored}
            for message in body["messages"]
        ]
        return body | {"messages": messages}

    def head(self, label: Label, kind: str) -> dict[str, Any]:
        """The first fields of a body or a chunk."""
        head = {"id": label.identity, "object": kind, "created": label.created}
        head["model"] = label.model
        return head | ({"provider": label.provider.name} if self.is_gateway else {})

    def choice(self, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        """The only choice of a chunk."""
        return {"index": 0, "delta": delta, "finish_reason": reason, **self.finish(reason)}

    def thought_delta(self, text: str) -> dict[str, Any]:
        if not self.is_gateway:
            return {self.reasoning_key: text}
        return {"content": "", "role": "assistant", "reasoning": text,
                "reasoning_details": write_details(text)}  # fmt: skip

    @property
    def last_delta(self) -> dict[str, Any]:
        blank = {"content": "", "role": "assistant", "reasoning": None}
        return blank if self.is_gateway else {"content": ""}

    def usage_choices(self, reason: str) -> list[dict[str, Any]]:
        """OpenRouter repeats the choice beside the usage; engines send none."""
        delta = {"content": "", "role": "assistant"}
        return [self.choice(delta, reason)] if self.is_gateway else []

    def adapt(
        self, answer: dict[str, Any], body: dict[str, Any], generation: Generation, kimi: Kimi
    ) -> dict[str, Any]:
        """OpenRouter's answer in this source's names."""
        if self.is_gateway:
            return answer
        choice = answer["choices"][0]
        kept = ("role", "content", "refusal", "tool_calls")
        message = {key: choice["message"][key] for key in kept if key in choice["message"]}
        message[self.reasoning_key] = choice["message"]["reasoning"] or None
        reason = choice["finish_reason"]
        adapted = {key: answer[key] for key in ("id", "object", "created", "model")}
        adapted["choices"] = [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
            | self.finish(reason)
        ]
        counts = ("prompt_tokens", "completion_tokens", "total_tokens")
        adapted["usage"] = {key: answer["usage"][key] for key in counts}
        adapted["usage"]["prompt_tokens_details"] = None
        usage = answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        self.extend(adapted, Sampled(body, generation, kimi, usage["cost"], cached))
        return adapted


def _matched(reason: str | None) -> dict[str, Any]:
    return {"matched_stop": 163586 if reason == "stop" else None}


DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            name="openrouter", needs_key=True, pads=True,
            finish=lambda reason: {"native_finish_reason": reason},
        ),
        Dialect(
            name="vllm", finish=lambda _reason: {"stop_reason": None},
            extend=extensions.add_ids, refusal=refusal_bodies.vllm, streams_ids=True,
        ),
        Dialect(
            name="sglang", reasoning_key="reasoning_content", finish=_matched,
            extend=extensions.add_meta_info, refusal=refusal_bodies.sglang, accepts_any_model=True,
        ),
        Dialect(
            name="moonshot", needs_key=True, reasoning_key="reasoning_content",
            extend=extensions.add_cached_tokens, refusal=refusal_bodies.moonshot,
            unknown_model="Not found the model {} or Permission denied",
        ),
        Dialect(
            name="together", needs_key=True, extend=extensions.add_legacy_ids,
            refusal=refusal_bodies.together,
        ),
        Dialect(
            name="fireworks", needs_key=True, reasoning_key="reasoning_content",
            extend=extensions.add_logprobs, refusal=refusal_bodies.fireworks,
        ),
        Dialect(
            name="deepinfra", needs_key=True, reasoning_key="reasoning_content",
            extend=extensions.add_estimated_cost, refusal=refusal_bodies.deepinfra,
        ),
    )
}  # fmt: skip
