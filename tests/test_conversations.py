"""Conversations through the whole program: every turn a row, over the model's own answers."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.run import run
from simulator.tokens import load_kimi
from tests.programs import (
    KEY,
    Server,
    assert_whole,
    command_of,
    rejections,
    samples,
    serve_simulator,
    write_prompts,
)
from transforms.openrouter.sqlite_store import SqliteStore

CLOCK = {"name": "clock", "description": "The time.", "parameters": {"type": "object"}}
SETTINGS = ("--turns", "all", "--max_bad_ratio", "1", "--delivery", "whole")


def conversation(number: int) -> dict[str, Any]:
    """Three turns, a tool call in the middle; a function without parameters is called alike."""
    said = [
        ("system", "Answer in one line."),
        ("human", f"What time is it in town {number}?"),
        ("function_call", '{"name": "clock", "arguments": {}}'),
        ("observation", f'{{"time": "12:{number:02}"}}'),
        ("gpt", "Noon, recorded by another model."),
        ("human", "And an hour later?"),
        ("gpt", "One."),
    ]
    turns = [{"from": who, "value": what} for who, what in said]
    return {"id": f"talk-{number}", "conversations": turns, "tools": json.dumps([CLOCK])}


@pytest.fixture
def talker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A simulator that calls tools in half of its answers."""
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    scenario = tmp_path / "talker.yaml"
    scenario.write_text("call_rate: 0.5\ntokens: {median: 40, sigma: 0.5}\n", "utf-8")
    with serve_simulator("--scenario", str(scenario)) as server:
        yield server


def run_here(folder: Path, server: Server, *arguments: str) -> int:
    """The command in this process: what it imports and loads is there already."""
    return run(command_of(folder, server.base_url, *SETTINGS, *arguments)[3:])


def rendered(messages: list[dict[str, Any]]) -> list[int]:
    """The prompt's ids by PyPI `renderers`, over a tokenizer that the pipeline does not use."""
    return load_kimi().render(messages, [{"type": "function", "function": CLOCK}])


def answers_by_id(folder: Path) -> dict[str, dict[str, Any]]:
    """Messages of the stored answers, by the generation that they are."""
    store = SqliteStore(str(folder / "out.store"))
    found = {}
    for attempt in store.all_attempts():
        reply = json.loads(attempt.body)
        found[reply["id"]] = reply["choices"][0]["message"]
    return found


def as_history(message: dict[str, Any]) -> dict[str, Any]:
    """What a client that keeps everything sends back."""
    names = ("role", "content", "reasoning", "tool_calls")
    kept: dict[str, Any] = {name: message[name] for name in names if name in message}
    for call in kept.get("tool_calls", []):
        call.pop("index")
    return kept


