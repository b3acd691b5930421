"""Ready-made scenarios by name, and how a YAML file is read over one."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from simulator.faults import FAULTS
from simulator.habits import HABITS, HEARING
from simulator.scenario import Forced, Limits, LogNormal, Outage, Provider, Scenario

_REFERENCE_PROVIDERS = (
    Provider("Chutes", 0.44, 2.0, quantization="int4"),
    Provider("Inceptron", 0.44, 2.2),
    Provider("DeepInfra", 0.45, 2.25, quantization="fp4"),
    Provider("SiliconFlow", 0.45, 2.25, quantization="fp8"),
    Provider("Nebius", 0.5, 2.5),
    Provider("Together", 0.5, 2.8),
    Provider("Moonshot AI", 0.6, 3.0),
    Provider("Novita", 0.6, 3.0),
    Provider("BaseTen", 0.6, 3.0, quantization="nvfp4"),
    Provider("Fireworks", 0.6, 3.0),
)
"""Hosts and prices of Kimi-K2.5, April 2026, in US dollars per million tokens in and out."""

_HOSTILE_RATE = 0.01
_STORM_SLOTS = 32
"""Who keeps 64 under way, obeys `Retry-After` and does not adapt is refused 30 % of the time."""


def _rates(**rates: float) -> MappingProxyType[str, float]:
    return MappingProxyType(rates)


PRESETS = {
    "happy": Scenario(),
    "reference": Scenario(
        providers=_REFERENCE_PROVIDERS,
        time_to_headers=LogNormal(1.0, 0.4),
        tokens_per_s=LogNormal(50, 0.3),
        tokens=LogNormal(800, 0.7),
        faults=_rates(
            rate_upstream=0.012, rate_int=0.008, bad_gateway=0.002, error_in_200=0.001,
            empty_with_tokens=0.002, answer_in_reasoning=0.002, leaked_tool_tokens=0.001,
        ),
    ),
    "storm": Scenario(
        latency=LogNormal(0.4, 0.5), limits=Limits(slots=_STORM_SLOTS, retry_after_s=1)
    ),
    "dying-model": Scenario(
        outages=(
            Outage(provider="Fireworks", from_s=2, status=404),
            Outage(provider="Chutes", from_s=3, to_s=4, fault="wrong_model"),
            Outage(provider="BaseTen", from_s=4, status=404),
            Outage(provider="Chutes", from_s=6, status=404),
        )
    ),
    "billing-trap": Scenario(
        speed=20,
        latency=LogNormal(0.4, 0.5),
        faults=_rates(
            stall=0.08, hang=0.01, reset_after_headers=0.05, reset_mid_body=0.05,
            close_without_end=0.05, whitespace_only=0.03, stream_stall=0.05,
        ),
    ),
    "hostile": Scenario(
        speed=20,
        latency=LogNormal(0.4, 0.5),
        faults=MappingProxyType(
            {name: _HOSTILE_RATE for name, fault in FAULTS.items() if fault.in_hostile}
        ),
    ),
    "rpm-600": Scenario(limits=Limits(requests_per_minute=600, burst=10, retry_after_s=2)),
}  # fmt: skip


def load_scenario(path: Path | None, preset: str | None, seed: int | None) -> Scenario:
    """The scenario of a preset, a YAML file and a seed; later ones win, faults one by one.

    Raises:
        ValueError: An unknown preset, key, fault or habit; the message lists the known ones.
    """
    given: dict[str, Any] = (yaml.safe_load(path.read_text("utf-8")) or {}) if path else {}
    name = preset or given.get("preset") or "happy"
    given.pop("preset", None)
    _demand("preset", {name}, PRESETS)
    _demand("scenario keys", given, ["preset", *(field.name for field in fields(Scenario))])
    if seed is not None:
        given["seed"] = seed
    if "faults" in given:
        given["faults"] = {**PRESETS[name].faults, **(given["faults"] or {})}
    return _check(replace(PRESETS[name], **{key: _read(key, given[key]) for key in given}))


def _read(key: str, value: Any) -> Any:
    return _READERS[key](value) if key in _READERS else value


def _check(scenario: Scenario) -> Scenario:
    """Names that do not exist are mistakes of who wrote the file: better now than never."""
    rates = [scenario.faults, *(provider.faults for provider in scenario.providers)]
    forced = {force.fault for force in scenario.force}
    timed = {outage.fault for outage in scenario.outages if outage.fault}
    _demand("faults", {*forced, *timed}.union(*rates), FAULTS)
    hosts = {"*", *(provider.name for provider in scenario.providers)}
    _demand("outage providers", {outage.provider for outage in scenario.outages}, hosts)
    _demand("habits", {h for p in scenario.providers for h in p.habits}, HABITS | HEARING)
    if scenario.speed <= 0:
        raise ValueError(f"speed {scenario.speed} is not above 0")
    if any(sum(rate.values()) > 1 + 1e-9 for rate in rates):
        raise ValueError("the rates of faults exclude each other: their sum is above 1")
    return scenario


def _demand(what: str, given: Any, known: Any) -> None:
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"{what} {unknown}: known are {', '.join(sorted(known))}")


def _faults(value: Any) -> MappingProxyType[str, float]:
    return MappingProxyType({name: float(rate) for name, rate in (value or {}).items()})


def _provider(item: dict[str, Any]) -> Provider:
    keys = ("name", "price", "habit", "slots", "quantization", "requests_per_minute", "faults")
    _demand("provider keys", item, keys)
    habit = item.get("habit") or ()
    price = item.get("price", (0.6, 3.0))
    prices = (price, price) if isinstance(price, int | float) else tuple(price)
    return Provider(
        item["name"], float(prices[0]), float(prices[1]),
        slots=item.get("slots"),
        quantization=item.get("quantization", "int4"),
        habits=(habit,) if isinstance(habit, str) else tuple(habit),
        requests_per_minute=item.get("requests_per_minute"),
        faults=_faults(item.get("faults")),
    )  # fmt: skip


def _log_normal(name: str) -> Callable[[dict[str, Any]], LogNormal]:
    return lambda value: LogNormal(float(value[name]), float(value.get("sigma", 0)))


_READERS: dict[str, Callable[[Any], Any]] = {
    "latency": _log_normal("median_s"),
    "time_to_headers": _log_normal("median_s"),
    "tokens_per_s": _log_normal("median"),
    "tokens": _log_normal("median"),
    "providers": lambda value: tuple(map(_provider, value)),
    "limits": lambda value: Limits(**value),
    "faults": _faults,
    "force": lambda value: tuple(Forced(**item) for item in value),
    "outages": lambda value: tuple(Outage(**item) for item in value),
    "expiration_date": str,
}
