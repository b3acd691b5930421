"""Capacity, routing, streams, the response cache and the dialects, in process."""

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from simulator.habits import HABITS
from simulator.presets import load_scenario
from simulator.scenario import Limits, LogNormal, Outage, Provider, Scenario
from simulator.service import Service
from simulator.tokens import load_kimi
from tests.simulated import (
    KEY,
    TOOLS,
    answer_of,
    ask,
    chunks_of,
    deliver,
    read_scenario,
    request_of,
    truth_of,
)

HOSTS = (Provider("Chutes", 0.4, 2.0), Provider("Nebius", 0.5, 2.5, quantization="fp8"))


def test_a_minute_has_its_requests_and_a_burst() -> None:
    service = Service(load_scenario(None, "rpm-600", 1))
    replies = [ask(service, f"n{i}") for i in range(20)]
    assert [reply.status for reply in replies[:10]] == [200] * 10
    refused = [reply for reply in replies if reply.status == 429]
    assert len(refused) >= 8
    assert {reply.headers["Retry-After"] for reply in refused} == {"2"}


def test_full_hosts_fail_over_and_then_refuse() -> None:
    hosts = tuple(Provider(p.name, p.input_price, p.output_price, slots=2) for p in HOSTS)
    service = Service(Scenario(providers=hosts))
    exchanges = [service.take(KEY, request_of(f"n{i}")) for i in range(5)]
    assert [exchange.reply.status for exchange in exchanges] == [200] * 4 + [429]
    assert service.ledger.providers == {"Chutes": 2, "Nebius": 2}
    error = answer_of(exchanges[-1].reply)["error"]
    assert error["availability"]["code"] == "capacity_exhausted"
    deliver(service, exchanges[0])
    assert ask(service, "again").status == 200


def test_slots_of_the_whole_service() -> None:
    service = Service(Scenario(limits=Limits(slots=1)))
    held = service.take(KEY, request_of("a"))
    assert ask(service, "b").status == 429
    deliver(service, held)
    assert ask(service, "c").status == 200


def test_running_requests_reserve_the_budget() -> None:
    service = Service(Scenario(providers=HOSTS, limits=Limits(in_flight_budget_usd=0.015)))
    held = service.take(KEY, request_of("a"))
    refused = ask(service, "b")
    assert (refused.status, refused.headers["Retry-After"]) == (402, "2")
    assert answer_of(refused)["error"]["metadata"]["reason"] == "in_flight_budget_exhausted"
    deliver(service, held)
    assert ask(service, "c").status == 200
    too_much = answer_of(ask(service, "d", max_tokens=100_000))["error"]
    assert too_much["metadata"]["reason"] == "weight_exceeds_budget"


@pytest.mark.parametrize(
    ("wishes", "hosts"),
    [
        ({"only": ["nebius"]}, {"Nebius"}),
        ({"only": ["Nebius"]}, {"Nebius"}),
        ({"only": ["nebius/fp8"]}, {"Nebius"}),
        ({"ignore": ["chutes"]}, {"Nebius"}),
        ({"quantizations": ["fp8"]}, {"Nebius"}),
        ({"max_price": {"completion": "2.1"}}, {"Chutes"}),
        ({"order": ["nebius"]}, {"Nebius"}),
        ({"sort": "price"}, {"Chutes"}),
        ({}, {"Chutes", "Nebius"}),
    ],
)
def test_routing_honours_the_wishes(wishes: dict[str, Any], hosts: set[str]) -> None:
    service = Service(Scenario(providers=HOSTS))
    for i in range(20):
        ask(service, f"n{i}", provider=wishes)
    assert set(service.ledger.providers) == hosts


@pytest.mark.parametrize(
    ("wishes", "code"),
    [
        ({"only": ["groq"]}, "no_endpoints"),
        ({"order": ["groq"], "allow_fallbacks": False}, "no_endpoints"),
        ({"max_price": {"completion": 1}}, "constraint_filtered"),
        ({"quantizations": ["bf16"]}, "constraint_filtered"),
    ],
)
def test_wishes_that_leave_no_host(wishes: dict[str, Any], code: str) -> None:
    reply = ask(Service(Scenario(providers=HOSTS)), "a", provider=wishes)
    assert reply.status == 404
    assert answer_of(reply)["error"]["availability"]["code"] == code


