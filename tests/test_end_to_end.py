"""The whole program as a person runs it, judged by the simulator's truth and ledger."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tfrecord.reader import tfrecord_loader

from tests.programs import (
    KEY,
    ROOT,
    Server,
    assert_whole,
    command_of,
    example_prompts,
    many_prompts,
    rejections,
    run_pipeline,
    samples,
    serve_simulator,
    slow_simulator,
    start_and_wait_for,
    summary,
    write_prompts,
)
from transforms.openrouter.sqlite_store import SqliteStore


def test_good_rows_are_what_was_sampled_and_a_rerun_sends_nothing(
    tmp_path: Path, simulator: Server
) -> None:
    rows = example_prompts(120)
    write_prompts(tmp_path, [*rows, rows[0], {"dish": "no shape"}])
    first = run_pipeline(tmp_path, simulator.base_url)
    assert first.returncode == 0, first.stderr
    told = assert_whole(tmp_path, 122)
    assert told["good"] == 120
    assert told["codes"] == {"duplicate_id": 1, "invalid_prompt": 1}
    assert set(told["evidence"]) == {"A3", "B1"}
    truth = simulator.truth()
    good = samples(tmp_path / "out")
    assert all(row["input_ids"] == truth[row["generation_id"]] for row in good.values())
    assert {row["prompt_length"] == row["prompt_tokens"] for row in good.values()} == {True}
    assert sum(row["finish_reason"] == "tool_calls" for row in good.values()) >= 20

    records = [
        record
        for path in (tmp_path / "out" / "samples").glob("*.tfrecord")
        for record in tfrecord_loader(str(path), None)
    ]
    by_id = {bytes(record["id"]).decode(): record for record in records}
    assert set(by_id) == set(good)
    assert all(list(by_id[i]["input_ids"]) == row["input_ids"] for i, row in good.items())

    ledger = simulator.ledger()
    assert ledger["charged_usd"] == pytest.approx(told["cost_usd"])
    assert ledger["requests"] == told["requests_sent"]
    second = run_pipeline(tmp_path, simulator.base_url)
    assert second.returncode == 0, second.stderr
    assert simulator.ledger() == ledger
    assert samples(tmp_path / "out") == good
    again = summary(tmp_path / "out")
    assert (again["requests_sent"], again["answers_reused"], again["cost_usd"]) == (0, 120, 0)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "README.md", "habits.json", "manifest.json", "rejections", "samples", "summary.json",
        "vocabulary",
    ]  # fmt: skip


def test_rejections_can_be_run_again(tmp_path: Path, simulator: Server) -> None:
    write_prompts(tmp_path, example_prompts(120))
    cut = run_pipeline(tmp_path, simulator.base_url, "--max_tokens", "8")
    assert cut.returncode == 3, cut.stderr
    assert assert_whole(tmp_path, 120)["codes"] == {"LENGTH_TRUNCATED": 120}
    again = tmp_path / "again"
    again.mkdir()
    refused = rejections(tmp_path / "out")
    write_prompts(again, refused)
    assert run_pipeline(again, simulator.base_url).returncode == 0
    assert assert_whole(again, len(refused))["good"] == len(refused)


def test_collect_and_build_may_run_apart(tmp_path: Path, simulator: Server) -> None:
    write_prompts(tmp_path, example_prompts(120))
    absent = run_pipeline(tmp_path, simulator.base_url, "--job", "build")
    assert absent.returncode == 2
    assert "does not exist" in absent.stderr
    assert run_pipeline(tmp_path, simulator.base_url, "--job", "collect").returncode == 0
    sent = simulator.ledger()["requests"]
    assert run_pipeline(tmp_path, simulator.base_url, "--job", "build").returncode == 0
    assert assert_whole(tmp_path, 120)["good"] == 120
    assert simulator.ledger()["requests"] == sent
    write_prompts(tmp_path, example_prompts(122))
    more = run_pipeline(tmp_path, simulator.base_url, "--job", "build")
    assert more.returncode == 0, more.stderr
    assert assert_whole(tmp_path, 122)["codes"] == {"not_collected": 2}


def test_the_key_is_found_nowhere(tmp_path: Path, simulator: Server) -> None:
    write_prompts(tmp_path, example_prompts(40))
    done = run_pipeline(tmp_path, simulator.base_url)
    assert done.returncode == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 8
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path
    assert KEY not in done.stdout + done.stderr
    code = (
        "import pickle, sys; from pipeline.options import read_options;"
        "print(KEY in pickle.dumps(read_options(sys.argv[1:])))"
    ).replace("KEY", repr(KEY.encode()))
    arguments = command_of(tmp_path, simulator.base_url)[3:]
    found = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"OPENROUTER_API_KEY": KEY},
        capture_output=True,
        cwd=ROOT,
        check=True,
    )
    assert found.stdout.strip() == b"False"


def test_kill_9_pays_twice_at_most_what_was_in_flight(tmp_path: Path) -> None:
    """In the middle of conversations too: they go on with the answers that they had."""
    talks = [
        {"id": f"talk-{n}", "turns": [f"Tell me of {n}.", "Go on.", "And?"]} for n in range(20)
    ]
    single = [row for row in example_prompts(150) if len(row["messages"]) == 1][:90]
    write_prompts(tmp_path, [*talks, *single])
    every = ("--turns", "all")
    with slow_simulator(tmp_path) as server:
        for requests in (30, 90):
            process = start_and_wait_for(tmp_path, server, requests, *every)
            process.kill()
            process.wait()
        finished = run_pipeline(tmp_path, server.base_url, "--max_in_flight", "16", *every)
        assert finished.returncode == 0, finished.stderr
        told = assert_whole(tmp_path, 150)
        # Of answers 3 % have no thought, which a stream cannot show: no history for later turns.
        assert set(told["codes"]) <= {"history_unknown"}
        assert told["good"] >= 140
        truth = server.truth()
        good = samples(tmp_path / "out")
        assert all(row["input_ids"] == truth[row["generation_id"]] for row in good.values())
        assert server.ledger()["duplicates"] <= 2 * 16
        assert not list(tmp_path.glob("out.run-*"))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_so_and_goes_on(tmp_path: Path, sent: signal.Signals) -> None:
    write_prompts(tmp_path, example_prompts(60))
    with slow_simulator(tmp_path) as server:
        process = start_and_wait_for(tmp_path, server, 25)
        started = time.monotonic()
        process.send_signal(sent)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 130
        assert b"goes on from" in said
        assert b"Traceback" not in said
        assert time.monotonic() - started < 20
        assert not (tmp_path / "out").exists()
        assert not list(tmp_path.glob("out.run-*"))
        assert run_pipeline(tmp_path, server.base_url).returncode == 0
        assert assert_whole(tmp_path, 60)["good"] == 60
        assert server.ledger()["duplicates"] == 0  # what was on its way was waited for


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    write_prompts(tmp_path, example_prompts(60))
    scenario = tmp_path / "hanging.yaml"
    scenario.write_text("latency: {median_s: 300, sigma: 0}\n", "utf-8")
    with serve_simulator("--scenario", str(scenario)) as server:
        process = start_and_wait_for(tmp_path, server, 10)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while b"again to abandon it" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 130
        assert not list(tmp_path.glob("out.run-*"))


def test_the_cap_holds_and_a_higher_one_goes_on(tmp_path: Path, simulator: Server) -> None:
    write_prompts(tmp_path, example_prompts(80))
    short = ("--max_tokens", "1000")  # the longest answer is reserved until costs are known
    capped = run_pipeline(tmp_path, simulator.base_url, *short, "--max_cost_usd", "0.01")
    assert capped.returncode == 4, capped.stderr
    assert "--max_cost_usd 0.01" in capped.stderr
    assert not (tmp_path / "out").exists()
    spent = simulator.ledger()["charged_usd"]
    assert 0.005 < spent <= 0.01
    again = run_pipeline(tmp_path, simulator.base_url, *short, "--max_cost_usd", "0.01")
    assert again.returncode == 4
    assert simulator.ledger()["charged_usd"] <= 0.01
    higher = run_pipeline(tmp_path, simulator.base_url, *short, "--max_cost_usd", "5")
    assert higher.returncode == 0, higher.stderr
    assert assert_whole(tmp_path, 80)["good"] == 80
    assert simulator.ledger()["duplicates"] == 0


def test_cut_answers_are_flagged_and_tool_calls_whole_and_nothing_is_repaid(tmp_path: Path) -> None:
    """A fifth of the answers is cut, and half of the prompts with tools are answered by calls."""
    rows = many_prompts(300)
    write_prompts(tmp_path, rows)
    scenario = tmp_path / "cut.yaml"
    scenario.write_text("truncate_rate: 0.2\ncall_rate: 0.5\n", "utf-8")
    with serve_simulator("--scenario", str(scenario)) as server:
        first = run_pipeline(tmp_path, server.base_url, "--max_bad_ratio", "1")
        assert first.returncode == 0, first.stderr
        again = run_pipeline(tmp_path, server.base_url, "--max_bad_ratio", "1")
        assert again.returncode == 0, again.stderr
        truth, ledger = server.truth(), server.ledger()
    assert (ledger["requests"], ledger["duplicates"]) == (300, 0)
    told = assert_whole(tmp_path, 300)
    end, calls = 163586, 163595
    whole = {generation: ids for generation, ids in truth.items() if ids[-1] == end}
    assert 40 <= 300 - len(whole) <= 80
    assert told["codes"] == {"LENGTH_TRUNCATED": 300 - len(whole)}
    good = samples(tmp_path / "out").values()
    assert {row["generation_id"]: row["input_ids"] for row in good} == whole
    called = [row for row in good if calls in row["input_ids"][row["prompt_length"] :]]
    assert 40 <= len(called) <= 80
    assert {row["finish_reason"] for row in called} == {"tool_calls"}


def test_two_runs_do_not_share_a_store_at_once(tmp_path: Path) -> None:
    write_prompts(tmp_path, example_prompts(60))
    with slow_simulator(tmp_path) as server:
        process = start_and_wait_for(tmp_path, server, 5)
        store = str(tmp_path / "out.store")
        second = subprocess.run(
            [*command_of(tmp_path, server.base_url, "--store", store), "--output", f"{tmp_path}/b"],
            env=os.environ | {"OPENROUTER_API_KEY": KEY},
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        assert second.returncode == 2
        assert "another run is using it" in second.stderr
        process.kill()
        process.wait()


def test_a_fatal_answer_stops_the_run_with_its_reason(tmp_path: Path, simulator: Server) -> None:
    write_prompts(tmp_path, example_prompts(50))
    done = run_pipeline(tmp_path, simulator.base_url, "--api_key", "none", "--max_in_flight", "4")
    assert done.returncode == 5
    assert "No auth credentials found" in done.stderr
    assert not (tmp_path / "out").exists()
    assert simulator.ledger()["requests"] <= 8  # each of those in flight is confirmed once
    assert run_pipeline(tmp_path, simulator.base_url).returncode == 0


def test_streams_give_the_same_ids_and_their_times_are_kept(
    tmp_path: Path, simulator: Server
) -> None:
    write_prompts(tmp_path, example_prompts(60))
    done = run_pipeline(tmp_path, simulator.base_url, "--delivery", "auto")
    assert done.returncode == 0, done.stderr
    assert assert_whole(tmp_path, 60)["good"] == 60
    truth = simulator.truth()
    good = samples(tmp_path / "out")
    assert all(row["input_ids"] == truth[row["generation_id"]] for row in good.values())
    store = SqliteStore(str(tmp_path / "out.store"))
    asked = {row["id"]: row for row in example_prompts(60)}
    for row in good.values():
        (attempt,) = store.attempts(row["request_sha256"])
        is_stream = b"data: [DONE]" in attempt.body
        assert is_stream == ("tools" not in asked[row["id"]])
        assert attempt.first_at is not None
        assert attempt.last_at is not None
        assert attempt.started_at <= attempt.first_at <= attempt.last_at <= attempt.ended_at


def test_another_configuration_is_refused_with_the_ways_out(
    tmp_path: Path, simulator: Server
) -> None:
    write_prompts(tmp_path, example_prompts(40))
    assert run_pipeline(tmp_path, simulator.base_url).returncode == 0
    before = summary(tmp_path / "out")
    other = run_pipeline(tmp_path, simulator.base_url, "--temperature", "0.5")
    assert other.returncode == 2
    assert "temperature was None, is 0.5" in other.stderr
    assert "--overwrite" in other.stderr
    assert summary(tmp_path / "out") == before
    replaced = run_pipeline(tmp_path, simulator.base_url, "--temperature", "0.5", "--overwrite")
    assert replaced.returncode == 0
    (tmp_path / "out" / "manifest.json").unlink()
    foreign = run_pipeline(tmp_path, simulator.base_url)
    assert foreign.returncode == 2
    assert "is no output of this program" in foreign.stderr


def test_nothing_of_others_is_replaced(tmp_path: Path, simulator: Server) -> None:
    write_prompts(tmp_path, example_prompts(40))
    for store in ("out", "out/store", "."):
        inside = run_pipeline(tmp_path, simulator.base_url, "--store", str(tmp_path / store))
        assert inside.returncode == 2
        assert "keep them apart" in inside.stderr
    thesis = tmp_path / "out" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years of work", "utf-8")
    foreign = run_pipeline(tmp_path, simulator.base_url, "--overwrite")
    assert foreign.returncode == 2
    assert thesis.read_text("utf-8") == "years of work"
    thesis.unlink()
    other = tmp_path / "out.run-2"
    other.mkdir()
    left = tmp_path / "out.run-0123456789ab"
    left.mkdir()
    assert run_pipeline(tmp_path, simulator.base_url).returncode == 0
    assert other.exists()
    assert not left.exists()


def test_an_answer_of_another_model_is_refused(tmp_path: Path) -> None:
    write_prompts(tmp_path, example_prompts(1))
    reply = {
        "id": "gen-1", "model": "moonshotai/kimi-k3", "provider": "P",
        "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 3, "cost": 0.5},
    }  # fmt: skip
    recording = {"request": example_prompts(1)[0], "response_body": json.dumps(reply)}
    (tmp_path / "r.jsonl").write_text(json.dumps(recording), "utf-8")
    with serve_simulator("--replay", str(tmp_path / "r.jsonl")) as server:
        done = run_pipeline(tmp_path, server.base_url)
    assert done.returncode == 3
    told = assert_whole(tmp_path, 1)
    assert told["codes"] == {"wrong_model": 1}
    assert told["cost_usd"] == 0.5


@pytest.mark.parametrize(
    ("prompts", "more", "said"),
    [
        ("", [], "not a single record"),
        ("\n \n", [], "not a single record"),
        ('{"prompt":"a"}', ["--max_inflight", "3"], "did you mean --max_in_flight"),
        ('{"prompt":"a"}', ["--api_key", "env:NOT_SET"], "NOT_SET is not set"),
        ('{"prompt":"a"}', ["--habits", "none.json"], "none.json"),
        ('{"prompt":"a"}', ["--tokenizer", "/nowhere"], "does not exist"),
    ],
)
def test_a_command_that_cannot_be_meant_ends_with_2(
    tmp_path: Path, simulator: Server, prompts: str, more: list[str], said: str
) -> None:
    (tmp_path / "prompts.jsonl").write_text(prompts, "utf-8")
    done = run_pipeline(tmp_path, simulator.base_url, *more)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert simulator.ledger()["requests"] == 0


def test_a_store_that_is_none_is_left_alone(tmp_path: Path, simulator: Server) -> None:
    write_prompts(tmp_path, example_prompts(3))
    (tmp_path / "out.store").mkdir()
    connection = sqlite3.connect(tmp_path / "out.store" / "responses.sqlite")
    connection.execute("create table mine(text)")
    connection.close()
    done = run_pipeline(tmp_path, simulator.base_url)
    assert done.returncode == 2
    assert "not a response store" in done.stderr


def test_show_marks_the_special_tokens(tmp_path: Path, simulator: Server) -> None:
    write_prompts(tmp_path, example_prompts(30))
    assert run_pipeline(tmp_path, simulator.base_url).returncode == 0
    good = samples(tmp_path / "out").values()
    row = next(row for row in good if row["finish_reason"] == "tool_calls")
    shown = show(tmp_path / "out", "--id", row["id"])
    end = len(row["input_ids"]) - 1
    assert f"<|im_end|>@{end}=163586" in shown.stdout
    assert f"</think>@{row['input_ids'].index(163607, row['prompt_length'])}=163607" in shown.stdout
    assert f"ids [{row['prompt_length']}, {len(row['input_ids'])})" in shown.stdout
    assert "functions." in shown.stdout
    unknown = show(tmp_path / "out", "--id", "nobody")
    assert unknown.returncode == 2
    assert "no row 'nobody'" in unknown.stderr


def show(*arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline.main", "show", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_recorded_answers_are_good_with_as_many_ids_or_rejected_with_a_reason(
    tmp_path: Path, shared: Callable[[str], Path]
) -> None:
    """Verbatim hosts fit; of a host that was seen too seldom nothing is good."""
    recorded = shared("responses/openrouter_kimi_k25.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in recorded]
    by_host: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for row in rows:
        by_host.setdefault((row["provider"], row["stream"]), []).append(row)
    found: Counter[tuple[str, str]] = Counter()
    for number, ((provider, _), group) in enumerate(by_host.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "recorded.jsonl").write_text("\n".join(map(json.dumps, group)), "utf-8")
        asked = [{"id": row["id"], **_asked(row["request"])} for row in group]
        write_prompts(folder, asked)
        with serve_simulator("--replay", str(folder / "recorded.jsonl")) as server:
            done = run_pipeline(folder, server.base_url, "--max_bad_ratio", "1")
        assert done.returncode == 0, done.stderr
        assert_whole(folder, len(group))
        counted = {row["id"]: row["token_check"] for row in group}
        for identity, sample in samples(folder / "out").items():
            sampled = len(sample["input_ids"]) - sample["prompt_length"]
            assert sampled == counted[identity]["usage_completion_tokens"]
            assert sample["generation_id"] == identity
            found[provider, "good"] += 1
        for row in rejections(folder / "out"):
            found[provider, row["rejection"]["code"]] += 1
    assert found == {
        # Of one 6 tokens more were counted than were sent: the host wrote arguments anew.
        ("Chutes", "good"): 8,
        ("AtlasCloud", "LEADING_SPACE_UNKNOWN"): 8,
        ("AtlasCloud", "PROVIDER_UNKNOWN"): 2,
        ("Inceptron", "PROVIDER_UNKNOWN"): 1,
        ("ModelRun", "PROVIDER_UNKNOWN"): 1,
    }


def _asked(request: dict[str, Any]) -> dict[str, Any]:
    return {key: request[key] for key in ("messages", "tools") if key in request}
