"""How often good is wrong: simulated answers of known ids through every habit and fault.

`python -m benchmarks.truth [--rows 100000] [--drift 0.0001]`

The simulator samples ids (canonical, and a share that is not), tells them as each kind of host
does (`truth_hosts.py`), whole and streamed; what was learned from a host's answers judges them.
Everything runs in process: no sockets, so that a row costs a few milliseconds.
"""

import argparse
import json
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from benchmarks.truth_hosts import DRIFTED, HOSTS, Host, Row, completed, why_lost
from simulator.reply import Reply
from simulator.scenario import LogNormal, Provider, Scenario
from simulator.service import Exchange as Served
from simulator.service import Service
from transforms.chat.habits import Stratum
from transforms.chat.habits_file import Habits, describe
from transforms.chat.learning import learn_all
from transforms.chat.profile import load_profile
from transforms.chat.statistic import Key, Statistic
from transforms.codes import Evidence
from transforms.failures import RecordError
from transforms.observe import observe
from transforms.openrouter.faults import judge
from transforms.openrouter.replies import read_completion
from transforms.openrouter.store import Attempt
from transforms.prompts.shapes import read_prompt
from transforms.reconstruct import reconstruct
from transforms.records import Exchange, Prompt, Verdict
from transforms.tokenize import tokenize
from transforms.validate_special_tokens import validate_special_tokens

ROOT = Path(__file__).resolve().parents[1]
PROFILE = "kimi-k2.5"
MAX_TOKENS = 4000
FEWEST = 24
"""Answers that teach a habit, with a few of each kind among them."""
EXACT = frozenset({"A1", "A2", "A3"})
RECOVERED = 0.99
"""Least share of the recoverable answers that come out good."""


@dataclass(slots=True)
class Tally:
    """Rows of one host; by class of evidence where it says `Counter`.

    Attributes:
        same_count: Of the wrong ones, those that drifted and have as many ids as were sampled.
        expected: Sum of the estimates of hidden drift that the good rows carry.
        lost: Of the rows that are not recoverable, how many for each reason.
    """

    habit: str = "unknown"
    rows: int = 0
    recoverable: int = 0
    recovered: int = 0
    expected: float = 0.0
    good: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    same_count: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)

    @property
    def exact_wrong(self) -> int:
        return sum(count for key, count in self.wrong.items() if key in EXACT)


def main(argv: list[str]) -> int:
    """Prints a line a host and what was broken; 1 if anything was."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--drift", type=float, default=0.0001, help="share of tokens")
    parser.add_argument("--processes", type=int, default=2)
    flags = parser.parse_args(argv)
    tallies = run(flags.rows, flags.drift, flags.processes)
    print(write_table(tallies))
    broken = find_broken(tallies)
    print("\n".join(broken) or "every promise was kept")
    return int(bool(broken))


def run(rows: int, drift: float, processes: int) -> dict[str, Tally]:
    """About so many rows of all hosts together."""
    shares = sum(host.share for host in HOSTS)
    with ProcessPoolExecutor(processes) as pool:
        jobs = {
            host.name: pool.submit(run_host, host, max(round(rows * host.share / shares), 1), drift)
            for host in HOSTS
        }
        return {name: job.result() for name, job in jobs.items()}


def find_broken(tallies: dict[str, Tally]) -> list[str]:
    """The promises that were not kept, in words."""
    broken = []
    for name, tally in tallies.items():
        wrong, drifted = sum(tally.wrong.values()), sum(tally.same_count.values())
        if tally.exact_wrong or wrong > drifted:
            broken.append(f"{name}: good rows with wrong ids {dict(tally.wrong)}")
        if "replayed" in name and tally.good["A3"]:
            broken.append(f"{name}: {tally.good['A3']} replayed answers count as streams")
        if tally.recovered < RECOVERED * tally.recoverable:
            broken.append(f"{name}: {tally.recovered} of {tally.recoverable} recovered")
    drifted = sum(sum(tally.same_count.values()) for tally in tallies.values())
    expected = sum(tally.expected for tally in tallies.values())
    if drifted > expected:
        broken.append(f"{drifted} rows drifted unseen, the rows say {expected:.1f}")
    return broken


def write_table(tallies: dict[str, Tally]) -> str:
    """A line a host, the sums, and why answers could not be recovered."""
    lines = [_HEADER]
    lines += [_line(name, tally) for name, tally in tallies.items() if tally.rows]
    whole = Tally(habit="")
    for tally in tallies.values():
        whole.rows += tally.rows
        whole.recoverable += tally.recoverable
        whole.recovered += tally.recovered
        whole.expected += tally.expected
        for name in ("good", "wrong", "same_count", "lost"):
            getattr(whole, name).update(getattr(tally, name))
    lines.append(_line("all", whole))
    lines.append(f"good by evidence {dict(whole.good)}, wrong {dict(whole.wrong)}")
    lines.append("not recoverable:")
    lines += [f"{count:8}  {reason}" for reason, count in whole.lost.most_common()]
    lines.append("refused, though recoverable:")
    lines += [f"  {name}: {dict(t.missed)}" for name, t in tallies.items() if t.missed]
    return "\n".join(lines)


_HEADER = (
    f"{'host':28}{'rows':>8}{'good':>8}{'wrong':>6}{'est.':>7}{'A good':>8}{'A wrong':>8}"
    f"{'recoverable':>12}{'recovered':>10}  habit"
)


def _line(name: str, tally: Tally) -> str:
    good, wrong = sum(tally.good.values()), sum(tally.wrong.values())
    exact = sum(count for key, count in tally.good.items() if key in EXACT)
    share = f"{tally.recovered / tally.recoverable:.2%}" if tally.recoverable else "-"
    return (
        f"{name:28}{tally.rows:8}{good:8}{wrong:6}{tally.expected:7.1f}{exact:8}"
        f"{tally.exact_wrong:8}{tally.recoverable:12}{share:>10}  {tally.habit}"
    )


def run_host(host: Host, rows: int, drift: float) -> Tally:
    """A host's answers, learned from and judged; a fault comes to a host that is known."""
    drift = drift if host.drift is None else host.drift
    count, often = (FEWEST, 0.0) if host.fault else (max(rows, FEWEST), drift)
    clean = list(_rows(host, count, often, fault=None))
    known = _learn(clean)
    tally = Tally(habit="; ".join(describe(learned) for _, learned in known.strata))
    judged = _rows(host, rows, drift, host.fault) if host.fault else clean
    for row in judged:
        _count(tally, host, row, _judge(row.exchange, known))
    return tally


