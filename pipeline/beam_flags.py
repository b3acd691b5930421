"""The flags of Beam and of its runners: which there are, and how many processes they declare."""

import argparse
import difflib
from collections.abc import Sequence
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from transforms.failures import ConfigError


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


def _add_beam_flags(options: Any, parser: argparse.ArgumentParser) -> None:
    for child in options.__subclasses__():
        if "_add_argparse_args" in child.__dict__:
            child._add_argparse_args(parser)  # noqa: SLF001 - how Beam itself collects them
        _add_beam_flags(child, parser)