def test_an_outage_fails_over_unless_pinned() -> None:
    outage = Outage(provider="Chutes", from_s=0, to_s=1e9, status=502)
    service = Service(Scenario(providers=HOSTS, outages=(outage,)))
    for i in range(10):
        assert ask(service, f"n{i}").status == 200
    assert set(service.ledger.providers) == {"Nebius"}
    pinned = ask(service, "x", provider={"order": ["chutes"], "allow_fallbacks": False})
    assert pinned.status == 502


def test_a_dying_model_is_gone_in_the_end() -> None:
    scenario = load_scenario(None, "dying-model", 1)
    removed = tuple(Outage(provider=o.provider, from_s=0, status=404)
                    for o in scenario.outages if o.status == 404)  # fmt: skip
    assert {o.provider for o in removed} == {p.name for p in scenario.providers}
    gone = ask(Service(Scenario(outages=removed)), "a")
    assert gone.status == 404
    assert answer_of(gone)["error"]["availability"]["fallback_models"]


def test_a_stream_says_what_was_sampled() -> None:
    service = Service(Scenario(call_rate=0.5))
    kimi = load_kimi()
    for i in range(30):
        reply = ask(service, f"n{i}", stream=True, tools=TOOLS)
        chunks, truth = chunks_of(reply), truth_of(service)[-1]
        assert reply.body.startswith(b": OPENROUTER PROCESSING\n\n")
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert "usage" in chunks[-1]
        assert (
            chunks[-1]["choices"][0]["finish_reason"] == chunks[-2]["choices"][0]["finish_reason"]
        )
        assert chunks[-1]["usage"]["completion_tokens"] == len(truth["completion_ids"])
        assert assembled(chunks) + "<|im_end|>" == kimi.decode(truth["completion_ids"])
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        texts = [d.get("reasoning") or d.get("content") for d in deltas if "tool_calls" not in d]
        assert [text for text in texts if text] == truth["chunks"]
        assert all(d["reasoning_details"][0]["text"] == d["reasoning"]
                   for d in deltas if d.get("reasoning"))  # fmt: skip


def assembled(chunks: list[dict[str, Any]]) -> str:
    """The sampled text, from the deltas alone."""
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    text = "".join(d.get("reasoning") or "" for d in deltas) + "</think>"
    text += "".join(d.get("content") or "" for d in deltas)
    calls: dict[int, list[str]] = {}
    for piece in (piece for d in deltas for piece in d.get("tool_calls", ())):
        calls.setdefault(piece["index"], [piece.get("id", "")])
        calls[piece["index"]].append(piece["function"]["arguments"])
    body = "".join(
        f"<|tool_call_begin|>{call[0]}<|tool_call_argument_begin|>{''.join(call[1:])}"
        "<|tool_call_end|>" for call in calls.values()
    )  # fmt: skip
    return text + (f"<|tool_calls_section_begin|>{body}<|tool_calls_section_end|>" if calls else "")


def test_a_chunk_is_a_token_or_as_many_as_asked() -> None:
    one = truth_of_stream(Scenario(), "a")
    four = truth_of_stream(Scenario(tokens_per_chunk=4), "a")
    assert one["completion_ids"] == four["completion_ids"]
    assert "".join(one["chunks"]) == "".join(four["chunks"])
    assert len(four["chunks"]) < len(one["chunks"]) / 2
    assert len(one["chunks"]) <= len(one["completion_ids"])


def truth_of_stream(scenario: Scenario, text: str) -> dict[str, Any]:
    service = Service(scenario)
    ask(service, text, stream=True)
    return truth_of(service)[0]


def test_ids_are_canonical() -> None:
    service = Service(Scenario())
    kimi = load_kimi()
    for i in range(30):
        message = answer_of(ask(service, f"n{i}"))["choices"][0]["message"]
        ids = truth_of(service)[-1]["completion_ids"]
        split = ids.index(163607)
        assert kimi.encode_plain(message["reasoning"]) == ids[:split]
        assert kimi.encode_plain(message["content"]) == ids[split + 1 : -1]


