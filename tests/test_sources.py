"""vLLM, SGLang and any server of the API, as the simulator speaks for them."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.options import read_options
from simulator.scenario import Scenario
from simulator.service import Service
from simulator.tokens import load_kimi
from tests import build
from tests.programs import (
    Server,
    assert_whole,
    example_prompts,
    run_pipeline,
    samples,
    serve_simulator,
    write_prompts,
)
from tests.simulated import KEY, deliver, truth_of
from transforms.openrouter.replies import read_body
from transforms.openrouter.source import SGLANG, SOURCES, VLLM
from transforms.openrouter.sqlite_store import SqliteStore
from transforms.openrouter.wire import Sampling, write_request
from transforms.records import Message, Role

ASKED = build.prompt(
    messages=(
        Message(role=Role.USER, content="What time is it?"),
        Message(role=Role.ASSISTANT, reasoning="Look.", tool_calls=(build.call("f:0", "f"),)),
        Message(role=Role.TOOL, content="Noon.", tool_call_id="f:0"),
    )
)
TOOLS = ('{"type":"function","function":{"name":"f"}}',)
SGLANG_IDS = {
    "return_token_ids": True,
    "return_prompt_token_ids": True,
    "return_meta_info": True,
    "logprobs": True,
}
COUNTED = {"stream": True, "stream_options": {"include_usage": True}}


def fields(source: str, delivery: str, *, tools: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the body has beside what every body has."""
    sampling = Sampling(model="m", max_tokens=9, source=SOURCES[source], delivery=delivery)
    body = json.loads(write_request(build.prompt("a", tools=tools), sampling).body)
    usual = {"model", "messages", "max_tokens", "tools"}
    return {name: value for name, value in body.items() if name not in usual}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("openrouter", ["reasoning"]),
        ("openai", ["reasoning"]),
        ("vllm", ["reasoning", "reasoning_content"]),
        ("sglang", ["reasoning_content"]),
    ],
)
def test_each_engine_reads_the_thoughts_of_the_history(source: str, names: list[str]) -> None:
    """The prompt that the simulator samples from is the one with the thought."""
    sampling = Sampling(model="moonshotai/kimi-k2.5", max_tokens=99, source=SOURCES[source])
    request = write_request(ASKED, sampling)
    _, answer, _ = json.loads(request.body)["messages"]
    assert {name for name in answer if name.startswith("reasoning")} == {*names}
    service = Service(Scenario(), dialect="openrouter" if source == "openai" else source)
    deliver(service, service.take(KEY, request.body))
    (truth,) = truth_of(service)
    assert "<think>Look.</think>" in load_kimi().decode(truth["prompt_ids"])


@pytest.mark.parametrize(
    ("source", "delivery", "sent"),
    [
        ("openrouter", "whole", {}),
        ("openrouter", "stream", {"stream": True}),
        ("openai", "whole", {}),
        ("openai", "auto", COUNTED),
        ("vllm", "whole", {"return_token_ids": True}),
        ("vllm", "auto", {"return_token_ids": True} | COUNTED),
        ("sglang", "whole", SGLANG_IDS),
        ("sglang", "auto", SGLANG_IDS),
        ("sglang", "stream", COUNTED),
    ],
)
def test_each_source_is_asked_in_its_own_fields(
    source: str, delivery: str, sent: dict[str, Any]
) -> None:
    assert fields(source, delivery) == sent


@pytest.mark.parametrize("source", SOURCES)
def test_tools_are_never_streamed_unless_it_is_forced(source: str) -> None:
    assert "stream" not in fields(source, "auto", tools=TOOLS)
    assert fields(source, "stream", tools=TOOLS)["stream"] is True


def test_what_asks_for_ids_is_part_of_the_key() -> None:
    asked = build.prompt("a")
    keys = {
        write_request(
            asked, Sampling(model="m", max_tokens=9, source=source, delivery="whole")
        ).sha256
        for source in SOURCES.values()
    }
    assert len(keys) == 3  # openrouter and openai are asked alike


def extra(tmp_path: Path, *more: str) -> dict[str, Any]:
    (tmp_path / "p.jsonl").write_text('{"prompt":"1"}\n', "utf-8")
    config = read_options(["--input", f"{tmp_path}/p.jsonl", "--output", f"{tmp_path}/out", *more])
    found: dict[str, Any] = json.loads(config.sampling.extra)
    return found


