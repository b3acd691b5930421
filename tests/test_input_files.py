"""Files as they are in the wild: encodings, compressions, layouts; each record with its place."""

import gzip
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.failures import Failure, FailureKind
from transforms.messages import write_message
from transforms.prompts import documents
from transforms.prompts.documents import read_values
from transforms.prompts.files import read_records
from transforms.prompts.shapes import read_record
from transforms.read_prompts import InputFile, lookup_beside, parse, raw_records, read_file
from transforms.records import Prompt


def records(data: bytes, name: str = "f.jsonl") -> list[tuple[str, str]]:
    """Place and bytes of each record; what cannot be read as its reason."""
    return [
        (record.place, record.error.detail if record.error else record.data.decode())
        for record in read_records(io.BytesIO(data), name)
    ]


def read(folder: Path, name: str, data: bytes) -> tuple[list[str], list[FailureKind]]:
    """The texts that a file asks, and why the rest is refused."""
    path = folder / name
    path.write_bytes(data)
    found = list(read_file(InputFile(str(path), "d")))
    texts = [item.messages[-1].content or "" for item in found if isinstance(item, Prompt)]
    return texts, [item.kind for item in found if isinstance(item, Failure)]


A, B = b'{"prompt":"a"}', b'{"prompt":"b"}'
PRETTY = json.dumps({"prompt": "a", "n": [1, {"b": []}]}, indent=2).encode()
BAD_JSON, BAD_FILE = FailureKind.MALFORMED_JSON, FailureKind.UNREADABLE_FILE

