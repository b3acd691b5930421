"""The hosts of a model as the service lists them, and which of them a request leaves."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

HOST_FLAGS = {
    "only": "provider_only",
    "ignore": "provider_ignore",
    "quantizations": "quantizations",
    "max_price": "max_price",
}
"""Keys of the `provider` object that leave hosts out -> the flag that sets each."""
_PARAMETERS = frozenset({
    "max_tokens", "temperature", "top_p", "top_k", "top_a", "min_p", "seed", "frequency_penalty",
    "presence_penalty", "repetition_penalty", "logprobs", "top_logprobs", "reasoning",
    "include_reasoning", "reasoning_effort", "verbosity",
})  # fmt: skip
"""What the service lists of each host, if the host takes it; without it the field is dropped."""
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host of a model.

    Attributes:
        tag: Its slug, and behind a slash the variant of this endpoint: `deepinfra/fp4`.
        max_tokens: Longest answer that it allows; `None` if it does not say.
        prompt_usd, completion_usd: US dollars a token; `None` if it does not say.
        parameters: Fields of a request that it does not pass over; `None` if it does not say.
    """

    tag: str
    name: str
    quantization: str
    max_tokens: int | None
    prompt_usd: Decimal | None
    completion_usd: Decimal | None
    parameters: frozenset[str] | None

    @property
    def slug(self) -> str:
        """What every endpoint of it is called."""
        return self.tag.partition("/")[0]

    def is_called(self, name: str) -> bool:
        """`deepinfra` is every endpoint of it, `deepinfra/fp4` one; its title will do."""
        names = {self.tag, self.slug, self.name}
        return _plain(name) in {_plain(known) for known in names}

    def __str__(self) -> str:
        prices = (self.prompt_usd, self.completion_usd)
        shown = "/".join("?" if usd is None else f"{usd * _MILLION:.2f}" for usd in prices)
        return f"{self.tag} ({self.quantization}, ${shown})"


def list_hosts(reply: Any) -> tuple[Host, ...] | None:
    """The hosts of `/models/MODEL/endpoints`; `None` if the reply is no such list."""
    endpoints = as_dict(as_dict(reply).get("data")).get("endpoints")
    if not isinstance(endpoints, list):
        return None
    return tuple(_host(as_dict(endpoint)) for endpoint in endpoints)


def leave_out(hosts: tuple[Host, ...], wishes: dict[str, Any]) -> tuple[tuple[Host, ...], str]:
    """The hosts that a `provider` object leaves, and the flag that left none."""
    for key, keeps in _KEEPS.items():
        wanted = wishes.get(key)
        if wanted and hosts:
            hosts = tuple(host for host in hosts if keeps(host, wanted))
            if not hosts:
                return (), f"--{HOST_FLAGS[key]} {_shown(wanted)}"
    return hosts, ""


def is_pinned(wishes: dict[str, Any]) -> bool:
    """Whether a `provider` object names the hosts that may answer: they are not changed."""
    return bool(wishes.get("only")) or wishes.get("allow_fallbacks") is False


def others_than(names: frozenset[str], hosts: tuple[Host, ...]) -> tuple[str, ...]:
    """Slugs to leave out of a request so that another host answers; none if there is no other."""
    shunned = {host.slug for host in hosts if any(host.is_called(name) for name in names)}
    left = {host.slug for host in hosts} - shunned
    return tuple(sorted(shunned)) if left else ()


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def nobody_takes(hosts: tuple[Host, ...], fields: tuple[str, ...]) -> str | None:
    """The first of a request's fields that every host would pass over."""
    for name in fields:
        known = [host.parameters for host in hosts if host.parameters is not None]
        if name in _PARAMETERS and len(known) == len(hosts) and not any(name in k for k in known):
            return name
    return None


def _is_affordable(host: Host, most: Any) -> bool:
    prices = {"prompt": host.prompt_usd, "completion": host.completion_usd}
    caps = {name: _decimal(cap) for name, cap in as_dict(most).items() if name in prices}
    pairs = ((prices[name], cap) for name, cap in caps.items())
    return all(None in (usd, cap) or usd * _MILLION <= cap for usd, cap in pairs)  # type: ignore[operator]


_KEEPS: dict[str, Callable[[Host, Any], bool]] = {
    "only": lambda host, names: any(host.is_called(str(name)) for name in as_list(names)),
    "ignore": lambda host, names: not any(host.is_called(str(name)) for name in as_list(names)),
    "quantizations": lambda host, names: host.quantization in as_list(names),
    "max_price": _is_affordable,
}


def _host(endpoint: dict[str, Any]) -> Host:
    pricing = as_dict(endpoint.get("pricing"))
    cap = endpoint.get("max_completion_tokens")
    name = str(endpoint.get("provider_name"))
    known = endpoint.get("supported_parameters")
    return Host(
        tag=str(endpoint.get("tag") or name),
        name=name,
        quantization=str(endpoint.get("quantization") or "unknown"),
        max_tokens=cap if isinstance(cap, int) else None,
        prompt_usd=_decimal(pricing.get("prompt")),
        completion_usd=_decimal(pricing.get("completion")),
        parameters=frozenset(map(str, known)) if isinstance(known, list) else None,
    )


def _decimal(value: Any) -> Decimal | None:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter == "/")


def _shown(wanted: Any) -> str:
    values = wanted.values() if isinstance(wanted, dict) else as_list(wanted)
    return ",".join(str(value) for value in values)