@pytest.mark.parametrize("source", [VLLM.name, SGLANG.name])
def test_thinking_is_switched_in_the_words_of_the_source(tmp_path: Path, source: str) -> None:
    assert extra(tmp_path, "--source", source) == {"chat_template_kwargs": {"thinking": True}}
    given = '{"reasoning": {"enabled": true, "effort": "high"}, "chat_template_kwargs": {"a": 1}}'
    assert extra(tmp_path, "--source", source, "--extra_body", given) == {
        "reasoning": {"effort": "high"},
        "chat_template_kwargs": {"thinking": True, "a": 1},
    }


def test_a_source_has_its_own_place_and_key(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt":"1"}\n', "utf-8")
    flags = ["--input", f"{tmp_path}/p.jsonl", "--output", f"{tmp_path}/out"]
    wire = read_options([*flags, "--source", "vllm"]).call.wire
    assert (wire.base_url, wire.api_key) == ("http://127.0.0.1:8000/v1", "none")
    wire = read_options(flags).call.wire
    assert (wire.base_url, wire.api_key) == (
        "https://openrouter.ai/api/v1",
        "env:OPENROUTER_API_KEY",
    )


def stored(folder: Path, request_sha256: str) -> bytes:
    (attempt,) = SqliteStore(str(folder / "out.store")).attempts(request_sha256)
    return attempt.body


def assert_truth(folder: Path, server: Server, prompts: int) -> dict[str, Any]:
    """No false good; an engine leaves an empty thought out, and nothing else is refused."""
    codes = assert_whole(folder, prompts)["codes"]
    assert set(codes) <= {"REASONING_MISSING"}
    assert codes.get("REASONING_MISSING", 0) <= prompts // 10
    truth, good = server.truth(), samples(folder / "out")
    assert all(row["input_ids"] == truth[row["generation_id"]] for row in good.values())
    return good


@pytest.mark.parametrize("source", [VLLM.name, SGLANG.name])
def test_an_engine_is_asked_for_its_ids_and_they_are_kept(tmp_path: Path, source: str) -> None:
    write_prompts(tmp_path, example_prompts(40))
    with serve_simulator("--dialect", source) as server:
        done = run_pipeline(tmp_path, server.base_url, "--source", source)
        assert done.returncode == 0, done.stderr
        good = assert_truth(tmp_path, server, 40)
        for row in good.values():
            choice = read_body(stored(tmp_path, row["request_sha256"]))["choices"][0]
            assert choice["token_ids"] == row["input_ids"][row["prompt_length"] :]
            assert (row["provider"], row["evidence"]) == ("127.0.0.1", "A1")
            assert row["cost_usd"] is None


def test_ids_that_a_host_tells_beside_logprobs_are_kept(tmp_path: Path) -> None:
    write_prompts(tmp_path, example_prompts(10))
    flags = ("--source", "openai", "--api_key", "env:OPENROUTER_API_KEY", "--delivery", "whole")
    with serve_simulator("--dialect", "together") as server:
        asked = ("--extra_body", '{"logprobs": 1}')
        done = run_pipeline(tmp_path, server.base_url, *flags, *asked)
        assert done.returncode == 0, done.stderr
        good = assert_truth(tmp_path, server, 10)
    assert {row["evidence"] for row in good.values()} == {"A1"}


@pytest.mark.parametrize(
    ("source", "delivery", "streams"),
    [
        ("openai", "auto", True),
        ("vllm", "auto", True),
        ("sglang", "auto", False),
        ("sglang", "stream", True),
    ],
)
def test_streams_are_counted_on_every_source(
    tmp_path: Path, source: str, delivery: str, *, streams: bool
) -> None:
    asked = [row for row in example_prompts(60) if "tools" not in row][:25]
    write_prompts(tmp_path, asked)
    dialect = "vllm" if source == "openai" else source
    flags = ["--source", source, "--api_key", "none", "--delivery", delivery]
    with serve_simulator("--dialect", dialect) as server:
        done = run_pipeline(tmp_path, server.base_url, *flags)
        assert done.returncode == 0, done.stderr
        good = assert_truth(tmp_path, server, 25)
    bodies = [stored(tmp_path, row["request_sha256"]) for row in good.values()]
    assert {b"data: [DONE]" in body for body in bodies} == {streams}


def test_a_model_that_an_engine_does_not_serve_stops_the_run(tmp_path: Path) -> None:
    write_prompts(tmp_path, example_prompts(10))
    with serve_simulator("--dialect", "vllm") as server:
        done = run_pipeline(tmp_path, server.base_url, "--source", "vllm", "--model", "other")
        assert done.returncode == 5, done.stderr
        assert "The model `other` does not exist" in done.stderr
