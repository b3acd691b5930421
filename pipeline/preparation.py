"""What is checked and counted before the first request."""

import contextlib
import resource
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from pipeline.options import RunConfig
from pipeline.output import refuse_foreign
from pipeline.tally import spent_before
from transforms.chat.habits_file import read_habits
from transforms.chat.render import load_renderer
from transforms.chat.tokens import load_tokenizer
from transforms.failures import ConfigError, Failure
from transforms.openrouter.keys import resolve_key
from transforms.openrouter.open_store import open_store
from transforms.openrouter.projection import BYTES_PER_TOKEN
from transforms.prompts.selection import select
from transforms.read_prompts import raw_records, read_raw
from transforms.records import Prompt

NO_RECORDS = "--input: the files hold not a single record"
_PROBED = 500
"""Records that are read to know how many requests a record is."""
_DESCRIPTORS = 256
"""File descriptors that are needed beside one a request."""


def check_places(config: RunConfig) -> None:
    """Refuses an output that is another's, or that would replace its own store.

    Raises:
        ConfigError: With the ways out.
    """
    _keep_apart(config.call.store, Path(config.output))
    if config.job != "collect":
        refuse_foreign(Path(config.output), config.identity(), overwrite=config.overwrite)


def check_model(config: RunConfig) -> None:
    """Loads what every worker will load.

    Raises:
        ConfigError: No such tokenizer, renderer or habits.
    """
    if config.habits is not None:
        read_habits(Path(config.habits))
    load_tokenizer(config.profile)
    load_renderer(config.profile)


def prepare(config: RunConfig) -> RunConfig:
    """Everything that can be known before the first request, and what it adds to the calls.

    Raises:
        ConfigError: The run cannot start.
    """
    if config.job != "build":
        resolve_key(config.call.wire.api_key)
    check_model(config)
    _check_descriptors(config.call.max_in_flight)
    config = select_records(config)
    measured = _measure(config)
    if not measured.records:
        raise ConfigError(NO_RECORDS)
    call = replace(
        config.call,
        spent_usd=_spent_usd(config) / config.processes,
        prompts=-(-measured.requests // config.processes),
        prompt_tokens=measured.bytes_sent // BYTES_PER_TOKEN // config.processes,
    )
    return replace(config, call=call)


def select_records(config: RunConfig) -> RunConfig:
    """What `--limit` and `--shuffle_seed` leave of each file."""
    contents = [raw_records(file.path) for file in config.files]
    selections = select(contents, config.limit, config.shuffle_seed)
    files = (
        replace(file, selection=selection)
        for file, selection in zip(config.files, selections, strict=True)
    )
    return replace(config, files=tuple(files))


def _spent_usd(config: RunConfig) -> Decimal:
    if config.call.max_cost_usd is None:
        return Decimal(0)
    with contextlib.closing(open_store(config.call.store)) as store:
        return spent_before(store)


@dataclass(slots=True)
class _Measured:
    """Records of the inputs, and the requests and bytes that they come to, about."""

    records: int = 0
    requests: int = 0
    bytes_sent: int = 0


def _measure(config: RunConfig) -> _Measured:
    """All records are counted, the first of them read; one that cannot be read will say so."""
    reading = replace(config.reading, max_tokens=None)
    size = size_probed = 0
    probed, found = _Measured(), _Measured()
    for file in config.files:
        for record in file.selection.take(raw_records(file.path)):
            found.records += 1
            size += len(record.data)
            if probed.records < _PROBED:
                _probe(read_raw(record, file, reading), len(record.data), probed)
                size_probed = size
    found.requests = -(-probed.requests * found.records // max(1, probed.records))
    found.bytes_sent = probed.bytes_sent * size // max(1, size_probed)
    return found


def _probe(reads: Iterable[Prompt | Failure], size: int, probed: _Measured) -> None:
    """Of a conversation of T turns of like length, T requests send (T + 1) / 2 times its bytes."""
    probed.records += 1
    for read in reads:
        turns = 1 + len(read.later) if isinstance(read, Prompt) else 1
        probed.requests += turns
        probed.bytes_sent += size * (turns + 1) // 2


def _check_descriptors(in_flight: int) -> None:
    """A request holds a file descriptor; 1,024 is a common limit of a shell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = in_flight + _DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise ConfigError(
                f"--max_in_flight: {in_flight} a process need {wanted} open files, {hard} are "
                "allowed; ask for fewer, or raise the limit (ulimit -n)"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _keep_apart(location: str, output: Path) -> None:
    store = Path(location)
    if "://" not in location and (store.is_relative_to(output) or output.is_relative_to(store)):
        raise ConfigError(
            f"--store {store}: publishing {output} would replace it; keep them apart "
            f"(default {output}.store)"
        )
