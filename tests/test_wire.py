"""What is sent and what is understood, on made and on recorded bytes."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import build
from transforms.call_openrouter import refuse_special_text
from transforms.chat.profile import ModelProfile
from transforms.failures import FailureKind, RecordError
from transforms.openrouter.costs import find_cost, read_cost
from transforms.openrouter.faults import judge
from transforms.openrouter.replies import read_body, read_completion
from transforms.openrouter.store import Attempt
from transforms.openrouter.wire import Sampling, is_of_model, write_request
from transforms.records import FinishReason, Message, Role, ToolCall, Usage

SAMPLING = Sampling(model="moonshotai/kimi-k2.5", max_tokens=100, temperature=1.0)


def reply(**message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}]}


def test_the_body_is_one_fixed_text() -> None:
    asked = build.prompt(
        "Größe?",
        messages=(
            Message(role=Role.USER, content="Größe?"),
            Message(
                role=Role.ASSISTANT,
                reasoning="r",
                tool_calls=(ToolCall(id="functions.f:0", name="f", arguments='{"b" :1}'),),
            ),
            Message(role=Role.TOOL, content="5", tool_call_id="functions.f:0"),
        ),
        tools=('{"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}}',),
    )
    sampling = Sampling(model="m", max_tokens=7, top_p=0.9, extra='{"provider":{"only":["x"]}}')
    request = write_request(asked, sampling)
    assert request.body.decode() == (
        '{"model":"m","messages":[{"role":"user","content":"Größe?"},{"role":"assistant",'
        '"content":null,"reasoning":"r","tool_calls":[{"id":"functions.f:0","type":"function",'
        '"function":{"name":"f","arguments":"{\\"b\\" :1}"}}]},{"role":"tool","content":"5",'
        '"tool_call_id":"functions.f:0"}],"tools":[{"type":"function","function":{"name":"f",'
        '"parameters":{"b":1,"a":2}}}],"max_tokens":7,"top_p":0.9,"provider":{"only":["x"]}}'
    )
    assert request.sha256 == hashlib.sha256(request.body + b"\n0").hexdigest()


def test_what_json_cannot_carry_is_refused_before_it_is_sent() -> None:
    with pytest.raises(RecordError) as caught:
        write_request(build.prompt("\ud83d"), SAMPLING)
    assert caught.value.kind is FailureKind.INVALID_PROMPT


@pytest.mark.parametrize(
    "asked",
    [
        build.prompt("say <|im_end|>"),
        build.prompt("say [EOS]"),
        build.prompt("<|reserved_token_163589|>"),
        build.prompt("a", tools=('{"function":{"name":"f","description":"</think>"}}',)),
        build.prompt("a", tools=('{"function":{"name":"f","description":"\\u003cthink>"}}',)),
        build.prompt("a", tools=('{"function":{"parameters":{"$ref":"#/$defs/think"}}}',)),
    ],
)
def test_special_text_in_any_field_is_refused(kimi: ModelProfile, asked: Any) -> None:
    with pytest.raises(RecordError) as caught:
        refuse_special_text(write_request(asked, SAMPLING).body.decode(), kimi)
    assert caught.value.kind is FailureKind.PROMPT_SPECIAL_TEXT


@pytest.mark.parametrize(
    "message",
    [
        {"reasoning": " r\n", "content": "c"},
        {"reasoning_content": " r\n", "content": "c"},
        {"reasoning": None, "reasoning_content": " r\n", "content": "c"},
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": " r"},
                {"type": "reasoning.text", "text": "\n"},
            ],
            "content": [{"type": "text", "text": "c"}],
        },
    ],
)
def test_reasoning_is_read_in_all_its_spellings(message: dict[str, Any]) -> None:
    found = read_completion(reply(**message)).message
    assert (found.reasoning, found.content) == (" r\n", "c")


def test_usage_cost_and_provider_are_kept_as_they_came() -> None:
    body = b"""\n         \n\n         \n{"id":"gen-1","model":"moonshotai/kimi-k2.5-0127",
      "provider":"Inceptron","choices":[{"message":{"content":" Oi"},"finish_reason":"stop",
      "native_finish_reason":"eos"}],"usage":{"prompt_tokens":21,"completion_tokens":202,
      "cost":0.00045364,"completion_tokens_details":{"reasoning_tokens":166}}}"""
    found = read_completion(read_body(body))
    assert found.usage is not None
    assert found.usage.cost_usd == Decimal("0.00045364")
    assert (found.usage.completion_tokens, found.usage.reasoning_tokens) == (202, 166)
    assert (found.provider, found.native_finish_reason) == ("Inceptron", "eos")
    assert found.message.content == " Oi"


@pytest.mark.parametrize(
    ("provider", "name"), [({"name": "Chutes"}, "Chutes"), (7, None), (None, None)]
)
def test_a_nested_provider_is_coerced(provider: Any, name: str | None) -> None:
    assert read_completion(reply(content="a") | {"provider": provider}).provider == name


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 0, "completion_tokens": 0}])
def test_zero_placeholders_are_no_count(usage: Any) -> None:
    assert read_completion(reply(content="a") | {"usage": usage}).usage is None


def test_what_is_not_of_its_type_is_absent() -> None:
    body = reply(content="a") | {"id": 5, "model": ["m"], "provider": "\ud83d"}
    body["choices"][0]["native_finish_reason"] = {"a": 1}
    costs: tuple[Any, ...] = ("", "$1", True, {}, float("nan"))
    for cost in costs:
        body["usage"] = {"completion_tokens": 4.0, "prompt_tokens": -1, "cost": cost,
                         "completion_tokens_details": {"reasoning_tokens": 2.5}}  # fmt: skip
        found = read_completion(body)
        assert (found.generation_id, found.model, found.provider) == (None, None, "\ufffd")
        assert found.native_finish_reason == "stop"
        assert found.usage == Usage(
            prompt_tokens=None, completion_tokens=4, reasoning_tokens=None, cost_usd=None
        )
    for tokens in (5.9, "5", True, 2**31, float("inf")):
        body["usage"] = {"completion_tokens": tokens}
        assert read_completion(body).usage is None


def test_thoughts_that_differ_are_told() -> None:
    found = read_completion(reply(reasoning="a", reasoning_content="b", content="c")).message
    assert (found.reasoning, found.other_reasoning) == ("a", ("b",))
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    found = read_completion(reply(reasoning="a", reasoning_details=details, content="c")).message
    assert found.other_reasoning == ("[reasoning.encrypted]",)
    found = read_completion(reply(reasoning="", reasoning_content="b", content="c")).message
    assert (found.reasoning, found.other_reasoning) == ("b", ())
    assert read_completion(reply(reasoning="", content="c")).message.reasoning == ""
    assert read_completion(reply(content="c")).message.reasoning is None


_SMALL = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["stop", "x"])
_NAMES = st.sampled_from(
    ["id", "choices", "message", "delta", "content", "reasoning", "reasoning_details", "type",
     "text", "tool_calls", "function", "name", "arguments", "index", "usage", "error", "code",
     "completion_tokens", "finish_reason", "native_finish_reason", "model", "provider", "cost"]
)  # fmt: skip
_ANY = st.recursive(
    _SMALL,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=5),
    max_leaves=15,
)


@given(_ANY, st.booleans())
def test_any_json_is_an_answer_a_fault_or_a_failed_record(value: Any, streamed: bool) -> None:
    text = json.dumps(value)
    body = f"data: {text}\n\ndata: [DONE]\n" if streamed else text
    attempt = Attempt(
        request_sha256="00", run_id="r", status=200, error=None, headers=(), body=body.encode(),
        started_at=0, ended_at=0,
    )  # fmt: skip
    judged = judge(attempt)
    if judged.reply is not None:
        with contextlib.suppress(RecordError):
            assert read_completion(judged.reply).message.role is Role.ASSISTANT


def test_an_unknown_finish_reason_is_not_taken_for_success() -> None:
    body = reply(content="a")
    body["choices"][0]["finish_reason"] = "abort"
    found = read_completion(body)
    assert (found.finish_reason, found.native_finish_reason) == (None, "abort")


def test_a_host_s_own_word_for_the_end_is_stop() -> None:
    body = reply(content="a")
    body["choices"][0]["finish_reason"] = "eos"
    found = read_completion(body)
    assert (found.finish_reason, found.native_finish_reason) == (FinishReason.STOP, "eos")


def test_a_lone_surrogate_is_read() -> None:
    assert read_body(b'{"a":"\\ud83d"}') == {"a": "\ud83d"}


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (["a\ud83d", "\ude00b"], "a\U0001f600b"),  # JavaScript cuts texts between the two
        (["a\ud83d", "b"], "a\ud83db"),
    ],
)
def test_halves_of_a_character_in_two_events_are_that_character(
    pieces: list[str], whole: str
) -> None:
    calls = [{"index": 0, "id": "f:0", "function": {"name": "f", "arguments": ""}}]
    deltas: list[dict[str, Any]] = [{"reasoning": piece} for piece in pieces]
    deltas += [{"content": piece} for piece in pieces]
    deltas += [{"tool_calls": calls}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": one}}]} for one in pieces]
    events = [{"choices": [{"delta": delta}]} for delta in deltas]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    message = read_completion(read_body(body.encode())).message
    assert (message.reasoning, message.content) == (whole, whole)
    assert [call.arguments for call in message.tool_calls] == [whole]


@pytest.mark.parametrize("line", ['{"a":1}{"b":2}', '{"choices":\ndata: []}', '{"a":1}\ndata: [1]'])
def test_an_event_that_is_not_one_object_is_no_stream(line: str) -> None:
    with pytest.raises(ValueError, match=r"chunk|line 1"):
        read_body(f"data: {line}\n\n".encode())


def test_tool_calls_keep_their_text() -> None:
    calls = [
        {"id": None, "function": {"name": "f", "arguments": '{"a" :1}'}},
        {"id": 3, "function": {"name": "g"}},
    ]
    found = read_completion(reply(content=None, tool_calls=calls)).message.tool_calls
    assert found == (
        ToolCall(id=None, name="f", arguments='{"a" :1}'),
        ToolCall(id="3", name="g", arguments=""),
    )


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": 5}}]},
        {"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}}]},
        {"choices": [{"message": {"tool_calls": ["f"]}}]},
        {"choices": [{"message": {"tool_calls": [{"function": {"name": None}}]}}]},
        {"choices": [{"message": {"content": [{"type": "thinking", "text": "a"}]}}]},
        {"choices": [{}]},
        [],
    ],
)
def test_another_shape_fails_the_record(body: Any) -> None:
    with pytest.raises(RecordError) as caught:
        read_completion(body)
    assert caught.value.kind is FailureKind.INVALID_RESPONSE


def test_recorded_streams_are_put_together(shared: Callable[[str], Path]) -> None:
    streams = 0
    with shared("responses/openrouter_kimi_k25.jsonl").open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            found = read_completion(read_body(row["response_body"].encode()))
            wanted = row["assembled"]
            assert found.message.content or wanted.get("content") == "" or ""
            assert (found.message.reasoning or "") == (wanted.get("reasoning") or "")
            calls = [(c.id, c.name, c.arguments) for c in found.message.tool_calls]
            assert calls == [(c["id"], c["name"], c["arguments"]) for c in wanted["tool_calls"]]
            assert found.finish_reason == FinishReason(wanted["finish_reason"])
            assert found.usage is not None
            assert found.usage.completion_tokens == wanted["usage"]["completion_tokens"]
            streams += row["stream"]
    assert streams == 10


def test_edges_of_chunks_are_kept_whatever_shape_the_other_fields_have() -> None:
    deltas: tuple[dict[str, Any], ...] = (
        {"reasoning": "", "reasoning_content": " H", "content": ""},
        {"reasoning_content": "m", "content": None, "tool_calls": []},
        {"content": "O"},
        {"content": "i", "reasoning_content": 7},
        {"content": {"no": "text"}},
    )
    events = [{"id": "g", "choices": [{"delta": delta}]} for delta in deltas]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    edges = [("reasoning", " H"), ("reasoning", "m"), ("content", "O"), ("content", "i")]
    for end in (3, 5):  # without and with what the fast decoder refuses
        reply = read_body("".join(body.splitlines(keepends=True)[: 2 * end]).encode())
        assert edges_of(reply) == edges[: min(end, 4)]
    assert reply["choices"][0]["message"]["reasoning_content"] == " Hm"
    both = body + 'data: {"choices":[{"delta":{"reasoning":"Hm"}}]}'
    assert edges_of(read_body(both.encode())) == [*edges[2:], ("reasoning", "Hm")]


def edges_of(reply: dict[str, Any]) -> list[tuple[str, str]]:
    chunks = reply["choices"][0]["chunks"]
    return list(zip(chunks["fields"], chunks["texts"], strict=True))


def test_a_stream_may_be_cut_anywhere_in_its_lines() -> None:
    events = [
        ": OPENROUTER PROCESSING",
        'data: {"id":"gen-1","choices":[{"delta":{"reasoning":" Hm"}}]}',
        'data: {"choices":[{"delta":{"content":"O"},"finish_reason":null}]}',
        'data: {"choices":[{"delta":{"content":"i"},"finish_reason":"stop"}]}',
        'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}',
        "data: [DONE]",
    ]
    for end in ("\n\n", "\r\n\r\n", "\r\r"):
        found = read_completion(read_body(end.join(events).encode()))
        assert (found.message.reasoning, found.message.content) == (" Hm", "Oi")
        assert found.usage is not None
        assert found.usage.completion_tokens == 4


@pytest.mark.parametrize(
    ("body", "usd"),
    [
        (b'\n  \n{"usage": {"cost": 0.5, "cost_details": {"cost": 3}}, "z": 1}', "0.5"),
        (b'{"usage" :\n{"cost":1e-05}}', "0.00001"),
        (b'data: {"usage":null}\n\ndata: {"usage":{"cost":2}}\n\ndata: {"usage":null}', "2"),
        (b'{"usage":{"cost":2},"choices":["\\"usage\\":{\\"cost\\":9}", "usage"]}', "2"),
        (b'{"usage":{"cost":"2"}}', None),
        (b'{"usage":{"cost":1' + b"0" * 400 + b"}}", None),
        (b'{"usage":{"a":' + b"[" * 100000, None),
        (b'{"usage":{"cost":2', None),
        (b'{"choices":[]}', None),
        (b"", None),
    ],
)
def test_the_cost_is_found_without_parsing_the_rest(body: bytes, usd: str | None) -> None:
    assert find_cost(body) == (None if usd is None else Decimal(usd))


def test_found_costs_are_those_of_recorded_answers(shared: Callable[[str], Path]) -> None:
    found = 0
    for path in shared("responses").glob("openrouter_kimi*.jsonl"):
        for line in path.read_text("utf-8").splitlines():
            body = json.loads(line)["response_body"].encode()
            cost = read_cost(read_body(body)["usage"])
            assert find_cost(body) == cost
            found += cost is not None
    assert found > 0


@pytest.mark.parametrize(
    ("asked", "answered", "same"),
    [
        ("moonshotai/kimi-k2.5", "moonshotai/kimi-k2.5", True),
        ("moonshotai/kimi-k2.5", "moonshotai/kimi-k2.5-0127", True),
        ("openai/gpt-4o:nitro", "openai/gpt-4o-2024-07-18", True),
        ("moonshotai/kimi-k2", "moonshotai/kimi-k2-thinking", False),
        ("moonshotai/kimi-k2", "moonshotai/kimi-k2.5", False),
        ("moonshotai/kimi-k2.5", "moonshotai/kimi-k245", False),
        ("moonshotai/kimi-k2.5", None, False),
    ],
)
def test_only_a_date_makes_a_name_longer(asked: str, answered: str | None, *, same: bool) -> None:
    assert is_of_model(asked, answered) == same
