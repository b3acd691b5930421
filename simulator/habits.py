"""What a host always does to what was sampled, by name: for profiles to learn."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any


@dataclass(frozen=True, slots=True)
class SaidCall:
    """A tool call as it is told."""

    identity: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a host tells of a generation."""

    thought: str
    content: str
    calls: tuple[SaidCall, ...] = ()
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0


Habit = Callable[[Said], Said]


def _calls(change: Callable[[int, SaidCall], SaidCall]) -> Habit:
    return lambda said: replace(
        said, calls=tuple(change(index, call) for index, call in enumerate(said.calls))
    )


def _written(**style: object) -> Habit:
    """Arguments parsed and written again."""

    def change(_index: int, call: SaidCall) -> SaidCall:
        return replace(call, arguments=json.dumps(json.loads(call.arguments), **style))  # type: ignore[arg-type]

    return _calls(change)


def _markers(said: Said) -> str:
    body = "".join(
        f"<|tool_call_begin|>{c.identity}<|tool_call_argument_begin|>{c.arguments}<|tool_call_end|>"
        for c in said.calls
    )
    return f"<|tool_calls_section_begin|>{body}<|tool_calls_section_end|>" if said.calls else ""


def _leak(said: Said) -> Said:
    return replace(said, content=said.content + _markers(said), calls=(), finish_reason="stop")


def _spaces(said: Said) -> Said:
    """VLLM's default for slow tokenizers: a blank on either side of every marker (vllm#33457)."""
    after = " " if said.calls else ""
    return replace(said, thought=f" {said.thought} ", content=f" {said.content}{after}")


def _counts(difference: int) -> Habit:
    return lambda said: replace(said, completion_tokens=said.completion_tokens + difference)


HABITS: dict[str, Habit] = {
    "trims": lambda said: replace(said, thought=said.thought.strip(), content=said.content.strip()),
    "trims_content_start": lambda said: replace(said, content=said.content.lstrip()),
    "vllm_spaces": _spaces,
    "blank_before_content": lambda said: replace(
        said, content=f" {said.content}" if said.content else ""
    ),
    "blank_before_thought": lambda said: replace(said, thought=f" {said.thought}"),
    "blank_after_thought": lambda said: replace(said, thought=f"{said.thought} "),
    "newline_after_thought": lambda said: replace(said, content=f"\n\n{said.content}"),
    "think_marker_kept": lambda said: replace(said, thought=f"<think>{said.thought}"),
    "no_reasoning_parser": lambda said: replace(
        said, thought="", content=f"{said.thought}</think>{said.content}"
    ),
    "think_end_stripped": lambda said: replace(
        said, thought=said.thought + said.content, content=""
    ),
    "no_tool_parser": _leak,
    "ids_local": _calls(lambda i, call: replace(call, identity=f"functions.{call.name}:{i}")),
    "ids_random": _calls(
        lambda i, call: replace(call, identity=f"call_{hash_of(call.arguments)}{i}")
    ),
    "ids_without_prefix": _calls(
        lambda _i, call: replace(call, identity=call.identity.removeprefix("functions."))
    ),
    "ids_digit": _calls(lambda i, call: replace(call, identity=str(i))),
    "arguments_compact": _written(ensure_ascii=False, separators=(",", ":")),
    "arguments_spaced": _written(ensure_ascii=False),
    "arguments_escaped": _written(ensure_ascii=True),
    "arguments_sorted": _written(ensure_ascii=False, sort_keys=True),
    "thought_doubled": lambda said: replace(said, thought=said.thought * 2),
    "thought_as_content": lambda said: replace(said, content=said.thought + said.content),
    "thought_lost": lambda said: replace(said, thought=""),
    "thought_tail_lost": lambda said: replace(said, thought=said.thought[:-12]),
    "end_not_counted": _counts(-1),
    "counts_one_more": _counts(1),
    "prompt_counts_more": lambda said: replace(said, prompt_tokens=said.prompt_tokens + 3),
}
"""Name -> habit."""


Heard = Callable[[dict[str, object]], dict[str, object]]


def _written_anew(message: dict[str, object]) -> dict[str, object]:
    """Arguments are parsed, and the template writes an object (vllm, sglang)."""
    calls = json.loads(json.dumps(message.get("tool_calls") or []))
    for call in calls:
        arguments = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
    return message | ({"tool_calls": calls} if calls else {})


def _without_thought(message: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in message.items() if not key.startswith("reasoning")}


HEARING: dict[str, Heard] = {
    "history_arguments_anew": _written_anew,
    "history_thoughts_dropped": _without_thought,
}
"""Name -> what a host does to each message of a request before it is rendered."""


def hear(body: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """A request as a host's template sees it."""
    habits = [HEARING[name] for name in names if name in HEARING]
    messages = [reduce(lambda heard, habit: habit(heard), habits, m) for m in body["messages"]]
    return body | {"messages": messages}


def hash_of(text: str) -> str:
    """Eight hexadecimal digits that the text alone decides."""
    return f"{sum((i + 1) * ord(c) for i, c in enumerate(text)) & 0xFFFFFFFF:08x}"


def tell(said: Said, names: tuple[str, ...]) -> Said:
    """Applies habits in order."""
    habits = [HABITS[name] for name in names if name in HABITS]
    return reduce(lambda told, habit: habit(told), habits, said)
