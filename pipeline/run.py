"""Sub-command `run`: asks, judges, writes, counts, publishes."""

import contextlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import apache_beam as beam
import msgspec
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console
from rich.table import Table

from pipeline import graph
from pipeline.options import RunConfig, read_options
from pipeline.output import MANIFEST, claim, publish, refuse_foreign, run_folder, write_json
from pipeline.tally import (
    BrokenTallyError,
    Spent,
    Tally,
    count_output,
    count_read,
    count_reused,
    count_spent,
    observed_rows,
)
from transforms.chat.habits import Habits, read_habits, write_habits
from transforms.chat.render import load_renderer
from transforms.chat.residuals import Residuals, Stratum
from transforms.chat.tokens import load_tokenizer
from transforms.failures import ConfigError
from transforms.openrouter.keys import resolve_key
from transforms.openrouter.loop import ClientLoop
from transforms.openrouter.open_store import open_store
from transforms.read_prompts import read_file

COMPLETE, TOO_MANY_BAD, FATAL_ANSWER = 0, 3, 5
_LOG = logging.getLogger(__name__)


def run(argv: Sequence[str]) -> int:
    """Runs the jobs and returns the exit code.

    Raises:
        ConfigError: Before anything was sent.
    """
    config = read_options(argv)
    output = Path(config.output)
    with claim(output):
        _check(config, output)
        folder = run_folder(output, config.run_id)
        folder.mkdir()
        try:
            return _run_jobs(config, folder, output, argv)
        finally:
            ClientLoop.close_all()
            shutil.rmtree(folder, ignore_errors=True)


def _check(config: RunConfig, output: Path) -> None:
    """Everything that can be known before the first request."""
    _keep_apart(config.call.store, output)
    if config.job != "collect":
        refuse_foreign(output, config.identity(), overwrite=config.overwrite)
    if config.job != "build":
        resolve_key(config.call.api_key)
    if config.habits is not None:
        read_habits(Path(config.habits))
    load_tokenizer(config.profile)
    load_renderer(config.profile)
    open_store(config.call.store).close()
    if not any(True for file in config.files for _ in read_file(file)):
        raise ConfigError("--input: the files hold not a single record")


def _keep_apart(location: str, output: Path) -> None:
    store = Path(location)
    if "://" not in location and (store.is_relative_to(output) or output.is_relative_to(store)):
        raise ConfigError(
            f"--store {store}: publishing {output} would replace it; keep them apart "
            f"(default {output}.store)"
        )


def _run_jobs(config: RunConfig, folder: Path, output: Path, argv: Sequence[str]) -> int:
    started = time.monotonic()
    if config.job != "build":
        _run(config, lambda pipeline: graph.collect(pipeline, config, str(folder / "collect")))
        _keep_habits(config, folder / "collect")
    spent = _spent(config)
    if spent.fatal is not None:
        _say_stopped(spent)
        return FATAL_ANSWER
    if config.job == "collect":
        print(f"collected: {spent.requests} requests sent, ${spent.cost_usd:.4f}; build with --job")
        return COMPLETE
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
    strata = tuple(
        (
            Stratum(row["provider"], row["model"]),
            Residuals(tuple((residual, count) for residual, count in row["counts"])),
        )
        for row in observed_rows(folder)
    )
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
    drift: dict[str, float] = {}
    for stratum, _ in habits.strata:
        worst = max(drift.get(stratum.provider, 0.0), habits.hidden_drift(stratum))
        drift[stratum.provider] = worst
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
            name: {"good": rows["good"], "bad": rows["bad"], "hidden_drift": drift.get(name)}
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


def _say_stopped(spent: Spent) -> None:
    print(
        f"stopped: the service answered: {spent.fatal}\n"
        f"{len(spent.answered)} answers are kept; the same command goes on from them.",
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
