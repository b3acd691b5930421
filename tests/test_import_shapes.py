"""Logs of other programs: where they keep a request, its settings and what came."""

import asyncio
import base64
import contextlib
import gzip
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline import import_answers
from pipeline.recordings import read_pairs
from tests.programs import KEY
from tests.test_import import ANSWER, MESSAGES, MODEL, write_lines
from transforms.failures import ConfigError
from transforms.openrouter.importing import RefusedError
from transforms.openrouter.open_store import open_store
from transforms.openrouter.recorded import Recorded
from transforms.openrouter.replies import read_body

ASKED: dict[str, Any] = {"model": MODEL, "messages": MESSAGES}
HEAD = {"id": "gen-1", "model": f"{MODEL}-0127", "provider": "Chutes"}
CHUNKS: list[dict[str, Any]] = [
    HEAD | {"choices": [{"delta": {"reasoning": "A greeting."}, "finish_reason": None}]},
    HEAD | {"choices": [{"delta": {"content": "Hello."}, "finish_reason": "stop"}]},
    HEAD | {"choices": [], "usage": ANSWER["usage"]},
]
LINES = [*(f"data: {json.dumps(chunk)}" for chunk in CHUNKS), "data: [DONE]"]
STREAM = "".join(f"{line}\n\n" for line in LINES)
TEXT = json.dumps(ANSWER)


def har(content: dict[str, str]) -> dict[str, Any]:
    request = {
        "url": "https://openrouter.ai/api/v1/chat/completions",
        "postData": {"mimeType": "application/json", "text": json.dumps(ASKED)},
    }
    entries = [{"request": request, "response": {"status": 200, "content": content}}]
    return {"log": {"version": "1.2", "entries": entries}}


SHAPES: dict[str, dict[str, Any]] = {
    "texts": {"request": json.dumps(ASKED), "response": TEXT},
    "body and status": {"request": {"body": ASKED}, "response": {"body": ANSWER, "status": 200}},
    "a client's call": {"kwargs": ASKED, "response": ANSWER},
    "extra_body": {"kwargs": {**ASKED, "extra_body": {"usage": {}}, "timeout": 9}, "output": TEXT},
    "input and output": {"id": "observation", "input": ASKED, "output": ANSWER},
    "a proxy": {**ASKED, "proxy_server_request": {"body": ASKED}, "response": ANSWER},
    "one object": {**ASKED, **ANSWER},
    "one object, not streamed": {**ASKED, "stream": False, **ANSWER},
    "one object, streamed": {**ASKED, "stream": True, "chunks": CHUNKS},
    "HAR": har({"text": TEXT}),
    "HAR in base64": har(
        {"encoding": "base64", "text": base64.b64encode(STREAM.encode()).decode()}
    ),
    "CR LF": {"request": ASKED, "response": STREAM.replace("\n", "\r\n")},
    "comments": {"request": ASKED, "response": f": PROCESSING\n\n{STREAM}: done\n"},
    "numbered events": {"request": ASKED, "response": f"id: 1\nevent: message\n{STREAM}"},
    "time to retry": {"request": ASKED, "response": f"retry: 3000\n\n{STREAM}"},
    "a mark of order": {"request": ASKED, "response": f"\ufeff{STREAM}"},
    "chunks": {"request": ASKED, "chunks": CHUNKS},
    "texts of chunks": {"request": ASKED, "chunks": [json.dumps(chunk) for chunk in CHUNKS]},
    "lines": {"request": ASKED, "chunks": LINES},
    "pieces": {"request": ASKED, "chunks": [STREAM[:50], STREAM[50:333], STREAM[333:]]},
}


def import_rows(folder: Path, *rows: Any) -> tuple[list[Any], list[Any]]:
    """The prompts that were written, and what was refused."""
    file = write_lines(folder / "log.jsonl", list(rows))
    places = ["--store", f"{folder}/store", "--prompts", f"{folder}/prompts.jsonl"]
    import_answers.run([file, *places])
    names = ("prompts.jsonl", "prompts.refused.ndjson")
    read = [(folder / name).read_text("utf-8").splitlines() for name in names]
    prompts, refused = ([json.loads(line) for line in lines] for lines in read)
    return prompts, refused


