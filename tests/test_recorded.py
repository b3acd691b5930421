"""Recorded answers of real hosts: what is learned of each, and what becomes of its answers.

The table of hosts is the one of the recordings' documentation, made by others from counts alone.
"""

import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import build
from tests.programs import ROOT, rejections, run_pipeline, samples, summary
from transforms.chat.habits import Arguments, Blanks, Ids, Stratum, ThoughtCount, stratum_of
from transforms.chat.habits_file import Habits
from transforms.chat.learning import Learned, learn_all
from transforms.chat.profile import load_profile
from transforms.chat.statistic import Key, Statistic
from transforms.codes import Repair
from transforms.observe import observe
from transforms.openrouter.replies import read_body, read_completion
from transforms.prompts.shapes import read_prompt
from transforms.records import Exchange, Verdict

FILES = (
    "openrouter_kimi_k25.jsonl",
    "openrouter_kimi_k2_0905_by_provider_plain.jsonl",
    "openrouter_kimi_k2_0905_agent_1.jsonl",
)
K25, K2 = "moonshotai/kimi-k2.5-0127", "moonshotai/kimi-k2-0905"
Seen = dict[Stratum, list[tuple[Exchange, Verdict]]]


def read_recordings(shared: Callable[[str], Path]) -> Iterator[tuple[str, Exchange]]:
    tools = json.loads(shared("responses/openrouter_kimi_k2_0905_agent_tools.json").read_text())
    for name in FILES:
        for line in shared(f"responses/{name}").read_text("utf-8").splitlines():
            row = json.loads(line)
            asked: dict[str, Any] = {
                key: row["request"][key]
                for key in ("messages", "tools")
                if isinstance(row["request"].get(key), list)
            }
            if reference := row.get("tools_ref"):
                asked["tools"] = tools[reference]
            exchange = Exchange(
                prompt=read_prompt(asked | {"id": row["id"]}, name, "recorded"),
                completion=read_completion(read_body(row["response_body"].encode())),
                max_tokens=row["request"].get("max_tokens") or 100_000,
                request_sha256="0" * 64,
            )
            yield "kimi-k2.5" if "k2.5" in row["request_model"] else "kimi-k2-0905", exchange


@pytest.fixture(scope="module")
def recorded(shared: Callable[[str], Path]) -> tuple[dict[Stratum, Learned], Seen]:
    exchanges = [(load_profile(name), exchange) for name, exchange in read_recordings(shared)]
    counters: dict[Stratum, Counter[tuple[Key, int]]] = defaultdict(Counter)
    for profile, exchange in exchanges:
        for stratum, statistic in observe(exchange, profile):
            counters[stratum].update(statistic.counter())
    learned = learn_all({stratum: Statistic.of(c) for stratum, c in counters.items()})
    known = Habits(tuple(learned.items()))
    seen: Seen = defaultdict(list)
    for profile, exchange in exchanges:
        verdict = build.judge(exchange, profile, known)
        seen[stratum_of(exchange.completion)].append((exchange, verdict))
    return learned, seen


@pytest.mark.parametrize("host", ["BaseTen", "Fireworks", "WandB", "Parasail"])
def test_hosts_that_change_nothing_are_accepted(
    recorded: tuple[dict[Stratum, Learned], Seen], host: str
) -> None:
    learned, seen = recorded
    habit = learned[Stratum(host, K2)].habit
    told = (habit.blanks, habit.ids, habit.arguments, habit.text_offset, habit.calls_offset)
    assert told == (Blanks.VERBATIM, Ids.NATIVE, Arguments.VERBATIM, 0, 0)
    assert all(verdict.is_good for _, verdict in seen[Stratum(host, K2)])


def test_chutes_counts_its_thoughts_and_writes_one_prompt_anew(
    recorded: tuple[dict[Stratum, Learned], Seen],
) -> None:
    learned, seen = recorded
    assert learned[Stratum("Chutes", K25)].habit.thought_count is ThoughtCount.WITH_END
    rows = seen[Stratum("Chutes", K25)]
    assert Counter(v.evidence.value for _, v in rows if v.is_good) == {"B1": 8}
    # Arguments of a history were sent compact and counted with blanks: 6 tokens more.
    usages = [exchange.completion.usage for exchange, _ in rows]
    assert [usage and usage.prompt_tokens for usage in usages] == [
        verdict.sample.prompt_length for _, verdict in rows
    ]


