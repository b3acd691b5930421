"""Sub-command `run`: asks, judges, writes, counts, publishes."""

import contextlib
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from importlib import metadata
from pathlib import Path
from typing import Any

import apache_beam as beam
import msgspec
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console
from rich.table import Table

from pipeline import graph
from pipeline.options import RunConfig, read_options
from pipeline.output import (
    MANIFEST,
    claim_output,
    claim_store,
    publish,
    refuse_foreign,
    run_folder,
    write_json,
)
from pipeline.tally import (
    BrokenTallyError,
    Spent,
    Tally,
    count_output,
    count_read,
    count_reused,
    count_spent,
    failed_in_collect,
    observed_rows,
    spent_before,
)
from transforms.chat.habits import Stratum
from transforms.chat.habits_file import Habits, read_habits, write_habits
from transforms.chat.learning import learn_all
from transforms.chat.render import load_renderer
from transforms.chat.statistic import Statistic
from transforms.chat.tokens import load_tokenizer
from transforms.failures import ConfigError, FailureKind, RecordError
from transforms.openrouter.keys import resolve_key
from transforms.openrouter.loop import ClientLoop
from transforms.openrouter.open_store import open_store
from transforms.prompts.lines import read_lines
from transforms.read_prompts import InputFile
from transforms.records import FailureCount

COMPLETE, TOO_MANY_BAD = 0, 3
_STOPS = {FailureKind.SPEND_CAP: 4, FailureKind.SERVICE_STOPPED: 5, FailureKind.INTERRUPTED: 130}
"""Kinds of failure that end the run after job 1, with its exit code."""
_DESCRIPTORS = 256
"""File descriptors that are needed beside one a request."""


def run(argv: Sequence[str]) -> int:
    """Runs the jobs and returns the exit code.

    Raises:
        ConfigError: Before anything was sent.
    """
    config = read_options(argv)
    output = Path(config.output)
    _keep_apart(config.call.store, output)
    with claim_output(output), claim_store(config.call.store, config.job):
        config = _check(config, output)
        folder = run_folder(output, config.run_id)
        folder.mkdir()
        try:
            return _run_jobs(config, folder, output, argv)
        finally:
            ClientLoop.close_all()
            shutil.rmtree(folder, ignore_errors=True)


def _check(config: RunConfig, output: Path) -> RunConfig:
    """Everything that can be known before the first request, and what it adds to the calls."""
    if config.job != "collect":
        refuse_foreign(output, config.identity(), overwrite=config.overwrite)
    if config.job != "build":
        resolve_key(config.call.wire.api_key)
    if config.habits is not None:
        read_habits(Path(config.habits))
    load_tokenizer(config.profile)
    load_renderer(config.profile)
    _check_descriptors(config.call.max_in_flight)
    capped = config.call.max_cost_usd is not None
    with contextlib.closing(open_store(config.call.store)) as opened:
        spent_usd = spent_before(opened) / config.processes if capped else Decimal(0)
    prompts = sum(_count_lines(file) for file in config.files)
    if not prompts:
        raise ConfigError("--input: the files hold not a single record")
    return replace(config, call=replace(config.call, spent_usd=spent_usd, prompts=prompts))


def _count_lines(file: InputFile) -> int:
    """Records of a file; what cannot be read is one, and will say so."""
    try:
        with FileSystems.open(file.path, compression_type=CompressionTypes.UNCOMPRESSED) as handle:
            return sum(1 for _ in read_lines(handle))
    except RecordError:
        return 1


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


def _run_jobs(config: RunConfig, folder: Path, output: Path, argv: Sequence[str]) -> int:
    started = time.monotonic()
    failed: dict[str, FailureCount] = {}
    if config.job != "build":
        _run(config, lambda pipeline: graph.collect(pipeline, config, str(folder / "collect")))
        ClientLoop.close_all()  # from here on a signal has nothing to wait for
        failed = failed_in_collect(folder / "collect")
        _keep_habits(config, folder / "collect")
    spent = _spent(config)
    for kind, code in _STOPS.items():
        if kind in failed:
            _say_stopped(failed[kind], spent)
            return code
    if config.job == "collect":
        return _end_collect(config, spent, failed)
    habits = _habits(config)
    _run(config, lambda pipeline: graph.build(pipeline, config, habits, str(folder)))
    tally = count_output(folder, config.formats)
    prompts = count_read(folder)
    summary = _summarise(prompts, tally, spent, habits, time.monotonic() - started)
    _check_conservation(summary)
    _finish(config, folder, habits, summary, argv)
    publish(folder, output)
    _show(summary, config)
    bad_share = 1 - summary["good"] / prompts
    return TOO_MANY_BAD if bad_share > config.max_bad_ratio else COMPLETE