def _learn(rows: list[Row]) -> Habits:
    profile = load_profile(PROFILE)
    counters: dict[Stratum, Counter[tuple[Key, int]]] = defaultdict(Counter)
    for row in rows:
        for stratum, statistic in observe(row.exchange, profile):
            counters[stratum].update(statistic.counter())
    learned = learn_all({stratum: Statistic.of(c) for stratum, c in counters.items()})
    return Habits(tuple(learned.items()))


def _judge(exchange: Exchange, known: Habits) -> Verdict | str:
    """The verdict, or the kind of failure."""
    profile = load_profile(PROFILE)
    try:
        sample = tokenize(reconstruct(exchange, profile, known), profile, known)
    except RecordError as error:
        return error.kind.value
    return validate_special_tokens(sample, profile, known, Evidence.B2)


def _count(tally: Tally, host: Host, row: Row, verdict: Verdict | str) -> None:
    """Books one row."""
    reason = why_lost(host, row)
    tally.rows += 1
    tally.recoverable += reason is None
    if reason is not None:
        tally.lost[reason] += 1
    if isinstance(verdict, str) or not verdict.is_good:
        code = verdict if isinstance(verdict, str) else verdict.issues[0].code.value
        (tally.codes if reason else tally.missed)[code] += 1
        return
    evidence, sampled = verdict.evidence.value, row.sampled.completion_ids
    tally.good[evidence] += 1
    tally.expected += verdict.hidden_drift
    ids = list(verdict.sample.input_ids[verdict.sample.prompt_length :])
    if ids == sampled:
        tally.recovered += reason is None
        return
    tally.wrong[evidence] += 1
    tally.same_count[evidence] += len(ids) == len(sampled) and reason == DRIFTED


def _rows(host: Host, rows: int, drift: float, fault: str | None) -> Iterator[Row]:
    """What a client got; every other answer streamed, of a fault those that it happens to."""
    service = Service(_scenario(host, drift, fault), dialect=host.dialect)
    lines = (ROOT / "examples" / "kimi.jsonl").read_text("utf-8").splitlines()
    for number in range(rows):
        asked = json.loads(lines[number % len(lines)])
        prompt = read_prompt(asked | {"id": f"p{number}"}, "truth:1", "truth")
        streams = number % 2 == 1 if fault is None else fault.startswith("stream_")
        body = {
            "model": "moonshotai/kimi-k2.5", "max_tokens": MAX_TOKENS, "user": str(number),
            "messages": asked.get("messages") or [{"role": "user", "content": asked["prompt"]}],
            "stream": streams, "return_token_ids": True,
        }  # fmt: skip
        if "tools" in asked:
            body["tools"] = asked["tools"]
        served = service.take({"Authorization": "Bearer k"}, json.dumps(body).encode())
        service.deliver(served)
        served.release()
        if found := _read(served, prompt, host):
            yield found


def _scenario(host: Host, drift: float, fault: str | None) -> Scenario:
    return Scenario(
        seed=zlib.crc32(host.name.encode()),
        providers=(Provider("Host", 0.6, 3.0, habits=host.habits),),
        tokens=LogNormal(120, 0.6),
        tokens_per_chunk=host.tokens_per_chunk,
        drift=drift,
        faults=MappingProxyType({fault: 1.0} if fault else {}),
    )


def _read(served: Served, prompt: Prompt, host: Host) -> Row | None:
    """What the client makes of a reply; `None`: no answer."""
    judged = judge(_attempt(served.reply))
    if judged.reply is None or served.generation is None:
        return None
    exchange = Exchange(
        prompt=prompt, completion=completed(read_completion(judged.reply), host),
        max_tokens=MAX_TOKENS, request_sha256="0" * 64, arrival=judged.arrival,
    )  # fmt: skip
    row = Row(exchange, served.generation)
    return replace(row, exchange=host.sends(row))


def _attempt(reply: Reply) -> Attempt:
    """The reply as the client keeps it."""
    texts = [piece.at_s for piece in reply.pieces if b"{" in piece.data]
    return Attempt(
        request_sha256="0" * 64, run_id="r", status=reply.status, error=None,
        headers=tuple(reply.headers.items()), body=reply.body, started_at=0.0,
        first_at=texts[0] if texts else None, last_at=texts[-1] if texts else None,
        ended_at=reply.seconds,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