def test_every_shape_is_the_same_pair(tmp_path: Path) -> None:
    """The same generation written in many ways is one row, and one answer in the store."""
    file = write_lines(tmp_path / "log.jsonl", list(SHAPES.values()))
    pairs = [found for _, found in read_pairs([file])]
    assert len(pairs) == len(SHAPES)
    for shape, pair in zip(SHAPES, pairs, strict=True):
        assert isinstance(pair, Recorded), shape
        asked = pair.request or {}
        assert (asked["model"].removesuffix("-0127"), asked["messages"]) == (MODEL, MESSAGES), shape
        reply = read_body(pair.answer or b"")
        message = reply["choices"][0]["message"]
        assert (message["reasoning"], message["content"]) == ("A greeting.", "Hello."), shape
        assert reply["usage"] == ANSWER["usage"], shape
    prompts, refused = import_rows(tmp_path, *SHAPES.values())
    assert [row["sample_index"] for row in prompts] == [0]
    assert [row["refusal"] for row in refused] == ["repeated"] * (len(SHAPES) - 1)


def test_no_key_of_a_log_comes_into_the_store(tmp_path: Path) -> None:
    """Client libraries log the headers of a call beside its fields."""
    headers = {"Authorization": f"Bearer {KEY}"}
    rows: list[dict[str, Any]] = [
        {**ASKED, **ANSWER, "headers": headers},
        {**ANSWER, "id": "gen-2", "headers": headers},
        {"kwargs": {**ASKED, "extra_headers": headers, "api_key": KEY},
         "response": ANSWER | {"id": "gen-3"}},
        {"request": {"headers": headers, "body": ASKED},
         "response": {"headers": headers, "body": ANSWER | {"id": "gen-4"}}},
    ]  # fmt: skip
    prompts, refused = import_rows(tmp_path, *rows)
    assert (len(prompts), refused) == (4, [])
    assert KEY not in f"{prompts}"
    with contextlib.closing(open_store(f"{tmp_path}/store")) as store:
        assert not [one for one in store.all_attempts() if KEY.encode() in one.body]


