"""How often good is wrong: simulated answers of known ids through every habit and fault.

`python -m benchmarks.truth [--rows 100000] [--drift 0.0001]`

The simulator samples ids (canonical, and a share that is not), tells them as each kind of host
does, whole and streamed; what was learned from a host's answers judges them. Everything runs in
process: no sockets, so that a row costs a few milliseconds.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from simulator.faults import FAULTS
from simulator.habits import HABITS
from simulator.reply import Reply
from simulator.scenario import LogNormal, Provider, Scenario
from simulator.service import Exchange as Served
from simulator.service import Service
from simulator.tokens import load_kimi
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
MAX_TOKENS = 4000
KEPT_TEXT = tuple(name for name, fault in FAULTS.items() if fault.keeps_text)
"""Faults of the text; the others give no answer to judge."""


@dataclass(slots=True)
class Tally:
    """Rows of one host."""

    rows: int = 0
    recoverable: int = 0
    good: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    same_count: Counter[str] = field(default_factory=Counter)
    expected: float = 0.0
    recovered: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    habit: str = ""


LOST = frozenset({
    "trims", "trims_content_start", "think_end_stripped", "arguments_sorted", "thought_lost",
    "thought_tail_lost",
})  # fmt: skip
"""Habits that take away what no count gives back: nothing is to be recovered from them."""


def main(argv: list[str]) -> int:
    """Prints a line a host and the sums; 1 if a good row is wrong beyond what it says of itself."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--drift", type=float, default=0.0001, help="share of tokens")
    parser.add_argument("--processes", type=int, default=2)
    flags = parser.parse_args(argv)
    hosts = [(), *((name,) for name in HABITS)]
    each = max(flags.rows // len(hosts), 40)
    with ProcessPoolExecutor(flags.processes) as pool:
        jobs = [pool.submit(run_host, host, each, flags.drift) for host in hosts]
        tallies = {
            ",".join(host) or "verbatim": job.result()
            for host, job in zip(hosts, jobs, strict=True)
        }
    return report(tallies)


def report(tallies: dict[str, Tally]) -> int:
    """The table, and whether every promise was kept."""
    print(f"{'host':26}{'rows':>7}{'good':>7}{'wrong':>7}{'est.':>7}{'A good':>8}{'A wrong':>8}"
          f"{'recov.':>8}  habit")  # fmt: skip
    broken = 0
    for name, tally in tallies.items():
        good, wrong = sum(tally.good.values()), sum(tally.wrong.values())
        exact = sum(count for key, count in tally.good.items() if key.startswith("A"))
        lied = sum(count for key, count in tally.wrong.items() if key.startswith("A"))
        share = 0.0 if name in LOST else tally.recovered / max(tally.recoverable, 1)
        print(f"{name:26}{tally.rows:7}{good:7}{wrong:7}{tally.expected:7.1f}{exact:8}{lied:8}"
              f"{share:8.1%}  {tally.habit}")  # fmt: skip
        drifted = sum(tally.same_count.values())
        broken += lied + (wrong - drifted) + (drifted > tally.expected)
    for name, tally in tallies.items():
        print(f"{name}: {dict(tally.codes.most_common(6))}")
    return int(broken > 0)


def run_host(habits: tuple[str, ...], rows: int, drift: float) -> Tally:
    """A host's answers, learned from and judged."""
    seen = list(exchanges(habits, rows, drift))
    profile = load_profile("kimi-k2.5")
    counters: dict[Stratum, Counter[tuple[Key, int]]] = defaultdict(Counter)
    for exchange, _, _ in seen:
        for stratum, statistic in observe(exchange, profile):
            counters[stratum].update(statistic.counter())
    learned = learn_all({stratum: Statistic.of(c) for stratum, c in counters.items()})
    known = Habits(tuple(learned.items()))
    tally = Tally(habit="; ".join(describe(one) for one in learned.values()))
    for exchange, truth, is_canonical in seen:
        try:
            sample = tokenize(reconstruct(exchange, profile, known), profile, known)
        except RecordError as error:
            tally.codes[error.kind.value] += 1
            continue
        count(
            tally, validate_special_tokens(sample, profile, known, Evidence.B2), truth, is_canonical
        )
    return tally


def count(tally: Tally, verdict: Verdict, truth: list[int], is_canonical: bool) -> None:
    """Books one verdict."""
    tally.rows += 1
    tally.recoverable += is_canonical
    if not verdict.is_good:
        tally.codes[verdict.issues[0].code.value] += 1
        return
    evidence = verdict.evidence.value
    tally.good[evidence] += 1
    tally.expected += verdict.hidden_drift
    ids = verdict.sample.input_ids[verdict.sample.prompt_length :]
    if list(ids) == truth:
        tally.recovered += is_canonical
    else:
        tally.wrong[evidence] += 1
        tally.same_count[evidence] += len(ids) == len(truth) and not is_canonical


def exchanges(
    habits: tuple[str, ...], rows: int, drift: float
) -> Iterator[tuple[Exchange, list[int], bool]]:
    """What a client got, what was sampled, whether the text gives it; every other streamed."""
    provider = Provider("Host", 0.6, 3.0, habits=habits)
    scenario = Scenario(
        seed=len(habits), providers=(provider,), tokens=LogNormal(120, 0.6), drift=drift
    )
    service = Service(scenario)
    lines = (ROOT / "examples" / "kimi.jsonl").read_text("utf-8").splitlines()
    for number in range(rows):
        asked = json.loads(lines[number % len(lines)])
        prompt = read_prompt(asked | {"id": f"p{number}"}, "truth:1", "truth")
        body = {
            "model": "moonshotai/kimi-k2.5", "max_tokens": MAX_TOKENS, "user": str(number),
            "messages": asked.get("messages") or [{"role": "user", "content": asked["prompt"]}],
            "stream": number % 2 == 1,
        }  # fmt: skip
        if "tools" in asked:
            body["tools"] = asked["tools"]
        served = service.take({"Authorization": "Bearer k"}, json.dumps(body).encode())
        service.deliver(served)
        served.release()
        if found := read(served, prompt):
            yield found


def read(served: Served, prompt: Prompt) -> tuple[Exchange, list[int], bool] | None:
    """What the client makes of a reply."""
    generation = served.generation
    judged = judge(attempt_of(served.reply))
    if judged.reply is None or generation is None:
        return None
    exchange = Exchange(
        prompt=prompt, completion=read_completion(judged.reply), max_tokens=MAX_TOKENS,
        request_sha256="0" * 64, arrival=judged.arrival,
    )  # fmt: skip
    kimi = load_kimi()
    texts = (generation.thought, generation.content)
    canonical = all(kimi.encode_plain(kimi.decode(ids)) == ids for ids in texts)
    return exchange, generation.completion_ids, canonical


def attempt_of(reply: Reply) -> Attempt:
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
