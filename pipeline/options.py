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

from pipeline.beam_flags import refuse_unknown, worker_processes
from pipeline.checks import check_flags, digest_of, read_draft_size, read_formats
from pipeline.extra_body import read_extra_body
from pipeline.flags import add_arguments
from pipeline.hosts import read_hosts
from pipeline.inputs import absolute, find_files
from transforms.chat.profile import ModelProfile, load_profile
from transforms.chat.settings import thinking_is_off
from transforms.codes import Evidence
from transforms.openrouter.call_config import CallConfig
from transforms.openrouter.open_store import GCS
from transforms.openrouter.sender import Wire
from transforms.openrouter.source import SOURCES
from transforms.openrouter.wire import Sampling
from transforms.prompts.asking import Turns
from transforms.read_prompts import InputFile, ReadSettings

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
        loss_mask: Dialect of the masks that are written.
        draft_vocab_size: Ids of the drafter; `None`: no maps are made.
        habits_sha256: Of the file that `habits` names.
        limit, shuffle_seed: Which records are read, and in which order.
        dry_run, explain_input: Only say what would be done, or how the input is read.
        beam_arguments: What is left for Beam, the runner included.
    """

    run_id: str
    files: tuple[InputFile, ...]
    limit: int | None
    shuffle_seed: int | None
    reading: ReadSettings
    output: str
    overwrite: bool
    profile: ModelProfile
    call: CallConfig
    sampling: Sampling
    job: str
    habits: str | None
    min_evidence: Evidence
    formats: tuple[str, ...]
    loss_mask: str
    draft_vocab_size: int | None
    habits_sha256: str | None
    max_bad_ratio: float
    spread: bool
    processes: int
    dry_run: bool
    explain_input: bool
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
            "prompt_field": self.reading.prompt_field,
            "limit": self.limit,
            "shuffle_seed": self.shuffle_seed,
            "dedup": "content" if self.reading.by_content else "id",
            "max_prompt_tokens": self.reading.max_tokens,
            "turns": self.reading.turns.value,
            "samples_per_prompt": self.reading.samples,
            "profile": self.profile.name,
            "profile_sha256": self.profile.sha256,
            "source": self.sampling.source.name,
            "model": self.sampling.model,
            "max_tokens": self.sampling.max_tokens,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seed": self.sampling.seed,
            "extra_body": json.loads(self.sampling.extra),
            "min_evidence": self.min_evidence.value,
            "delivery": self.sampling.delivery,
            "escape_special_text": self.sampling.escapes_special_text,
            "formats": list(self.formats),
            "loss_mask": self.loss_mask,
            "draft_vocab_size": self.draft_vocab_size,
            "habits_sha256": self.habits_sha256,
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
    check_flags(flags, SOURCES[flags.source])
    profile = load_profile(flags.profile, flags.tokenizer)
    sampling = _sampling_of(flags, profile)
    output = os.path.realpath(absolute(flags.output or ""))
    run_id = uuid.uuid4().hex[:12]
    local = flags.runner.lower() in _LOCAL_NAMES
    processes = worker_processes(rest)
    runner = LOCAL_RUNNER if local else flags.runner
    return RunConfig(
        run_id=run_id,
        files=find_files(flags.input),
        limit=flags.limit,
        shuffle_seed=flags.shuffle_seed,
        reading=_reading_of(flags, profile),
        output=output,
        overwrite=flags.overwrite,
        profile=profile,
        call=_call_of(flags, sampling, output, run_id, processes),
        sampling=sampling,
        job=flags.job,
        habits=absolute(flags.habits) if flags.habits else None,
        min_evidence=Evidence(flags.min_evidence),
        formats=read_formats(flags.formats, profile),
        loss_mask=flags.loss_mask,
        draft_vocab_size=read_draft_size(flags.draft_vocab_size, profile),
        habits_sha256=digest_of(flags.habits),
        max_bad_ratio=flags.max_bad_ratio,
        spread=not local or processes > 1,
        processes=processes,
        dry_run=flags.dry_run,
        explain_input=flags.explain_input,
        beam_arguments=(f"--runner={runner}", *rest),
    )


def _reading_of(flags: argparse.Namespace, profile: ModelProfile) -> ReadSettings:
    return ReadSettings(
        prompt_field=flags.prompt_field,
        by_content=flags.dedup == "content",
        max_tokens=flags.max_prompt_tokens,
        profile=profile,
        turns=Turns(flags.turns),
        samples=flags.samples_per_prompt,
    )


def _call_of(
    flags: argparse.Namespace, sampling: Sampling, output: str, run_id: str, processes: int
) -> CallConfig:
    """How a process calls: its share of what the flags allow all together."""
    source = sampling.source
    extra = json.loads(sampling.extra)
    wire = Wire(
        base_url=flags.base_url or source.base_url or "",
        api_key=flags.api_key or source.api_key,
        model=sampling.model,
        max_tokens=sampling.max_tokens,
        source=source,
        hosts=json.dumps(extra.get("provider", {})),
        fields=(*sampling.limits(), *extra),
        thinks=not thinking_is_off(sampling.extra),
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
    source = SOURCES[flags.source]
    return Sampling(
        model=flags.model or profile.model,
        max_tokens=flags.max_tokens,
        temperature=flags.temperature,
        top_p=flags.top_p,
        seed=flags.seed,
        extra=read_extra_body(flags.extra_body, profile, source, read_hosts(flags, source)),
        source=source,
        delivery=flags.delivery,
        escapes_special_text=flags.escape_special_text,
    )
