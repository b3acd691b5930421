"""Files are read back with other people's readers."""

import dataclasses
import io
import json
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfrecord.reader import tfrecord_loader

from tests import build
from transforms.chat.habits import Habit, Ids, Stratum
from transforms.chat.habits_file import Habits, read_habits, write_habits
from transforms.chat.learning import Learned
from transforms.chat.profile import ModelProfile
from transforms.chat.residuals import Residuals, estimate_hidden_drift
from transforms.chat.statistic import Statistic
from transforms.encoding.columns import SCHEMA, to_columns
from transforms.encoding.loss_mask import Masking
from transforms.encoding.parquet import ParquetRows
from transforms.encoding.rejection import encode_rejection
from transforms.encoding.tfrecord import TFRecordRows, decode_example, encode_example, read_records
from transforms.failures import ConfigError, Failure, FailureKind, Stage
from transforms.prompts.shapes import original_line, parse_record, read_prompt
from transforms.records import Message, Role, Verdict

EXACT = Masking("exact", frozenset())


@pytest.fixture(scope="module")
def verdicts(kimi: ModelProfile) -> list[Verdict]:
    answers = [
        build.completion("4", " Hm.", tokens=6),
        build.completion("好 🎉", "y", (build.call(),), tokens=1),
        build.completion("x", None, provider=None, generation_id=None, tokens=3),
    ]
    return [build.judge(build.exchange(answer), kimi, build.habits(answer)) for answer in answers]


def test_parquet_is_read_back_by_pyarrow(verdicts: list[Verdict]) -> None:
    file = io.BytesIO()
    rows = ParquetRows(file, EXACT)
    for verdict in verdicts:
        rows.write(to_columns(verdict))
    rows.close()
    table = pq.read_table(io.BytesIO(file.getvalue()))
    assert table.schema.names == SCHEMA.names
    assert str(table.schema.field("input_ids").type) == "list<element: int32>"
    for row, verdict in zip(table.to_pylist(), verdicts, strict=True):
        assert tuple(row["input_ids"]) == verdict.sample.input_ids
        assert row["prompt_length"] == verdict.sample.prompt_length
        assert row["text"] == verdict.sample.text
        assert row["provider"] == verdict.sample.exchange.completion.provider
        assert row["cost_usd"] == 0.01
        assert row["repairs"] == []
    column = pq.ParquetFile(io.BytesIO(file.getvalue())).metadata.row_group(0)
    ids = next(
        c
        for n in range(column.num_columns)
        if "input_ids" in (c := column.column(n)).path_in_schema
    )
    assert ids.compression == "ZSTD"
    assert not ids.has_dictionary_page


