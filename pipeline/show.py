"""Sub-command `show`: one sample as text, special tokens marked with position and id."""

import argparse
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.output import MANIFEST
from pipeline.samples import read_json_lines, read_samples
from transforms.chat.profile import ModelProfile, all_special_ids
from transforms.chat.tokens import Tokenizer, load_tokenizer
from transforms.failures import ConfigError

_STYLES = {False: "dim", True: "bold"}
"""Of ordinary text: prompt, sampled."""
_SPECIAL_STYLES = {False: "dim cyan", True: "black on cyan"}


def run(argv: Sequence[str]) -> int:
    """Prints the row of an id.

    Raises:
        ConfigError: The folder is no output, or has no such id.
    """
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.main show",
        description="Prints one row of an output: the prompt's tokens dim, the trained ones bold, "
        "each special token as literal@position=id, then a table of the special tokens.",
        allow_abbrev=False,
    )
    parser.add_argument("output", type=Path, help="folder of a finished run")
    parser.add_argument("--id", help="id of a sample or a rejection; default: the first sample")
    flags = parser.parse_args(argv)
    profile = _profile(flags.output)
    console = Console(highlight=False, soft_wrap=True)
    for row in _find(flags.output, flags.id):
        _print(row, profile, console)
    return 0


def _profile(output: Path) -> ModelProfile:
    try:
        manifest = msgspec.json.decode((output / MANIFEST).read_bytes())
        return msgspec.convert(manifest["profile"], ModelProfile)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{output}: not an output of this program: {error}") from error


def _find(output: Path, wanted: str | None) -> list[dict[str, Any]]:
    """The first sample, or every row of an id: a duplicate has a sample and rejections."""
    samples = read_samples(output)
    if wanted is None:
        found = list(itertools.islice(samples, 1))
    else:
        rejected = (row | row["rejection"] for row in read_json_lines(output / "rejections"))
        found = [row for row in itertools.chain(samples, rejected) if row["id"] == wanted]
    if not found:
        raise ConfigError(f"{output}: " + ("no sample" if wanted is None else f"no row {wanted!r}"))
    return found


def _print(row: dict[str, Any], profile: ModelProfile, console: Console) -> None:
    for name, value in row.items():
        if name not in _LONG and value not in (None, []):
            console.print(Text(_readable(f"{name:<18}{value}")))
    ids: list[int] = row.get("input_ids") or []
    if not ids:
        console.print(Text(_readable(row.get("raw") or str(row.get("messages")))))
        return
    length = row["prompt_length"]
    tokenizer = load_tokenizer(profile)
    console.print(f"\n── prompt, not trained: ids [0, {length}) of {len(ids)}", style="bold")
    console.print(_marked(ids, range(length), profile, tokenizer, sampled=False))
    console.print(f"\n── sampled, trained: ids [{length}, {len(ids)})", style="bold")
    console.print(_marked(ids, range(length, len(ids)), profile, tokenizer, sampled=True))
    console.print(_special_table(ids, length, profile, tokenizer))


_LONG = frozenset({"input_ids", "text", "messages", "tools", "raw", "rejection"})
"""Shown as text, or not at all."""


def _marked(
    ids: list[int], part: range, profile: ModelProfile, tokenizer: Tokenizer, *, sampled: bool
) -> Text:
    text = Text()
    special = all_special_ids(profile)
    for run in _runs(ids, part, special):
        piece = _readable(tokenizer.decode([ids[position] for position in run]))
        if ids[run.start] in special:
            text.append(f"{piece}@{run.start}={ids[run.start]}", _SPECIAL_STYLES[sampled])
        else:
            text.append(piece, _STYLES[sampled])
    return text


def _readable(text: str) -> str:
    """Escape codes shown, not obeyed by the terminal; bytes that were not UTF-8 as escapes."""
    return text.replace("\x1b", "␛").encode(errors="backslashreplace").decode()


def _runs(ids: list[int], part: range, special: frozenset[int]) -> Iterator[range]:
    """Each special token alone, what is between them together."""
    start = part.start
    for position in part:
        if ids[position] in special:
            if start < position:
                yield range(start, position)
            yield range(position, position + 1)
            start = position + 1
    if start < part.stop:
        yield range(start, part.stop)


def _special_table(
    ids: list[int], length: int, profile: ModelProfile, tokenizer: Tokenizer
) -> Table:
    table = Table(title="sampled special tokens", title_justify="left")
    for name in ("position", "id", "special token", "what follows"):
        table.add_column(name, no_wrap=True)
    special = all_special_ids(profile)
    runs = list(_runs(ids, range(length, len(ids)), special))
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        if ids[run.start] not in special:
            continue
        after = ""
        if following is not None and ids[following.start] not in special:
            after = repr(tokenizer.decode([ids[position] for position in following]))[:60]
        literal = tokenizer.decode([ids[run.start]])
        table.add_row(str(run.start), str(ids[run.start]), Text(literal), Text(after))
    return table
