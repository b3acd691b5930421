"""One turn after another: what a record asks for, what follows an answer, what may not follow."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import build
from tests.programs import KEY, serve_simulator
from tests.stages import call_config, run_stage
from transforms.call_openrouter import CallOpenRouter
from transforms.chat.next_turn import next_turn
from transforms.chat.profile import ModelProfile
from transforms.encoding.rejection import encode_rejection
from transforms.failures import FailureKind, RecordError, Stage, fail_each
from transforms.generations import generations, history, row_ids
from transforms.openrouter.wire import Sampling, write_request
from transforms.prompts.asking import Turns
from transforms.prompts.shapes import parse_record, read_prompt
from transforms.read_prompts import InputFile, ReadPrompts, ReadSettings
from transforms.records import (
    Completion,
    Exchange,
    FinishReason,
    FollowUp,
    Message,
    Prompt,
    Role,
    ToolCall,
)


def read(record: dict[str, Any], which: Turns = Turns.ALL) -> Prompt:
    return read_prompt(record, "f:1", "f", which=which)


def texts(messages: tuple[Message, ...]) -> str:
    return "".join(message.content or "-" for message in messages)


TALK = {
    "id": "x",
    "messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "b"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "B"},
        {"role": "user", "content": "d"},
        {"role": "assistant", "content": "D"},
    ],
}


def test_all_turns_or_the_last() -> None:
    every = read(TALK)
    assert texts(every.messages) == "a"
    assert [(texts(f.recorded), texts(f.messages)) for f in every.later] == [
        ("A", "bc"),
        ("B", "d"),
    ]
    assert row_ids(every) == ("x", "x#t1", "x#t2")
    last = read(TALK, Turns.LAST)
    assert (texts(last.messages), last.later, row_ids(last)) == ("aAbcBd", (), ("x",))


def test_conversations_without_an_id_that_begin_alike_are_not_the_same() -> None:
    one, other = read({"turns": ["a", "b"]}), read({"turns": ["a", "c"]})
    assert one.messages == other.messages
    assert one.id != other.id


@pytest.mark.parametrize(
    ("record", "ids"),
    [
        ({"sample_index": 2}, ("x#s2",)),
        ({"sample_index": None}, ("x",)),
        ({"sample_index": "2"}, ("x",)),
        ({"turn": 3}, ("x",)),  # data sets have such columns; a rejection alone means a turn
        ({"id": "x#t3#s1", "turn": 3, "sample_index": 1, "rejection": {"code": "c"}}, ("x#t3#s1",)),
        ({"rejection": {"code": "c"}}, ("x",)),
    ],
)
def test_a_record_may_ask_for_one_generation(record: dict[str, Any], ids: tuple[str, ...]) -> None:
    assert row_ids(read({"id": "x", "prompt": "a"} | record)) == ids


@pytest.mark.parametrize(
    "record",
    [
        {"sample_index": -1},
        {"sample_index": 2**31},
        {"turn": 2, "history_from": 0, "rejection": {"code": "c"}},
        {"turn": 0, "history_from": 1, "rejection": {"code": "c"}},
    ],
)
def test_an_index_that_cannot_be_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(RecordError) as caught:
        read({"prompt": "a"} | record)
    assert caught.value.kind is FailureKind.INVALID_PROMPT


_SAID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
_TALKS = st.lists(st.tuples(_SAID, st.none() | _SAID), min_size=1, max_size=5)


@given(_TALKS, st.integers(0, 2**31 - 1), st.integers(0, 5))
def test_a_rejected_generation_is_asked_for_again_and_no_other(
    talk: list[tuple[str, str | None]], sample_index: int, turn: int
) -> None:
    """Whatever is said, with recorded answers and without: a row gives its own id and words."""
    first, *rest = [Message(role=Role.USER, content=asked) for asked, _ in talk]
    recorded = [(Message(role=Role.ASSISTANT, content=told),) if told else () for _, told in talk]
    later = tuple(
        FollowUp(recorded=old, messages=(said,)) for old, said in zip(recorded, rest, strict=False)
    )
    prompt = build.prompt(messages=(first,), later=later, turn=turn, sample_index=sample_index)
    error = RecordError(FailureKind.INTERRUPTED, "d")
    failures = list(fail_each(prompt, Stage.CALL, error))
    assert tuple(failure.id for failure in failures) == row_ids(prompt)
    for number, failure in enumerate(failures):
        again = read_prompt(parse_record(encode_rejection(failure)), "f:1", "f", which=Turns.LAST)
        assert row_ids(again) == (failure.id,)
        assert (again.turn, again.wanted) == (turn, turn + number)
        assert history(again, again.wanted) == history(prompt, turn + number)


def test_sample_0_keeps_its_request_and_others_have_their_own_seed() -> None:
    sampling = Sampling(model="m", max_tokens=9, seed=5)
    asked = [write_request(build.prompt(sample_index=i), sampling) for i in (0, 0, 1)]
    assert asked[0].sha256 == asked[1].sha256 != asked[2].sha256
    assert [json.loads(request.body)["seed"] for request in asked] == [5, 5, 6]
    unseeded = [
        write_request(build.prompt(sample_index=i), Sampling(model="m", max_tokens=9))
        for i in (0, 1)
    ]
    assert unseeded[0].body == unseeded[1].body
    assert unseeded[0].sha256 != unseeded[1].sha256


def talk_of(*messages: Message, calls: tuple[ToolCall, ...] = ()) -> Prompt:
    recorded = Message(role=Role.ASSISTANT, tool_calls=calls) if calls else None
    follow = FollowUp(recorded=(recorded,) if recorded else (), messages=messages)
    return build.prompt(tools=(build.WEATHER,), later=(follow,))


def result(identity: str, content: str = "20") -> Message:
    return Message(role=Role.TOOL, content=content, tool_call_id=identity)


def answered(prompt: Prompt, answer: Completion, **fields: Any) -> Exchange:
    asked = dataclasses.replace(prompt, later=())
    return dataclasses.replace(build.exchange(answer, asked), **fields)


QUESTION = Message(role=Role.USER, content="And in Rome?")


def test_the_models_own_answer_goes_back_as_it_came(kimi: ModelProfile) -> None:
    prompt = talk_of(QUESTION)
    answer = build.completion(" 20.\n", reasoning=" Hm.", other_reasoning=(" Hm.",), tokens=9)
    following = next_turn(prompt, answered(prompt, answer), kimi)
    own = Message(role=Role.ASSISTANT, content=" 20.\n", reasoning=" Hm.")
    assert following.messages == (*prompt.messages, own, QUESTION)
    assert (following.id, following.turn, following.later) == ("p1#t1", 1, ())


@pytest.mark.parametrize("given", ["call_9f", None, "3"])
def test_results_follow_calls_whose_ids_a_host_made_up(
    kimi: ModelProfile, given: str | None
) -> None:
    old = build.call("old-1", arguments='{"city":"Paris"}')
    prompt = talk_of(result("old-1"), QUESTION, calls=(old,))
    answer = build.completion(reasoning="r", calls=(build.call(given),), tokens=9)
    *_, own, told, question = next_turn(prompt, answered(prompt, answer), kimi).messages
    assert own.tool_calls == (build.call("functions.get_weather:0"),)
    assert told == result("functions.get_weather:0")
    assert question == QUESTION


def test_results_keep_their_own_call_when_two_are_made(kimi: ModelProfile) -> None:
    cities = ('{"city": "Paris"}', '{"city": "Rome"}')
    old = tuple(build.call(f"old-{n}", arguments=city) for n, city in enumerate(cities))
    prompt = talk_of(result("old-1", "Rome: 9"), result("old-0", "Paris: 7"), calls=old)
    new = tuple(
        build.call(f"functions.get_weather:{n}", arguments=city) for n, city in enumerate(cities)
    )
    answer = build.completion(reasoning="r", calls=new, tokens=9)
    following = next_turn(prompt, answered(prompt, answer), kimi)
    assert following.messages[2:] == (
        result("functions.get_weather:1", "Rome: 9"),
        result("functions.get_weather:0", "Paris: 7"),
    )


PARIS, ROME = build.call("old"), build.call("old", arguments='{"city": "Rome"}')


@pytest.mark.parametrize(
    ("recorded", "follows", "made"),
    [
        ((PARIS,), (result("old"),), ()),
        ((), (QUESTION,), (PARIS,)),
        ((PARIS,), (result("old"),), (ROME,)),
        ((PARIS,), (result("old"),), (build.call("old", name="get_time"),)),
        ((PARIS,), (result("old"),), (PARIS, build.call("new"))),
        ((PARIS, build.call("two")), (result("old"),), (PARIS, build.call("two"))),
        ((PARIS,), (result("old"), result("old", "21")), (PARIS,)),
        ((PARIS,), (result("another"),), (PARIS,)),
        ((build.call("o", arguments="{"),), (result("o"),), (build.call(arguments="{ "),)),
    ],
)
def test_results_of_other_calls_end_the_conversation(
    kimi: ModelProfile,
    recorded: tuple[ToolCall, ...],
    follows: tuple[Message, ...],
    made: tuple[ToolCall, ...],
) -> None:
    prompt = talk_of(*follows, calls=recorded)
    answer = build.completion(None if made else "Hm.", reasoning="r", calls=made, tokens=9)
    with pytest.raises(RecordError, match="the model called") as caught:
        next_turn(prompt, answered(prompt, answer), kimi)
    assert caught.value.kind is FailureKind.TOOL_RESULTS_UNFIT


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (build.completion("a", "r", finish_reason=FinishReason.LENGTH), "LENGTH_TRUNCATED"),
        (build.completion("a", "r", tokens=1000), "LENGTH_TRUNCATED"),
        (build.completion("a", "r", finish_reason=None), "FINISH_UNKNOWN"),
        (build.completion("a\ufffd", "r"), "REPLACEMENT_CHAR"),
        (build.completion("a", "r", other_reasoning=("s",)), "REASONING_FIELDS_DISAGREE"),
        (build.completion("a", "[reasoning.encrypted]"), "REASONING_ENCRYPTED"),
        (build.completion("a </think>b", None), "special text '</think>'"),
        (build.completion("a", "about <|im_user|>"), "special text"),
        (
            build.completion(reasoning="r", calls=(build.call(arguments='{"a":"[EOS]"}'),)),
            "special text",
        ),
        (build.completion(None, "all of it"), "EMPTY_ANSWER"),
    ],
)
def test_an_answer_that_is_not_known_exactly_is_no_history(
    kimi: ModelProfile, answer: Completion, said: str
) -> None:
    prompt = talk_of(QUESTION)
    with pytest.raises(RecordError, match=said) as caught:
        next_turn(prompt, answered(prompt, answer), kimi)
    assert caught.value.kind is FailureKind.HISTORY_UNKNOWN


def test_a_thought_that_is_not_told_matters_where_the_next_prompt_shows_it(
    kimi: ModelProfile,
) -> None:
    """Kimi's template drops thoughts of earlier turns, but not between a call and its result."""
    prompt = talk_of(QUESTION)
    answer = build.completion("a", None, tokens=4)
    own = Message(role=Role.ASSISTANT, content="a")
    following = next_turn(prompt, answered(prompt, answer), kimi)
    assert following.messages == (*prompt.messages, own, QUESTION)
    prompt = talk_of(result("old"), calls=(PARIS,))
    answer = build.completion(reasoning=None, calls=(PARIS,), tokens=9)
    with pytest.raises(RecordError, match="it came without its thought") as caught:
        next_turn(prompt, answered(prompt, answer), kimi)
    assert caught.value.kind is FailureKind.HISTORY_UNKNOWN


