"""Counts what was written and what was paid: files and store, never Beam's metrics.

Metrics show the last attempt of a job only; files and the store show what there is.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from pipeline.samples import read_json_lines, read_samples
from transforms.counts import FailureCount
from transforms.encoding.formats import FORMATS, Format
from transforms.failures import Stage
from transforms.openrouter.costs import LOST, cost_of, read_account
from transforms.openrouter.faults import judge
from transforms.openrouter.store import IMPORTED, Attempt, ResponseStore

_COLUMNS = ["id", "dataset", "provider", "evidence", "request_sha256"]
_BEFORE_ANSWER = {Stage.READ.value, Stage.CALL.value}


class BrokenTallyError(Exception):
    """The files contradict each other: the output cannot be published."""


@dataclass(slots=True)
class Tries:
    """What all tries of one request came to in a run; seconds of waiting, those of one at a time.

    A plain float: there is one of these for each prompt.
    """

    cost_usd: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run sent and paid, from the store.

    `answered`: the requests whose answer, if they have one, the run has paid for.
    """

    requests: int = 0
    answered: frozenset[str] = frozenset()
    cost_usd: Decimal = Decimal(0)
    tries: Mapping[str, Tries] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """Rows on disk by what became of them.

    Attributes:
        answered: The request of each that has an answer.
        rows: Of each format.
        datasets_of: The data set of the first row of each request.
    """

    good: int = 0
    bad: int = 0
    failed: int = 0
    answered: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    codes: Counter[str] = field(default_factory=Counter)
    evidence: Counter[str] = field(default_factory=Counter)
    providers: dict[str, Counter[str]] = field(default_factory=dict)
    datasets: dict[str, Counter[str]] = field(default_factory=dict)
    datasets_of: dict[str, str] = field(default_factory=dict)

    def of_provider(self, name: str | None) -> Counter[str]:
        return self.providers.setdefault(name or "unknown", Counter())

    def of_dataset(self, name: str) -> Counter[str]:
        return self.datasets.setdefault(name, Counter())


def count_output(folder: Path, formats: tuple[str, ...], datasets: Mapping[str, str]) -> Tally:
    """Reads back every file of a run's folder; `datasets`: of each file that was read.

    Raises:
        BrokenTallyError: Two formats hold different rows, or an id is there twice.
    """
    tally = Tally()
    _count_samples(folder, formats, tally)
    for row in read_json_lines(folder / "rejections"):
        became = _count_rejection(row["rejection"], tally)
        dataset = _dataset_of(row["rejection"]["source"], datasets)
        tally.of_dataset(dataset)[became] += 1
        if request := row["rejection"]["request_sha256"]:
            tally.datasets_of.setdefault(request, dataset)
    return tally


def _dataset_of(source: str, datasets: Mapping[str, str]) -> str:
    """Of a place, which is a file and at most a line and a column."""
    while source not in datasets and ":" in source:
        source = source.rpartition(":")[0]
    return datasets[source]


def count_read(folder: Path) -> int:
    """How many rows the inputs must come to, as counted where they were read."""
    return sum(row["rows"] for row in read_json_lines(folder / "counts"))


def observed_rows(folder: Path) -> list[Any]:
    """What job 1 saw of each provider."""
    return list(read_json_lines(folder / "observed"))


def count_spent(store: ResponseStore, run_id: str) -> Spent:
    """What a run's attempts came to.

    Of a first attempt no more is read than its cost: no answer was there before it. To judge each
    stream of 2,000 events a second time took 2.7 ms. Calls that were lost cost what the service
    tells of their generations.
    """
    requests, cost = 0, Decimal(0)
    answered: set[str] = set()
    tries: dict[str, Tries] = {}
    lost: dict[str, str] = {}
    for attempt in store.attempts_of_run(run_id):
        requests += 1
        cost_usd = cost_of(attempt)
        cost += cost_usd
        of_request = tries.setdefault(attempt.request_sha256, Tries())
        of_request.cost_usd += float(cost_usd)
        of_request.seconds += attempt.ended_at - attempt.started_at
        if attempt.number == 1 or _is_answer(attempt, store):
            answered.add(attempt.request_sha256)
        if not cost_usd:
            lost |= dict.fromkeys(_generations(attempt), attempt.request_sha256)
    for account in store.attempts_of_run(run_id + LOST):
        cost += cost_of(account)
        if (request := lost.get(read_account(account).get("id", ""))) is not None:
            tries[request].cost_usd += float(cost_of(account))
    return Spent(requests=requests, answered=frozenset(answered), cost_usd=cost, tries=tries)


