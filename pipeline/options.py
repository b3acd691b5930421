"""Flags -> one frozen RunConfig, checked once."""

import argparse
import json
import math
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from apache_beam.runners.runner import create_runner

from pipeline.extra_body import read_extra_body
from pipeline.flags import OPENROUTER, add_arguments, refuse_unknown
from pipeline.inputs import absolute, find_files
from transforms.chat.profile import ModelProfile, load_profile
from transforms.failures import ConfigError
from transforms.openrouter.client import CallConfig
from transforms.openrouter.open_store import GCS
from transforms.openrouter.sender import Wire
from transforms.openrouter.wire import SOURCES, Sampling
from transforms.read_prompts import InputFile
from transforms.records import Evidence
from transforms.write import FORMATS

_HUGE = 10**9
LOCAL_RUNNER = "FnApiRunner"
_LOCAL_NAMES = frozenset({"directrunner", "switchingdirectrunner", LOCAL_RUNNER.lower()})
"""Beam's DirectRunner tries to download an engine first; all three mean this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything that a run depends on.

    Attributes:
        run_id: Names this run's folder, and its attempts in the store.
        output: Absolute folder that the finished output is renamed to.
        spread: True on a cluster: prompts cross one shuffle behind the reader.
        processes: Worker processes that the flags declare; limits are shared among them.
        beam_arguments: What is left for Beam, the runner included.
    """

    run_id: str
    files: tuple[InputFile, ...]
    output: str
    overwrite: bool
    profile: ModelProfile
    call: CallConfig
    sampling: Sampling
    job: str
    habits: str | None
    min_evidence: Evidence
    formats: tuple[str, ...]
    max_bad_ratio: float
    spread: bool
    processes: int
    beam_arguments: tuple[str, ...]

    @property
    def learned_habits_file(self) -> Path:
        """In the store's folder; beside the output, on this machine, if the store is a bucket."""
        if self.call.store.startswith(GCS):
            return Path(f"{self.output}.habits.json")
        return Path(self.call.store) / "habits.json"

    @property
    def call_from_store(self) -> CallConfig:
        return replace(self.call, send=False)

    def identity(self) -> dict[str, Any]:
        """What makes two outputs the same data set; not how fast or where it was made."""
        return {
            "input": [[file.dataset, file.path] for file in self.files],
            "profile": self.profile.name,
            "profile_sha256": self.profile.sha256,
            "model": self.sampling.model,
            "max_tokens": self.sampling.max_tokens,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seed": self.sampling.seed,
            "extra_body": json.loads(self.sampling.extra),
            "min_evidence": self.min_evidence.value,
            "delivery": self.sampling.delivery,
            "formats": list(self.formats),
        }


def read_options(argv: Sequence[str]) -> RunConfig:
    """The configuration that the flags say.

    Raises:
        ConfigError: A value that cannot be meant, or a flag that nobody knows.
    """
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.main run",
        description="Asks a model every prompt and writes the exact token ids of its answers.",
        allow_abbrev=False,
    )
    add_arguments(parser)
    flags, rest = parser.parse_known_args(argv)
    refuse_unknown(rest, list(parser._option_string_actions))  # noqa: SLF001
    return _configure(flags, tuple(rest))


def _configure(flags: argparse.Namespace, rest: tuple[str, ...]) -> RunConfig:
    _check_numbers(flags)
    _check_url(flags.base_url)
    _check_runner(flags.runner)
    _check_places(flags.output, flags.store or "")
    profile = load_profile(flags.profile, flags.tokenizer)
    output = os.path.realpath(absolute(flags.output))
    run_id = uuid.uuid4().hex[:12]
    local = flags.runner.lower() in _LOCAL_NAMES
    processes = worker_processes(rest)
    runner = LOCAL_RUNNER if local else flags.runner
    return RunConfig(
        run_id=run_id,
        files=find_files(flags.input),
        output=output,
        overwrite=flags.overwrite,
        profile=profile,
        call=_call_of(flags, profile, output, run_id, processes),
        sampling=_sampling_of(flags, profile),
        job=flags.job,
        habits=absolute(flags.habits) if flags.habits else None,
        min_evidence=Evidence(flags.min_evidence),
        formats=_read_formats(flags.formats),
        max_bad_ratio=flags.max_bad_ratio,
        spread=not local or processes > 1,
        processes=processes,
        beam_arguments=(f"--runner={runner}", *rest),
    )


def _call_of(
    flags: argparse.Namespace, profile: ModelProfile, output: str, run_id: str, processes: int
) -> CallConfig:
    """How a process calls: its share of what the flags allow all together."""
    wire = Wire(
        base_url=flags.base_url,
        api_key=flags.api_key,
        model=flags.model or profile.model,
        max_tokens=flags.max_tokens,
        source=SOURCES[flags.source],
    )
    return CallConfig(
        wire=wire,
        store=absolute(flags.store) if flags.store else f"{output}.store",
        run_id=run_id,
        max_in_flight=math.ceil(flags.max_in_flight / processes),
        requests_per_minute=flags.requests_per_minute,
        max_cost_usd=None if flags.max_cost_usd is None else flags.max_cost_usd / processes,
        has_peers=processes > 1,
    )


def _sampling_of(flags: argparse.Namespace, profile: ModelProfile) -> Sampling:
    return Sampling(
        model=flags.model or profile.model,
        max_tokens=flags.max_tokens,
        temperature=flags.temperature,
        top_p=flags.top_p,
        seed=flags.seed,
        extra=read_extra_body(flags.extra_body, profile),
        source=SOURCES[flags.source],
        delivery=flags.delivery,
    )


def worker_processes(beam_arguments: Sequence[str]) -> int:
    """How many processes the flags of Beam and of the runner declare, at most.

    >>> worker_processes(["--parallelism=2", "--sdk_worker_parallelism", "4"])
    8
    """
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    for name in ("direct_num_workers", "parallelism", "sdk_worker_parallelism", "num_workers",
                 "max_num_workers"):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=1)
    found = parser.parse_known_args(list(beam_arguments))[0]
    workers = max(found.parallelism, found.num_workers, found.max_num_workers, 1)
    return max(1, found.direct_num_workers, workers * max(1, found.sdk_worker_parallelism))


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
        raise ConfigError(f"--base_url {url}: not an address; give one as {OPENROUTER}")


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
    for name in ("max_in_flight", "max_tokens"):
        if getattr(flags, name) < 1:
            raise ConfigError(f"--{name} {getattr(flags, name)}: must be 1 or more")
    if not 0 <= flags.max_bad_ratio <= 1:
        raise ConfigError(f"--max_bad_ratio {flags.max_bad_ratio}: a share, from 0 to 1")


def _read_formats(names: str) -> tuple[str, ...]:
    formats = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ConfigError(f"--formats {names}: {unknown or 'none'}; choose of {', '.join(FORMATS)}")
    return formats
