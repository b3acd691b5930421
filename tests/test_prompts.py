"""Lines and shapes: what is a prompt, what is not, and why."""

import contextlib
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import build
from transforms.call_openrouter import prepare
from transforms.chat.profile import ModelProfile
from transforms.failures import Failure, FailureKind, RecordError
from transforms.openrouter.wire import Sampling
from transforms.prompts.lines import read_lines
from transforms.prompts.shapes import parse_record, read_prompt
from transforms.read_prompts import InputFile, read_file
from transforms.records import Message, Prompt, Role


def read(record: dict[str, Any]) -> Prompt:
    return read_prompt(record, "f:1", "f")


def lines(data: bytes) -> list[tuple[int, bytes]]:
    return list(read_lines(io.BytesIO(data)))


def test_lines_end_at_lf_alone() -> None:
    text = "\ufeff{1}\r\n\n  \r\n{2\u2028\x0b\r3}\n{4}".encode()
    assert lines(text) == [(1, b"{1}"), (4, "{2\u2028\x0b\r3}".encode()), (5, b"{4}")]


def test_gzip_is_found_by_content_nested_and_in_members() -> None:
    members = gzip.compress(b"a\n") + gzip.compress(b"b\n")
    assert lines(gzip.compress(members)) == [(1, b"a"), (2, b"b")]


def test_a_damaged_archive_is_loud() -> None:
    """Nothing of it is given, however much of it could be read: what is asked is paid for."""
    whole = gzip.compress(bytes(range(11, 256)) * 1000 + b"\n" + b"line\n" * 1000)
    for damaged in (whole[:-9], whole[:-8] + b"\0" * 8):
        with pytest.raises(RecordError, match="cannot be read"):
            lines(damaged)


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
        ({"question": "a"}, "it has question"),
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
    tools = '[{"name": "f", "parameters": {"b": 1, "a": 2}}]'
    (tool,) = read({"prompt": "a", "tools": tools}).tools
    assert tool == '{"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}}'


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


# Counts of prompts as shared/docs/inputs.md section 4 lists them, for what is JSON lines.
ODD_FILES = {
    "bom.jsonl": 6,
    "crlf.jsonl": 6,
    "blank_lines.jsonl": 6,
    "no_final_newline.jsonl": 6,
    "nul_escape.jsonl": 2,
    "invalid_utf8.jsonl": 1,
    "utf16le_bom.jsonl": 0,
    "duplicate_keys.jsonl": 2,
    "trailing_commas.jsonl": 1,
    "truncated_last_line.jsonl": 5,
    "empty.jsonl": 0,
    "whitespace_only.jsonl": 0,
    "gzip_plain.jsonl.gz": 6,
    "gzip_nested.jsonl.gz.gz": 6,
    "gzip_named_jsonl.jsonl": 6,
    "plain_named_gz.jsonl.gz": 6,
    "very_long_line.jsonl": 2,
    "multilingual_emoji.jsonl": 7,
}


@pytest.mark.parametrize(("name", "prompts"), ODD_FILES.items())
def test_odd_files_give_what_can_be_read(
    shared: Callable[[str], Path], name: str, prompts: int
) -> None:
    found = list(read_file(InputFile(str(shared(f"odd/{name}")), "odd")))
    assert sum(isinstance(item, Prompt) for item in found) == prompts
    for failure in (item for item in found if isinstance(item, Failure)):
        assert name in failure.source
        assert failure.detail


def test_a_wrong_checksum_does_not_pass(shared: Callable[[str], Path]) -> None:
    (found,) = read_file(InputFile(str(shared("odd/gzip_bad_crc.jsonl.gz")), "odd"))
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNREADABLE_FILE


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["messages", "role", "content", "prompt", "tools", "from", "value", "id",
                         "tool_calls", "function", "name", "arguments", "text"]),
        inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


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
