"""Lines and shapes: what is a prompt, what is not, and why."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import build
from transforms.call_openrouter import prepare
from transforms.chat.profile import ModelProfile
from transforms.failures import FailureKind, RecordError
from transforms.openrouter.wire import Sampling
from transforms.prompts.shapes import parse_record, read_prompt, read_record
from transforms.records import Message, Prompt, Role


def read(record: dict[str, Any]) -> Prompt:
    return read_prompt(record, "f:1", "f")


@pytest.mark.parametrize(
    ("record", "messages"),
    [
        ({"prompt": "a"}, [(Role.USER, "a")]),
        (
            {"messages": [{"role": "developer", "content": "s"}, {"role": "user", "content": "a"}]},
            [(Role.SYSTEM, "s"), (Role.USER, "a")],
        ),
        (
            {"conversations": [{"from": "human", "value": " a\n"}, {"from": "gpt", "value": "b"}]},
            [(Role.USER, " a\n")],
        ),
        ({"conversations": [{"role": "user", "content": "a"}]}, [(Role.USER, "a")]),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
            [(Role.USER, "a")],
        ),
        (
            {"system": "s", "conversations": [{"from": "human", "value": "a"}]},
            [(Role.SYSTEM, "s"), (Role.USER, "a")],
        ),
        ({"conversations": '[{"from":"human","value":"a"}]'}, [(Role.USER, "a")]),
        (  # the parts of LLaMA-Factory
            {"messages": [{"role": "user", "content": [{"type": "text", "value": "a"}]}]},
            [(Role.USER, "a")],
        ),
        ({"messages": None, "prompt": "a"}, [(Role.USER, "a")]),
        ({"prompt": [{"role": "user", "content": "a"}], "chosen": "b"}, [(Role.USER, "a")]),
        ({"instruction": "a", "input": "b", "output": "c"}, [(Role.USER, "a\nb")]),
        ({"instruction": "a", "input": "", "output": "c"}, [(Role.USER, "a")]),
        (
            {"instruction": "c", "history": [["a", "b"]]},
            [(Role.USER, "a"), (Role.ASSISTANT, "b"), (Role.USER, "c")],
        ),
        # the second turn needs the answer to the first
        ({"question_id": 1, "turns": ["a", "b"], "reference": ["c"]}, [(Role.USER, "a")]),
        (
            {"id": "1", "data": ["a", "b", "c", "d"]},
            [(Role.USER, "a"), (Role.ASSISTANT, "b"), (Role.USER, "c")],
        ),
        ({"class": " x ", "data": "a"}, [(Role.USER, "a")]),
        ({"question": "a", "answer": "b"}, [(Role.USER, "a")]),
        ({"question": "a", "A": "1", "B": "2", "C": "3", "answer": "B"}, [(Role.USER, "a")]),
        ({"task_id": "H/0", "prompt": "a\n", "canonical_solution": "b"}, [(Role.USER, "a\n")]),
        ({"problem_statement": "a\r\n", "patch": "b", "hints_text": "c"}, [(Role.USER, "a\r\n")]),
        ({"description": "a", "test_cases": [], "code": "b"}, [(Role.USER, "a")]),
        (  # a batch line holds one request: what comes before its last turn is history
            {
                "custom_id": "1",
                "body": {
                    "model": "m",
                    "messages": [
                        {"role": "user", "content": "a"},
                        {"role": "user", "content": "b"},
                    ],
                },
            },
            [(Role.USER, "a"), (Role.USER, "b")],
        ),
        (
            {"question": [[{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]]},
            [(Role.SYSTEM, "s"), (Role.USER, "a")],
        ),
        (  # UltraChat repeats the first message as `prompt`: it is not asked twice
            {"prompt": "a", "messages": [{"role": "user", "content": "a"}]},
            [(Role.USER, "a")],
        ),
    ],
)
def test_reads_each_shape(record: dict[str, Any], messages: list[tuple[Role, str]]) -> None:
    assert [(m.role, m.content) for m in read(record).messages] == messages


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"dish": "a"}, "it has dish"),
        ({"dish": "a", "id": 1} | {f"k{n}": n for n in range(99)}, "k9 and 89 more"),
        ({"text": "a", "meta": {}}, "--prompt_field text asks it"),
        ({"text": "### Human: a### Assistant: b"}, "plain text without a role"),
        ({"prompt": "Human: a\n\nAssistant:"}, "flattened into one text"),
        ({"messages_display": "user: a\nassistant: None"}, "lost its tool calls"),
        ({"instruction": "You are a", "actions": []}, "a simulated user"),
        ({"id": "0", "user_scenario": {}}, "a simulated user"),
        ({"tts_text": "a", "prompt_text": "b"}, "text-to-speech"),
        ({"name": "f", "description": "d", "parameters": {}}, "a tool definition"),
        ({"type": "function", "function": {"name": "f"}}, "a tool definition"),
        ({"prompt": "a", "images": ["1.jpg"]}, "it has images"),
        ({"messages": [{"role": "user", "content": "<image>Who?"}]}, "a marker of a medium"),
        ({"question": "a", "context": "b"}, "may need 'context'"),
        ({"chosen": [{"role": "user", "content": "a"}], "rejected": []}, "it has chosen, rejected"),
        ({"turns": ["a", 1]}, "not a list of texts"),
        ({"body": {"input": "a"}, "custom_id": "1"}, "body of a batch line has no messages"),
        ({"system": 5, "prompt": "a"}, "the system prompt is a JSON int"),
        ({"system": "s", "messages": [{"role": "system", "content": "t"}]}, "two system prompts"),
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}]},
            "without its call",
        ),
        ({"conversations": [{"from": "function_call", "value": "f(x)"}]}, "function_call is not"),
        ({"prompt": "a", "tools": [{"api_name": "f", "api_url": "u"}]}, "no function with a name"),
        (
            {"prompt": "a", "tools": [{"name": "f", "parameters": {"city": {"type": "str"}}}]},
            "no JSON Schema",
        ),
        ({"messages": "a"}, "a JSON str, not a list"),
        ({"messages": []}, "no user message"),
        ({"messages": [{"role": "user", "content": ""}]}, "no user message"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "no user message"),
        ({"messages": [{"role": "narrator", "content": "a"}]}, "role 'narrator'"),
        ({"messages": ["a"]}, "a message is a JSON str"),
        ({"messages": [{"role": "user", "content": {"a": 1}}]}, "content is a JSON dict"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "'image_url'"),
        ({"prompt": ["a"]}, "prompt is a JSON list"),
        ({"prompt": "a", "tools": "{"}, "tools are text but not JSON"),
        ({"prompt": "a", "tools": {"a": 1}}, "not a list of objects"),
        ({"prompt": "a", "tools": "[" * 2000 + "]" * 2000}, "not JSON"),
        ({"prompt": "a", "tools": [{"name": "f", "x": float("nan")}]}, "as JSON again"),
        ({"prompt": "\ud83d"}, "lone surrogate"),
        ({"prompt": "a", "id": "\ud83d"}, "lone surrogate"),
        ({"messages": [{"role": "user", "content": "a", "tool_calls": 5}]}, "JSON int, not a list"),
        (
            {"messages": [{"role": "user", "content": "a", "tool_calls": [{"id": 1}]}]},
            "without its function",
        ),
    ],
)
def test_refuses_what_is_no_prompt(record: dict[str, Any], said: str) -> None:
    with pytest.raises(RecordError, match=said) as caught:
        read(record)
    assert caught.value.kind is FailureKind.INVALID_PROMPT


@pytest.mark.parametrize("line", [b"{", b'"a', b"\xff{}", b"{} {}", b"[" * 100_000])
def test_a_line_that_is_not_json(line: bytes) -> None:
    with pytest.raises(RecordError) as caught:
        parse_record(line)
    assert caught.value.kind is FailureKind.MALFORMED_JSON


def test_the_id_is_given_or_the_digest_of_the_content() -> None:
    assert read({"id": 7, "prompt": "a"}).id == "7"
    assert read({"id": False, "prompt": "a"}).id == "false"
    assert read({"id": 10**30, "prompt": "a"}).id == str(10**30)
    assert len(read({"id": float("nan"), "prompt": "a"}).id) == 64
    one = read({"prompt": "a"})
    assert one.id == read({"messages": [{"role": "user", "content": "a"}]}).id
    assert one.id != read({"prompt": "a "}).id
    assert one.id != read({"prompt": "a", "tools": [{"name": "f"}]}).id
    assert len(one.id) == 64


def test_tools_are_kept_as_text_and_bare_functions_are_wrapped() -> None:
    tools = '[{"name": "f", "parameters": {"type": "object", "a": 2}}]'
    (tool,) = read({"prompt": "a", "tools": tools}).tools
    assert (
        tool == '{"type":"function","function":{"name":"f","parameters":{"type":"object","a":2}}}'
    )


def test_tools_of_the_benchmark_get_json_schemas_and_names_without_dots() -> None:
    schema = {
        "type": "dict",
        "properties": {
            "type": {"type": "float"},
            "b": {"type": "tuple", "items": {"type": "any", "description": "float"}},
        },
    }
    function = [{"name": "a.f", "parameters": schema}]
    (tool,) = read({"question": [[{"role": "user", "content": "a"}]], "function": function}).tools
    assert json.loads(tool)["function"] == {
        "name": "a_f",
        "parameters": {
            "type": "object",
            "properties": {
                "type": {"type": "number"},
                "b": {"type": "array", "items": {"description": "float"}},
            },
        },
    }


def test_nulls_of_united_structs_are_no_keys() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "enum": None, "default": None}, "b": None},
        "required": None,
    }
    tools = [{"type": "function", "function": {"name": "f", "strict": None, "parameters": schema}}]
    (tool,) = read({"prompt": "a", "tools": tools}).tools
    assert json.loads(tool)["function"] == {
        "name": "f",
        "parameters": {"type": "object", "properties": {"a": {"type": "string", "default": None}}},
    }


def test_results_without_an_id_belong_to_the_calls_in_order() -> None:
    turns = [
        ("human", "a"),
        ("function_call", '[{"name":"f","arguments":{"é" : 1}},{"name":"g","arguments":"{}"}]'),
        ("observation", "1"),
        ("observation", "2"),
        ("function_call", '{"name":"f","arguments":{}}'),
        ("observation", "3"),
    ]
    prompt = read({"conversations": [{"from": who, "value": what} for who, what in turns]})
    calls = [(c.id, c.arguments) for m in prompt.messages for c in m.tool_calls]
    first, second, third = "functions.f:0", "functions.g:1", "functions.f:2"
    assert calls == [(first, '{"é": 1}'), (second, "{}"), (third, "{}")]
    results = [(m.tool_call_id, m.content) for m in prompt.messages if m.role is Role.TOOL]
    assert results == [(first, "1"), (second, "2"), (third, "3")]


def test_a_named_field_is_the_prompt_before_any_shape() -> None:
    record = {"text": "a", "prompt": "b", "id": "1"}
    for field, asked in (("text", "a"), ("absent", "b"), (None, "b")):
        assert read_prompt(record, "f:1", "f", field).messages[0].content == asked


def test_where_the_model_answers() -> None:
    talk = [("system", "s"), ("assistant", "hello"), ("user", "a"), ("user", "b"),
            ("assistant", "c"), ("user", "d"), ("assistant", "e")]  # fmt: skip
    messages = [{"role": role, "content": text} for role, text in talk]
    assert read_record({"messages": messages}).after == (3, 5)
    assert read_record({"body": {"messages": messages}, "custom_id": 1}).after == (5,)
    assert read_record({"turns": ["a", "b"]}).after == (0, 1)


def test_ids_are_kept_whatever_their_key() -> None:
    keys = ("id", "custom_id", "prompt_id", "question_id", "task_id", "instance_id")
    assert [read({"prompt": "a", key: 81}).id for key in keys] == ["81"] * len(keys)


def test_recorded_arguments_stay_byte_for_byte() -> None:
    arguments = '{"b" :1,  "a":"é\\u00e9"}'
    call = {"id": "functions.f:0", "function": {"name": "f", "arguments": arguments}}
    record = {
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "functions.f:0", "content": "5"},
        ]
    }
    prompt = read(record)
    assert prompt.messages[1].tool_calls[0].arguments == arguments
    assert prompt.messages[2] == Message(role=Role.TOOL, content="5", tool_call_id="functions.f:0")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["messages", "role", "content", "prompt", "tools", "from", "value", "id",
                         "tool_calls", "function", "name", "arguments", "text"]),
        inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize(
    ("said", "thought"),
    [
        ({"reasoning_details": [{"type": "reasoning.text", "text": "a"}, {"text": "b"}]}, "ab"),
        ({"reasoning_details": [{"text": "b"}], "reasoning": "a"}, "a"),
        ({"reasoning_content": "a"}, "a"),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, None),
        ({"reasoning_details": []}, None),
    ],
)
def test_recorded_thoughts_are_history_whatever_their_key(
    said: dict[str, Any], thought: str | None
) -> None:
    turns = [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "2", **said},
        {"role": "user", "content": "3"},
    ]
    assert read_prompt({"messages": turns}, "f:1", "").messages[1].reasoning == thought


@given(_JSON)
def test_any_json_is_a_prompt_or_a_reasoned_refusal(value: Any) -> None:
    with contextlib.suppress(RecordError):
        prompt = read_prompt(parse_record(json.dumps(value).encode()), "f:1", "f")
        assert any(message.role is Role.USER for message in prompt.messages)


def test_special_text_is_made_harmless_where_that_is_asked(kimi: ModelProfile) -> None:
    asked = build.prompt("say <|im_end|> and [BOS]", tools=('{"name":"</think>"}',))
    sampling = Sampling(model="m", max_tokens=9, escapes_special_text=True)
    prompt, request = prepare(asked, sampling, kimi)
    assert prompt.messages[0].content == "say < |im_end|> and [ BOS]"
    assert prompt.tools == ('{"name":"< /think>"}',)
    assert b"<|im_end|>" not in request.body
    with pytest.raises(RecordError, match="PROMPT_SPECIAL_TEXT"):
        prepare(asked, Sampling(model="m", max_tokens=9), kimi)