def test_a_left_stream_is_charged_by_its_host() -> None:
    for host, share in (("Chutes", 0.5), ("Nebius", 1.0)):
        service = Service(Scenario(providers=tuple(p for p in HOSTS if p.name == host)))
        exchange = service.take(KEY, request_of("a", stream=True))
        assert exchange.entry
        full = exchange.entry.usd
        prompt, sampled = len(exchange.entry.prompt_ids), len(exchange.entry.completion_ids)
        service.leave(exchange, 0 if share < 1 else sampled)
        expected = prompt * 0.4e-6 if share < 1 else full
        assert service.ledger.charged_usd == pytest.approx(expected)
        assert service.ledger.report()["wasted_usd"] == pytest.approx(expected)
        assert truth_of(service) == []


def test_a_left_whole_answer_is_charged_in_full() -> None:
    service = Service(Scenario(providers=HOSTS[:1]))
    exchange = service.take(KEY, request_of("a"))
    service.leave(exchange, 0)
    assert exchange.entry
    assert service.ledger.charged_usd == exchange.entry.usd > 0


def test_the_response_cache_gives_the_same_for_nothing() -> None:
    service = Service(Scenario())
    headers = KEY | {"X-OpenRouter-Cache": "true"}
    raw = request_of("a")
    left = service.take(headers, raw)
    service.leave(left, 0)
    miss = deliver(service, service.take(headers, raw))
    hit = deliver(service, service.take(headers, raw))
    assert miss.headers["X-OpenRouter-Cache-Status"] == "MISS"
    assert hit.headers["X-OpenRouter-Cache-Status"] == "HIT"
    first, second = answer_of(miss), answer_of(hit)
    assert first["choices"] == second["choices"]
    assert hit.headers["X-OpenRouter-Cache-Source-Id"] == first["id"] != second["id"]
    assert second["usage"]["total_tokens"] == second["usage"]["cost"] == 0
    assert service.ledger.charged.total() == 2
    assert truth_of(service)[-1]["generation_id"] == second["id"]
    assert "X-OpenRouter-Cache-Status" not in ask(service, "a").headers


CACHED = KEY | {"X-OpenRouter-Cache": "true"}


def status_of(service: Service, raw: bytes, **headers: str) -> str:
    reply = deliver(service, service.take(CACHED | headers, raw))
    return reply.headers["X-OpenRouter-Cache-Status"]


def test_blanks_of_a_body_are_one_to_the_response_cache_and_orders_are_two() -> None:
    service = Service(Scenario())
    asked = json.loads(request_of("a"))
    assert status_of(service, json.dumps(asked).encode()) == "MISS"
    assert status_of(service, json.dumps(asked, indent=2).encode()) == "HIT"
    assert status_of(service, json.dumps(dict(reversed(asked.items()))).encode()) == "MISS"
    assert status_of(service, request_of("a", stream=True)) == "MISS"
    assert status_of(service, request_of("a"), Authorization="Bearer other") == "MISS"
    assert status_of(service, request_of("a"), **{"X-OpenRouter-Cache-Clear": "true"}) == "MISS"
    assert status_of(service, request_of("a")) == "HIT"


def test_what_is_cached_is_forgotten_after_its_time() -> None:
    service = Service(Scenario())
    for seconds, found in (("0", "MISS"), ("0", "MISS"), ("9", "MISS"), ("9", "HIT")):
        assert status_of(service, request_of("a"), **{"X-OpenRouter-Cache-TTL": seconds}) == found


@pytest.mark.parametrize(
    ("host", "fields", "kept"),
    [
        ("Chutes", {}, True),
        ("Chutes", {"stream": True}, False),  # it stops when its client leaves
        ("Nebius", {"stream": True}, True),
    ],
)
def test_what_nobody_waited_for_is_cached_where_the_scenario_says_so(
    host: str, fields: dict[str, Any], *, kept: bool
) -> None:
    hosts = (Provider(host, 0.4, 2.0),)
    for option in (True, False):
        scenario = Scenario(providers=hosts, caches_abandoned=option, latency=LogNormal(0, 0))
        service = Service(scenario)
        service.leave(service.take(CACHED, request_of("a", **fields)), 0)
        found = status_of(service, request_of("a", **fields))
        assert found == ("HIT" if kept and option else "MISS")


