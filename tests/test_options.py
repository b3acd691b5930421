"""Flags: what cannot be meant is refused before anything is sent."""

from pathlib import Path

import pytest

from pipeline.options import read_options
from transforms.failures import ConfigError


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a.jsonl", "b.x.jsonl.gz"):
        (tmp_path / name).write_text('{"prompt":"1"}\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flags(*more: str, given: str = "*.jsonl*") -> list[str]:
    return ["--input", given, "--output", "out", *more]


def test_paths_are_made_absolute_and_labels_are_kept(inputs: Path) -> None:
    config = read_options(flags(given="*.gz,b1=a.jsonl"))
    assert [(file.path, file.dataset) for file in config.files] == [
        (f"{inputs}/b.x.jsonl.gz", "b"),
        (f"{inputs}/a.jsonl", "b1"),
    ]
    assert config.output == f"{inputs}/out"
    assert config.call.store == f"{inputs}/out.store"


def test_direct_runner_means_this_machine(inputs: Path) -> None:
    assert inputs
    config = read_options(flags("--runner=DirectRunner"))
    assert config.beam_arguments == ("--runner=FnApiRunner",)
    assert not config.spread
    assert read_options(flags("--runner", "FlinkRunner", "--parallelism=2")).spread


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ["--max_inflight=3"],
            r"unknown argument --max_inflight=3; did you mean --max_in_flight\?",
        ),
        (["--nonsense"], "unknown argument --nonsense"),
        (["positional"], "unknown argument positional"),
        (["--formats=parquet,csv"], "csv"),
        (["--formats="], "choose of parquet, tfrecord"),
        (["--extra_body=[1]"], "give an object"),
        (["--extra_body={"], "not JSON"),
        (["--max_in_flight=0"], "must be 1 or more"),
        (["--max_bad_ratio=2"], "a share, from 0 to 1"),
        (["--profile=gpt"], "no such profile"),
    ],
)
def test_what_cannot_be_meant_is_refused(inputs: Path, more: list[str], said: str) -> None:
    assert inputs
    with pytest.raises(ConfigError, match=said):
        read_options(flags(*more))


def test_an_input_that_matches_nothing_is_named(inputs: Path) -> None:
    with pytest.raises(ConfigError, match=rf"none\*\.jsonl: no such file \({inputs}/none"):
        read_options(flags(given="none*.jsonl"))


def test_the_profile_gives_defaults_that_flags_override(inputs: Path) -> None:
    assert inputs
    config = read_options(flags("--extra_body", '{"reasoning": {"enabled": false}, "top_k": 4}'))
    assert config.sampling.extra == '{"reasoning": {"enabled": false}, "top_k": 4}'
    assert config.sampling.model == "moonshotai/kimi-k2.5"
    assert read_options(flags()).sampling.extra == '{"reasoning": {"enabled": true}}'
