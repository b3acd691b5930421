"""What a simulator run is like: a preset, overridden by a YAML file, overridden by flags."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class LogNormal:
    """A log-normal quantity: its median, and the sigma of its logarithm."""

    median: float
    sigma: float


@dataclass(frozen=True, slots=True)
class Provider:
    """A host of the model; prices in US dollars per million tokens."""

    name: str
    input_price: float
    output_price: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that decides an answer, beside the request.

    Attributes:
        seed: Every decision is a function of it, the body and how often the body was seen.
        speed: Divides every latency.
        latency: Seconds from the request to the end of the answer.
        tokens: Sampled tokens of an answer.
        call_rate: Share of requests with tools that are answered by calls.
        truncate_rate: Share of answers that `max_tokens` is lowered for, so that they are cut.
    """

    seed: int = 0
    speed: float = 1.0
    latency: LogNormal = LogNormal(0.02, 0.5)
    tokens: LogNormal = LogNormal(120, 0.6)
    providers: tuple[Provider, ...] = (
        Provider("Chutes", 0.44, 2.0),
        Provider("Fireworks", 0.6, 3.0),
        Provider("BaseTen", 0.6, 3.0),
    )
    call_rate: float = 0.7
    truncate_rate: float = 0.0


PRESETS = {"happy": Scenario()}


def load_scenario(path: Path | None, preset: str | None, seed: int | None) -> Scenario:
    """The scenario of a preset, a YAML file and a seed; later ones win.

    Raises:
        ValueError: An unknown preset or key; the message lists the known ones.
    """
    given: dict[str, Any] = (yaml.safe_load(path.read_text("utf-8")) or {}) if path else {}
    name = preset or given.pop("preset", "happy")
    if name not in PRESETS:
        raise ValueError(f"preset {name!r} is none of {', '.join(PRESETS)}")
    known = {field.name for field in fields(Scenario)}
    if unknown := sorted(set(given) - known - {"preset"}):
        raise ValueError(f"scenario keys {unknown}: known are preset, {', '.join(sorted(known))}")
    given.pop("preset", None)
    if seed is not None:
        given["seed"] = seed
    return replace(PRESETS[name], **{key: _read(key, value) for key, value in given.items()})


def _read(key: str, value: Any) -> Any:
    if key == "latency":
        return LogNormal(float(value["median_s"]), float(value.get("sigma", 0)))
    if key == "tokens":
        return LogNormal(float(value["median"]), float(value.get("sigma", 0)))
    if key == "providers":
        return tuple(
            Provider(item["name"], *map(float, item.get("price", (0.6, 3.0)))) for item in value
        )
    return value