def test_what_is_still_generated_is_not_cached_yet() -> None:
    service = Service(Scenario(caches_abandoned=True, latency=LogNormal(3600, 0)))
    service.leave(service.take(CACHED, request_of("a")), 0)
    assert status_of(service, request_of("a")) == "MISS"


def test_a_reply_that_the_connection_lost_is_cached_where_the_scenario_says_so() -> None:
    scenario = Scenario(
        caches_abandoned=True,
        latency=LogNormal(0, 0),
        faults=MappingProxyType({"reset_mid_body": 1.0}),
    )
    service = Service(scenario)
    lost = service.take(CACHED, request_of("a"))
    service.deliver(lost)
    hit = service.take(CACHED, request_of("a"))
    assert lost.entry
    assert hit.entry
    assert hit.entry.completion_ids == lost.entry.completion_ids
    assert service.ledger.charged.total() == 1


def test_vllm_gives_ids() -> None:
    service = Service(Scenario(), dialect="vllm")
    reply = service.take({}, request_of("a", return_token_ids=True))
    answer, truth = answer_of(deliver(service, reply)), truth_of(service)[0]
    assert answer["choices"][0]["token_ids"] == truth["completion_ids"]
    assert answer["prompt_token_ids"] == truth["prompt_ids"]
    assert "provider" not in answer
    assert "cost" not in answer["usage"]
    chunks = chunks_of(ask(service, "a", stream=True, return_token_ids=True))
    ids = [i for chunk in chunks for c in chunk["choices"] for i in c["token_ids"]]
    assert ids == truth_of(service)[1]["completion_ids"]
    assert ask(service, "a", model="other").status == 404


def test_sglang_gives_logprobs_with_ids() -> None:
    service = Service(Scenario(), dialect="sglang")
    asked = {"return_meta_info": True, "logprobs": True, "model": "any"}
    choice = answer_of(ask(service, "a", **asked))["choices"][0]
    ids = [row[1] for row in choice["meta_info"]["output_token_logprobs"]]
    assert ids == truth_of(service)[0]["completion_ids"]
    assert choice["message"]["reasoning_content"]
    assert ask(service, "a", stream=True, **asked).status == 400


def test_a_free_variant_has_twenty_a_minute() -> None:
    service = Service(Scenario())
    free = {"model": "moonshotai/kimi-k2.5:free"}
    replies = [ask(service, f"question {number}", **free) for number in range(21)]
    assert [reply.status for reply in replies] == [200] * 20 + [429]
    assert b"free-models-per-min" in replies[-1].body
    assert replies[-1].headers["X-RateLimit-Limit"] == "20"
    assert int(replies[-1].headers["X-RateLimit-Reset"]) > 1e12
    assert ask(service, "question 21").status == 200


def test_a_low_balance_makes_answers_slower() -> None:
    def seconds(**limits: Any) -> float:
        scenario = Scenario(limits=Limits(low_balance_s=5, **limits), latency=LogNormal(1, 0))
        return ask(Service(scenario), "a").seconds

    assert seconds() == seconds(credits_usd=20) == pytest.approx(1)
    assert seconds(credits_usd=9) == seconds(key_limit_usd=5) == pytest.approx(6)


HOSTED = ("moonshot", "together", "fireworks", "deepinfra")


