"""Samples an answer as ids first; the text on the wire is what those ids decode to."""

import json
import random
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from simulator.scenario import Scenario
from simulator.tokens import SPECIAL, Kimi

_CORPUS: dict[str, list[str]] = json.loads(
    (resources.files("simulator") / "corpus.json").read_text("utf-8")
)


_NO_THOUGHT = 0.03
"""Share of answers without a thought."""
_ONLY_CALLS = 0.7
"""Share of calling answers without content."""

_ANY_OBJECT = {"type": "object", "properties": {"answer": {"type": "string"}}}


@dataclass(frozen=True, slots=True)
class Call:
    """A sampled tool call, as ids."""

    identity: list[int]
    name: str
    arguments: list[int]


@dataclass(slots=True, kw_only=True)
class Generation:
    """What was really sampled. `completion_ids` ends in the end token unless it was cut."""

    prompt_ids: list[int]
    thought: list[int]
    content: list[int]
    calls: list[Call] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    thinks: bool = True
    thought_closed: bool = True
    finish_reason: str = "stop"

    @property
    def reasoning_tokens(self) -> int:
        return len(self.thought) + self.thought_closed


def sample(body: dict[str, Any], scenario: Scenario, rng: random.Random, kimi: Kimi) -> Generation:
    """One answer to a request."""
    tools = body.get("tools") or []
    size = rng.lognormvariate(0, scenario.tokens.sigma) * scenario.tokens.median
    language = rng.choice(list(_CORPUS))
    calls_tools = bool(tools) and _calls(body, rng.random() < scenario.call_rate)
    thinks = wants_thought(body)
    has_thought = thinks and (calls_tools or rng.random() >= _NO_THOUGHT)
    has_content = not calls_tools or rng.random() >= _ONLY_CALLS
    generation = Generation(
        prompt_ids=kimi.render(body["messages"], tools, thinks=thinks),
        thought=_write(rng, kimi, language, size * 0.6) if has_thought else [],
        content=_answer(body, rng, kimi, language, size * 0.4) if has_content else [],
        thinks=thinks,
    )
    if scenario.drift:
        generation.thought = kimi.drift(generation.thought, rng, scenario.drift)
        generation.content = kimi.drift(generation.content, rng, scenario.drift)
    if calls_tools:
        generation.calls = _call_tools(body, tools, rng, kimi)
        generation.finish_reason = "tool_calls"
    _assemble(generation)
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or 16384
    if rng.random() < scenario.truncate_rate:
        limit = min(limit, rng.randrange(1, len(generation.completion_ids)))
    _cut(generation, limit)
    return generation


def _calls(body: dict[str, Any], drawn: bool) -> bool:
    """What `tool_choice` says, else what was drawn."""
    choice = body.get("tool_choice")
    return (
        {"none": False, "required": True}.get(choice, drawn) if isinstance(choice, str) else drawn
    )


def _answer(
    body: dict[str, Any], rng: random.Random, kimi: Kimi, language: str, tokens: float
) -> list[int]:
    """Text, or JSON where the request asks for it."""
    wanted = body.get("response_format") or {}
    if wanted.get("type") not in {"json_object", "json_schema"}:
        return _write(rng, kimi, language, tokens)
    schema = (wanted.get("json_schema") or {}).get("schema") or _ANY_OBJECT
    return kimi.encode_plain(json.dumps(_value(schema, rng), ensure_ascii=False))


def wants_thought(body: dict[str, Any]) -> bool:
    """False where the request switches thinking off, in OpenRouter's way or an engine's."""
    reasoning = body.get("reasoning") or {}
    template = body.get("chat_template_kwargs") or {}
    switch = body.get("thinking") or {}
    off = reasoning.get("enabled") is False or "none" in (
        reasoning.get("effort"), body.get("reasoning_effort")
    )  # fmt: skip
    return not off and template.get("thinking") is not False and switch.get("type") != "disabled"


def _write(rng: random.Random, kimi: Kimi, language: str, tokens: float) -> list[int]:
    """Canonical ids of a text of about so many tokens, never empty; encoded once."""
    blank = "" if language in {"Chinese", "Japanese"} else " "
    parts = [rng.choice(("", " ")) if blank else ""]
    estimate = 0
    while True:
        mixed = language if rng.random() < 0.8 else rng.choice(("Code", "Emoji", "Markup"))  # noqa: PLR2004
        parts.append(rng.choice(_CORPUS[mixed]))
        estimate += kimi.count(parts[-1])
        if estimate >= tokens:
            return kimi.encode_plain("".join(parts))
        parts.append(rng.choice((blank, "\n", "\n\n")))


def _call_tools(
    body: dict[str, Any], tools: list[dict[str, Any]], rng: random.Random, kimi: Kimi
) -> list[Call]:
    """One to three calls; the index counts over the whole conversation, as the model's does."""
    before = sum(len(message.get("tool_calls") or ()) for message in body["messages"])
    calls = []
    for index in range(before, before + rng.choice((1, 1, 1, 2, 3))):
        function = rng.choice(tools)["function"]
        arguments = _value(function.get("parameters") or {"type": "object"}, rng)
        separators = rng.choice(((", ", ": "), (",", ":")))
        text = json.dumps(arguments, ensure_ascii=False, separators=separators)
        identity = f"functions.{function['name']}:{index}"
        calls.append(Call(kimi.encode_plain(identity), function["name"], kimi.encode_plain(text)))
    return calls


def _value(schema: Any, rng: random.Random) -> Any:
    """Some value of a JSON schema."""
    if not isinstance(schema, dict):
        return rng.randrange(9)
    if schema.get("enum"):
        return rng.choice(schema["enum"])
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        return {
            name: _value(inner, rng) for name, inner in (schema.get("properties") or {}).items()
        }
    if kind == "array":
        return [_value(schema.get("items") or {}, rng) for _ in range(rng.randrange(1, 4))]
    numbers = {"integer": rng.randrange(1, 500), "number": round(rng.uniform(0, 90), 2)}
    numbers["boolean"] = rng.random() < 0.5  # noqa: PLR2004 - a coin
    words = ("Lisboa", "東京", "São Paulo", "Zürich", "Cairo القاهرة", 'the "old" town', "a\\b\nc")
    return numbers.get(kind, rng.choice(words))


def _assemble(generation: Generation) -> None:
    closed = [SPECIAL["</think>"]] if generation.thinks else []
    generation.thought_closed = generation.thinks
    ids = [*generation.thought, *closed, *generation.content]
    if generation.calls:
        ids.append(SPECIAL["<|tool_calls_section_begin|>"])
        for call in generation.calls:
            ids += [SPECIAL["<|tool_call_begin|>"], *call.identity]
            ids += [SPECIAL["<|tool_call_argument_begin|>"], *call.arguments]
            ids.append(SPECIAL["<|tool_call_end|>"])
        ids.append(SPECIAL["<|tool_calls_section_end|>"])
    generation.completion_ids = [*ids, SPECIAL["<|im_end|>"]]


def _cut(generation: Generation, limit: int) -> None:
    """Stops after `limit` tokens; what was not sampled is not shown."""
    if len(generation.completion_ids) <= limit:
        return
    generation.completion_ids = generation.completion_ids[:limit]
    generation.finish_reason = "length"
    thought = len(generation.thought) + generation.thinks
    generation.thought = generation.thought[:limit]
    generation.thought_closed = generation.thinks and limit >= thought
    generation.content = generation.content[: max(0, limit - thought)]
    generation.calls = []  # servers do not parse a section that is not closed