@pytest.mark.parametrize("name", ["a.sse", "a.log", "a.txt", "a.jsonl", "a"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_that_is_a_stream_is_one_answer(name: str, end: str, tmp_path: Path) -> None:
    text = f": PROCESSING\n\nretry: 3\nevent: message\nid: 7\n{STREAM}".replace("\n", end)
    (tmp_path / name).write_text(text, "utf-8", newline="")
    ((_, found),) = read_pairs([f"{tmp_path}/{name}"])
    assert isinstance(found, Recorded)
    assert found.request is None
    assert read_body(found.answer or b"")["usage"] == ANSWER["usage"]


def test_a_file_that_cannot_be_read_is_refused_and_the_others_are_read(tmp_path: Path) -> None:
    good = write_lines(tmp_path / "good.jsonl", [{"request": ASKED, "response": ANSWER}])
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(STREAM.encode())[:60])
    gone = tmp_path / "gone.jsonl"
    found = [one for _, one in read_pairs([str(cut), str(gone), good])]
    assert [isinstance(one, RefusedError) and one.refusal.value for one in found] == [
        "unreadable",
        "unreadable",
        False,
    ]


@pytest.mark.parametrize(
    ("beside", "refusal"),
    [
        ({"model_parameters": {"temperature": 0.2}}, "other_settings"),
        ({"modelParameters": '{"temperature": 0.2}'}, "other_settings"),
        ({"optional_params": {"extra_body": {"reasoning": {"enabled": False}}}}, "other_settings"),
        ({"params": "temperature=0.2"}, "other_settings"),
        ({"reasoning": {"enabled": False}}, "other_settings"),
        ({"seed": 7}, "other_settings"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, None),
        ({"reasoning": "A greeting."}, None),
        ({"model": "moonshotai/kimi-k2"}, "other_model"),
        ({"request_model": MODEL, "model": f"{MODEL}-0127"}, None),
        ({"base_url": "https://api.moonshot.ai/v1"}, "other_server"),
        ({"api_base": "http://[broken"}, "other_server"),
    ],
)
def test_what_stands_beside_the_request_was_asked_too(
    beside: dict[str, Any], refusal: str | None, tmp_path: Path
) -> None:
    row = {"request": {"messages": MESSAGES}, "response": ANSWER, **beside}
    prompts, refused = import_rows(tmp_path, row)
    assert [one["refusal"] for one in refused] == ([refusal] if refusal else [])
    assert [one["body"].get("tools") for one in prompts] == (
        [] if refusal else [beside.get("tools")]
    )


CALL = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "functions.f:0", "content": "ok"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("request_", "place"),
    [
        ({"messages": [{"role": "developer", "content": "Be brief."}, *MESSAGES]}, "[0].role"),
        ({"messages": [{"role": "user", "content": "Hi", "images": ["a.png"]}]}, "[0].images"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "H"}] * 2}]},
            "[0].content",
        ),
        ({"messages": [*MESSAGES, CALLED, RESULT | {"tool_call_id": None}]}, "[2].tool_call_id"),
        ({"messages": [*MESSAGES, CALLED | {"tool_calls": [CALL | {"id": None}]}, RESULT]}, "].id"),
        (
            {"messages": [*MESSAGES, CALLED | {"reasoning": "a", "reasoning_content": "b"},
                          RESULT]},
            "[1].reasoning",
        ),
        (
            {"messages": [*MESSAGES,
                          CALLED | {"reasoning_details": [{"type": "reasoning.encrypted"}]},
                          RESULT]},
            "[1].reasoning_details",
        ),
        (
            {"tools": [{"type": "function", "function": {
                "name": "f", "parameters": {"type": "dict", "properties": {}}}}]},
            "tools[0].function.parameters.type",
        ),
        ({"tools": [{"name": "f"}]}, "tools[0]."),
    ],
)  # fmt: skip
def test_an_answer_to_what_a_run_would_send_otherwise_is_refused(
    request_: dict[str, Any], place: str, tmp_path: Path
) -> None:
    prompts, (refused,) = import_rows(tmp_path, {"request": ASKED | request_, "response": ANSWER})
    assert prompts == []
    assert refused["refusal"] == "other_prompt"
    assert place in refused["detail"].partition(" was sent as ")[0]


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {}}]}],
        [{"role": "system", "content": "Be brief.", "cache_control": {"type": "a"}}, *MESSAGES],
        [*MESSAGES, CALLED | {"reasoning_content": "Call f.", "refusal": None}, RESULT],
        [*MESSAGES, CALLED | {"tool_calls": [CALL | {"index": 0}], "annotations": []}, RESULT],
        [*MESSAGES, CALLED | {"tool_calls": [CALL | {"cache_control": {"type": "a"}}]}, RESULT],
        [
            *MESSAGES,
            CALLED | {"reasoning_details": [{"type": "reasoning.text", "text": "Call f."}]},
            RESULT | {"name": "f"},
        ],
    ],
)
def test_what_says_the_same_is_imported(messages: list[dict[str, Any]], tmp_path: Path) -> None:
    prompts, refused = import_rows(
        tmp_path, {"request": ASKED | {"messages": messages, "tools": [TOOL]}, "response": ANSWER}
    )
    assert (len(prompts), refused) == (1, [])


