"""Whose field names an answer has: OpenRouter's, vLLM's or SGLang's. One engine samples for all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulator.engine import Generation
from simulator.tokens import Kimi
from simulator.wire import Label, write_details

_FLAT_LOGPROB = -0.25
"""What every token gets: the simulator has ids, not probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What differs between the sources.

    Attributes:
        needs_key: Refuses requests without one.
        pads: Sends keep-alive padding and comments.
        reasoning_key: Where a message has its thought; in a request, engines read no other name.
        finish: Fields of a choice beside finish_reason.
        extend: Adds token ids to a whole answer where the request asks for them.
        refusal: An error body of a status and a message; none is OpenRouter's envelope.
    """

    name: str
    needs_key: bool = False
    pads: bool = False
    reasoning_key: str = "reasoning"
    finish: Callable[[str | None], dict[str, Any]]
    extend: Callable[[dict[str, Any], dict[str, Any], Generation, Kimi], None]
    refusal: Callable[[int, str], dict[str, Any]] | None = None
    streams_ids: bool = False
    accepts_any_model: bool = False

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
        self.extend(adapted, body, generation, kimi)
        return adapted


def _vllm_ids(
    answer: dict[str, Any], body: dict[str, Any], generation: Generation, _kimi: Kimi
) -> None:
    if body.get("return_token_ids"):
        answer["prompt_token_ids"] = generation.prompt_ids
        answer["choices"][0]["token_ids"] = generation.completion_ids


def _sglang_ids(
    answer: dict[str, Any], body: dict[str, Any], generation: Generation, kimi: Kimi
) -> None:
    _vllm_ids(answer, body, generation, kimi)
    if body.get("return_prompt_token_ids"):
        answer["choices"][0]["prompt_token_ids"] = generation.prompt_ids
    if body.get("return_meta_info") and body.get("logprobs"):
        tokens = kimi.decode_bytes(generation.completion_ids)
        pairs = zip(generation.completion_ids, tokens, strict=True)
        logprobs = [[_FLAT_LOGPROB, one, token.decode("utf-8", "replace")] for one, token in pairs]
        answer["choices"][0]["meta_info"] = {
            "prompt_tokens": len(generation.prompt_ids),
            "completion_tokens": len(generation.completion_ids),
            "output_token_logprobs": logprobs,
        }


def _vllm_error(status: int, message: str) -> dict[str, Any]:
    kind = "NotFoundError" if status == 404 else "BadRequestError"  # noqa: PLR2004
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def _sglang_error(status: int, message: str) -> dict[str, Any]:
    kind = "BadRequestError"
    return {"object": "error", "message": message, "type": kind, "param": None, "code": status}


def _matched(reason: str | None) -> dict[str, Any]:
    return {"matched_stop": 163586 if reason == "stop" else None}


DIALECTS = {
    "openrouter": Dialect(
        name="openrouter", needs_key=True, pads=True,
        finish=lambda reason: {"native_finish_reason": reason},
        extend=lambda _answer, _body, _generation, _kimi: None,
    ),
    "vllm": Dialect(
        name="vllm", finish=lambda _reason: {"stop_reason": None}, extend=_vllm_ids,
        refusal=_vllm_error, streams_ids=True,
    ),
    "sglang": Dialect(
        name="sglang", reasoning_key="reasoning_content", finish=_matched, extend=_sglang_ids,
        refusal=_sglang_error, accepts_any_model=True,
    ),
}  # fmt: skip