def test_each_prompt_holds_the_models_own_earlier_answers_and_its_ids_are_those_of_renderers(
    tmp_path: Path, talker: Server
) -> None:
    write_prompts(tmp_path, [conversation(number) for number in range(40)])
    assert run_here(tmp_path, talker) == 0
    told = assert_whole(tmp_path, 120)
    assert told["codes"] == {"tool_results_unfit": told["failed"]}
    truth, answers = talker.truth(), answers_by_id(tmp_path)
    talks: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in samples(tmp_path / "out").values():
        talks[row["id"].split("#")[0]].append(row)
    whole = [talk for talk in talks.values() if len(talk) == 3]
    assert len(talks) == 40
    assert len(whole) >= 3
    for talk in talks.values():
        talk.sort(key=lambda row: row["turn"])
        number = int(talk[0]["id"].removeprefix("talk-"))
        assert [row["id"] for row in talk] == [
            f"talk-{number}{mark}" for mark in ("", "#t1", "#t2")[: len(talk)]
        ]
        own = [as_history(answers[row["generation_id"]]) for row in talk]
        sent = [
            {"role": "system", "content": "Answer in one line."},
            {"role": "user", "content": f"What time is it in town {number}?"},
        ]
        for row, after in zip(talk, ("observation", "question", ""), strict=False):
            ids = rendered(sent)
            assert row["input_ids"][: row["prompt_length"]] == ids
            assert row["prompt_tokens"] == len(ids)
            assert row["input_ids"] == truth[row["generation_id"]]
            sent.append(own[row["turn"]])
            if after == "observation" and len(talk) > 1:
                (call,) = own[0]["tool_calls"]
                text = f'{{"time": "12:{number:02}"}}'
                sent.append({"role": "tool", "tool_call_id": call["id"], "content": text})
            else:
                sent.append({"role": "user", "content": "And an hour later?"})
    ledger = talker.ledger()
    assert ledger["requests"] == told["requests_sent"] == told["good"]
    good = samples(tmp_path / "out")

    # From the store alone, and once more: the same rows, and nothing is sent.
    assert run_here(tmp_path, talker, "--job", "build") == 0
    assert samples(tmp_path / "out") == good
    # What was rejected asks for the same generations: its history is in the store.
    again = tmp_path / "again"
    again.mkdir()
    refused = rejections(tmp_path / "out")
    write_prompts(again, refused)
    store = ("--store", str(tmp_path / "out.store"))
    assert run_here(again, talker, *store) == 0
    assert assert_whole(again, len(refused))["codes"] == {"tool_results_unfit": len(refused)}
    assert {row["id"] for row in rejections(again / "out")} == {row["id"] for row in refused}
    assert talker.ledger() == ledger


def test_a_cut_answer_ends_its_conversation_and_the_rest_can_be_asked_later(
    tmp_path: Path, talker: Server
) -> None:
    turns = ["Name a river.", "Another one?", "And a third?"]
    rows = [{"question_id": n, "turns": [f"{n}: {turn}" for turn in turns]} for n in range(40)]
    write_prompts(tmp_path, rows)
    one_host = ("--provider_only", "chutes")  # few answers are enough to know it
    assert run_here(tmp_path, talker, "--max_tokens", "60", *one_host) == 0
    told = assert_whole(tmp_path, 120)
    assert set(told["codes"]) == {"LENGTH_TRUNCATED", "history_unknown"}
    refused = rejections(tmp_path / "out")
    cut = [row for row in refused if row["rejection"]["code"] == "LENGTH_TRUNCATED"]
    # Turns before the cut one are samples, it is bad, those after it were not asked.
    assert Counter(row["rejection"]["code"] for row in refused) == {
        "LENGTH_TRUNCATED": len(cut),
        "history_unknown": sum(2 - row["turn"] for row in cut),
    }
    assert talker.ledger()["requests"] == told["good"] + len(cut)
    again = tmp_path / "again"
    again.mkdir()
    write_prompts(again, refused)
    assert run_here(again, talker, "--max_tokens", "2000", *one_host) == 0
    assert assert_whole(again, len(refused))["good"] == len(refused)
    good = samples(tmp_path / "out") | samples(again / "out")
    assert set(good) == {f"{n}{mark}" for n in range(40) for mark in ("", "#t1", "#t2")}
    assert talker.ledger()["requests"] == told["requests_sent"] + len(refused)
    truth = talker.truth()
    assert all(row["input_ids"] == truth[row["generation_id"]] for row in good.values())


