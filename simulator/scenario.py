"""What a simulator run is like: the facts that a preset, a YAML file and flags may set."""

import math
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A log-normal quantity: its median, and the sigma of its logarithm."""

    median: float
    sigma: float


@dataclass(frozen=True, slots=True)
class Provider:
    """A host of the model; prices in US dollars per million tokens.

    Attributes:
        slots: Requests that it runs at once; none is no limit.
        requests_per_minute: What it takes before it answers 429; none is no limit.
        habits: Names of `simulator.habits`: what it always does to what was sampled, or to what is
            asked.
        faults: Rates of faults, on top of the scenario's.
    """

    name: str
    input_price: float
    output_price: float
    slots: int | None = None
    quantization: str = "int4"
    habits: tuple[str, ...] = ()
    requests_per_minute: float | None = None
    faults: MappingProxyType[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def slug(self) -> str:
        return self.name.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the account and the gateway allow; none is no limit.

    Attributes:
        burst: Requests that may come at once before `requests_per_minute` binds.
        retry_after_s: The hint of a 429 that a limit gives.
        requests_per_second: Above it Cloudflare answers 429 with its HTML page.
        in_flight_budget_usd: What all running requests may reserve together.
        credits_usd: What the account may spend before 402.
        key_limit_usd: What the key may spend before 403.
        free_per_minute: Requests of `:free` variants before 429.
        low_balance_s: What every answer takes longer while less than ten dollars are left of
            `credits_usd` or `key_limit_usd`.
    """

    requests_per_minute: float | None = None
    burst: float = 10
    retry_after_s: float = 2
    slots: int | None = None
    requests_per_second: float | None = None
    in_flight_budget_usd: float | None = None
    credits_usd: float | None = None
    key_limit_usd: float | None = None
    free_per_minute: float = 20
    low_balance_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A provider, or `*`, answers `status` between two moments, counted from the first request.

    404 removes it from the list of endpoints; when all are removed the model is gone. With `fault`
    its answers have that fault instead.
    """

    provider: str
    from_s: float
    to_s: float = float("inf")
    status: int = 503
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """A fault for the requests whose body contains a text, as often as `times` says."""

    match: str
    fault: str
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that decides an answer, beside the request.

    Attributes:
        seed: Every decision is a function of it, the body and how often the body was seen.
        speed: Divides every latency, stall and moment of an outage, not the waiting hints.
        latency: Seconds from the request to the end of the answer.
        time_to_headers: Seconds from the request to the headers; at once if absent.
        tokens_per_s: Sampling rate; where it is given it decides the latency.
        tokens: Sampled tokens of an answer.
        drift: Share of tokens of texts that are sampled otherwise than the tokenizer cuts them.
        tokens_per_chunk: Tokens of one chunk of a stream.
        caches_abandoned: What is generated after its client left, or whose connection broke, goes
            into the response cache all the same: whole answers, and streams of hosts that do not
            stop. Nobody has documented what the service does.
        prompt_caching: Hosts keep prompts: tokens at the beginning that they have seen cost a
            sixth, and the conversation stays with its host. Answers then depend on the order of
            requests.
        logs_content: The account logs inputs and outputs: `/generation/content` gives them.
        call_rate: Share of requests with tools that are answered by calls.
        truncate_rate: Share of answers that `max_tokens` is lowered for, so that they are cut.
        faults: Rate of each fault by its name in `simulator.faults.FAULTS`; at most one happens.
        force: Faults of single rows.
        reasoning_mandatory: Refuses requests that switch thinking off.
        expiration_date: Of the model, as the catalogue says it.
    """

    seed: int = 0
    speed: float = 1.0
    latency: LogNormal = LogNormal(0.02, 0.5)
    time_to_headers: LogNormal | None = None
    tokens_per_s: LogNormal | None = None
    tokens: LogNormal = LogNormal(120, 0.6)
    drift: float = 0.0
    tokens_per_chunk: int = 1
    caches_abandoned: bool = False
    prompt_caching: bool = False
    logs_content: bool = False
    providers: tuple[Provider, ...] = (
        Provider("Chutes", 0.44, 2.0),
        Provider("Fireworks", 0.6, 3.0),
        Provider("BaseTen", 0.6, 3.0),
    )
    call_rate: float = 0.7
    truncate_rate: float = 0.0
    limits: Limits = Limits()
    faults: MappingProxyType[str, float] = field(default_factory=lambda: MappingProxyType({}))
    force: tuple[Forced, ...] = ()
    outages: tuple[Outage, ...] = ()
    reasoning_mandatory: bool = False
    expiration_date: str | None = None


def divide(scenario: Scenario, count: int) -> Scenario:
    """A process's share of what the service can take, and of what the account may spend."""
    limits = scenario.limits
    amounts = ("requests_per_minute", "requests_per_second", "in_flight_budget_usd", "credits_usd",
               "key_limit_usd")  # fmt: skip
    shares: dict[str, Any] = {name: _share(getattr(limits, name), count) for name in amounts}
    shares["slots"] = None if limits.slots is None else math.ceil(limits.slots / count)
    shares["free_per_minute"] = limits.free_per_minute / count
    return replace(
        scenario,
        limits=replace(limits, **shares, burst=max(1, limits.burst / count)),
        providers=tuple(_divide_host(host, count) for host in scenario.providers),
    )


def _divide_host(host: Provider, count: int) -> Provider:
    slots = None if host.slots is None else math.ceil(host.slots / count)
    return replace(
        host, slots=slots, requests_per_minute=_share(host.requests_per_minute, count)
    )  # fmt: skip


def _share(amount: float | None, count: int) -> float | None:
    return None if amount is None else amount / count