def _spent(config: RunConfig) -> Spent:
    with contextlib.closing(open_store(config.call.store)) as store:
        return count_spent(store, config.run_id)


def _run(config: RunConfig, fill: Callable[[beam.Pipeline], None]) -> None:
    with beam.Pipeline(options=PipelineOptions(list(config.beam_arguments))) as pipeline:
        fill(pipeline)


def _keep_habits(config: RunConfig, folder: Path) -> None:
    """What job 1 learned stays for later builds."""
    seen = {
        Stratum(row["provider"], row["model"]): Statistic.read(row["counts"])
        for row in observed_rows(folder)
    }
    strata = tuple(sorted(learn_all(seen).items(), key=lambda item: item[0]))
    write_habits(Habits(strata), config.learned_habits_file)
    shutil.rmtree(folder)


def _habits(config: RunConfig) -> Habits:
    if config.habits is not None:
        return read_habits(Path(config.habits))
    learned = config.learned_habits_file
    return read_habits(learned) if learned.exists() else Habits()


def _summarise(
    prompts: int, tally: Tally, spent: Spent, habits: Habits, seconds: float
) -> dict[str, Any]:
    return {
        "prompts": prompts,
        "good": tally.good,
        "bad": tally.bad,
        "failed": tally.failed,
        "requests_sent": spent.requests,
        "answers_reused": count_reused(tally, spent),
        "cost_usd": float(spent.cost_usd),
        "seconds": round(seconds, 3),
        "codes": dict(sorted(tally.codes.items())),
        "providers": {
            name: {"good": rows["good"], "bad": rows["bad"], **habits.summary(name)}
            for name, rows in sorted(tally.providers.items())
        },
        "evidence": dict(sorted(tally.evidence.items())),
    }


def _check_conservation(summary: dict[str, Any]) -> None:
    rows = summary["good"] + summary["bad"] + summary["failed"]
    if rows != summary["prompts"]:
        raise BrokenTallyError(
            f"{summary['prompts']} prompts were read, {rows} rows are on disk "
            f"({summary['good']} good + {summary['bad']} bad + {summary['failed']} failed)"
        )


def _finish(
    config: RunConfig,
    folder: Path,
    habits: Habits,
    summary: dict[str, Any],
    argv: Sequence[str],
) -> None:
    """Writes the files that say what the folder is; `summary.json` last: it makes it valid."""
    shutil.rmtree(folder / "counts")
    for name in ("samples", "rejections"):
        (folder / name).mkdir(exist_ok=True)
    for left in folder.glob(".writing-*"):
        shutil.rmtree(left)
    write_habits(habits, folder / "habits.json")
    manifest = {
        "configuration": config.identity(),
        "command": ["python", "-m", "pipeline.main", "run", *argv],
        "code_version": metadata.version("eagle3-data-pipeline"),
        "profile": msgspec.to_builtins(config.profile),
        "run_id": config.run_id,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(folder / MANIFEST, manifest)
    write_json(folder / "summary.json", summary)
    os.sync()


def _end_collect(config: RunConfig, spent: Spent, failed: dict[str, FailureCount]) -> int:
    lost = sum(count.count for count in failed.values())
    print(f"collected: {spent.requests} requests sent, ${spent.cost_usd:.4f} spent")
    for count in failed.values():
        print(f"{count.count} prompts without an answer: {count.kind}: {count.detail}")
    print("the same command with --job build makes the output")
    share = lost / (config.call.prompts or 1)
    return TOO_MANY_BAD if share > config.max_bad_ratio else COMPLETE


def _say_stopped(count: FailureCount, spent: Spent) -> None:
    print(
        f"stopped: {count.detail}\n{count.count} prompts were not answered; this run sent "
        f"{spent.requests} requests for ${spent.cost_usd:.4f}. Every answer is kept: the same "
        "command goes on from them.",
        file=sys.stderr,
    )


def _show(summary: dict[str, Any], config: RunConfig) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in summary.items():
        table.add_row(name, _cell(value))
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    console.print(f"output          {config.output}\nstore           {config.call.store}")


def _cell(value: Any) -> str:
    """A value for a person; a mapping as one line an entry."""
    if isinstance(value, dict):
        return "\n".join(f"{name}: {_cell_of(inner)}" for name, inner in value.items()) or "-"
    return str(value)


def _cell_of(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name} {_number(inner)}" for name, inner in value.items())


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
