"""The flags that choose among a service's hosts -> the `provider` object of a request."""

import argparse
from typing import Any

from transforms.failures import ConfigError
from transforms.openrouter.catalogue import HOST_FLAGS
from transforms.openrouter.source import Source


def read_hosts(flags: argparse.Namespace, source: Source) -> dict[str, Any]:
    """The `provider` object that the flags ask for; empty if none is given.

    Raises:
        ConfigError: A value that cannot be meant, or a source that has no hosts to choose from.
    """
    given = {key: name for key, name in HOST_FLAGS.items() if getattr(flags, name) is not None}
    if given and not source.has_catalogue:
        name = next(iter(given.values()))
        raise ConfigError(
            f"--{name}: --source {source.name} has no hosts to choose from; leave the flag out"
        )
    return {key: _READ.get(key, _read_names)(name, getattr(flags, name))
            for key, name in given.items()} | _pin(given)  # fmt: skip


def merge_hosts(extra: dict[str, Any], hosts: dict[str, Any]) -> dict[str, Any]:
    """The body's further fields, with the flags' `provider` object in them.

    Raises:
        ConfigError: A flag and `--extra_body` say the same.
    """
    if not hosts:
        return extra
    said = extra.get("provider", {})
    for key in hosts:
        if key in said:
            flag = HOST_FLAGS.get(key, HOST_FLAGS["only"])
            raise ConfigError(f"--{flag} and provider.{key} of --extra_body say the same: keep one")
    return extra | {"provider": said | hosts}


def _pin(given: dict[str, str]) -> dict[str, Any]:
    """Who names the hosts wants an error of theirs as it is, not another host's answer."""
    return {"allow_fallbacks": False} if "only" in given else {}


def _read_names(flag: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"--{flag} {text!r}: name at least one")
    return names


def _read_prices(flag: str, text: str) -> dict[str, float]:
    try:
        prompt, completion = (float(part) for part in text.split(","))
    except ValueError:
        prompt = completion = -1
    if not (prompt >= 0 and completion >= 0):
        raise ConfigError(
            f"--{flag} {text}: give PROMPT,COMPLETION in US dollars per million tokens, as 0.6,2.6"
        )
    return {"prompt": prompt, "completion": completion}


_READ = {"max_price": _read_prices}