# data, texts that are asked, kinds of refusal; the name says no more than it has to.
FILES: dict[str, tuple[str, bytes, list[str], list[FailureKind]]] = {
    "BOM": ("f.jsonl", b"\xef\xbb\xbf" + A + b"\n" + B, ["a", "b"], []),
    "BOM of an array": ("f.json", b"\xef\xbb\xbf [" + A + b"]", ["a"], []),
    "CRLF": ("f.jsonl", A + b"\r\n" + B + b"\r\n", ["a", "b"], []),
    "CR alone": ("f.jsonl", A + b"\r" + B + b"\r", ["a", "b"], []),
    "blank lines": ("f.jsonl", b"\n \t\r\n" + A + b"\n\n" + B, ["a", "b"], []),
    "U+2028 and U+0085": (
        "f.jsonl", '{"prompt":"a\u2028\u0085b"}'.encode(), ["a\u2028\u0085b"], []),
    "U+2028 of text": ("f.txt", "a\u2028\x0b\x0cb\nc\n".encode(), ["a\u2028\x0b\x0cb", "c"], []),
    "not UTF-8": ("f.jsonl", b'{"prompt":"\xe9"}\n' + B, ["b"], [BAD_JSON]),
    "text that is not UTF-8": ("f.txt", b"\xe9\nb\n", ["b"], [BAD_JSON]),
    "NUL escape": ("f.jsonl", b'{"prompt":"a\\u0000b"}', ["a\0b"], []),
    "NUL byte": ("f.jsonl", b'{"prompt":"a\0b"}\n' + B, ["b"], [BAD_JSON]),
    "lone surrogate": (
        "f.jsonl", b'{"prompt":"\\ud83d"}\n' + B, ["b"], [FailureKind.INVALID_PROMPT]),
    "lone surrogate in tools": (
        "f.jsonl", b'{"prompt":"a","tools":[{"name":"\\ud83d"}]}', [],
        [FailureKind.INVALID_PROMPT]),
    "UTF-16": ("f.jsonl", A.decode().encode("utf-16"), [], [BAD_FILE]),
    "UTF-32": ("f.jsonl", A.decode().encode("utf-32"), [], [BAD_FILE]),
    "gzip in gzip": ("f", gzip.compress(gzip.compress(A + b"\n" + B)), ["a", "b"], []),
    "gzip of members": ("f", gzip.compress(A + b"\n") + gzip.compress(B), ["a", "b"], []),
    "gzip of an array": ("f", gzip.compress(b"[" + A + b"," + B + b"]"), ["a", "b"], []),
    "no gzip": ("f.jsonl.gz", A + b"\n" + B, ["a", "b"], []),
    "text, gzip": ("f.txt.gz", gzip.compress(b"a\nb"), ["a", "b"], []),
    "gzip, cut": ("f.gz", gzip.compress(A * 500)[:-9], [], [BAD_FILE]),
    "gzip, wrong sum": ("f.gz", gzip.compress(A)[:-8] + b"\0" * 8, [], [BAD_FILE]),
    "array": ("f.jsonl", b"[" + A + b"," + B + b"]", ["a", "b"], []),
    "array over lines": ("f.json", b"[\n " + A + b",\n" + PRETTY + b"\n]\n", ["a", "a"], []),
    "array, bad item": (
        "f.json", b'[{"prompt":"x",},' + A + b", nul, " + B + b"]", ["a", "b"],
        [BAD_JSON, BAD_JSON]),
    "array, trailing comma": ("f.json", b"[" + A + b",\n]", ["a"], []),
    "array, cut in an item": ("f.json", b"[" + A + b"," + B[:-3], ["a"], [BAD_JSON]),
    "array, cut behind one": ("f.json", b"[" + A + b",", ["a"], [BAD_FILE]),
    "array of texts": ("f.json", b'["a", "b]"]', ["a", "b]"], []),
    "one object over lines": ("f.json", PRETTY, ["a"], []),
    "two objects over lines": ("f.json", PRETTY + b"\n" + PRETTY, ["a", "a"], []),
    "lines of conversations": (
        "f.jsonl", b'[{"role":"user","content":"a"}]\n[{"from":"human","value":"b"}]\n',
        ["a", "b"], []),
    "lines of texts": ("f.jsonl", b'"a"\n"b"\n', ["a", "b"], []),
    "nothing between": ("f.jsonl", A + B + A + b"\n" + B, ["a", "b", "a", "b"], []),
    "nothing between, cut": ("f.jsonl", A + B + A[:-3] + b"\n" + B, ["a", "b", "b"], [BAD_JSON]),
    "nothing between, garbage": ("f.jsonl", A + B + b"x\n" + B, ["b"], [BAD_JSON]),
    "braces in a text": ("f.jsonl", b'{"prompt":"} {"}\n' + B, ["} {", "b"], []),
    "trailing commas": ("f.jsonl", b'{"prompt":"a",}\n' + B, ["b"], [BAD_JSON]),
    "last line cut": ("f.jsonl", A + b"\n" + B[:-4], ["a"], [BAD_JSON]),
    "first line cut": ("f.jsonl", A[:-4] + b"\n" + B, ["b"], [BAD_JSON]),
    "NaN and a wide id": ("f.jsonl", b'{"prompt":"a","n":NaN,"id":123456789012345678901}',
        ["a"], []),
    "duplicate keys": ("f.jsonl", b'{"prompt":"a","prompt":"b"}', ["b"], []),
    "deep nesting": ("f.jsonl", b"[" * 99_999 + b"\n" + A, [], [BAD_JSON]),
    "deep nesting in a field": (
        "f.jsonl", b'{"x":' + b"[" * 99_999 + b"]" * 99_999 + b"}\n" + A, ["a"], [BAD_JSON]),
    "empty": ("f.md", b"", [], []),
    "white space alone": ("f.jsonl", b" \n\t\n", [], []),
    "text named JSON": ("f.jsonl", b"hello\n" + B, ["b"], [BAD_JSON]),
    "brackets in a text": ("f.txt", b"[INST] a\n{b}\n", ["[INST] a", "{b}"], []),
    "JSON named text": ("f.txt", A + b"\n" + B, ["a", "b"], []),
    "JSON without a name": ("part-0", A + b"\n" + B, ["a", "b"], []),
    "Markdown": ("f.md", b"# a\n\nb\n", [], [BAD_FILE]),
    "a link in Markdown": ("f.md", b"[a](b)\n", [], [BAD_FILE]),
    "CSV": ("f.csv", b"prompt\na\n", [], [BAD_FILE]),
    "Git LFS": ("f.jsonl", b"version https://git-lfs.github.com/spec/v1\noid x\n", [], [BAD_FILE]),
    "Parquet, cut": ("f.parquet", b"PAR1" + b"\0" * 99, [], [BAD_FILE]),
    "JSON named Parquet": ("f.parquet", A + b"\n" + B, ["a", "b"], []),
}  # fmt: skip


@pytest.mark.parametrize("what", FILES)
def test_reads_files_of_every_kind(tmp_path: Path, what: str) -> None:
    name, data, texts, kinds = FILES[what]
    assert read(tmp_path, name, data) == (texts, kinds)


def test_a_place_is_a_line_and_the_column_of_what_follows_on_it() -> None:
    joined = A + b" " + B + b"\n\n" + A
    assert [place for place, _ in records(joined)] == ["1", "1:16", "3"]
    array = b"[\n" + A + b",\n\n " + PRETTY + b", " + B + b"]"
    assert [place for place, _ in records(array, "f.json")] == ["2", "4", "12"]
    assert [place for place, _ in records(b"[" + A + b"," + B + b"]")] == ["1", "1:17"]
    assert [place for place, _ in records(b"a\n\nb\n", "f.txt")] == ["1", "3"]