@pytest.mark.parametrize(("host", "calls", "good"), [("Moonshot AI", 16, 16), ("Novita", 10, 9)])
def test_ids_without_their_first_word_are_put_back(
    recorded: tuple[dict[Stratum, Learned], Seen], host: str, calls: int, good: int
) -> None:
    """As given, half of them fit their count: the end token is not counted after calls."""
    learned, seen = recorded
    assert learned[Stratum(host, K2)].habit.calls_offset == -1
    called = [
        (exchange, verdict)
        for exchange, verdict in seen[Stratum(host, K2)]
        if exchange.completion.message.tool_calls
    ]
    assert len(called) == calls
    assert sum(verdict.is_good for _, verdict in called) == good
    for exchange, verdict in called:
        for call in exchange.completion.message.tool_calls if verdict.is_good else ():
            index = (call.id or "").rpartition(":")[2]
            assert f"<|tool_call_begin|>functions.{call.name}:{index}<|" in verdict.sample.text
            assert f"<|tool_call_argument_begin|>{call.arguments}<|" in verdict.sample.text


@pytest.mark.parametrize("host", ["Together", "Groq"])
def test_arguments_that_were_compacted_are_spaced_again_or_refused(
    recorded: tuple[dict[Stratum, Learned], Seen], host: str
) -> None:
    learned, seen = recorded
    assert learned[Stratum(host, K2)].habit.arguments is Arguments.COMPACTED
    for exchange, verdict in seen[Stratum(host, K2)]:
        if exchange.completion.message.tool_calls and verdict.is_good:
            assert Repair.ARGS_SERIALISATION in verdict.sample.repairs
            assert '": ' in verdict.sample.text


@pytest.mark.parametrize("host", ["DeepInfra", "SiliconFlow"])
def test_an_end_token_that_is_not_counted_is_learned(
    recorded: tuple[dict[Stratum, Learned], Seen], host: str
) -> None:
    learned, seen = recorded
    known = learned[Stratum(host, K2)]
    assert (known.habit.text_offset, known.knows_text, known.knows_calls) == (-1, True, False)
    for exchange, verdict in seen[Stratum(host, K2)]:
        if exchange.completion.message.tool_calls:
            assert not verdict.is_good


@pytest.mark.parametrize(("host", "model"), [("Inceptron", K25), ("ModelRun", K25), ("Chutes", K2)])
def test_what_no_setting_explains_is_not_good(
    recorded: tuple[dict[Stratum, Learned], Seen], host: str, model: str
) -> None:
    """One answer that deviates is no habit; nor are counts that differ from answer to answer."""
    _, seen = recorded
    for exchange, verdict in seen[Stratum(host, model)]:
        if model == K25 or exchange.completion.message.tool_calls:
            assert not verdict.is_good


def test_a_good_answer_has_as_many_ids_as_its_host_counts(
    recorded: tuple[dict[Stratum, Learned], Seen],
) -> None:
    learned, seen = recorded
    good = [(s, e, v) for s, rows in seen.items() for e, v in rows if v.is_good]
    assert len(good) >= 110
    for stratum, exchange, verdict in good:
        calls = 163595 in verdict.sample.input_ids[verdict.sample.prompt_length :]
        offset = learned[stratum].habit.offset(calls=calls)
        sampled = len(verdict.sample.input_ids) - verdict.sample.prompt_length
        assert exchange.completion.usage is not None
        assert sampled == exchange.completion.usage.completion_tokens - offset


@pytest.mark.parametrize(("profile", "model"), [("kimi-k2.5", K25), ("kimi-k2-0905", K2)])
def test_imported_recordings_have_the_verdicts_of_the_replay(
    profile: str,
    model: str,
    recorded: tuple[dict[Stratum, Learned], Seen],
    shared: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    """`import`, then `run` without a server; by the id of each generation."""
    files = [str(shared(f"responses/{name}")) for name in FILES]
    store, prompts = f"{tmp_path}/out.store", f"{tmp_path}/prompts.jsonl"
    places = ["--store", store, "--prompts", prompts]
    command = [sys.executable, "-m", "pipeline.main", "import", *files, *places]
    subprocess.run([*command, "--profile", profile], cwd=ROOT, check=True, capture_output=True)
    flags = ("--profile", profile, "--api_key", "none", "--max_bad_ratio", "1")
    done = run_pipeline(tmp_path, "http://127.0.0.1:9/api/v1", *flags)
    assert done.returncode == 0, done.stderr
    assert summary(tmp_path / "out")["requests_sent"] == 0
    good = {row["generation_id"] for row in samples(tmp_path / "out").values()}
    bad = {row["rejection"]["generation_id"] for row in rejections(tmp_path / "out")}
    _, seen = recorded
    replayed = {
        exchange.completion.generation_id: verdict.is_good
        for stratum, rows in seen.items()
        for exchange, verdict in rows
        if stratum.model == model
    }
    assert dict.fromkeys(good, True) | dict.fromkeys(bad, False) == replayed
