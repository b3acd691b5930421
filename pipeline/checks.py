"""Flags that cannot be meant are refused before anything is done."""

import argparse
import hashlib
from pathlib import Path
from urllib.parse import urlsplit

from apache_beam.runners.runner import create_runner

from transforms.chat.profile import ModelProfile, all_special_ids
from transforms.encoding.formats import FORMATS, SELF_TOLD
from transforms.failures import ConfigError
from transforms.openrouter.open_store import GCS
from transforms.openrouter.source import OPENROUTER, Source

_HUGE = 10**9


def check_flags(flags: argparse.Namespace, source: Source) -> None:
    """Refuses values that cannot be meant.

    Raises:
        ConfigError: The first of them.
    """
    if flags.output is None and not flags.explain_input:
        raise ConfigError("--output is missing: name the folder of the result")
    _check_numbers(flags)
    _check_source(flags, source)
    _check_url(flags.base_url or source.base_url or "")
    _check_runner(flags.runner)
    _check_places(flags.output or "", flags.store or "")


def read_formats(names: str, profile: ModelProfile) -> tuple[str, ...]:
    """The formats of `--formats`, each once.

    Raises:
        ConfigError: None, or one that there is not, or that this model has no way to.
    """
    formats = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ConfigError(f"--formats {names}: {unknown or 'none'}; choose of {', '.join(FORMATS)}")
    if not set(formats) & set(SELF_TOLD):
        raise ConfigError(f"--formats {names}: add one of {', '.join(SELF_TOLD)}: they say it all")
    for name in formats:
        if missing := sorted(FORMATS[name].needs - set(profile.special_tokens)):
            raise ConfigError(f"--formats {name}: --profile {profile.name} has no {missing[0]}")
    return formats


def read_draft_size(size: int | None, profile: ModelProfile) -> int | None:
    """The number of ids of `--draft_vocab_size`.

    Raises:
        ConfigError: It has no room for the special ones, or the model has no more.
    """
    least, most = len(all_special_ids(profile)), profile.tokenizer.vocabulary
    if size is not None and not least <= size <= most:
        raise ConfigError(
            f"--draft_vocab_size {size}: from {least} (the special ids, always there) to {most}"
        )
    return size


def digest_of(habits: str | None) -> str | None:
    """SHA-256 of the file of `--habits`.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return habits and hashlib.sha256(Path(habits).read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"--habits {habits}: {error}") from error


def _check_source(flags: argparse.Namespace, source: Source) -> None:
    if not (flags.base_url or source.base_url):
        raise ConfigError(f"--source {source.name}: say with --base_url where the server is")
    if flags.max_cost_usd is not None and not source.tells_cost:
        raise ConfigError(
            f"--max_cost_usd: answers of --source {source.name} tell no cost; leave the flag out"
        )


def _check_places(output: str, store: str) -> None:
    if "://" in output:
        raise ConfigError(f"--output {output}: only local folders are supported yet")
    if "://" in store and not store.startswith(GCS):
        raise ConfigError(f"--store {store}: give a local folder or gs://BUCKET/PREFIX")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no port
        usable = False
    if not usable:
        raise ConfigError(f"--base_url {url}: not an address; give one as {OPENROUTER.base_url}")


def _check_runner(runner: str) -> None:
    try:
        create_runner(runner)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"--runner {runner}: {error}") from error


def _check_numbers(flags: argparse.Namespace) -> None:
    for name, most in (("temperature", 2), ("top_p", 1)):
        value = getattr(flags, name)
        if value is not None and not 0 <= value <= most:
            raise ConfigError(f"--{name} {value}: a number from 0 to {most}")
    for name in ("requests_per_minute", "max_cost_usd"):
        value = getattr(flags, name)
        if value is not None and not 0 < value < _HUGE:
            raise ConfigError(f"--{name} {value}: a number above 0")
    for name in ("max_in_flight", "max_tokens", "limit", "max_prompt_tokens", "samples_per_prompt"):
        value = getattr(flags, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name} {value}: must be 1 or more")
    for name, most in (("max_tokens", _HUGE), ("samples_per_prompt", _HUGE), ("seed", _HUGE**2)):
        if abs(getattr(flags, name) or 0) > most:
            raise ConfigError(f"--{name} {getattr(flags, name)}: must be {most} or less")
    if not 0 <= flags.max_bad_ratio <= 1:
        raise ConfigError(f"--max_bad_ratio {flags.max_bad_ratio}: a share, from 0 to 1")