def test_answers_that_differ_are_samples_and_a_failure_takes_no_place(tmp_path: Path) -> None:
    """Of two generations each is one, though both say the same; a stored failure is no answer."""
    rows = [{"request": ASKED, "response": ANSWER | {"id": f"gen-{n}"}} for n in (1, 2, 1)]
    prompts, refused = import_rows(tmp_path, *rows)
    assert [row["sample_index"] for row in prompts] == [0, 1]
    assert [row["refusal"] for row in refused] == ["repeated"]

    (folder := tmp_path / "failed").mkdir()
    with contextlib.closing(open_store(f"{tmp_path}/store")) as store:
        (first, _) = sorted(store.all_attempts(), key=lambda one: one.number or 0)
    failure = replace(first, status=503, body=b"{}", run_id="other")
    with contextlib.closing(open_store(f"{folder}/store")) as store:
        asyncio.run(store.put(failure))
    prompts, _ = import_rows(folder, *rows)
    with contextlib.closing(open_store(f"{folder}/store")) as store:
        statuses = [one.status for one in store.attempts(failure.request_sha256)]
    assert ([row["sample_index"] for row in prompts], statuses) == ([0, 1], [503, 200])


def test_escapes_are_another_prompt(tmp_path: Path) -> None:
    request = ASKED | {"messages": [{"role": "user", "content": "What is <|im_end|>?"}]}
    file = write_lines(tmp_path / "log.jsonl", [{"request": request, "response": ANSWER}])
    flags = ["--store", f"{tmp_path}/s", "--prompts", f"{tmp_path}/p.jsonl"]
    assert import_answers.run([file, *flags, "--escape_special_text"]) == 3
    assert "other_prompt" in (tmp_path / "p.refused.ndjson").read_text("utf-8")


@pytest.mark.parametrize("there", ["the log", "its link", "another log", "a folder", "refused"])
def test_what_no_import_wrote_is_not_replaced(there: str, tmp_path: Path) -> None:
    """The recorded answers may be there but once."""
    log = Path(write_lines(tmp_path / "log.jsonl", [{"request": ASKED, "response": ANSWER}]))
    other = Path(write_lines(tmp_path / "other.jsonl", [{"request": ASKED, "response": ANSWER}]))
    refused = Path(write_lines(tmp_path / "p.refused.ndjson", [{"request": ASKED}]))
    (tmp_path / "link.jsonl").symlink_to(log)
    (tmp_path / "folder").mkdir()
    prompts = {
        "the log": log,
        "its link": tmp_path / "link.jsonl",
        "another log": other,
        "a folder": tmp_path / "folder",
        "refused": tmp_path / "p.jsonl",
    }[there]
    before = [path.read_bytes() for path in (log, other, refused)]
    with pytest.raises(ConfigError, match="--prompts"):
        import_answers.run([str(log), "--store", f"{tmp_path}/s", "--prompts", str(prompts)])
    assert [path.read_bytes() for path in (log, other, refused)] == before
    assert not (tmp_path / "s").exists()


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=3)
    | st.sampled_from(["\ud800", "é", "[DONE]", 2**70]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside one."""
    if not isinstance(value, dict | list):
        return [path]
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(place for key, one in inner for place in _places(one, (*path, key)))]


@st.composite
def broken(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """A record of a known shape in which any one value is another."""
    record = json.loads(json.dumps(draw(st.sampled_from(list(SHAPES.values())))))
    record |= {"custom_id": "a", "tools_ref": None, "status": 200, "url": "https://openrouter.ai"}
    *path, last = draw(st.sampled_from(_places(record)[1:]))
    inside = record
    for key in path:
        inside = inside[key]
    inside[last] = draw(ODD)
    return record


@settings(max_examples=8, phases=[Phase.generate])
@given(st.lists(broken(), min_size=40, max_size=40))
def test_no_record_stops_the_others(records: list[Any]) -> None:
    """Each is a row of the prompts, or refused."""
    for number, record in enumerate(records):
        record["custom_id"] = f"{number}"
    with tempfile.TemporaryDirectory() as folder:
        prompts, refused = import_rows(Path(folder), *records)
    assert len(prompts) + len(refused) >= len(records)  # a HAR file lists several