@pytest.mark.parametrize("dialect", HOSTED)
def test_hosts_have_fields_of_their_own(dialect: str) -> None:
    service = Service(Scenario(), dialect=dialect)
    assert service.take({}, request_of("a")).reply.status == 401
    answer = answer_of(ask(service, "a"))
    message, usage = answer["choices"][0]["message"], answer["usage"]
    assert message["reasoning" if dialect == "together" else "reasoning_content"]
    assert "provider" not in answer
    assert "cost" not in usage
    assert ("cached_tokens" in usage) == (dialect == "moonshot")
    assert (usage.get("estimated_cost", 0) > 0) == (dialect == "deepinfra")
    refused = ask(service, "a", model="other")
    said = {
        "moonshot": ("error", "Not found the model other or Permission denied"),
        "deepinfra": ("detail", "The model `other` does not exist."),
    }.get(dialect, ("error", "The model `other` does not exist."))
    body = answer_of(refused)
    assert refused.status == 404
    assert list(body) == [said[0]]
    assert said[1] in body[said[0]].values()
    texts = [
        choice["delta"].get("reasoning", choice["delta"].get("reasoning_content"))
        for chunk in chunks_of(ask(service, "b", stream=True))
        for choice in chunk["choices"]
    ]
    assert any(texts)


def test_hosts_tell_ids_and_logprobs_in_old_forms() -> None:
    together, fireworks = (Service(Scenario(), dialect=name) for name in HOSTED[1:3])
    legacy = answer_of(ask(together, "a", logprobs=1))["choices"][0]["logprobs"]
    assert legacy["token_ids"] == truth_of(together)[0]["completion_ids"]
    assert len(legacy["tokens"]) == len(legacy["token_logprobs"]) == len(legacy["token_ids"])
    modern = answer_of(ask(fireworks, "a", logprobs=True))["choices"][0]["logprobs"]["content"]
    told = b"".join(bytes(entry["bytes"]) for entry in modern).decode()
    assert told == load_kimi().decode(truth_of(fireworks)[0]["completion_ids"])
    assert set(answer_of(ask(fireworks, "a", logprobs=1))["choices"][0]["logprobs"]) == {
        "tokens", "token_logprobs",
    }  # fmt: skip


def test_moonshot_switches_thinking_off_in_its_own_way() -> None:
    service = Service(Scenario(), dialect="moonshot")
    ask(service, "a", thinking={"type": "disabled"})
    assert truth_of(service)[0]["prompt_ids"][-2:] == [163606, 163607]


def test_a_conversation_stays_with_the_host_that_knows_its_beginning() -> None:
    """Cached tokens cost a sixth; another conversation has none."""
    hosts = tuple(Provider(name, 6.0, 3.0) for name in ("A", "B", "C", "D"))
    service = Service(Scenario(providers=hosts, prompt_caching=True))
    begin = "A question that is long enough to fill several blocks of tokens. " * 4
    answers = [
        answer_of(ask(service, begin, messages=conversation(begin, turns), seed=turns))
        for turns in range(1, 30)
    ]
    hits = [n for n, one in enumerate(answers) if cached_of(one)]
    first = hits[0]
    assert {one["provider"] for one in answers[first:]} == {answers[first]["provider"]}
    last = answers[-1]
    cached, prompt = cached_of(last), last["usage"]["prompt_tokens"]
    assert cached % 16 == 0
    assert prompt - 100 < cached < prompt
    paid = last["usage"]["cost_details"]["upstream_inference_prompt_cost"]
    assert paid == pytest.approx((prompt - cached + cached / 6) * 6 / 1e6)
    assert cached_of(answer_of(ask(service, "Another question. " * 20))) == 0
    told = answer_of(ask(service, begin, messages=conversation(begin, 31), session_id="s"))
    assert cached_of(told) == 0


def conversation(begin: str, turns: int) -> list[dict[str, str]]:
    messages = [{"role": "user", "content": begin}]
    for turn in range(turns):
        messages += [{"role": "assistant", "content": f"Answer {turn}."},
                     {"role": "user", "content": f"And {turn}?"}]  # fmt: skip
    return messages


def cached_of(answer: dict[str, Any]) -> int:
    cached: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


def test_thinking_can_be_switched_off() -> None:
    service = Service(Scenario())
    answer = answer_of(ask(service, "a", reasoning={"enabled": False}))
    assert answer["choices"][0]["message"]["reasoning"] == ""
    truth = truth_of(service)[0]
    assert truth["prompt_ids"][-2:] == [163606, 163607]
    assert 163607 not in truth["completion_ids"]
    mandatory = Service(Scenario(reasoning_mandatory=True))
    assert ask(mandatory, "a", reasoning={"enabled": False}).status == 400


