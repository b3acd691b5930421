"""Sub-command `run`: asks, judges, writes, counts, publishes."""

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipeline import graph
from pipeline.explain import explain_input
from pipeline.finish import finish
from pipeline.options import RunConfig, read_options
from pipeline.output import (
    claim_output,
    claim_store,
    publish,
    run_folder,
)
from pipeline.preparation import check_places, prepare
from pipeline.rehearsal import rehearse
from pipeline.summary import check_conservation, say_collected, say_stopped, show, summarise
from pipeline.tally import (
    Spent,
    count_output,
    count_read,
    count_spent,
    failed_in_collect,
    observed_rows,
)
from transforms.chat.habits import Stratum
from transforms.chat.habits_file import Habits, read_habits, write_habits
from transforms.chat.learning import learn_all
from transforms.chat.statistic import Statistic
from transforms.counts import FailureCount
from transforms.failures import FailureKind
from transforms.openrouter.loop import ClientLoop
from transforms.openrouter.open_store import open_store

COMPLETE, TOO_MANY_BAD = 0, 3
_STOPS = {FailureKind.SPEND_CAP: 4, FailureKind.SERVICE_STOPPED: 5, FailureKind.INTERRUPTED: 130}
"""Kinds of failure that end the run after job 1, with its exit code."""


def run(argv: Sequence[str]) -> int:
    """Runs the jobs and returns the exit code.

    Raises:
        ConfigError: Before anything was sent.
    """
    config = read_options(argv)
    if config.explain_input:
        return explain_input(config)
    check_places(config)
    if config.dry_run:
        return rehearse(config)
    output = Path(config.output)
    with claim_output(output), claim_store(config.call.store, config.job):
        config = prepare(config)
        folder = run_folder(output, config.run_id)
        folder.mkdir()
        try:
            return _run_jobs(config, folder, output, argv)
        finally:
            ClientLoop.close_all()
            shutil.rmtree(folder, ignore_errors=True)


def _run_jobs(config: RunConfig, folder: Path, output: Path, argv: Sequence[str]) -> int:
    started = time.monotonic()
    failed: dict[str, FailureCount] = {}
    asked = 0
    if config.job != "build":
        _run(config, lambda pipeline: graph.collect(pipeline, config, str(folder / "collect")))
        ClientLoop.close_all()  # from here on a signal has nothing to wait for
        failed = failed_in_collect(folder / "collect")
        asked = count_read(folder / "collect")
        _keep_habits(config, folder / "collect")
    spent = _spent(config)
    for kind, code in _STOPS.items():
        if kind in failed:
            say_stopped(failed[kind], spent)
            return code
    if config.job == "collect":
        return _end_collect(asked, config.max_bad_ratio, spent, failed)
    habits = _habits(config)
    _run(config, lambda pipeline: graph.build(pipeline, config, habits, str(folder)))
    tally = count_output(folder, config.formats, {file.path: file.dataset for file in config.files})
    prompts = count_read(folder)
    summary = summarise(prompts, tally, spent, habits, time.monotonic() - started)
    check_conservation(summary)
    finish(config, folder, habits, summary, argv)
    publish(folder, output)
    show(summary, config)
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


def _end_collect(
    asked: int, max_bad_ratio: float, spent: Spent, failed: dict[str, FailureCount]
) -> int:
    say_collected(spent, failed)
    lost = sum(count.count for count in failed.values())
    return TOO_MANY_BAD if lost / asked > max_bad_ratio else COMPLETE
