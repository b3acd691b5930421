"""Sub-command `check`: a profile against its tokenizer, published vectors and chat template."""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from transforms.chat.carriers import find_files
from transforms.chat.chat_template import find_template, read_text
from transforms.chat.checking import Result, Subject, check_profile
from transforms.chat.profile import Vector, load_profile
from transforms.failures import ConfigError

WRONG_PROFILE = 6


def run(argv: Sequence[str]) -> int:
    """Prints one line a check; 0 if none fails.

    Raises:
        ConfigError: The profile, or a file that it is checked with, cannot be read.
    """
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.main check",
        description="Checks a profile against its tokenizer, golden vectors and the model's chat "
        f"template; one line a check. Exit code {WRONG_PROFILE}: a check failed.",
        allow_abbrev=False,
    )
    add_arguments(parser)
    flags = parser.parse_args(argv)
    profile = load_profile(flags.profile, flags.tokenizer)
    own = find_template(find_files(profile.tokenizer))
    subject = Subject(
        profile=profile,
        vectors=_read_vectors(flags.vectors) if flags.vectors else (),
        template=read_text(flags.template) if flags.template else own,
    )
    failed = False
    for finding in check_profile(subject):
        print(f"{finding.result:<12} {finding.name:<15} {finding.detail}".replace("\n", " "))
        failed |= finding.result is Result.FAILED
    return WRONG_PROFILE if failed else 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `check`."""
    add = parser.add_argument
    add("--profile", default="kimi-k2.5", metavar="NAME|PATH",
        help="A name in templates/models, or the path of a TOML file or its folder.")  # fmt: skip
    add("--tokenizer", metavar="DIR|hf://REPO@REVISION",
        help="Where the tokenizer's files are, instead of the profile's own source.")  # fmt: skip
    add("--vectors", type=Path, metavar="FILE",
        help="More golden vectors: JSON with lists of objects that have text and ids; special "
             "literals in a text are the tokens.")  # fmt: skip
    add("--template", type=Path, metavar="FILE.jinja",
        help="The model's chat template. Default: the one beside the tokenizer's files, if there "
             "is one.")  # fmt: skip


def _read_vectors(path: Path) -> tuple[Vector, ...]:
    try:
        read = json.loads(read_text(path))
        rows = [{"text": row["text"], "ids": row["ids"]} for rows in _lists(read) for row in rows]
        vectors = msgspec.convert(rows, tuple[Vector, ...])
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise ConfigError(f"--vectors {path}: no lists of texts and ids: {error}") from error
    if not vectors:
        raise ConfigError(f"--vectors {path}: no list of texts and ids")
    return vectors


def _lists(read: Any) -> Iterator[list[Any]]:
    for value in [read, *(read.values() if isinstance(read, dict) else ())]:
        if isinstance(value, list):
            yield value
