"""Flags -> one frozen RunConfig, checked once."""

import argparse
import difflib
import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from transforms.chat.profile import ModelProfile, load_profile
from transforms.failures import ConfigError
from transforms.openrouter.client import CallConfig
from transforms.openrouter.wire import Sampling
from transforms.read_prompts import InputFile
from transforms.records import Evidence
from transforms.write import FORMATS

OPENROUTER = "https://openrouter.ai/api/v1"
LOCAL_RUNNER = "FnApiRunner"
_LOCAL_NAMES = frozenset({"DirectRunner", "SwitchingDirectRunner", LOCAL_RUNNER})
"""Beam's DirectRunner tries to download an engine first; all three mean this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything that a run depends on.

    Attributes:
        run_id: Names this run's folder, and its attempts in the store.
        output: Absolute folder that the finished output is renamed to.
        spread: True on a cluster: prompts cross one shuffle behind the reader.
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
    beam_arguments: tuple[str, ...]

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
            "formats": list(self.formats),
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `run`."""
    add = parser.add_argument
    add("--input", required=True, metavar="[LABEL=]GLOB,…",
        help="Prompt files: paths or globs, comma-separated, each optionally LABEL=GLOB. JSON "
             "lines with messages (and tools), ShareGPT conversations, or prompt; gzip is found "
             "by content.")  # fmt: skip
    add(
        "--output",
        required=True,
        metavar="DIR",
        help="Folder of the result; appears whole, by one rename, when the run is complete.",
    )
    add("--runner", default="DirectRunner",
        help="DirectRunner (this machine), FlinkRunner, DataflowRunner, PortableRunner. Flags of "
             "Beam and of the runner may follow.")  # fmt: skip
    add(
        "--profile",
        default="kimi-k2.5",
        metavar="NAME|PATH",
        help="The model's profile: a name in templates/models or the path of a TOML file.",
    )
    add("--tokenizer", metavar="DIR|hf://REPO@REVISION",
        help="Where the tokenizer's files are, instead of the profile's own source; the profile's "
             "checksum and golden vectors still hold.")  # fmt: skip
    add("--model", metavar="SLUG", help="Model to ask for; default: the profile's.")
    add(
        "--base_url",
        default=OPENROUTER,
        metavar="URL",
        help="Where to POST /chat/completions: OpenRouter, or any server that speaks its API.",
    )
    add(
        "--api_key",
        default="env:OPENROUTER_API_KEY",
        metavar="REFERENCE",
        help="Where the key is: env:NAME, file:PATH, or none. Never the key itself.",
    )
    add(
        "--store",
        metavar="DIR",
        help="Response store: every answer byte for byte, never paid twice. Default: OUTPUT.store.",
    )
    add(
        "--job",
        choices=("all", "collect", "build"),
        default="all",
        help="collect asks and stores; build makes the output from the store and sends nothing.",
    )
    add(
        "--habits",
        metavar="FILE",
        help="A habits.json to judge by, instead of what this run's answers show.",
    )
    add(
        "--min_evidence",
        choices=[item.value for item in Evidence],
        default="B2",
        help="Weakest evidence of a good sample, from A1 (ids of the server) to C (none).",
    )
    add(
        "--max_in_flight",
        type=int,
        default=64,
        metavar="N",
        help="Most requests at once, a worker process.",
    )
    add("--max_tokens", type=int, default=16384, metavar="N", help="Longest answer, in tokens.")
    add("--temperature", type=float, metavar="X", help="Not sent unless given.")
    add("--top_p", type=float, metavar="X", help="Not sent unless given.")
    add("--seed", type=int, metavar="N", help="Not sent unless given.")
    add(
        "--extra_body",
        default="{}",
        metavar="JSON",
        help='Further fields of every request, as {"provider": {"only": ["chutes"]}}.',
    )
    add(
        "--formats",
        default="parquet,tfrecord",
        metavar="NAME,…",
        help=f"Formats of the samples: any of {', '.join(FORMATS)}.",
    )
    add(
        "--max_bad_ratio",
        type=float,
        default=0.5,
        metavar="X",
        help="Exit with 3 if more than this share of the prompts did not become samples.",
    )
    add(
        "--overwrite",
        action="store_true",
        help="Replace an output that was made with another configuration.",
    )


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
    _refuse_unknown(rest, list(parser._option_string_actions))  # noqa: SLF001
    return _configure(flags, tuple(rest))