def _is_answer(attempt: Attempt, store: ResponseStore) -> bool:
    """Whether it is what serves a row: of answers that are of no use the first is."""
    judged = judge(attempt)
    if judged.reply is None or judged.fault is None:
        return judged.reply is not None
    *before, _ = store.attempts(attempt.request_sha256)[: attempt.number]
    return all(judge(one).reply is None for one in before)


def _generations(attempt: Attempt) -> list[str]:
    """What a call may have paid for: its own, or the one that was given again."""
    headers = dict(attempt.headers)
    names = ("x-generation-id", "x-openrouter-cache-source-id")
    return [headers[name] for name in names if name in headers]


def spent_by_dataset(tally: Tally, spent: Spent) -> dict[str, Tries]:
    """The same by data set; a request of rows of two is the first one's."""
    found = {name: Tries() for name in tally.datasets}
    for request, tries in spent.tries.items():
        if (dataset := tally.datasets_of.get(request)) is not None:
            found[dataset].cost_usd += tries.cost_usd
            found[dataset].seconds += tries.seconds
    return found


def spent_before(store: ResponseStore) -> Decimal:
    """What all answers in a store cost: as it kept count, or else by reading them all."""
    kept = store.spent_usd()
    if kept is not None:
        return kept
    paid = (one for one in store.all_attempts() if not one.run_id.startswith(IMPORTED))
    return sum(map(cost_of, paid), Decimal(0))


def failed_in_collect(folder: Path) -> dict[str, FailureCount]:
    """What prompts failed with in job 1, by kind."""
    rows = read_json_lines(folder / "failed")
    return {row["kind"]: FailureCount(row["kind"], row["count"], row["detail"]) for row in rows}


def count_reused(tally: Tally, spent: Spent) -> int:
    """Rows whose answer this run did not pay for; one that it paid serves one row."""
    new = set(spent.answered)
    reused = 0
    for request in tally.answered:
        if request in new:
            new.remove(request)
        else:
            reused += 1
    return reused


def _count_samples(folder: Path, formats: tuple[str, ...], tally: Tally) -> None:
    ids: set[tuple[str, str]] = set()
    for row in read_samples(folder, _COLUMNS):
        identity = (row["dataset"], row["id"])
        if identity in ids:
            raise BrokenTallyError(f"sample {row['id']} was written twice")
        ids.add(identity)
        tally.of_dataset(row["dataset"])["good"] += 1
        tally.datasets_of.setdefault(row["request_sha256"], row["dataset"])
        tally.answered.append(row["request_sha256"])
        tally.evidence[row["evidence"]] += 1
        tally.of_provider(row["provider"])["good"] += 1
    tally.good = len(ids)
    left_out = Counter(row["format"] for row in read_json_lines(folder / "left_out"))
    for name in formats:
        rows = tally.rows[name] = _count_rows(folder, FORMATS[name])
        if rows + left_out[name] != tally.good:
            raise BrokenTallyError(
                f"{rows} rows in {name}, {left_out[name]} left out of it, {tally.good} samples"
            )


def _count_rows(folder: Path, form: Format) -> int:
    """Rows of all parts.

    Raises:
        BrokenTallyError: One of them is cut.
    """
    try:
        return sum(map(form.count, form.parts(folder)))
    except ValueError as error:
        raise BrokenTallyError(f"{form.folder}: {error}") from error


def _count_rejection(rejection: dict[str, Any], tally: Tally) -> str:
    """Counts it, and says what it is."""
    tally.codes[rejection["code"]] += 1
    is_bad = "codes" in rejection
    if is_bad:
        tally.bad += 1
        tally.of_provider(rejection["provider"])["bad"] += 1
    else:
        tally.failed += 1
    if rejection["stage"] not in _BEFORE_ANSWER and rejection["request_sha256"]:
        tally.answered.append(rejection["request_sha256"])
    return "bad" if is_bad else "failed"
