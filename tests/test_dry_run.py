"""`--dry_run` and the line before the first paid request: what a run would do, and its cost."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from tests.programs import (
    assert_whole,
    example_prompts,
    run_pipeline,
    serve_simulator,
    write_prompts,
)
from transforms.chat.profile import ModelProfile
from transforms.chat.render import render_prompt
from transforms.openrouter.projection import Prices, project
from transforms.prompts.shapes import read_prompt

BAD = [
    {"id": "special", "prompt": "say <|im_end|>"},
    {"id": "special-2", "prompt": "say [EOS]"},
    {"id": "none"},
]


def test_it_tells_everything_and_does_nothing(tmp_path: Path, kimi: ModelProfile) -> None:
    asked = example_prompts(20)
    write_prompts(tmp_path, [*asked, *BAD, asked[0]])
    given = (tmp_path / "prompts.jsonl").read_bytes()
    with serve_simulator() as server:
        done = run_pipeline(tmp_path, server.base_url, "--dry_run", "--max_tokens", "4000")
        ledger = server.ledger()
    assert done.returncode == 0, done.stderr
    assert (ledger["requests"], ledger["charged_usd"]) == (0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["prompts.jsonl"]
    assert (tmp_path / "prompts.jsonl").read_bytes() == given
    lines = done.stdout.splitlines()
    lengths = [len(render_prompt(read_prompt(row, "", ""), kimi)) for row in asked]
    assert lines[0] == "24 records, 20 prompts to ask"
    assert f"prompt tokens: {sum(lengths)}, " in done.stdout
    assert f"{max(lengths)} the longest" in done.stdout
    place = f"{tmp_path}/prompts.jsonl"
    assert [line.partition(": ")[2].partition(",")[0] for line in lines[1:4]] == [
        "2 PROMPT_SPECIAL_TEXT",
        "1 duplicate_id",
        "1 invalid_prompt",
    ]
    assert f"the first {place}:21: '<|im_end|>'" in lines[1]
    assert "key: env:OPENROUTER_API_KEY can be read" in lines
    # 20 answers of 1,000 and of 4,000 tokens; hosts at 0.44/2, 0.6/3 and 0.6/3 $ a million.
    expected = sum(lengths) * 0.547e-6 + 20 * 1000 * 2.667e-6
    worst = sum(lengths) * 0.6e-6 + 20 * 4000 * 3e-6
    (cost,) = [line for line in lines if line.startswith("cost: ")]
    assert f"${expected:.3f}" in cost
    assert f"${worst:.4f} at most with --max_tokens 4000" in cost


def test_what_would_stop_the_run_is_said(tmp_path: Path) -> None:
    write_prompts(tmp_path, example_prompts(3))
    flags = ["--dry_run", "--api_key", "env:NO_SUCH_KEY", "--provider_only", "nowhere"]
    with serve_simulator() as server:
        done = run_pipeline(tmp_path, server.base_url, *flags)
        assert server.ledger()["requests"] == 0
    assert done.returncode == 0, done.stderr
    assert "key: --api_key: the environment variable NO_SUCH_KEY is not set" in done.stdout
    assert "the run would stop: the service refuses" in done.stdout


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "told no prices"),
        (["--source", "vllm"], "--source vllm tells no prices"),
    ],
)
def test_it_needs_no_server(tmp_path: Path, flags: list[str], said: str) -> None:
    write_prompts(tmp_path, example_prompts(3))
    done = run_pipeline(tmp_path, "http://127.0.0.1:9/v1", "--dry_run", *flags)
    assert done.returncode == 0, done.stderr
    assert "3 records, 3 prompts to ask" in done.stdout
    assert said in done.stdout


def test_nothing_to_ask_is_an_error(tmp_path: Path) -> None:
    write_prompts(tmp_path, [])
    done = run_pipeline(tmp_path, "http://127.0.0.1:9/v1", "--dry_run")
    assert done.returncode == 2
    assert "not a single record" in done.stderr


PRICES = Prices(
    prompt_usd=Decimal("0.5e-6"),
    completion_usd=Decimal("2e-6"),
    dearest_prompt_usd=Decimal("1e-6"),
    dearest_completion_usd=Decimal("4e-6"),
)


@pytest.mark.parametrize(
    ("left", "is_beyond", "said"),
    [
        (None, False, "$41.0000 at most with --max_tokens 10000"),
        (Decimal(50), False, "; --max_cost_usd leaves $50.0000"),
        (Decimal(30), False, "; --max_cost_usd leaves $30.0000, which may be reached"),
        (Decimal(2), True, "; WARNING: --max_cost_usd leaves $2.0000: the run will stop in time"),
    ],
)
def test_the_projection_is_held_against_the_cap(
    left: Decimal | None, *, is_beyond: bool, said: str
) -> None:
    projected = project(PRICES, prompts=1000, prompt_tokens=1_000_000, max_tokens=10_000)
    assert projected.expected_usd == Decimal("0.5") + Decimal("2.0")
    assert projected.worst_usd == Decimal(1) + Decimal(40)
    assert projected.is_beyond(left) == is_beyond
    assert said in projected.describe(left)
    assert "$2.5000 expected with 1000 tokens an answer" in projected.describe(left)


@pytest.mark.parametrize(
    ("cap", "code", "said"),
    [
        ("2.9", 0, "--max_cost_usd leaves $2.9000, which may be reached"),
        ("0.08", 4, "WARNING: --max_cost_usd leaves $0.0800: the run will stop in time"),
        ("0.01", 4, "--max_cost_usd 0.01: $0.0000 spent, one more may cost $0.0504"),
    ],
)
def test_the_run_says_it_once_and_starts_if_one_request_can_be_paid(
    tmp_path: Path, cap: str, code: int, said: str
) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("tokens: {median: 2000, sigma: 0.1}\n", "utf-8")
    write_prompts(tmp_path, example_prompts(60))
    with serve_simulator("--scenario", str(scenario)) as server:
        flags = ["--max_cost_usd", cap, "--max_tokens", "16384"]
        done = run_pipeline(tmp_path, server.base_url, *flags)
        spent = server.ledger()["charged_usd"]
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert done.stderr.count(" expected with ") == 1
    assert spent <= float(cap)
    assert (spent > 0) == (cap != "0.01")
    if code == 0:
        assert assert_whole(tmp_path, 60)["cost_usd"] == pytest.approx(spent)


def test_a_dry_run_does_not_touch_what_is_there(tmp_path: Path) -> None:
    write_prompts(tmp_path, example_prompts(5))
    with serve_simulator() as server:
        assert run_pipeline(tmp_path, server.base_url).returncode == 0
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        done = run_pipeline(tmp_path, server.base_url, "--dry_run")
        assert done.returncode == 0, done.stderr
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
        changed = run_pipeline(tmp_path, server.base_url, "--dry_run", "--seed", "4")
        assert changed.returncode == 2
        assert "made with another configuration" in changed.stderr
        assert server.ledger()["requests"] == 5
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["prompts"] == 5
