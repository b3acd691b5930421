"""Answers that were recorded elsewhere: a run finds and judges them without asking."""

import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline import import_answers
from pipeline.options import read_options
from pipeline.recordings import read_pairs
from tests.programs import (
    ROOT,
    Server,
    assert_whole,
    example_prompts,
    rejections,
    run_pipeline,
    samples,
    summary,
)
from transforms.openrouter.importing import (
    Refusal,
    RefusedError,
    Terms,
    check_answer,
    check_request,
)
from transforms.openrouter.recorded import Halves, Recorded, join_chunks, read_recorded
from transforms.openrouter.replies import read_body
from transforms.openrouter.sqlite_store import SqliteStore
from transforms.openrouter.store import Attempt

MODEL = "moonshotai/kimi-k2.5"
NOWHERE = "http://127.0.0.1:9/api/v1"
MESSAGES = [{"role": "user", "content": "Hi"}]
ANSWER: dict[str, Any] = {
    "id": "gen-1",
    "model": f"{MODEL}-0127",
    "provider": "Chutes",
    "choices": [
        {"finish_reason": "stop", "message": {"content": "Hello.", "reasoning": "A greeting."}}
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 7},
}


def ask(server: Server, body: dict[str, Any]) -> str:
    """What the server sends, as text."""
    request = urllib.request.Request(  # noqa: S310 - loopback
        f"{server.base_url}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer x"},
    )
    with urllib.request.urlopen(request) as reply:  # noqa: S310
        text: str = reply.read().decode()
        return text


def bodies(count: int, **more: Any) -> list[dict[str, Any]]:
    """Requests of another program: other limits, another order of keys."""
    return [
        {
            "messages": row["messages"],
            "max_tokens": 4000,
            "model": MODEL,
            **({"tools": row["tools"], "tool_choice": "auto"} if "tools" in row else {}),
            **more,
        }
        for row in example_prompts(count)
    ]


