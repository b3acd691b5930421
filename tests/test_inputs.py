"""Which files and records are read, how they are explained, and that each is counted once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.inputs import find_files
from pipeline.main import main
from pipeline.options import RunConfig, read_options
from pipeline.preparation import select_records
from tests.buckets import write
from tests.programs import Server, example_prompts, rejections, run_pipeline, samples, write_prompts
from tests.stages import run_stage
from transforms.chat.profile import ModelProfile
from transforms.failures import ConfigError, Failure, FailureKind
from transforms.prompts.asking import Turns
from transforms.read_prompts import InputFile, ReadPrompts, ReadSettings, read_file
from transforms.records import Prompt


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def configure(given: str, *more: str) -> RunConfig:
    config = read_options(["--input", given, "--output", "/nowhere/out", *more])
    return select_records(config)


def texts(config: RunConfig) -> list[str]:
    read = [item for file in config.files for item in read_file(file, config.reading)]
    return [item.messages[-1].content or "" for item in read if isinstance(item, Prompt)]


def test_a_folder_is_all_its_files_but_hidden_ones(tmp_path: Path) -> None:
    for language in ("en", "zh"):
        folder = tmp_path / "hive" / f"lang={language}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"prompt": [language]}), folder / "part-0.parquet")
    (tmp_path / "hive" / "_SUCCESS").write_text("")
    (tmp_path / "hive" / ".part-0.parquet.crc").write_text("x")
    files = find_files(f"{tmp_path}/hive")
    assert [file.path.removeprefix(f"{tmp_path}/") for file in files] == [
        "hive/lang=en/part-0.parquet",
        "hive/lang=zh/part-0.parquet",
    ]
    assert texts(configure(f"{tmp_path}/hive")) == ["en", "zh"]
    assert texts(configure(f"{tmp_path}/hive/lang=zh/*.parquet")) == ["zh"]


def test_a_hive_folder_is_no_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "lang=zh" / "a.jsonl", [{"prompt": "a"}])
    monkeypatch.chdir(tmp_path)
    (file,) = find_files("lang=zh/*.jsonl")
    assert (file.path, file.dataset) == (f"{tmp_path}/lang=zh/a.jsonl", "a")


def test_labels_name_data_sets(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_lines(tmp_path / f"{name}.jsonl", [{"prompt": name}])
    found = find_files(f"one={tmp_path}/[ab].jsonl,{tmp_path}/c.jsonl")
    assert [(file.path[-7:], file.dataset, file.labelled) for file in found] == [
        ("a.jsonl", "one", True),
        ("b.jsonl", "one", True),
        ("c.jsonl", "c", False),
    ]


def test_objects_of_a_bucket_are_files(bucket: str, tmp_path: Path) -> None:
    write(bucket, "in/a.jsonl", b'{"prompt":"a"}\n')
    pq.write_table(pa.table({"prompt": ["b"]}), tmp_path / "b.parquet")
    write(bucket, "in/b.parquet", (tmp_path / "b.parquet").read_bytes())
    assert texts(configure(f"gs://{bucket}/in/*")) == ["a", "b"]


def test_a_limit_is_of_all_files_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_lines(tmp_path / f"{name}.jsonl", [{"prompt": f"{name}{n}"} for n in range(3)])
    given = f"{tmp_path}/*.jsonl"
    assert texts(configure(given, "--limit=4")) == ["a0", "a1", "a2", "b0"]
    assert texts(configure(given, "--limit=9")) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_seed_picks_and_mixes_the_same_records_wherever_they_are(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n}"} for n in range(5000)]
    for folder in ("here", "there"):
        write_lines(tmp_path / folder / "a.jsonl", rows)
    all_of_them = [row["prompt"] for row in rows]
    mixed = texts(configure(f"{tmp_path}/here/a.jsonl", "--shuffle_seed=7"))
    assert mixed != all_of_them
    assert sorted(mixed) == sorted(all_of_them)
    picked = texts(configure(f"{tmp_path}/here/a.jsonl", "--shuffle_seed=7", "--limit=100"))
    there = texts(configure(f"{tmp_path}/there/a.jsonl", "--shuffle_seed=7", "--limit=100"))
    other = texts(configure(f"{tmp_path}/here/a.jsonl", "--shuffle_seed=8", "--limit=100"))
    assert picked == there
    assert len({*picked}) == len({*other}) == 100
    assert {*picked} != {*other}
    assert 1500 < sum(map(int, picked)) / 100 < 3500  # of all of the file, not of its start


def test_what_cannot_be_read_is_counted_among_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"prompt":"a"}', "utf-8")
    write_lines(tmp_path / "b.jsonl", [{"prompt": "b"}, {"prompt": "c"}])
    for seed in ((), ("--shuffle_seed=1",)):
        config = configure(f"{tmp_path}/a.json,{tmp_path}/b.jsonl", "--limit=3", *seed)
        read = [item for file in config.files for item in read_file(file)]
        assert len(read) == 3
    assert [item.kind for item in read_file(InputFile(f"{tmp_path}/a.json", "a"))
            if isinstance(item, Failure)] == [FailureKind.UNREADABLE_FILE]  # fmt: skip


@pytest.mark.parametrize("spread", [False, True])
def test_ids_are_of_a_labelled_data_set_and_content_of_the_run(
    tmp_path: Path, spread: bool
) -> None:
    one = write_lines(tmp_path / "a.jsonl", [{"id": 1, "prompt": "a"}, {"id": 1, "prompt": "b"}])
    two = write_lines(tmp_path / "b.jsonl", [{"id": 1, "prompt": "c"}, {"id": 2, "prompt": "a"}])
    files = (InputFile(str(one), "x", labelled=True), InputFile(str(two), "y", labelled=True))
    for by_content, kept, refused in (
        (False, {("x", "a"), ("y", "c"), ("y", "a")}, {("duplicate_id", "b")}),
        (True, {("x", "a"), ("y", "c")}, {("duplicate_id", "b"), ("duplicate_prompt", "a")}),
    ):
        stage = ReadPrompts(files, spread=spread, settings=ReadSettings(by_content=by_content))
        good, failures = run_stage(stage, [], tmp_path / f"{by_content}")
        assert {(p.dataset, p.messages[0].content) for p in good} == kept
        assert {(f.kind.value, f.prompt.messages[0].content) for f in failures} == refused


def test_conversations_ask_the_same_whatever_other_models_answered(tmp_path: Path) -> None:
    """But not where their tool results are of other calls."""
    rows: list[dict[str, Any]] = [
        {"id": answer, "messages": [{"role": "user", "content": "a"},
                                    {"role": "assistant", "content": answer},
                                    {"role": "user", "content": "b"}]}
        for answer in ("A", "another", "calling")
    ]  # fmt: skip
    function = {"name": "f", "arguments": "{}"}
    _, answer, _ = messages = rows[2]["messages"]
    answer["tool_calls"] = [{"id": "i", "type": "function", "function": function}]
    messages.insert(2, {"role": "tool", "tool_call_id": "i", "content": "r"})
    path = write_lines(tmp_path / "a.jsonl", rows)
    settings = ReadSettings(turns=Turns.ALL, by_content=True)
    stage = ReadPrompts((InputFile(str(path), "a"),), spread=False, settings=settings)
    good, failures = run_stage(stage, [], tmp_path / "kept")
    assert [prompt.id for prompt in good] == ["A", "calling"]
    assert [failure.id for failure in failures] == ["another", "another#t1"]
    assert {failure.kind for failure in failures} == {FailureKind.DUPLICATE_PROMPT}


def test_long_prompts_are_refused_and_not_cut(tmp_path: Path, kimi: ModelProfile) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"prompt": "a"}, {"prompt": "a b c d " * 50}])
    short, long = read_file(InputFile(str(path), "a"), ReadSettings(max_tokens=100, profile=kimi))
    assert isinstance(short, Prompt)
    assert isinstance(long, Failure)
    assert long.kind is FailureKind.PROMPT_TOO_LONG
    assert long.prompt is not None
    assert long.prompt.messages[0].content == "a b c d " * 50


def test_every_record_of_several_data_sets_is_counted_once(
    tmp_path: Path, simulator: Server
) -> None:
    write_prompts(tmp_path, example_prompts(6))
    mixed: list[dict[str, Any]] = [{"id": 1, "prompt": "a"}, {"id": 1, "prompt": "b"}, {"dish": 1}]
    write_lines(tmp_path / "chat.jsonl", [*mixed, {"id": 2, "prompt": "word " * 500}])
    (tmp_path / "cut.json").write_text('[{"prompt":"c"},', "utf-8")
    done = run_pipeline(
        tmp_path, simulator.base_url, "--max_prompt_tokens", "400", "--max_bad_ratio", "1",
        "--input", f"base={tmp_path}/prompts.jsonl,chat={tmp_path}/c*.json*",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert told["prompts"] == told["good"] + told["bad"] + told["failed"] == 12
    became = ("good", "bad", "failed")
    assert {name: sum(of[what] for what in became) for name, of in told["datasets"].items()} == {
        "base": 6,
        "chat": 6,
    }
    sets = told["datasets"].values()
    assert sum(of["cost_usd"] for of in sets) == pytest.approx(simulator.ledger()["charged_usd"])
    assert all(of["cost_usd"] > 0 and of["answer_seconds"] > 0 for of in sets)
    assert told["datasets"]["chat"]["failed"] == 4
    early = ("duplicate_id", "invalid_prompt", "prompt_too_long", "unreadable_file")
    assert {code: told["codes"].get(code) for code in early} == dict.fromkeys(early, 1)
    rows = [*samples(tmp_path / "out").values()]
    assert {row["dataset"] for row in rows} <= {"base", "chat"}
    (long,) = [row for row in rejections(tmp_path / "out")
               if row["rejection"]["code"] == "prompt_too_long"]  # fmt: skip
    assert long["messages"][0]["content"] == "word " * 500


def test_how_first_records_are_read_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = [("human", "a"), ("gpt", "b"), ("human", "c")]
    conversation = [{"from": who, "value": what} for who, what in talk]
    write_lines(
        tmp_path / "in" / "a.jsonl",
        [{"id": 7, "conversations": conversation, "tools": [{"name": "f"}]}, {"dish": 1}],
    )
    write_lines(tmp_path / "in" / "b.jsonl", [{"dish": 1}])
    (tmp_path / "in" / "c.md").write_text("# c")
    (tmp_path / "in" / "d.jsonl").write_text("\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert main(["--explain_input", "--input", "in"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "file",
        "place",
        "shape",
        "id",
        "messages",
        "answered",
        "after",
        "tools",
        "remark",
    ]
    assert lines[0].split() == ["a.jsonl", "1", "conversations", "7", "uau", "0,2", "1"]
    assert lines[1].split()[:3] == ["b.jsonl", "1", "refused"]
    assert "it has dish" in lines[1]
    assert "unreadable_file: neither JSON nor Parquet" in lines[2]
    assert lines[3].split() == ["d.jsonl", "refused", "no", "record"]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_only_an_explanation_needs_no_output(tmp_path: Path) -> None:
    given = str(write_lines(tmp_path / "a.jsonl", [{"prompt": "a"}]))
    with pytest.raises(ConfigError, match="--output is missing"):
        read_options(["--input", given])
    for flag in ("--limit=0", "--max_prompt_tokens=0"):
        with pytest.raises(ConfigError, match="must be 1 or more"):
            configure(given, flag)


def test_every_shared_file_is_explained(
    shared: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert main(["--explain_input", "--input", f"{shared('prompts')}/*,{shared('odd')}"]) == 0
    told = capsys.readouterr().out.splitlines()[1:]
    assert len(told) == len(find_files(f"{shared('prompts')}/*,{shared('odd')}"))
