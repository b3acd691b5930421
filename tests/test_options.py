"""Flags: what cannot be meant is refused before anything is sent."""

import json
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


def test_habits_of_a_store_in_a_bucket_are_kept_beside_the_output(inputs: Path) -> None:
    config = read_options(flags("--store=gs://bucket/answers"))
    assert config.call.store == "gs://bucket/answers"
    assert config.learned_habits_file == inputs / "out.habits.json"
    local = read_options(flags("--store=answers"))
    assert local.learned_habits_file == inputs / "answers" / "habits.json"


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
        (["--formats=arrow,messages"], "add one of parquet, tfrecord, jsonl"),
        (["--formats=jsonl,torchspec", "--profile=smollm2-135m-instruct"], "has no <"),
        (["--draft_vocab_size=255"], "from 256"),
        (["--draft_vocab_size=163841"], "to 163840"),
        (["--habits=nowhere.json"], "nowhere.json"),
        (["--extra_body=[1]"], "give an object"),
        (["--extra_body={"], "not JSON"),
        (["--max_in_flight=0"], "must be 1 or more"),
        (["--max_bad_ratio=2"], "a share, from 0 to 1"),
        (["--profile=gpt"], "no such profile"),
        (['--extra_body={"messages": []}'], "messages is set by the prompt or by a flag"),
        (['--extra_body={"max_tokens": 3}'], "max_tokens is set"),
        (['--extra_body={"tool_choice": "required"}'], "not what the model samples freely"),
        (['--extra_body={"x": NaN}'], "not JSON"),
        (['--extra_body={"x": "\\ud800"}'], "not JSON"),
        (['--extra_body={"reasoning": {"enabled": false}}'], "with their thought"),
        (['--extra_body={"reasoning": {"exclude": true}}'], "with their thought"),
        (["--temperature=nan"], "a number from 0 to 2"),
        (["--top_p=7"], "a number from 0 to 1"),
        (["--base_url=foo"], "not an address"),
        (["--base_url=ftp://x/y"], "not an address"),
        (["--base_url=http://127.0.0.1:99999/v1"], "not an address"),
        (["--runner=NoSuchRunner"], "NoSuchRunner"),
        (["--output=gs://bucket/out"], "only local folders"),
        (["--store=s3://bucket/out"], "a local folder or gs://BUCKET/PREFIX"),
        (["--input=label="], "is empty"),
        (['--extra_body={"reasoning": 3}'], "reasoning is 3, not an object"),
        (['--extra_body={"reasoning_effort": "none"}'], "with their thought"),
        (['--extra_body={"chat_template_kwargs": {"thinking": false}}'], "with their thought"),
        (["--source=openai"], "say with --base_url where the server is"),
        (["--source=vllm", "--max_cost_usd=1"], "--source vllm tell no cost"),
        (["--source=vllm", "--provider_only=a"], "--provider_only: --source vllm has no hosts"),
        (["--source=sglang", "--max_price=1,2"], "--max_price: --source sglang has no hosts"),
        (["--provider_only=,"], "--provider_only ',': name at least one"),
        (["--max_price=2"], "--max_price 2: give PROMPT,COMPLETION"),
        (["--max_price=nan,1"], "give PROMPT,COMPLETION"),
        (["--max_price=-1,1"], "give PROMPT,COMPLETION"),
        (
            ["--quantizations=int4", '--extra_body={"provider": {"quantizations": ["fp8"]}}'],
            "--quantizations and provider.quantizations of --extra_body say the same",
        ),
        (
            ["--provider_only=a", '--extra_body={"provider": {"allow_fallbacks": true}}'],
            "--provider_only and provider.allow_fallbacks of --extra_body say the same",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(inputs: Path, more: list[str], said: str) -> None:
    assert inputs
    with pytest.raises(ConfigError, match=said):
        read_options(flags(*more))


def test_an_input_that_matches_nothing_is_named(inputs: Path) -> None:
    with pytest.raises(ConfigError, match=rf"none\*\.jsonl: no such file \({inputs}/none"):
        read_options(flags(given="none*.jsonl"))


def test_a_file_whose_name_looks_like_a_pattern_is_itself(inputs: Path) -> None:
    for name in ("we[1]rd.jsonl", "a,b.jsonl"):
        (inputs / name).write_text('{"prompt":"1"}\n', "utf-8")
        assert [file.path for file in read_options(flags(given=name)).files] == [f"{inputs}/{name}"]


def test_the_profile_gives_defaults_that_flags_override(inputs: Path) -> None:
    assert inputs
    config = read_options(flags("--extra_body", '{"reasoning": {"effort": "high"}, "top_k": 4}'))
    assert config.sampling.extra == '{"reasoning": {"effort": "high"}, "top_k": 4}'
    assert config.sampling.model == "moonshotai/kimi-k2.5"
    assert read_options(flags()).sampling.extra == '{"reasoning": {"enabled": true}}'


def test_flags_of_hosts_become_the_provider_object(inputs: Path) -> None:
    assert inputs
    config = read_options(
        flags(
            "--provider_only=chutes, deepinfra/fp4",
            "--provider_ignore=novita",
            "--max_price=0.6,2.6",
            "--quantizations=int4,fp8",
            '--extra_body={"provider": {"data_collection": "deny"}, "top_k": 4}',
        )
    )
    hosts = {
        "data_collection": "deny",
        "only": ["chutes", "deepinfra/fp4"],
        "ignore": ["novita"],
        "quantizations": ["int4", "fp8"],
        "max_price": {"prompt": 0.6, "completion": 2.6},
        "allow_fallbacks": False,
    }
    assert json.loads(config.sampling.extra)["provider"] == hosts
    assert json.loads(config.call.wire.hosts) == hosts
    assert "provider" not in json.loads(read_options(flags()).sampling.extra)