def test_samples_of_a_prompt_have_keys_rows_and_seeds_of_their_own(
    tmp_path: Path, talker: Server
) -> None:
    rows = [{"id": f"p{n}", "prompt": f"Tell me of {n}."} for n in range(15)]
    write_prompts(tmp_path, [*rows, {"id": "q", "prompt": "Tell me.", "sample_index": 2}])
    asked = ("--seed", "7", "--temperature", "0.5", "--top_p", "0.75", "--max_tokens", "900")
    assert run_here(tmp_path, talker, *asked) == 0
    once = samples(tmp_path / "out")
    assert set(once) == {row["id"] for row in rows} | {"q#s2"}
    thrice = (*asked, "--samples_per_prompt", "3", "--overwrite")
    assert run_here(tmp_path, talker, *thrice) == 0
    good = samples(tmp_path / "out")
    ledger = talker.ledger()
    assert assert_whole(tmp_path, 46)["answers_reused"] == 16
    assert (ledger["requests"], ledger["duplicates"]) == (46, 0)
    assert len({row["request_sha256"] for row in good.values()}) == 46
    for row in rows:
        first, second, third = (good[f"{row['id']}{mark}"] for mark in ("", "#s1", "#s2"))
        assert first["request_sha256"] == once[row["id"]]["request_sha256"]
        told = [[r["sample_index"], r["seed"], r["turn"]] for r in (first, second, third)]
        assert told == [[0, 7, 0], [1, 8, 0], [2, 9, 0]]
        assert (first["temperature"], first["top_p"], first["max_tokens"]) == (0.5, 0.75, 900)
    assert (good["q#s2"]["sample_index"], good["q#s2"]["seed"]) == (2, 9)
    body = (
        '{"model":"moonshotai/kimi-k2.5","messages":[{"role":"user","content":"Tell me of 0."}],'
        '"max_tokens":900,"temperature":0.5,"top_p":0.75,"seed":%d,"reasoning":{"enabled":true}}\n%d'
    )
    for index, name in enumerate(("p0", "p0#s1", "p0#s2")):
        key = hashlib.sha256((body % (7 + index, index)).encode()).hexdigest()
        assert good[name]["request_sha256"] == key
    assert run_here(tmp_path, talker, *thrice) == 0
    assert samples(tmp_path / "out") == good
    assert talker.ledger() == ledger


def test_a_stop_in_mid_conversation_counts_every_turn_that_is_left(
    tmp_path: Path, talker: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": f"{n}", "turns": [f"{n}: a river?", "Another?", "More?"]} for n in range(20)]
    write_prompts(tmp_path, rows)
    few = ("--max_tokens", "500", "--max_in_flight", "4", "--max_cost_usd", "0.008")
    assert run_here(tmp_path, talker, *few) == 4
    sent = talker.ledger()["requests"]
    assert 1 < sent < 40
    assert f"\n{60 - sent} prompts were not answered; " in capsys.readouterr().err
    # What is there can be built; all that is missing can be asked with the rejections.
    assert run_here(tmp_path, talker, "--max_tokens", "500", "--job", "build") == 0
    assert assert_whole(tmp_path, 60)["codes"]["not_collected"] == 60 - sent
    assert run_here(tmp_path, talker, "--max_tokens", "500") == 0
    assert assert_whole(tmp_path, 60)["codes"] == {}
    ledger, truth = talker.ledger(), talker.truth()
    assert (ledger["requests"], ledger["duplicates"]) == (60, 0)
    for row in samples(tmp_path / "out").values():
        assert row["input_ids"] == truth[row["generation_id"]]


def test_answers_that_were_judged_bad_do_not_become_good_by_being_judged_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place where a thought ended is lost in each: together it would be their host's habit."""
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    host = {"name": "Chutes", "price": 2, "faults": {"answer_in_reasoning": 0.4}}
    scenario = {"call_rate": 1, "tokens": {"median": 60, "sigma": 0.3}, "providers": [host]}
    (tmp_path / "s.yaml").write_text(json.dumps(scenario), "utf-8")
    tools = [{"type": "function", "function": CLOCK}]
    rows = [{"id": f"{n}", "prompt": f"{n} o'clock?", "tools": tools} for n in range(40)]
    write_prompts(tmp_path, rows)
    with serve_simulator("--scenario", str(tmp_path / "s.yaml")) as server:
        assert run_here(tmp_path, server) == 0
        refused, truth = rejections(tmp_path / "out"), server.truth()
        assert len(refused) > 2
        again = tmp_path / "again"
        again.mkdir()
        write_prompts(again, refused)
        assert run_here(again, server, "--store", str(tmp_path / "out.store")) == 0
        assert server.ledger()["requests"] == 40
    for row in (samples(tmp_path / "out") | samples(again / "out")).values():
        assert row["input_ids"] == truth[row["generation_id"]]