@pytest.mark.parametrize("spread", [False, True])
def test_a_conversation_and_a_turn_of_it_are_not_both_asked(tmp_path: Path, spread: bool) -> None:
    turn = {"id": "x#t1", "prompt": "b", "turn": 1, "rejection": {"code": "timeout"}}
    lines = [turn, TALK, {"id": "y", "turns": ["a", "b"]}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    settings = ReadSettings(turns=Turns.ALL, samples=2)
    stage = ReadPrompts((InputFile(str(path), "a"),), spread=spread, settings=settings)
    good, failures = run_stage(stage, [], tmp_path / "kept")
    assert {row for prompt in good for row in row_ids(prompt)} == {
        "x#t1", "x#s1", "x#t1#s1", "x#t2#s1", "y", "y#t1", "y#s1", "y#t1#s1",
    }  # fmt: skip
    assert sorted(failure.id for failure in failures) == ["x", "x#t1", "x#t2"]
    assert {failure.kind for failure in failures} == {FailureKind.DUPLICATE_ID}


def test_generations_are_each_for_itself() -> None:
    each = list(generations(read(TALK)))
    assert [texts(history(one, one.wanted)) for one in each] == ["a", "aAbc", "aAbcBd"]
    assert [row_ids(one) for one in each] == [("x",), ("x#t1",), ("x#t2",)]


def test_a_turn_that_cannot_be_asked_ends_its_conversation_and_no_other(
    tmp_path: Path, kimi: ModelProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused by the service, a literal of a special token, more tokens than are allowed."""
    monkeypatch.setenv("TEST_KEY", KEY)
    scenario = tmp_path / "s.yaml"
    force = "{match: second-refused, fault: moderation, times: 9}"
    scenario.write_text(f"force: [{force}]\ntokens: {{median: 20, sigma: 0}}\n", "utf-8")
    seconds = {"w": "fine", "l": "long " * 200, "r": "second-refused", "s": "say <|im_end|>"}
    prompts = [read({"id": name, "turns": ["a", asked, "c"]}) for name, asked in seconds.items()]
    with serve_simulator("--scenario", str(scenario)) as server:
        call = call_config(server.base_url, tmp_path, 4)
        sampling = Sampling(model="moonshotai/kimi-k2.5", max_tokens=500)
        stage = CallOpenRouter(call, sampling, kimi, max_prompt_tokens=200)
        good, failures = run_stage(stage, prompts, tmp_path / "kept")
    assert sorted(one.prompt.id for one in good) == ["l", "r", "s", "w", "w#t1", "w#t2"]
    assert {failure.id: failure.kind for failure in failures} == {
        "l#t1": FailureKind.PROMPT_TOO_LONG,
        "l#t2": FailureKind.PROMPT_TOO_LONG,
        "r#t1": FailureKind.REFUSED,
        "r#t2": FailureKind.HISTORY_UNKNOWN,
        "s#t1": FailureKind.PROMPT_SPECIAL_TEXT,
        "s#t2": FailureKind.HISTORY_UNKNOWN,
    }
    by_id = {failure.id: failure.detail for failure in failures}
    assert by_id["r#t2"].startswith("turn 1 has no answer: refused")
