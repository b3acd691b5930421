"""The simulator: what it says on the wire is what it sampled, the same for the same seed."""

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from simulator.presets import load_scenario
from simulator.tokens import Kimi
from tests.programs import Server, example_prompts, serve_simulator

PADDING = b"\n         \n"


def post(server: Server, body: dict[str, Any], key: str | None = "k") -> tuple[Any, bytes]:
    address = urlsplit(server.base_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 0)
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {key}"} if key else {}
    )
    connection.request("POST", f"{address.path}/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    return response, response.read()


def body_of(row: dict[str, Any], **fields: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {key: row[key] for key in ("messages", "tools") if key in row}
    return {"model": "moonshotai/kimi-k2.5", "max_tokens": 4000, **asked, **fields}


def test_the_text_is_what_the_sampled_ids_decode_to(simulator: Server) -> None:
    kimi = Kimi()
    for row in example_prompts(40):
        response, raw = post(simulator, body_of(row))
        answer = json.loads(raw)
        assert raw.removesuffix(raw.lstrip()) == PADDING * raw.count(PADDING)
        assert response.getheader("X-Generation-Id") == answer["id"]
        assert response.getheader("Content-Length") is None
        message = answer["choices"][0]["message"]
        text = (message.get("reasoning") or "") + "</think>" + (message["content"] or "")
        if calls := message.get("tool_calls"):
            assert answer["choices"][0]["finish_reason"] == "tool_calls"
            text += "<|tool_calls_section_begin|>"
            for call in calls:
                text += f"<|tool_call_begin|>{call['id']}<|tool_call_argument_begin|>"
                text += f"{call['function']['arguments']}<|tool_call_end|>"
            text += "<|tool_calls_section_end|>"
        ids = simulator.truth()[answer["id"]]
        prompt_tokens = answer["usage"]["prompt_tokens"]
        assert kimi.decode(ids[prompt_tokens:]) == text + "<|im_end|>"
        assert answer["usage"]["completion_tokens"] == len(ids) - prompt_tokens
        assert ids[prompt_tokens - 1] == 163606


def test_same_seed_and_body_same_answer(simulator: Server) -> None:
    rows = example_prompts(5)
    first = [json.loads(post(simulator, body_of(row))[1]) for row in rows]
    with serve_simulator() as other:
        for row, answer in reversed(list(zip(rows, first, strict=True))):
            again = json.loads(post(other, body_of(row))[1])
            assert again["choices"] == answer["choices"]
            assert again["id"][-20:] == answer["id"][-20:]


def test_books_every_request_and_charges_repeats(simulator: Server) -> None:
    body = body_of(example_prompts(1)[0])
    costs = [json.loads(post(simulator, body)[1])["usage"]["cost"] for _ in range(3)]
    ledger = simulator.ledger()
    assert (ledger["requests"], ledger["charged"], ledger["duplicates"]) == (3, 3, 2)
    assert ledger["charged_usd"] == pytest.approx(sum(costs))


def test_stops_at_max_tokens(simulator: Server) -> None:
    answer = json.loads(post(simulator, body_of(example_prompts(1)[0], max_tokens=5))[1])
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    ("body", "key", "status"),
    [
        (body_of({"messages": [{"role": "user", "content": "a"}]}), None, 401),
        ({"model": "moonshotai/kimi-k2.5"}, "k", 400),
        (body_of({"messages": []}), "k", 400),
        (body_of({"messages": [{"role": "user", "content": "a"}]}, model="gpt"), "k", 400),
    ],
)
def test_refuses_as_the_service_does(
    simulator: Server, body: dict[str, Any], key: str | None, status: int
) -> None:
    response, raw = post(simulator, body, key)
    assert response.status == status
    assert json.loads(raw)["error"]["code"] == status
    assert simulator.ledger()["charged_usd"] == 0


def test_replays_recorded_bytes(shared: Callable[[str], Path]) -> None:
    path = shared("responses/openrouter_kimi_k25.jsonl")
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    with serve_simulator("--replay", str(path)) as server:
        for row in rows[:3]:
            only = {"provider": {"only": [row["provider"]]}}
            _, raw = post(server, row["request"] | only)
            assert raw in {
                r["response_body"].encode() for r in rows if r["provider"] == row["provider"]
            }
        response, _ = post(server, {"messages": [{"role": "user", "content": "never asked"}]})
        assert response.status == 400


def test_a_scenario_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("preset: happy\nseed: 4\nlatency: {median_s: 2, sigma: 1}\n", "utf-8")
    scenario = load_scenario(path, None, None)
    assert (scenario.seed, scenario.latency.median, scenario.latency.sigma) == (4, 2.0, 1.0)
    path.write_text("latencies: 3\n", "utf-8")
    with pytest.raises(ValueError, match="latencies"):
        load_scenario(path, None, None)
