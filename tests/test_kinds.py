"""Kinds of fault that the fault cases' vocabulary names, each with what must come of it.

Expected ids are made by tiktoken over the checksummed ranks, segment by segment.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from simulator.tokens import SPECIAL, Kimi, load_kimi
from tests.fault_cases import run_case

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
END, CLOSE, OPEN = "<|im_end|>", "</think>", "<think>"
ARGUMENTS = '{"city": "Paris"}'
NATIVE = "functions.get_weather:0"


def section(identity: str = NATIVE, arguments: str = ARGUMENTS) -> list[str]:
    pieces = ["<|tool_calls_section_begin|>", "<|tool_call_begin|>", identity]
    pieces += ["<|tool_call_argument_begin|>", arguments, "<|tool_call_end|>"]
    return [*pieces, "<|tool_calls_section_end|>"]


def call(identity: Any = NATIVE, arguments: str = ARGUMENTS, name: str = "get_weather") -> Any:
    function = {"name": name, "arguments": arguments}
    return {"id": identity, "type": "function", "function": function}


@dataclass(frozen=True)
class Kind:
    """An answer, what was sampled (pieces), and the verdict; `counted` differs from it by `off`."""

    name: str
    message: dict[str, Any]
    sampled: list[str]
    verdict: str = "repairable"
    words: str = "verbatim,eos_counted"
    off: int = 0
    thought: int | None = None
    finish: str = "stop"
    request: dict[str, Any] = field(default_factory=dict)
    family: str | None = None


PLAIN = [" Greet.", CLOSE, "Hello!", END]
CALLED = [" Check.", CLOSE, *section(), END]
KINDS = [
    Kind("end printed", {"reasoning": " Greet.", "content": f"Hello!{END}"}, PLAIN),
    Kind("thought counted apart", {"reasoning": " Greet.", "content": "Hello!"}, PLAIN,
         words="verbatim,eos_counted,usage_disjoint", off=-3, thought=3),
    Kind("markers stripped", {"reasoning": " Check.", "content": NATIVE + ARGUMENTS}, CALLED,
         words="tool_markers_stripped,eos_counted"),
    Kind("all in the thought, thinking off", {"reasoning": "Paris.", "content": None},
         ["Paris.", END], words="verbatim,thinking_off",
         request={"reasoning": {"enabled": False}}),
    Kind("marker as text", {"reasoning": " Explain.", "content": f"The tag {CLOSE} ends it."},
         [" Explain.", CLOSE, f"The tag {CLOSE} ends it.", END]),
    Kind("the model opens its thought", {"reasoning": " Greet.", "content": "Hello!"},
         [OPEN, *PLAIN], words="verbatim,eos_counted,no_prefill"),
    Kind("no end of the thought, told by its count",
         {"reasoning": " Check.", "content": None, "tool_calls": [call()]},
         [" Check.", *section(), END], words="verbatim,eos_counted,rt=think+1", thought=2,
         finish="tool_calls"),
    Kind("one marker short and nothing tells which",
         {"reasoning": " Check.", "content": None, "tool_calls": [call()]},
         [" Check.", *section(), END], "bad", finish="tool_calls", family="evidence"),
    Kind("finish reason of another answer",
         {"reasoning": " Check.", "content": None, "tool_calls": [call()]}, CALLED),
    Kind("wrong JSON that the model wrote",
         {"reasoning": " Check.", "content": None, "tool_calls": [call(arguments='{"city": ,,}')]},
         [" Check.", CLOSE, *section(arguments='{"city": ,,}'), END], "good", finish="tool_calls"),
    Kind("a call against tool_choice none",
         {"reasoning": " Check.", "content": None, "tool_calls": [call()]}, CALLED, "good",
         finish="tool_calls", request={"tool_choice": "none"}),
    Kind("thought breaks off", {"reasoning": " I will now look for the", "content": None,
         "tool_calls": [call()]}, [" I will now look for the", CLOSE, *section(), END], "bad",
         off=3, finish="tool_calls", family="reasoning"),
    Kind("end token in the thought", {"reasoning": f" Hm.{END}", "content": "x"},
         [" Hm.", END], "bad", family="answer"),
    Kind("sorted keys", {"reasoning": " C.", "content": None,
         "tool_calls": [call(arguments='{"a": 1, "city": "P"}')]},
         [" C.", CLOSE, *section(arguments='{"a": 1, "city": "P"}'), END], "bad",
         words="args_reserialised_sorted,eos_counted", finish="tool_calls", family="tools"),
    Kind("one key cannot be sorted", {"reasoning": " C.", "content": None,
         "tool_calls": [call(arguments='{"city":"Paris"}')]},
         [" C.", CLOSE, *section(), END], words="args_reserialised_sorted,eos_counted",
         finish="tool_calls"),
    Kind("arguments encoded twice", {"reasoning": " C.", "content": None,
         "tool_calls": [call(arguments=json.dumps(ARGUMENTS))]},
         [" C.", CLOSE, *section(), END], words="args_double_encoded,eos_counted",
         finish="tool_calls"),
    Kind("counted anew in a later turn", {"reasoning": " C.", "content": None,
         "tool_calls": [call("functions.get_weather:1")]},
         [" C.", CLOSE, *section("functions.get_weather:1"), END], "bad",
         words="ids_rebuilt,eos_counted", finish="tool_calls", family="tools",
         request={"messages": [
             {"role": "user", "content": "a"},
             {"role": "assistant", "content": "", "tool_calls": [call()]},
             {"role": "tool", "tool_call_id": NATIVE, "content": "20"},
         ]}),
    Kind("all in the thought", {"reasoning": f" Greet.{CLOSE}Hello!", "content": None},
         PLAIN),
    Kind("end told in the thought", {"reasoning": f" Greet.{CLOSE}", "content": "Hello!"},
         PLAIN),
    Kind("thought doubled", {"reasoning": " Greet. Greet.", "content": "Hello!"}, PLAIN),
    Kind("thought said twice by the model", {"reasoning": " Greet. Greet.", "content": "Hello!"},
         [" Greet. Greet.", CLOSE, "Hello!", END], "good"),
    Kind("text re-tokenised by the host", {"reasoning": " Greet.", "content": "Hello!"}, PLAIN,
         "bad", words="usage_from_text", family="evidence"),
    Kind("end not counted after a call",
         {"reasoning": " Check.", "content": None, "tool_calls": [call()]}, CALLED, "good",
         words="verbatim,eos_not_counted", off=-1, finish="tool_calls"),
    Kind("call without a name",
         {"reasoning": " C.", "content": None, "tool_calls": [call(name="", arguments="{}")]},
         CALLED, "bad", finish="tool_calls", family="answer"),
    Kind("room for the end in a thought that holds the section",
         {"reasoning": " Check." + "".join(section()), "content": None}, CALLED, "bad",
         family="reasoning"),
    Kind("blanks around a call's content",
         {"reasoning": " Check. ", "content": " Looking. ", "tool_calls": [call()]},
         ["Check.", CLOSE, "Looking.", *section(), END], words="vllm_spaces,eos_counted",
         finish="tool_calls"),
    Kind("content before a call joined to the thought",
         {"reasoning": " Check.Looking.", "content": None, "tool_calls": [call()]},
         [" Check.", CLOSE, "Looking.", *section(), END], "bad",
         words="skip_special_tokens,eos_counted", finish="tool_calls", family="reasoning"),
    Kind("required tools", {"reasoning": " Check.", "content": None, "tool_calls": [call()]},
         CALLED, "bad", finish="tool_calls", request={"tool_choice": "required"}, family="tools"),
    Kind("a strict tool", {"reasoning": " Check.", "content": None, "tool_calls": [call()]}, CALLED,
         "bad", finish="tool_calls", family="tools", request={"tools": [
             {"type": "function", "function": {**TOOL["function"], "strict": True}}]}),
]  # fmt: skip


@pytest.fixture(scope="module")
def kimi_ids() -> Callable[[Kind], list[int]]:
    kimi: Kimi = load_kimi()

    def ids(kind: Kind) -> list[int]:
        found: list[int] = []
        for piece in kind.sampled:
            found += [SPECIAL[piece]] if piece in SPECIAL else kimi.encode_plain(piece)
        return found

    return ids


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_kind(kind: Kind, kimi_ids: Callable[[Kind], list[int]], tmp_path: Path) -> None:
    ids = kimi_ids(kind)
    off = thought_off(kind)
    usage: dict[str, Any] = {"prompt_tokens": 40 + off, "completion_tokens": len(ids) + kind.off}
    if kind.thought is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": kind.thought}
    request = {
        "messages": [{"role": "user", "content": "Weather in Paris?"}],
        "tools": [TOOL],
        "reasoning": {"enabled": True},
        "max_tokens": 8192,
        **kind.request,
    }
    choice = {"message": {"role": "assistant", **kind.message}, "finish_reason": kind.finish}
    response = {"model": "moonshotai/kimi-k2.5", "choices": [choice], "usage": usage}
    found = run_case(request, response, kind.words, tmp_path)
    assert found.verdict == kind.verdict, found.detail
    if kind.verdict == "bad":
        assert found.family == kind.family, found.detail
    else:
        assert list(found.ids or ()) == ids, found.detail


def thought_off(kind: Kind) -> int:
    return int(kind.request.get("reasoning") == {"enabled": False})
