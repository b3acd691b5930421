"""The flags of `run`: declared once, refused where nobody knows them."""

import argparse
import difflib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from transforms.codes import Evidence
from transforms.failures import ConfigError
from transforms.openrouter.wire import DELIVERIES, SOURCES
from transforms.write import FORMATS

OPENROUTER = "https://openrouter.ai/api/v1"


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
    add("--source", choices=tuple(SOURCES), default="openrouter",
        help="Kind of server: openrouter (answers must name the asked model and a provider) or "
             "openai (any server of that API; it is its own provider).")  # fmt: skip
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
        metavar="DIR|gs://BUCKET/PREFIX",
        help="Response store: every answer byte for byte, never paid twice. A bucket may be shared "
        "by hosts (Google's default credentials). Default: OUTPUT.store.",
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
        help="A habits.json to judge by, instead of what collect learned and left in the store's "
        "folder, or in OUTPUT.habits.json on this machine if the store is a bucket.",
    )
    add(
        "--min_evidence",
        choices=[item.value for item in Evidence],
        default="B2",
        help="Weakest evidence of a good sample, from A1 (ids of the server) to C (none).",
    )
    add(
        "--delivery",
        choices=DELIVERIES,
        default="whole",
        help="whole answers, a stream, or auto: a stream where no tools are declared.",
    )
    add(
        "--max_in_flight",
        type=int,
        default=64,
        metavar="N",
        help="Most requests at once, all worker processes together; fewer while the service "
        "refuses for load.",
    )
    add(
        "--requests_per_minute",
        type=float,
        metavar="N",
        help="Most requests a minute, all worker processes of a host together.",
    )
    add(
        "--max_cost_usd",
        type=Decimal,
        metavar="X",
        help="Most that may be spent, what the store's answers cost before included. The run stops "
        "in time with exit code 4; the same command with a higher cap goes on.",
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


class _Collector(argparse.ArgumentParser):
    """Takes the flags of all of Beam's option classes, some of which declare the same one."""

    def add_argument(self, *names: Any, **settings: Any) -> Any:
        try:
            return super().add_argument(*names, **settings)
        except argparse.ArgumentError:
            return None


def refuse_unknown(rest: Sequence[str], ours: Sequence[str]) -> None:
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
