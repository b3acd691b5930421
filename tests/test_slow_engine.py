"""SmolLM2-135M on llama.cpp, a real engine: 120 prompts twice, 7 minutes on busy cores."""

import json
import math
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.programs import ROOT, rejections, run_pipeline, samples, write_prompts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("xllamacpp") is None, reason="`make demo` installs it"),
]

TOPICS = ("the sea", "a cat", "bread", "the number 7", "winter", "a train", "honey", "music",
          "Toyota", "the moon")  # fmt: skip
ASKED = (
    "Write one short sentence about {}.",
    "Say one thing about {}.",
    "Give a numbered list of two facts about {}.",
    "Write a numbered list of two words for {}.",
    "What is {}?",
    "Write the year 1999 and a word on {}.",
    "Name one use of {}.",
    "Ask me one question about {}.",
    "Write a headline in capital letters about {}.",
    "Write a JSON object with one key about {}.",
    "Schreibe einen kurzen Satz über {}.",
    "Write 10 + 5 = ? and then {}.",
)
PROMPTS: list[dict[str, Any]] = [
    {
        "id": f"{number}-{topic}",
        "messages": [
            {"role": "system", "content": "You answer in a few words."},
            {"role": "user", "content": ask.format(topic)},
        ],
    }
    for number, ask in enumerate(ASKED)
    for topic in TOPICS
]
FLAGS = ("--source", "openai", "--api_key", "none", "--profile", "smollm2-135m-instruct",
         "--max_tokens", "96", "--max_in_flight", "4", "--temperature", "1.0", "--seed", "7",
         "--max_bad_ratio", "1")  # fmt: skip


@dataclass(frozen=True)
class Engine:
    """The example server."""

    base_url: str

    def truth(self) -> dict[str, list[int] | None]:
        """generation_id -> the sampled ids; `None`: the engine did not tell all of them."""
        root = self.base_url.removesuffix("/v1")
        with urllib.request.urlopen(f"{root}/__truth") as reply:  # noqa: S310 - loopback
            rows = [json.loads(line) for line in reply]
        return {row["generation_id"]: row["ids"] for row in rows}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    command = [sys.executable, "-m", "examples.smollm2_server"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            yield Engine(process.stdout.readline().strip())
        finally:
            process.kill()


def run(folder: Path, engine: Engine, delivery: str) -> list[dict[str, Any]]:
    """Good rows; nothing else than bad ones beside them."""
    write_prompts(folder, PROMPTS)
    done = run_pipeline(folder, engine.base_url, *FLAGS, "--delivery", delivery)
    assert done.returncode == 0, done.stderr
    good = samples(folder / "out")
    assert len(good) + len(rejections(folder / "out")) == len(PROMPTS)
    return list(good.values())


def is_drifted(row: dict[str, Any], sampled: list[int]) -> bool:
    found: list[int] = row["input_ids"][row["prompt_length"] :]
    return found != sampled


def test_streams_of_single_tokens_are_what_was_sampled(tmp_path: Path, engine: Engine) -> None:
    rows = run(tmp_path, engine, "stream")
    truth = engine.truth()
    streamed = [row for row in rows if row["evidence"] == "A3"]
    assert len(streamed) > len(PROMPTS) / 2
    for row in streamed:
        sampled = truth[row["generation_id"]]
        assert sampled is not None
        assert not is_drifted(row, sampled), row["id"]
    cut_otherwise = [row for row in streamed if "REPAIR_STREAM_TOKENS" in row["repairs"]]
    assert cut_otherwise  # than the tokenizer cuts the text


def test_whole_answers_drift_no_more_than_they_say(
    tmp_path: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run(tmp_path, engine, "whole")
    truth = engine.truth()
    assert {row["evidence"] for row in rows} == {"B2"}
    assert len(rows) > len(PROMPTS) / 2
    drifted = 0
    for row in rows:
        sampled = truth[row["generation_id"]]
        assert sampled is not None
        drifted += is_drifted(row, sampled)
        assert len(row["input_ids"]) - row["prompt_length"] == len(sampled)
    share, estimate = drifted / len(rows), sum(row["hidden_drift"] for row in rows) / len(rows)
    error = math.sqrt(estimate * (1 - estimate) / len(rows))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{drifted} of {len(rows)} good rows drifted unseen: {share:.2%}, "
            f"the rows say {estimate:.2%} (standard error {error:.2%})\n"
        )
    assert share <= estimate + 2 * error