@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_changes_what_is_told_and_not_what_was_sampled(habit: str) -> None:
    def answer(habits: tuple[str, ...]) -> tuple[dict[str, Any], list[int]]:
        service = Service(Scenario(providers=(Provider("Chutes", 1, 2, habits=habits),),
                                   tokens=LogNormal(60, 0)))  # fmt: skip
        for i in range(12):
            reply = ask(service, f"n{i}", tools=TOOLS, stream=i % 2 == 0)
        return answer_of(reply), truth_of(service)[-1]["completion_ids"]

    assert answer((habit,))[1] == answer(())[1]


def test_a_scenario_file_sets_everything(tmp_path: Path) -> None:
    text = """
    preset: hostile
    speed: 5
    providers: [{name: A, price: [1, 2], habit: trims, slots: 3, quantization: fp8}]
    limits: {requests_per_minute: 60, slots: 9}
    faults: {hang: 0, bad_gateway: 0.02}
    outages: [{provider: A, from_s: 1, to_s: 2, status: 503}]
    expiration_date: 2026-12-31
    """
    scenario = read_scenario(tmp_path, text)
    assert scenario.providers[0].habits == ("trims",)
    assert scenario.limits == Limits(requests_per_minute=60, slots=9)
    assert (scenario.faults["hang"], scenario.faults["bad_gateway"]) == (0, 0.02)
    assert scenario.faults["drip"] > 0
    assert scenario.expiration_date == "2026-12-31"


@pytest.mark.parametrize(
    "text", ["faults: {nope: 1}", "outages: [{provider: Nope, from_s: 1}]",
             "providers: [{name: A, habit: nope}]", "preset: nope", "speed: 0",
             "faults: {hang: 0.6, drip: 0.6}", "providers: [{name: A, slot: 1}]"]
)  # fmt: skip
def test_a_scenario_file_with_a_mistake_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"known are|above [01]"):
        read_scenario(tmp_path, text)


def test_recorded_bytes_are_utf8_in_recorded_order() -> None:
    reply = ask(Service(Scenario()), "a")
    answer = json.loads(reply.body)
    assert list(answer) == ["id", "object", "created", "model", "provider", "system_fingerprint",
                            "choices", "usage"]  # fmt: skip
    assert b'": ' not in reply.body.split(b'"usage"')[-1]


def test_hidden_thought_forced_calls_and_json() -> None:
    service = Service(Scenario(call_rate=0.0))
    hidden = answer_of(ask(service, "a", reasoning={"exclude": True}))
    assert hidden["choices"][0]["message"]["reasoning"] == ""
    assert hidden["usage"]["completion_tokens_details"]["reasoning_tokens"] > 1
    called = answer_of(ask(service, "a", tools=TOOLS, tool_choice="required"))
    assert called["choices"][0]["finish_reason"] == "tool_calls"
    wanted = {"type": "json_object"}
    content = answer_of(ask(service, "a", response_format=wanted))["choices"][0]["message"]
    assert isinstance(json.loads(content["content"]), dict)


@pytest.mark.parametrize(
    "fields",
    [{"max_tokens": "9"}, {"max_tokens": 10**7}, {"provider": []}, {"reasoning": "high"},
     {"tools": {}}, {"stream": "yes"}, {"tools": [1]}, {"messages": [1]}, {"messages": [{}]}]
)  # fmt: skip
def test_odd_types_are_refused_and_cost_nothing(fields: dict[str, Any]) -> None:
    service = Service(Scenario())
    assert ask(service, "a", **fields).status == 400
    assert service.ledger.charged_usd == 0


def test_metadata_tells_the_host() -> None:
    service = Service(Scenario())
    raw = request_of("a")
    told = answer_of(service.take(KEY | {"X-OpenRouter-Metadata": "enabled"}, raw).reply)
    chosen = [e for e in told["openrouter_metadata"]["endpoints"]["available"] if e["selected"]]
    assert [e["provider"] for e in chosen] == [told["provider"]]
    assert "openrouter_metadata" not in answer_of(ask(service, "b"))