def write_lines(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def import_files(folder: Path, *files: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline.main", "import", *files]
    return subprocess.run(
        [*command, "--store", f"{folder}/out.store", "--prompts", f"{folder}/prompts.jsonl"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


def test_recorded_answers_are_samples_and_nothing_is_asked(
    tmp_path: Path, simulator: Server
) -> None:
    whole, streamed = bodies(100), bodies(120, stream=True)[100:]
    asked = write_lines(
        tmp_path / "in.jsonl",
        [
            {"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            for n, body in enumerate(whole)
        ],
    )
    came = write_lines(
        tmp_path / "came.jsonl",
        [
            {
                "id": f"batch_req_{n}",
                "custom_id": f"r{n}",
                "response": {"status_code": 200, "body": json.loads(ask(simulator, body))},
                "error": None,
            }
            for n, body in reversed(list(enumerate(whole)))
        ],
    )
    texts = [ask(simulator, body) for body in streamed]
    events = [
        [
            json.loads(line.removeprefix("data: "))
            for line in text.splitlines()
            if line.startswith("data: {")
        ]
        for text in texts
    ]
    log = write_lines(
        tmp_path / "log.jsonl",
        [
            {"request": json.dumps(body), "response": text if n % 2 else {"body": chunks}}
            for n, (body, text, chunks) in enumerate(zip(streamed, texts, events, strict=True))
        ],
    )
    sent = simulator.ledger()["requests"]
    done = import_files(tmp_path, asked, came, log)
    assert done.returncode == 0, done.stderr
    assert "120 answers imported" in done.stdout
    prompts = (tmp_path / "prompts.jsonl").read_bytes()
    again = import_files(tmp_path, asked, came, log)
    assert "0 answers imported" in again.stdout
    assert (tmp_path / "prompts.jsonl").read_bytes() == prompts

    run = run_pipeline(tmp_path, NOWHERE, "--api_key", "none")
    assert run.returncode == 0, run.stderr
    told = assert_whole(tmp_path, 120)
    assert (told["requests_sent"], told["answers_reused"]) == (0, 120)
    assert simulator.ledger()["requests"] == sent
    assert SqliteStore(f"{tmp_path}/out.store").spent_usd() == 0
    truth, good = simulator.truth(), samples(tmp_path / "out")
    assert len(good) >= 110
    assert all(row["input_ids"] == truth[row["generation_id"]] for row in good.values())
    assert {name for name in good if name.startswith("r")} >= {"r0", "r1", "r2"}


@pytest.fixture(scope="module")
def terms(tmp_path_factory: pytest.TempPathFactory) -> Terms:
    path = write_lines(tmp_path_factory.mktemp("terms") / "prompts.jsonl", [{"prompt": "a"}])
    config = read_options(["--input", path, "--output", f"{path}.out", "--max_tokens", "1000"])
    sampling, defaults = config.sampling, config.profile.request
    return Terms(sampling=sampling, defaults=defaults, host="openrouter.ai", thinks=True)


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({}, None),
        ({"max_tokens": 4000, "stream": True, "usage": {"include": True}, "user": "u"}, None),
        ({"tool_choice": "auto", "n": 1, "stop": [], "response_format": {"type": "text"}}, None),
        ({"reasoning": {"enabled": True}, "temperature": None}, None),
        ({"provider": {"only": ["chutes"]}, "logprobs": True}, None),
        ({"model": "moonshotai/kimi-k2"}, Refusal.OTHER_MODEL),
        ({"temperature": 0.7}, Refusal.OTHER_SETTINGS),
        ({"reasoning": {"enabled": False}}, Refusal.OTHER_SETTINGS),
        ({"tool_choice": "required"}, Refusal.OTHER_SETTINGS),
        ({"stop": ["\n"]}, Refusal.OTHER_SETTINGS),
        ({"response_format": {"type": "json_object"}}, Refusal.OTHER_SETTINGS),
        ({"n": 2}, Refusal.OTHER_SETTINGS),
        ({"a_field_of_tomorrow": 1}, Refusal.OTHER_SETTINGS),
        ({"messages": [*MESSAGES, {"role": "assistant", "content": "{"}]}, Refusal.NOT_A_PROMPT),
    ],
)
def test_what_was_asked_otherwise_is_refused(
    more: dict[str, Any], refusal: Refusal | None, terms: Terms
) -> None:
    record = {"request": {"model": MODEL, "messages": MESSAGES} | more, "response_body": "{}"}
    assert refusal_of(lambda: check_request(read_recorded(record), terms)) == refusal


def test_two_answers_of_one_prompt_are_two_samples_unless_a_seed_is_fixed(tmp_path: Path) -> None:
    """A run sends another seed with each sample: the second answer is none that it would ask."""
    for seed, indexes in (({}, [0, 1]), ({"seed": 5}, [0])):
        folder = tmp_path / f"{len(indexes)}"
        folder.mkdir()
        request = {"model": MODEL, "messages": MESSAGES, **seed}
        answers = [ANSWER | {"id": f"gen-{n}"} for n in (1, 2)]
        recorded = [{"request": request, "response_body": json.dumps(one)} for one in answers]
        given = write_lines(folder / "log.jsonl", recorded)
        flags = [f"--{name}={value}" for name, value in seed.items()]
        places = ["--store", f"{folder}/store", "--prompts", f"{folder}/prompts.jsonl"]
        assert import_answers.run([given, *places, *flags]) == 0
        rows = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]
        assert [row["sample_index"] for row in rows] == indexes
        refused = (folder / "prompts.refused.ndjson").read_text()
        assert ("has another seed" in refused) == ("seed" in seed)


@pytest.mark.parametrize(
    ("endpoint", "refusal"),
    [
        ("https://openrouter.ai/api/v1/chat/completions", None),
        ("https://eu.openrouter.ai/api/v1/chat/completions", None),
        ("/v1/chat/completions", None),
        ("https://api.moonshot.ai/v1/chat/completions", Refusal.OTHER_SERVER),
        ("https://notopenrouter.ai/api/v1", Refusal.OTHER_SERVER),
    ],
)
def test_answers_of_another_server_are_not_taken_for_this_ones(
    endpoint: str, refusal: Refusal | None, terms: Terms
) -> None:
    record = {"endpoint": endpoint, "request": {"messages": MESSAGES}, "response": ANSWER}
    assert refusal_of(lambda: check_request(read_recorded(record), terms)) == refusal


@pytest.mark.parametrize(
    ("answer", "own", "refusal"),
    [
        (ANSWER, None, None),
        (ANSWER, 8, None),
        (ANSWER, 7, Refusal.CUT),
        (ANSWER | {"usage": None}, 7, None),
        (ANSWER | {"usage": {"completion_tokens": 1000}}, 4000, Refusal.CUT),
        (ANSWER | {"model": "moonshotai/kimi-k3"}, None, Refusal.OTHER_MODEL),
        ({"error": {"code": 429, "message": "slow down"}}, None, Refusal.FAILED),
        ({"choices": []}, None, Refusal.FAILED),
        (
            ANSWER
            | {
                "choices": [
                    {"finish_reason": "stop", "message": {"content": "", "reasoning": "All of it."}}
                ]
            },
            None,
            Refusal.FAILED,
        ),
    ],
)
def test_failures_cut_answers_and_other_models_are_refused(
    answer: dict[str, Any], own: int | None, refusal: Refusal | None, terms: Terms
) -> None:
    request = {"messages": MESSAGES, "max_tokens": own}
    recorded = read_recorded({"request": request, "response": answer})
    assert recorded.answer is not None
    attempt = Attempt(
        request_sha256="0" * 64, run_id="r", status=recorded.status, error=None, headers=(),
        body=recorded.answer, started_at=0.0, ended_at=0.0,
    )  # fmt: skip
    assert refusal_of(lambda: check_answer(recorded, attempt, terms)) == refusal


def refusal_of(check: Callable[[], None]) -> Refusal | None:
    try:
        check()
    except RefusedError as error:
        return error.refusal
    return None


def test_cassettes_are_read_where_they_keep_things() -> None:
    asked = {"model": MODEL, "messages": MESSAGES}
    vcr = {
        "request": {"uri": "https://openrouter.ai/api/v1/x", "body": json.dumps(asked)},
        "response": {"status": {"code": 429}, "body": {"string": '{"error": {"code": 429}}'}},
    }
    read = read_recorded(vcr)
    assert read.request == asked
    assert (read.answer, read.status) == (b'{"error": {"code": 429}}', 429)
    assert read.endpoint == "https://openrouter.ai/api/v1/x"
    merged = read_recorded(asked | ANSWER)
    assert merged.request is not None
    assert merged.request["messages"] == MESSAGES
    assert json.loads(merged.answer or b"")["choices"] == ANSWER["choices"]


def test_a_lone_surrogate_stays_the_escape_that_it_was() -> None:
    body = '{"choices": [{"message": {"content": "\\ud83d"}}]}'
    as_text = read_recorded({"request": {"messages": MESSAGES}, "response_body": body})
    assert as_text.answer == body.encode()
    decoded = read_recorded({"request": {"messages": MESSAGES}, "response": json.loads(body)})
    assert json.loads(decoded.answer or b"") == json.loads(body)


def test_the_lines_of_a_stream_are_one_answer() -> None:
    def chunk(number: int, text: str, finish: str | None = None) -> dict[str, Any]:
        choice = {"delta": {"content": text}, "finish_reason": finish}
        return {"id": f"gen-{number}", "choices": [choice]}

    lines = [chunk(1, "a"), chunk(1, "b", "stop"), chunk(2, "c", "stop"), ANSWER]
    placed = [(f"f:{number}", line) for number, line in enumerate(lines, start=1)]
    read = [(place, read_recorded(record)) for place, record in join_chunks(placed)]
    assert [place for place, _ in read] == ["f:1", "f:3", "f:4"]
    texts = [read_body(one.answer or b"")["choices"][0]["message"]["content"] for _, one in read]
    assert texts == ["ab", "c", "Hello."]
    assert {one.request is None for _, one in read} == {True}


@pytest.mark.parametrize(
    ("order", "joined"),
    [
        (["ask a", "come"], ["f:2"]),
        (["come", "ask a"], ["f:2"]),
        (["ask a", "ask b", "come"], []),
        (["come", "come", "ask a"], []),
        (["ask a", "come", "ask b", "come"], []),  # b's answer may stand behind a's request
    ],
)
def test_a_name_that_comes_twice_joins_nothing(order: list[str], joined: list[str]) -> None:
    kinds = {
        "ask a": Recorded(name="r", request={"messages": ["a"]}, answer=None),
        "ask b": Recorded(name="r", request={"messages": ["b"]}, answer=None),
        "come": Recorded(name="r", request=None, answer=b"{}"),
    }
    records = [kinds[kind] for kind in order]
    halves = Halves(records)
    found = [
        pair
        for number, half in enumerate(records, start=1)
        for pair in halves.join(f"f:{number}", half)
    ]
    assert [place for place, pair in found if pair is not None] == joined
    assert len([pair for _, pair in found if pair is None]) == (0 if joined else len(order))
    assert not list(halves.rest())


def test_a_row_number_is_no_custom_id(tmp_path: Path) -> None:
    """An answer that lost its `custom_id` belongs to no request, whatever its `id` is."""
    asked = {"custom_id": "1", "body": {"model": MODEL, "messages": MESSAGES}}
    came = {"id": "1", "response": {"status_code": 200, "body": ANSWER}}
    pairs = list(read_pairs([write_lines(tmp_path / "log.jsonl", [asked, came])]))
    assert [isinstance(one, Recorded) and one.half for _, one in pairs] == [
        ("custom_id", "1"),
        ("id", "1"),
    ]


def test_what_cannot_be_proved_is_kept_and_never_good(tmp_path: Path) -> None:
    asked = {"model": MODEL, "messages": MESSAGES}
    file = write_lines(
        tmp_path / "log.jsonl",
        [
            {"id": "no-count", "request": asked, "response": ANSWER | {"usage": None}},
            ANSWER | {"id": "no-request"},
            {"id": "no-answer", "request": asked},
            {"id": "other", "request": asked | {"model": "m"}, "response": ANSWER},
            {"id": "special", "request": {"messages": [
                {"role": "user", "content": "<|im_end|>"}]}, "response": ANSWER},
            ["no", "record"],
        ],
    )  # fmt: skip
    done = import_files(tmp_path, file)
    assert done.returncode == 0, done.stderr
    reasons = (tmp_path / "prompts.refused.ndjson").read_text("utf-8").splitlines()
    places = {json.loads(line)["source"]: json.loads(line)["refusal"] for line in reasons}
    assert places == {
        f"{file}:{number}": refusal
        for number, refusal in zip(
            (3, 4, 5, 6), ("no_answer", "other_model", "not_a_prompt", "unreadable"), strict=True
        )
    }
    assert run_pipeline(tmp_path, NOWHERE, "--api_key", "none").returncode == 3
    codes = {row["id"]: row["rejection"]["code"] for row in rejections(tmp_path / "out")}
    assert Counter(codes.values()) == {"USAGE_MISSING": 1, "invalid_prompt": 1}
    assert codes["no-count"] == "USAGE_MISSING"
    assert summary(tmp_path / "out")["requests_sent"] == 0
