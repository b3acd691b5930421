"""What is known before the first paid request stops the run before it."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipeline.options import read_options
from tests.programs import (
    KEY,
    Server,
    example_prompts,
    run_pipeline,
    serve_simulator,
    summary,
    write_prompts,
)
from transforms.openrouter.preflight import Preflight, preflight
from transforms.openrouter.sender import Sender

HOSTS = """
providers:
  - {name: Chutes, price: [0.44, 2.0], quantization: int4}
  - {name: BaseTen, price: [0.6, 3.0], quantization: fp8}
"""
ALL = (
    "leaves no host of moonshotai/kimi-k2.5; it has chutes/int4 (int4, $0.44/2.00), "
    "baseten/fp8 (fp8, $0.60/3.00)"
)


def scenario(folder: Path, text: str) -> str:
    path = folder / "scenario.yaml"
    path.write_text(text, "utf-8")
    return str(path)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """A server of each scenario, started when it is first asked for."""
    with contextlib.ExitStack() as stack:

        @cache
        def start(text: str) -> Server:
            path = scenario(tmp_path_factory.mktemp("scenario"), text)
            return stack.enter_context(serve_simulator("--scenario", path))

        yield start


def test_it_stops_with_one_sentence_and_nothing_is_sent(tmp_path: Path) -> None:
    write_prompts(tmp_path, example_prompts(10))
    with serve_simulator() as server:
        done = run_pipeline(tmp_path, server.base_url, "--max_tokens", "400000")
        assert done.returncode == 5, done.stderr
        assert "no host allows --max_tokens 400000" in done.stderr
        assert "Traceback" not in done.stderr
        assert server.ledger()["requests"] == 0


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        ('expiration_date: "2026-01-31"', [], "was retired on 2026-01-31"),
        ("seed: 1", ["--model", "moonshotai/kimi-k9"], "Model not found"),
        ("seed: 1", ["--max_tokens", "400000"], "no host allows --max_tokens 400000"),
        ("seed: 1", ["--api_key", "none"], "No auth credentials found"),
        (
            "seed: 1",
            ["--extra_body", '{"top_k": 4, "logprobs": true}'],
            "logprobs: no host of moonshotai/kimi-k2.5 takes it",
        ),
        (HOSTS, ["--provider_only", "nowhere"], f"--provider_only nowhere: {ALL}"),
        (
            HOSTS,
            ["--provider_ignore", "chutes,BaseTen"],
            f"--provider_ignore chutes,BaseTen: {ALL}",
        ),
        (HOSTS, ["--max_price", "0.5,1.99"], f"--max_price 0.5,1.99: {ALL}"),
        (HOSTS, ["--quantizations", "bf16"], f"--quantizations bf16: {ALL}"),
        (
            HOSTS,
            ["--provider_only", "chutes", "--quantizations", "fp8"],
            f"--quantizations fp8: {ALL}",
        ),
        (
            HOSTS,
            ["--extra_body", '{"provider": {"only": ["nowhere"]}}'],
            f"--provider_only nowhere: {ALL}",
        ),
    ],
)
def test_what_cannot_succeed_is_known_beforehand(
    tmp_path: Path,
    serving: Callable[[str], Server],
    monkeypatch: pytest.MonkeyPatch,
    *,
    text: str,
    flags: list[str],
    said: str,
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    write_prompts(tmp_path, example_prompts(1))
    found = asyncio.run(look_ahead(tmp_path, serving(text).base_url, *flags))
    assert said in (found.stop or "")


async def look_ahead(folder: Path, base_url: str, *flags: str) -> Preflight:
    given = ["--input", f"{folder}/prompts.jsonl", "--output", f"{folder}/out"]
    wire = read_options([*given, "--base_url", base_url, *flags]).call.wire
    sender = Sender(wire)
    try:
        return await preflight(sender, wire)
    finally:
        await sender.close()


def test_an_output_can_be_built_again_after_the_model_is_gone(tmp_path: Path) -> None:
    write_prompts(tmp_path, example_prompts(120))
    with serve_simulator() as server:
        assert run_pipeline(tmp_path, server.base_url).returncode == 0
    retired = scenario(tmp_path, 'expiration_date: "2026-01-31"')
    with serve_simulator("--scenario", retired) as server:
        assert run_pipeline(tmp_path, server.base_url).returncode == 0
    told: dict[str, Any] = summary(tmp_path / "out")
    assert (told["good"], told["requests_sent"]) == (120, 0)


@pytest.mark.parametrize(
    ("flags", "host"),
    [
        (["--provider_only", "baseten"], "BaseTen"),
        (["--provider_ignore", "chutes"], "BaseTen"),
        (["--max_price", "0.5,2"], "Chutes"),
    ],
)
def test_the_hosts_that_are_left_answer_alone(tmp_path: Path, flags: list[str], host: str) -> None:
    write_prompts(tmp_path, example_prompts(20))
    with serve_simulator("--scenario", scenario(tmp_path, HOSTS)) as server:
        done = run_pipeline(tmp_path, server.base_url, *flags)
        assert done.returncode == 0, done.stderr
        assert server.ledger()["providers"] == {host: 20}
    assert set(summary(tmp_path / "out")["providers"]) == {host}
