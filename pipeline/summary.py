"""What a run came to, for a file and for a person."""

import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.options import RunConfig
from pipeline.tally import BrokenTallyError, Spent, Tally, count_reused, spent_by_dataset
from transforms.chat.habits_file import Habits
from transforms.counts import FailureCount


def summarise(
    prompts: int, tally: Tally, spent: Spent, habits: Habits, seconds: float
) -> dict[str, Any]:
    """What `summary.json` holds."""
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
        "datasets": _by_dataset(tally, spent),
        "providers": {
            name: {"good": rows["good"], "bad": rows["bad"], **habits.summary(name)}
            for name, rows in sorted(tally.providers.items())
        },
        "formats": tally.rows,
        "evidence": dict(sorted(tally.evidence.items())),
    }


def _by_dataset(tally: Tally, spent: Spent) -> dict[str, dict[str, Any]]:
    tries = spent_by_dataset(tally, spent)
    return {
        name: {
            **{what: rows[what] for what in ("good", "bad", "failed")},
            "cost_usd": round(tries[name].cost_usd, 9),
            "answer_seconds": round(tries[name].seconds, 3),
        }
        for name, rows in sorted(tally.datasets.items())
    }


def check_conservation(summary: dict[str, Any]) -> None:
    """Every prompt is one row.

    Raises:
        BrokenTallyError: Some are none or two.
    """
    rows = summary["good"] + summary["bad"] + summary["failed"]
    if rows != summary["prompts"]:
        raise BrokenTallyError(
            f"{summary['prompts']} prompts were read, {rows} rows are on disk "
            f"({summary['good']} good + {summary['bad']} bad + {summary['failed']} failed)"
        )


def say_collected(spent: Spent, failed: dict[str, FailureCount]) -> None:
    """What job 1 came to."""
    print(f"collected: {spent.requests} requests sent, ${spent.cost_usd:.4f} spent")
    for count in failed.values():
        print(f"{count.count} prompts without an answer: {count.kind}: {count.detail}")
    print("the same command with --job build makes the output")


def say_stopped(count: FailureCount, spent: Spent) -> None:
    """Why the run ends early, and that it goes on."""
    print(
        f"stopped: {count.detail}\n{count.count} prompts were not answered; this run sent "
        f"{spent.requests} requests for ${spent.cost_usd:.4f}. Every answer is kept: the same "
        "command goes on from them.",
        file=sys.stderr,
    )


def show(summary: dict[str, Any], config: RunConfig) -> None:
    """The tally, and where everything is."""
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
    told = {name: inner for name, inner in value.items() if not isinstance(inner, dict)}
    return ", ".join(f"{name} {_number(inner)}" for name, inner in told.items())


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