def _configure(flags: argparse.Namespace, rest: tuple[str, ...]) -> RunConfig:
    _check_numbers(flags)
    profile = load_profile(flags.profile, flags.tokenizer)
    output = absolute(flags.output)
    run_id = uuid.uuid4().hex[:12]
    local = flags.runner in _LOCAL_NAMES
    runner = LOCAL_RUNNER if local else flags.runner
    return RunConfig(
        run_id=run_id,
        files=_find_files(flags.input),
        output=output,
        overwrite=flags.overwrite,
        profile=profile,
        call=CallConfig(
            base_url=flags.base_url,
            api_key=flags.api_key,
            store=absolute(flags.store) if flags.store else f"{output}.store",
            run_id=run_id,
            max_in_flight=flags.max_in_flight,
            max_tokens=flags.max_tokens,
            send=True,
        ),
        sampling=Sampling(
            model=flags.model or profile.model,
            max_tokens=flags.max_tokens,
            temperature=flags.temperature,
            top_p=flags.top_p,
            seed=flags.seed,
            extra=_read_extra(flags.extra_body, profile),
        ),
        job=flags.job,
        habits=absolute(flags.habits) if flags.habits else None,
        min_evidence=Evidence(flags.min_evidence),
        formats=_read_formats(flags.formats),
        max_bad_ratio=flags.max_bad_ratio,
        spread=not local or any("direct_num_workers" in argument for argument in rest),
        beam_arguments=(f"--runner={runner}", *rest),
    )


def _check_numbers(flags: argparse.Namespace) -> None:
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


def _read_extra(text: str, profile: ModelProfile) -> str:
    try:
        extra = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--extra_body {text}: not JSON: {error}") from error
    if not isinstance(extra, dict):
        raise ConfigError(f'--extra_body {text}: give an object, as {{"top_k": 40}}')
    return json.dumps(profile.request | extra, ensure_ascii=False)


def _find_files(patterns: str) -> tuple[InputFile, ...]:
    """Every file once, in order; the last label given to it counts."""
    found: dict[str, str] = {}
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        label, given, glob = pattern.partition("=")
        if not given or "/" in label:
            label, glob = "", pattern
        matches = sorted(meta.path for meta in FileSystems.match([absolute(glob)])[0].metadata_list)
        if not matches:
            raise ConfigError(f"--input {glob}: no such file ({absolute(glob)})")
        found |= {path: label or _stem(path) for path in matches}
    if not found:
        raise ConfigError("--input is empty: name at least one file")
    return tuple(InputFile(path, dataset) for path, dataset in found.items())


def _stem(path: str) -> str:
    name = path.rsplit("/", 1)[-1]
    return name.split(".", 1)[0] or name


def absolute(path: str) -> str:
    """The path as it means the same on every worker; `scheme://` is left alone."""
    return path if "://" in path else os.path.abspath(Path(path).expanduser())  # noqa: PTH100


class _Collector(argparse.ArgumentParser):
    """Takes the flags of all of Beam's option classes, some of which declare the same one."""

    def add_argument(self, *names: Any, **settings: Any) -> Any:
        try:
            return super().add_argument(*names, **settings)
        except argparse.ArgumentError:
            return None


def _refuse_unknown(rest: Sequence[str], ours: Sequence[str]) -> None:
    """Beam only warns of a flag that it does not know, and runs without what was meant."""
    parser = _Collector(allow_abbrev=False, add_help=False)
    _add_beam_flags(PipelineOptions, parser)
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        action.required = False
    unknown = parser.parse_known_args(list(rest))[1]
    if not unknown:
        return
    name = unknown[0].partition("=")[0]
    known = [*ours, *parser._option_string_actions]  # noqa: SLF001
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else "; see --help"
    raise ConfigError(f"unknown argument {unknown[0]}{hint}")


def _add_beam_flags(options: Any, parser: argparse.ArgumentParser) -> None:
    for child in options.__subclasses__():
        if "_add_argparse_args" in child.__dict__:
            child._add_argparse_args(parser)  # noqa: SLF001 - how Beam itself collects them
        _add_beam_flags(child, parser)