def test_tfrecord_is_read_back_by_another_reader(verdicts: list[Verdict], tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with path.open("wb") as file:
        rows = TFRecordRows(file, EXACT)
        for verdict in verdicts:
            rows.write(to_columns(verdict))
        rows.close()
    found = list(tfrecord_loader(str(path), None))
    for row, verdict in zip(found, verdicts, strict=True):
        assert tuple(row["input_ids"]) == verdict.sample.input_ids
        assert bytes(row["text"]).decode() == verdict.sample.text
        assert row["prompt_length"][0] == verdict.sample.prompt_length


def test_both_formats_hold_the_same_row(verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        row = to_columns(verdict)
        again = decode_example(encode_example(row))
        assert list(again) == SCHEMA.names
        assert again.pop("input_ids") == row.pop("input_ids").tolist()
        for name in ("hidden_drift", "cost_usd"):  # 32-bit floats in an Example
            assert again.pop(name) == pytest.approx(row.pop(name))
        assert again == row


def test_a_cut_or_damaged_record_is_not_read(verdicts: list[Verdict]) -> None:
    file = io.BytesIO()
    TFRecordRows(file, EXACT).write(to_columns(verdicts[0]))
    data = file.getvalue()
    assert struct.unpack("<Q", data[:8])[0] == len(data) - 16
    for damaged in (data[:-1], data[:20] + b"\0" + data[21:], data[:7], b"\1" + data[1:]):
        with pytest.raises(ValueError, match="cut or damaged"):
            list(read_records(io.BytesIO(damaged)))


def test_a_bad_verdict_is_a_prompt_again(kimi: ModelProfile) -> None:
    asked = build.prompt(
        messages=(
            Message(role=Role.USER, content="2+3?"),
            Message(role=Role.ASSISTANT, reasoning="r", tool_calls=(build.call(),)),
            Message(role=Role.TOOL, content="5", tool_call_id="functions.get_weather:0"),
        ),
        tools=('{"type":"function","function":{"name":"get_weather"}}',),
    )
    answer = build.exchange(build.completion("5", tokens=9), asked)
    verdict = build.judge(answer, kimi, build.habits(answer.completion))
    line = encode_rejection(verdict)
    again = replace(asked, judged_bad=answer.completion.generation_id)
    assert read_prompt(parse_record(line), "prompts.jsonl:1", "prompts") == again
    rejection = json.loads(line)["rejection"]
    assert rejection["code"] == "COUNT_MISMATCH"
    assert rejection["residual"] == 6
    assert tuple(rejection["input_ids"]) == verdict.sample.input_ids


def test_an_unread_line_comes_back_as_itself() -> None:
    failure = Failure(
        id="f", stage=Stage.READ, kind=FailureKind.INVALID_PROMPT, detail="d", source="a:1",
        raw='{"question": "é"}',
    )  # fmt: skip
    line = encode_rejection(failure)
    assert original_line(line) == '{"question": "é"}'.encode()
    outer = dataclasses.replace(failure, raw=line.decode())
    assert original_line(encode_rejection(outer)) == '{"question": "é"}'.encode()


@given(st.binary(max_size=20))
def test_bytes_that_are_no_text_come_back_as_they_were(data: bytes) -> None:
    failure = Failure(
        id="f", stage=Stage.READ, kind=FailureKind.MALFORMED_JSON, detail="d", source="a:1",
        raw=data.decode(errors="surrogateescape"),
    )  # fmt: skip
    line = encode_rejection(failure)
    assert line.count(b"\n") == 1
    assert original_line(line) == original_line(data)


def test_data_of_ones_own_with_such_names_is_no_rejection() -> None:
    line = b'{"id":"real","prompt":"the question","raw":"{}","rejection":{}}'
    assert original_line(line) == line


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20))
def test_a_prompt_of_any_text_comes_back_as_it_was(text: str) -> None:
    asked = build.prompt(text="a" + text)
    failure = Failure(
        id="p1", stage=Stage.CALL, kind=FailureKind.REFUSED, detail=text, source=asked.source,
        prompt=asked,
    )  # fmt: skip
    line = encode_rejection(failure)
    assert line.count(b"\n") == 1
    assert read_prompt(parse_record(line), asked.source, asked.dataset) == asked


def test_habits_are_written_for_people_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "habits.json"
    learned = Learned(
        habit=Habit(calls_offset=-1, ids=Ids.BARE),
        text=Residuals(((-1, 1), (0, 99))),
        calls=Residuals(((0, 12),)),
    )
    habits = Habits(((Stratum("Novita", "m"), learned),))
    write_habits(habits, path)
    assert read_habits(path) == habits
    (row,) = json.loads(path.read_text())["strata"]
    assert row["text"]["residuals"] == {"-1": 1, "0": 99}
    assert (row["habit"]["ids"], row["habit"]["calls_offset"]) == ("bare", -1)
    assert row["verdict"] == "use"
    path.write_text('{"version": 1, "strata": []}')
    with pytest.raises(ConfigError, match="version 1"):
        read_habits(path)
    path.write_text("[]")
    with pytest.raises(ConfigError, match=r"habits\.json"):
        read_habits(path)


_SEEN = st.dictionaries(
    st.tuples(st.sampled_from([("text", "verbatim"), ("stream",)]), st.integers(-3, 3)),
    st.integers(1, 50),
).map(Counter)


@given(st.lists(_SEEN, max_size=6), st.integers(0, 6))
def test_statistics_merge_in_any_grouping(parts: list[Counter[Any]], cut: int) -> None:
    halves = sum(parts[:cut], Counter()) + sum(parts[cut:], Counter())
    merged = Statistic.of(sum(parts, Counter()))
    assert Statistic.of(halves) == merged
    assert Statistic.of(merged.counter()) == merged


@given(st.dictionaries(st.integers(-3, 3), st.integers(1, 50)))
def test_the_estimate_is_a_share(counts: dict[int, int]) -> None:
    assert 0 <= estimate_hidden_drift(Residuals(tuple(sorted(counts.items())))) <= 1


def test_the_estimate_is_the_documented_formula() -> None:
    # f = 0.3: q 99 % -> 0.4 %, 95 % -> 2.2 %, 90 % -> 4.4 % (large samples).
    for fitting, wanted in ((99, 0.004), (95, 0.022), (90, 0.044)):
        many = Residuals(((0, fitting * 1000), (1, (100 - fitting) * 1000)))
        assert estimate_hidden_drift(many) == pytest.approx(wanted, abs=0.0005)
