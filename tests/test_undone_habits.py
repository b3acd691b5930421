"""What a habit does and its inverse undoes gives back the ids, whatever the texts are."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.habits import HABITS, Said, SaidCall, tell
from simulator.tokens import SPECIAL, load_kimi
from tests import build
from transforms.chat.calls import AS_GIVEN, Form, rewrite_arguments
from transforms.chat.candidates import write_candidates
from transforms.chat.evidence import prove
from transforms.chat.habits import Arguments, Blanks, Habit, Ids, ThoughtCount
from transforms.chat.profile import load_profile
from transforms.chat.view import Asked
from transforms.records import ToolCall

KIMI = load_profile("kimi-k2.5")
INVERSES: dict[str, Habit] = {
    "vllm_spaces": Habit(blanks=Blanks.AROUND_MARKERS),
    "blank_before_content": Habit(blanks=Blanks.BEFORE_CONTENT),
    "blank_before_thought": Habit(blanks=Blanks.BEFORE_THOUGHT),
    "blank_after_thought": Habit(blanks=Blanks.AFTER_THOUGHT),
    "newline_after_thought": Habit(blanks=Blanks.NEWLINES_BEFORE_CONTENT),
    "think_marker_kept": Habit(),
    "no_reasoning_parser": Habit(),
    "no_tool_parser": Habit(),
    "ids_local": Habit(ids=Ids.RENUMBERED),
    "ids_random": Habit(ids=Ids.RENEWED),
    "ids_without_prefix": Habit(ids=Ids.BARE),
    "ids_digit": Habit(ids=Ids.RENEWED),
    "arguments_compact": Habit(arguments=Arguments.COMPACTED),
    "arguments_spaced": Habit(arguments=Arguments.SPACED),
    "arguments_escaped": Habit(arguments=Arguments.ESCAPED),
    # That a thought of one token is a copy, only the count of the thought proves.
    "thought_doubled": Habit(thought_count=ThoughtCount.WITH_END),
    "thought_as_content": Habit(thought_count=ThoughtCount.WITH_END),
    "end_not_counted": Habit(text_offset=-1, calls_offset=-1),
    "counts_one_more": Habit(text_offset=1, calls_offset=1),
    "prompt_counts_more": Habit(prompt_offset=3, tools_prompt_offset=3),
}
LOSSY = {"trims", "trims_content_start", "think_end_stripped", "arguments_sorted", "thought_lost",
         "thought_tail_lost"}  # fmt: skip

_EDGES = st.sampled_from(["", " ", "  ", "\n", "\n\n", "\t", "\u3000"])
_WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TEXTS = st.builds("{}{}{}".format, _EDGES, _WORDS, _EDGES).filter(
    lambda text: not re.search(r"<\||think>", text)
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(_WORDS, VALUES, max_size=4)
STYLES = st.sampled_from([(", ", ": "), (",", ":")])


@st.composite
def written(draw: st.DrawFn) -> str:
    return json.dumps(draw(OBJECTS), ensure_ascii=False, separators=draw(STYLES))


def test_every_habit_of_the_simulator_is_undone_or_loses_something() -> None:
    assert INVERSES.keys() | LOSSY == HABITS.keys()
    assert not INVERSES.keys() & LOSSY


@pytest.mark.parametrize("name", INVERSES)
@settings(max_examples=60)
@given(thought=TEXTS, content=TEXTS, arguments=st.lists(written(), max_size=2))
def test_the_inverse_gives_the_ids_back(
    name: str, thought: str, content: str, arguments: list[str]
) -> None:
    calls = tuple(
        SaidCall(f"functions.get_weather:{number}", "get_weather", text)
        for number, text in enumerate(arguments)
    )
    sampled = sample(thought, content, calls)
    said = Said(thought=thought, content=content, calls=calls, completion_tokens=len(sampled))
    told = tell(said, (name,))
    answer = build.completion(
        told.content, told.thought, tuple(map(given_call, told.calls)), told.completion_tokens
    )
    reasoning_tokens = len(load_kimi().encode_plain(thought)) + 1
    usage = replace(build.usage(told.completion_tokens), reasoning_tokens=reasoning_tokens)
    answer = replace(answer, usage=usage)
    asked = Asked(build.exchange(answer), KIMI, INVERSES[name])
    candidates, issues = write_candidates(asked, cut=False)
    assume(not issues)
    fits = [one.ids for one in prove(candidates, asked.exchange, KIMI, INVERSES[name]).fits]
    assert sampled in fits


def given_call(call: SaidCall) -> ToolCall:
    return build.call(call.identity, call.name, call.arguments)


def sample(thought: str, content: str, calls: tuple[SaidCall, ...]) -> tuple[int, ...]:
    """The ids of an answer, segment by segment."""
    kimi = load_kimi()
    ids = [*kimi.encode_plain(thought), SPECIAL["</think>"], *kimi.encode_plain(content)]
    if calls:
        ids.append(SPECIAL["<|tool_calls_section_begin|>"])
        for call in calls:
            ids += [SPECIAL["<|tool_call_begin|>"], *kimi.encode_plain(call.identity)]
            ids += [SPECIAL["<|tool_call_argument_begin|>"], *kimi.encode_plain(call.arguments)]
            ids.append(SPECIAL["<|tool_call_end|>"])
        ids.append(SPECIAL["<|tool_calls_section_end|>"])
    return (*ids, SPECIAL["<|im_end|>"])


@given(text=written(), separators=STYLES)
def test_other_separators_keep_order_and_bytes(text: str, separators: tuple[str, str]) -> None:
    found = rewrite_arguments(text, Form(separators))
    assert _as_written(found) == _as_written(text)
    assert rewrite_arguments(found, Form((",", ":"))) == rewrite_arguments(text, Form((",", ":")))


@given(text=st.text())
def test_arguments_that_are_given_stay_byte_for_byte(text: str) -> None:
    assert rewrite_arguments(text, AS_GIVEN) == text


def _as_written(text: str) -> Any:
    """Keys in their order, numbers as their digits."""
    return json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