def test_a_huge_line_is_read(tmp_path: Path) -> None:
    text = "é\\n" * 1_000_000
    data = f'{{"prompt":"{text}"}}\n'.encode() + B
    assert read(tmp_path, "f.jsonl", data) == (["é\n" * 1_000_000, "b"], [])


_TEXT = st.text(alphabet='ab"\\[]{},\n', max_size=6)
_VALUE = st.recursive(
    st.none() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(_VALUE, max_size=5), st.sampled_from([None, 2]), st.integers(1, 9))
def test_items_of_an_array_are_found_whatever_the_block(
    items: list[Any], indent: int | None, block: int
) -> None:
    data = json.dumps(items, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_BLOCK", block)
        assert [json.loads(value.data) for value in read_values(io.BytesIO(data))] == items


def test_parquet_as_data_sets_have_it(tmp_path: Path) -> None:
    """Lists of structs with united keys, JSON texts, large and dictionary types, nulls."""
    call = {"id": "c", "function": {"name": "f", "arguments": '{"a" :1}'}}
    united = pa.struct(
        [("name", pa.string()), ("parameters", pa.struct([("type", pa.string()),
         ("enum", pa.list_(pa.string()))]))]
    )  # fmt: skip
    table = pa.table({
        "messages": pa.array([
            [{"role": "user", "content": "a"},
             {"role": "assistant", "content": None, "tool_calls": [call]},
             {"role": "tool", "content": "5", "tool_call_id": "c"}],
            json.loads('[{"role":"user","content":"b"}]'),
        ]),
        "tools": pa.array([[{"name": "f", "parameters": {"type": "object"}}], None],
                          pa.large_list(united)),
        "id": pa.array(["x", "y"]).dictionary_encode(),
        "picture": pa.array([None, None], pa.binary()),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=1, compression="gzip")
    first, second = read_file(InputFile(str(tmp_path / "f.parquet"), "d"))
    assert isinstance(first, Prompt)
    assert isinstance(second, Prompt)
    assert (first.id, first.source) == ("x", f"{tmp_path}/f.parquet:1")
    assert first.messages[1].tool_calls[0].arguments == '{"a" :1}'
    assert first.tools == (
        '{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}',
    )
    assert (second.id, second.tools, second.messages[0].content) == ("y", (), "b")


def test_parquet_of_json_texts_and_one_row_that_is_no_text(tmp_path: Path) -> None:
    texts = [b'[{"from":"human","value":"a"}]', b"\xff\xfe", b'[{"role":"user","content":"b"}]']
    column = pa.array(texts, pa.binary()).view(pa.string())
    pq.write_table(pa.table({"conversations": column}), tmp_path / "f.parquet")
    found = list(read_file(InputFile(str(tmp_path / "f.parquet"), "d")))
    assert [item.messages[0].content for item in found if isinstance(item, Prompt)] == ["a", "b"]
    (failure,) = (item for item in found if isinstance(item, Failure))
    assert (failure.kind, failure.source) == (BAD_JSON, f"{tmp_path}/f.parquet:2")


# Records, prompts and reasons as shared/docs/inputs.md has them; a reason is a part of the detail.
DEFINITION, UNKNOWN = "a tool definition", "none of the keys"
SIMULATOR, LFS = "a simulated user", "Git LFS"
SHARED: dict[str, tuple[int, int, dict[str, int]]] = {
    "odd/array_in_jsonl.jsonl": (6, 6, {}),
    "odd/blank_lines.jsonl": (6, 6, {}),
    "odd/bom.jsonl": (6, 6, {}),
    "odd/concatenated_no_newline.jsonl": (6, 6, {}),
    "odd/cr_only.jsonl": (6, 6, {}),
    "odd/crlf.jsonl": (6, 6, {}),
    "odd/dictionary_large_string.parquet": (80, 80, {}),
    "odd/duplicate_keys.jsonl": (2, 2, {}),
    "odd/duplicates.jsonl": (4, 4, {}),
    "odd/empty.jsonl": (0, 0, {}),
    "odd/empty_table.parquet": (0, 0, {}),
    "odd/glaive_tools_string.parquet": (100, 100, {}),
    "odd/gsm8k_snappy.parquet": (300, 300, {}),
    "odd/gzip_bad_crc.jsonl.gz": (1, 0, {"CRC check failed": 1}),
    "odd/gzip_named_jsonl.jsonl": (6, 6, {}),
    "odd/gzip_nested.jsonl.gz.gz": (6, 6, {}),
    "odd/gzip_plain.jsonl.gz": (6, 6, {}),
    "odd/hive/lang=en/part-0.parquet": (10, 10, {}),
    "odd/hive/lang=zh/part-0.parquet": (10, 10, {}),
    "odd/invalid_utf8.jsonl": (3, 1, {"codec can't decode": 2}),
    "odd/jsonl_named.json": (6, 6, {}),
    "odd/jsonl_named_parquet.parquet": (6, 6, {}),
    "odd/messages_list_struct_zstd.parquet": (128, 128, {}),
    "odd/multilingual_emoji.jsonl": (7, 7, {}),
    "odd/nan_infinity.jsonl": (2, 2, {}),
    "odd/no_final_newline.jsonl": (6, 6, {}),
    "odd/nul_escape.jsonl": (2, 2, {}),
    "odd/plain_named_gz.jsonl.gz": (6, 6, {}),
    "odd/sharegpt_nulls.parquet": (3, 1, {"no user message": 1, UNKNOWN: 1}),
    "odd/trailing_commas.jsonl": (2, 1, {"Expecting property name": 1}),
    "odd/truncated_last_line.jsonl": (6, 5, {"Unterminated string": 1}),
    "odd/utf16le_bom.jsonl": (1, 0, {"UTF-16": 1}),
    "odd/very_long_line.jsonl": (2, 2, {}),
    "odd/whitespace_only.jsonl": (0, 0, {}),
    "prompts/BFCL_func_doc_gorilla_file_system.json": (18, 0, {DEFINITION: 18}),
    "prompts/BFCL_func_doc_message_api.json": (10, 0, {DEFINITION: 10}),
    "prompts/BFCL_func_doc_trading_bot.json": (20, 0, {DEFINITION: 20}),
    "prompts/BFCL_func_doc_web_search.json": (2, 0, {DEFINITION: 2}),
    "prompts/BFCL_v4_format_sensitivity.json": (1, 0, {UNKNOWN: 1}),
    "prompts/BFCL_v4_irrelevance.json": (240, 240, {}),
    "prompts/BFCL_v4_live_simple.json": (258, 258, {}),
    "prompts/BFCL_v4_memory.json": (155, 155, {}),
    "prompts/BFCL_v4_multi_turn_base.json": (200, 200, {}),
    "prompts/BFCL_v4_multiple.json": (200, 200, {}),
    "prompts/BFCL_v4_parallel_multiple.json": (200, 200, {}),
    "prompts/BFCL_v4_simple_python.json": (400, 400, {}),
    "prompts/BFCL_v4_web_search.json": (100, 100, {}),
    "prompts/HumanEval.jsonl.gz": (164, 164, {}),
    "prompts/acegpt_arabic_culture_head200.jsonl": (200, 200, {}),
    "prompts/acegpt_exams_arabic_head100.jsonl": (100, 100, {}),
    "prompts/agentlightning_calc_x_sample.jsonl": (10, 10, {}),
    "prompts/angelslim_sharegpt_gpt4_256.jsonl": (251, 251, {}),
    "prompts/angelslim_tts_question.jsonl": (100, 0, {"text-to-speech": 100}),
    "prompts/axolotl_conversation.json": (1, 1, {}),
    "prompts/curator_camel_gt_dataset.parquet": (27, 27, {}),
    "prompts/curator_dataset.parquet": (3, 0, {"it has dish": 3}),
    "prompts/eagle_alpaca_question.jsonl": (80, 80, {}),
    "prompts/eagle_gsm8k_question.jsonl": (80, 80, {}),
    "prompts/eagle_humaneval_question.jsonl": (80, 80, {}),
    "prompts/eagle_sum_question.jsonl": (80, 80, {}),
    "prompts/fastchat_dummy_conversation.json": (500, 500, {}),
    "prompts/gsm8k_test.jsonl": (1319, 1319, {}),
    "prompts/hermes_few_shot.json": (2, 0, {"it has example": 2}),
    "prompts/hermes_sys_prompt.yml": (1, 0, {"neither JSON nor Parquet": 1}),
    "prompts/humaneval_example_problem.jsonl": (1, 1, {}),
    "prompts/kvv_cases.LFSPOINTER.jsonl": (1, 0, {LFS: 1}),
    "prompts/lf_alpaca_en_demo.json": (999, 999, {}),
    "prompts/lf_alpaca_zh_demo.json": (1000, 1000, {}),
    "prompts/lf_c4_demo.jsonl": (300, 0, {"plain text without a role": 300}),
    "prompts/lf_dataset_info.json": (1, 0, {UNKNOWN: 1}),
    "prompts/lf_dpo_en_demo.json": (300, 300, {}),
    "prompts/lf_dpo_zh_demo.json": (300, 300, {}),
    "prompts/lf_glaive_toolcall_en_demo.json": (300, 300, {}),
    "prompts/lf_kto_en_demo.json": (300, 300, {}),
    "prompts/lf_mllm_audio_demo.json": (3, 0, {"it has audios": 3}),
    "prompts/lf_mllm_demo.json": (6, 0, {"it has images": 6}),
    "prompts/lf_v1_multimodal_demo.jsonl": (24, 0, {"a part of type 'image_url'": 24}),
    "prompts/lf_v1_sft_demo.jsonl": (500, 500, {}),
    "prompts/mmlu_arabic_head80.csv": (1, 0, {"CSV": 1}),
    "prompts/modelopt_synthetic_conversations_1k.jsonl": (1000, 1000, {}),
    "prompts/mtbench_ja_question_full.jsonl": (80, 80, {}),
    "prompts/mtbench_question.jsonl": (80, 80, {}),
    "prompts/nemoskills_code_execution_test.jsonl": (4, 4, {}),
    "prompts/oasst_en_100_text.jsonl": (100, 100, {}),
    "prompts/openai_batch_openrouter_requests.jsonl": (74, 74, {}),
    "prompts/swebench_dev_easy.json": (5, 5, {}),
    "prompts/swebench_lite_test.json": (5, 5, {}),
    "prompts/tau2_airline_tasks.json": (50, 0, {SIMULATOR: 50}),
    "prompts/taubench_airline_few_shot.jsonl": (19, 0, {"lost its tool calls": 19}),
    "prompts/taubench_airline_tasks_test.jsonl": (50, 0, {SIMULATOR: 50}),
    "prompts/taubench_airline_tools.json": (14, 0, {DEFINITION: 14}),
    "prompts/taubench_airline_wiki.md": (1, 0, {"neither JSON nor Parquet": 1}),
    "prompts/taubench_retail_tools.json": (16, 0, {DEFINITION: 16}),
    "prompts/taubench_retail_wiki.md": (1, 0, {"neither JSON nor Parquet": 1}),
    "prompts/tinker_conversations.jsonl": (128, 128, {}),
    "prompts/tinker_multilingual.txt": (2100, 2100, {}),
    "prompts/torchspec_eval_conversations.jsonl": (64, 64, {}),
    "prompts/torchspec_sample_conversations.jsonl": (1001, 1001, {}),
    "prompts/ultra_eval.json": (385, 385, {}),
    "prompts/ultrachat_200k_shape.jsonl": (40, 40, {}),
    "prompts/vicuna_question.jsonl": (80, 80, {}),
    "prompts/xlam_actionstudio_train.LFSPOINTER.json": (1, 0, {LFS: 1}),
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_files_give_the_records_of_the_documentation(
    shared: Callable[[str], Path], name: str
) -> None:
    found = list(read_file(InputFile(str(shared(name)), "d")))
    refused = [item for item in found if isinstance(item, Failure)]
    count, prompts, reasons = SHARED[name]
    assert (len(found), len(found) - len(refused)) == (count, prompts)
    counted = Counter(
        next((reason for reason in reasons if reason in item.detail), item.detail)
        for item in refused
    )
    assert counted == reasons
    assert all(name in item.source for item in refused)


def test_first_records_read_as_expected(shared: Callable[[str], Path]) -> None:
    """Messages up to the last one that is answered, tools, and where the model answers."""
    lines = shared("prompts/expected_first.jsonl").read_text("utf-8").splitlines()
    for row in map(json.loads, lines):
        path = str(shared(f"prompts/{row['file']}"))
        first, *_ = read_file(InputFile(path, "d"))
        assert isinstance(first, Failure) == ("reject" in row), row["file"]
        if isinstance(first, Prompt):
            raw = parse(next(iter(raw_records(path))))
            reading = read_record(raw, None, lookup_beside(path))
            end = row["answer_after"][-1] + 1
            written = [write_message(message) for message in reading.messages[:end]]
            assert written == row["messages"][:end], row["file"]
            assert list(reading.after) == row["answer_after"], row["file"]
            assert [json.loads(tool) for tool in reading.tools] == (row["tools"] or [])
